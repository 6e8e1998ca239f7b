"""Models of whole numbers by their graph, joined layers in training, recurrent layers: the same
programs give PyTorch's numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from tenon import nn
from tenon.ao import quantization as tq
from tenon.ao.nn.intrinsic import qat as joined
from tenon.ao.nn.quantized import dynamic
from tenon.ao.quantization.quantize_fx import convert_fx, fuse_fx, prepare_fx, prepare_qat_fx

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def pytorchs_numbers() -> Iterator[None]:
    tn.set_rng("torch")
    yield
    tn.set_rng("philox")


def numbers(value: Any) -> list[Any]:
    """The arrays in a result."""
    if isinstance(value, (list, tuple)):
        return [a for v in value for a in numbers(v)]
    if isinstance(value, (int, float)):
        return [np.asarray(float(value))]
    return [value.detach().float().numpy()]


def images(torch: Any) -> Any:
    """Convolutions with norms, a sum of two ways, functions."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(2, 6, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(6)
            self.conv2 = nn.Conv2d(6, 6, 1)
            self.bn2 = nn.BatchNorm2d(6)
            self.relu = nn.ReLU()
            self.pool = nn.MaxPool2d(2)
            self.fc = nn.Linear(6 * 9, 4)

        def forward(self, x: Any) -> Any:
            x = self.relu(self.bn1(self.conv1(x)))
            x = torch.relu(x + self.bn2(self.conv2(x)))
            x = torch.flatten(self.pool(x), 1)
            return self.fc(x)

    torch.manual_seed(3)
    net = Net()
    net(torch.randn(16, 2, 6, 6))  # statistics
    return net


def fx_of(torch: Any) -> Any:
    if torch is tn:
        return prepare_fx, prepare_qat_fx, convert_fx, tq
    from torch.ao.quantization import quantize_fx as fx

    return fx.prepare_fx, fx.prepare_qat_fx, fx.convert_fx, torch.ao.quantization


def by_graph(torch: Any) -> Any:
    prepare, _, convert, kit = fx_of(torch)
    net, x = images(torch).eval(), torch.randn(8, 2, 6, 6)
    ready = prepare(net, kit.get_default_qconfig_mapping("x86"), (x,))
    for _ in range(3):
        ready(torch.randn(8, 2, 6, 6))
    done = convert(ready)
    return done(x), net(x), [done.conv1.scale, done.conv1.zero_point, done.fc.scale]


def by_graph_in_training(torch: Any) -> Any:
    _, prepare, convert, kit = fx_of(torch)
    net, x = images(torch).train(), torch.randn(8, 2, 6, 6)
    ready = prepare(net, kit.get_default_qat_qconfig_mapping("x86"), (x,))
    sgd = torch.optim.SGD(ready.parameters(), 0.05)
    losses = []
    for _ in range(3):
        loss = ready(torch.randn(8, 2, 6, 6)).square().mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    return convert(ready.eval())(x), losses


def by_hand_in_training(torch: Any) -> Any:
    nn, kit = torch.nn, torch.ao.quantization
    torch.manual_seed(1)
    net = nn.Sequential(kit.QuantStub(), nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),
                        nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3),
                        kit.DeQuantStub())  # fmt: skip
    net.qconfig = kit.get_default_qat_qconfig("fbgemm")
    ready = kit.prepare_qat(kit.fuse_modules_qat(net.train(), [["1", "2", "3"], ["4", "5"]]))
    sgd = torch.optim.SGD(ready.parameters(), 0.1)
    losses = []
    for i in range(5):
        x = torch.randn(6, 2, 6, 6)
        loss = torch.nn.functional.cross_entropy(ready(x), torch.randint(0, 3, (6,)))
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
        if i == 2:
            ready.apply(kit.disable_observer)
        if i == 3:
            ready.apply(nn.intrinsic.qat.freeze_bn_stats)
    return kit.convert(ready.eval())(x), losses, ready[1].bn.running_mean


def recurrent(torch: Any) -> Any:
    nn, quantize = torch.nn, torch.ao.quantization.quantize_dynamic
    torch.manual_seed(2)
    x, found = torch.randn(5, 3, 4), []
    for make in (lambda: nn.LSTM(4, 6, 2, bidirectional=True), lambda: nn.GRU(4, 6),
                 lambda: nn.LSTM(4, 6, batch_first=True)):  # fmt: skip
        net = nn.Sequential(make())
        for dtype in (torch.qint8, torch.float16):
            layer = quantize(net, {nn.LSTM, nn.GRU}, dtype)[0]
            found.append(layer(x))
            packed = nn.utils.rnn.pack_padded_sequence(
                x, [2, 5, 3], enforce_sorted=False, batch_first=False
            )
            if not layer.batch_first:
                y, last = layer(packed)
                found += [y.data, last]
    for make in (nn.LSTMCell, nn.GRUCell, nn.RNNCell):
        cell = quantize(nn.Sequential(make(4, 6)), {make})[0]
        found.append(cell(x[0]))
    return *found, torch.rand(2)


CASES = (by_graph, by_graph_in_training, by_hand_in_training, recurrent)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_numbers_are_pytorchs(case: Callable[[Any], Any]) -> None:
    want = stored.of_torch(lambda torch: numbers(case(torch)))
    got = numbers(case(tn))
    if case is recurrent:
        stored.same(got, want, rtol=1e-4, atol=2e-5)
        return
    # A value between two places of the grid may fall to either; what was learned is not far off.
    stored.same(got[:1], want[:1], rtol=0, atol=0.1)
    stored.same(got[1:], want[1:], rtol=2e-3, atol=2e-3)


def test_what_joins_and_what_is_left() -> None:
    net = images(tn).eval()
    x = tn.randn(2, 2, 6, 6)
    fused = fuse_fx(net)
    assert type(fused.conv1).__name__ == "ConvReLU2d" and not hasattr(fused, "bn1")
    assert fused(x).allclose(net(x), atol=1e-5) and hasattr(net, "bn1")
    mapping = tq.QConfigMapping().set_global(tq.default_qconfig).set_module_name("fc", None)
    ready = prepare_fx(net, mapping, (x,))
    ready(x)
    done = convert_fx(ready)
    assert type(done.fc) is nn.Linear and type(done.conv2).__name__ == "Conv2d"
    only = tq.QConfigMapping().set_object_type(nn.Linear, tq.default_dynamic_qconfig)
    done = convert_fx(prepare_fx(net, only, (x,)))
    assert type(done.fc) is dynamic.Linear and type(done.conv1).__name__ == "ConvReLU2d"
    assert not any("activation_post_process" in name for name, _ in done.named_modules())


WAYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a parameter": lambda lib, net, x: net.a(x) + net.p,
    "a buffer": lambda lib, net, x: net.a(x) * net.c,
    "a product": lambda lib, net, x: lib.matmul(net.a(x), net.p),
    "joined": lambda lib, net, x: lib.cat([net.a(x), net.b(x)], 1),
    "joined with the input": lambda lib, net, x: lib.cat([x, x * 2, net.a(x)], 1),
    "joined twice": lambda lib, net, x: lib.cat([lib.cat([x, net.a(x)], 1), net.b(x)], 1),
    "joined with a parameter": lambda lib, net, x: lib.cat([net.p, net.a(x)], 0),
    "stacked": lambda lib, net, x: lib.stack((net.a(x), net.p), dim=1),
    "a number": lambda lib, net, x: net.a(x) + 2,
    "a number first": lambda lib, net, x: 2 * net.a(x),
    "a number and relu": lambda lib, net, x: lib.relu(net.a(x) * 3),
    "a sum and relu": lambda lib, net, x: lib.relu(net.a(x) + net.b(x)),
    "a sum of a sum": lambda lib, net, x: (net.a(x) + 1) + net.b(x),
    "sigmoid": lambda lib, net, x: lib.sigmoid(net.a(x)),
    "tanh": lambda lib, net, x: net.a(x).tanh(),
    "shared": lambda lib, net, x: net.a(x).view(-1, 1).mean(),
    "neither": lambda lib, net, x: lib.exp(net.a(x)),
}


@pytest.mark.parametrize("way", WAYS)
def test_which_values_share_a_grid(way: str) -> None:
    def run(lib: Any) -> list[Any]:
        class Net(lib.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.b = lib.nn.Linear(3, 2), lib.nn.Linear(3, 2)
                self.p = lib.nn.Parameter(lib.ones(2, 2))
                self.register_buffer("c", lib.ones(2, 2))

            def forward(self, x: Any) -> Any:
                return WAYS[way](lib, self, x)

        prepare, _, convert, kit = fx_of(lib)
        net, x = Net().eval(), lib.randn(2, 3)
        ready = prepare(net, kit.get_default_qconfig_mapping("x86"), (x,))
        near = bool((ready(x) - net(x)).abs().max() < 1e-6)
        known = dict(ready.named_modules(remove_duplicate=False))
        grids: dict[int, int] = {}
        shares = [[name, grids.setdefault(id(known[name]), len(grids))]
                  for name in sorted(known) if name.startswith("activation")]  # fmt: skip
        calls = [[n.op, n.name, [v.name for v in n.all_input_nodes]] for n in ready.graph.nodes]
        return [near, shares, calls, bool((convert(ready)(x) - net(x)).abs().max() < 0.1)]

    stored.same(run(tn), stored.of_torch(run))


def test_which_qconfig_a_module_gets() -> None:
    one, two, three = tq.default_qconfig, tq.default_per_channel_qconfig, tq.default_dynamic_qconfig
    mapping = (
        tq.QConfigMapping().set_global(one).set_object_type(nn.Linear, two)
        .set_module_name_regex("body.*head", three).set_module_name("body.stem", None)
    )  # fmt: skip
    assert mapping.of((nn.Conv2d,), "other") is one and mapping.of((nn.Linear,), "other") is two
    assert mapping.of((nn.Linear,), "body.0.head") is three
    assert mapping.of((nn.Linear,), "body.stem.0") is None
    again = tq.QConfigMapping.from_dict(mapping.to_dict())
    assert again.to_dict() == mapping.to_dict() and "body.stem: None" in repr(again)


def test_frozen_statistics_stay_through_train() -> None:
    config = tq.get_default_qat_qconfig("x86")
    layer = joined.ConvBnReLU2d(1, 2, 3, bias=True, qconfig=config)
    assert layer.freeze_bn is layer.eval().bn.training is False and layer.train().bn.training
    assert not joined.ConvBn1d(1, 2, 3, freeze_bn=True, qconfig=config).bn.training
    layer(tn.randn(4, 1, 5, 5))
    layer.apply(joined.freeze_bn_stats)
    before = copy.deepcopy(layer.bn.running_mean)
    layer.eval().train()
    assert layer.training and not layer.bn.training
    assert bool((layer(tn.randn(4, 1, 5, 5)) >= 0).all()) and layer.bn.running_mean.equal(before)
    layer.apply(joined.update_bn_stats)
    layer(tn.randn(4, 1, 5, 5))
    assert not layer.bn.running_mean.equal(before)
    with pytest.raises(AssertionError, match="qconfig must be provided"):
        joined.ConvBn2d(1, 2, 3)


def test_recurrent_layers_say_what_does_not_fit() -> None:
    lstm = tq.quantize_dynamic(nn.Sequential(nn.LSTM(4, 6)))[0]
    assert repr(lstm) == "DynamicQuantizedLSTM(4, 6)"
    with pytest.raises(RuntimeError, match="must have 3 dimensions, got 2"):
        lstm(tn.ones(2, 4))
    with pytest.raises(RuntimeError, match="Expected 4, got 3"):
        lstm(tn.ones(2, 1, 3))
    with pytest.raises(RuntimeError, match="Expected hidden size"):
        lstm(tn.ones(2, 1, 4), (tn.ones(1, 2, 6), tn.ones(1, 1, 6)))
    with pytest.raises(RuntimeError, match="inconsistent input_size: got 5, expected 4"):
        tq.quantize_dynamic(nn.Sequential(nn.GRUCell(4, 6)))[0](tn.ones(1, 5))
    with pytest.raises(RuntimeError, match="Don't know how to quantize"):
        tq.quantize_dynamic(nn.Sequential(nn.LSTM(4, 6)), dtype=tn.float32)
