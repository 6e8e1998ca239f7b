"""Models of whole numbers: grids of observers, layers that are exchanged, what they compute."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from tenon import nn
from tenon.ao import quantization as tq
from tenon.ao.nn import quantized
from tenon.ao.nn.quantized import dynamic


class Net(nn.Module):
    """Convolutions, a norm, a sum of two branches, linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()
        self.conv1 = nn.Conv2d(2, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1, groups=2)
        self.relu2 = nn.ReLU()
        self.sum = quantized.FloatFunctional()
        self.fc = nn.Linear(6 * 16, 5)

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        x = self.relu1(self.bn(self.conv1(self.quant(x))))
        x = self.sum.add(x, self.relu2(self.conv2(x)))
        x = nn.functional.max_pool2d(x, 2)
        return self.dequant(self.fc(x.flatten(1)))


def ready(qconfig: object, seed: int = 0) -> tuple[Net, nn.Module, tn.Tensor]:
    """A net, the same prepared and with data through it, and the data."""
    tn.manual_seed(seed)
    net = Net()
    data = tn.randn(40, 2, 8, 8)
    net(data)  # statistics of the norm
    net.eval()
    fused = tq.fuse_modules(net, [["conv1", "bn", "relu1"], ["conv2", "relu2"]])
    assert np.allclose(fused(data).detach().numpy(), net(data).detach().numpy(), atol=1e-5)
    fused.qconfig = qconfig
    prepared = tq.prepare(fused)
    prepared(data)
    return net, prepared, data


def error(got: tn.Tensor, want: tn.Tensor) -> float:
    return float((got - want).square().mean().sqrt() / want.detach().std())


# ---- Observers ---------------------------------------------------------------------------------


def test_grids_of_observers() -> None:
    x = tn.tensor([[-1.0, 0.5], [2.0, 3.0]])
    seen = tq.MinMaxObserver(quant_min=0, quant_max=127)
    assert seen(x) is x
    scale, zero = seen.calculate_qparams()
    assert scale.item() == pytest.approx(4 / 127)
    assert zero.tolist() == [32]
    seen(x * 2)
    assert (seen.min_val.item(), seen.max_val.item()) == (-2, 6)
    sym = tq.default_weight_observer()
    sym(x)
    assert [v.item() for v in sym.calculate_qparams()] == [pytest.approx(3 / 127.5), 0]
    each = tq.default_per_channel_weight_observer()
    each(x)
    assert each.calculate_qparams()[0].tolist() == pytest.approx([1 / 127.5, 3 / 127.5])
    slow = tq.MovingAverageMinMaxObserver(averaging_constant=0.5)
    slow(x)
    slow(x * 3)
    assert (slow.min_val.item(), slow.max_val.item()) == (-2, 6)
    assert tq.MinMaxObserver(reduce_range=True).quant_max == 127
    assert tq.MinMaxObserver(dtype=tn.qint8, reduce_range=True).quant_min == -64


def test_zero_points_are_int64_but_those_that_are_computed() -> None:
    """PyTorch's dtypes: what does not depend on the values is int64."""
    for scheme, dtype in ((tn.per_tensor_symmetric, tn.int64), (tn.per_tensor_affine, tn.int32)):
        observer = tq.MinMaxObserver(dtype=tn.quint8, qscheme=scheme)
        assert observer.calculate_qparams()[1].dtype == tn.int64
        observer(tn.tensor([-1.0, 2.0]))
        assert observer.calculate_qparams()[1].dtype == dtype


_HISTOGRAMS = (
    (lambda r, i: r.randn(500) * (i + 1), {}),
    (lambda r, i: r.rand(300) - 0.3, {"reduce_range": True}),
    (lambda r, i: np.exp(r.randn(2000)), {"bins": 256}),
    (lambda r, i: np.full(5, i), {}),
    (lambda r, i: np.append(r.randn(3000), 50), {"quant_min": 0, "quant_max": 127}),
    (lambda r, i: r.standard_t(2, 4000), {}),
    (lambda r, i: np.array([1, np.inf, -2]), {}),
)


def seen_range(make: Any, case: int) -> float:
    rng = np.random.RandomState(case)
    values = np.concatenate([make(rng, i) for i in range(4)])
    return float(values.max() - values.min()) * 0.9999


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", range(len(_HISTOGRAMS)))
def test_histograms_find_pytorchs_grids(case: int) -> None:
    make, options = _HISTOGRAMS[case]

    def found(lib: Any) -> list[Any]:
        rng, seen = np.random.RandomState(case), lib.ao.quantization.HistogramObserver(**options)
        for i in range(4):
            seen(lib.tensor(make(rng, i).astype(np.float32)))
        scale, zero = seen.calculate_qparams()
        return [scale, zero, float(seen.histogram.sum())]

    mine = found(tn)
    stored.same(mine, stored.of_torch(found), 1e-6)
    if case == 5:  # what is rare is left out
        assert mine[0].item() * 255 < seen_range(make, case)


def test_observers_go_through_files() -> None:
    a, b = tq.default_per_channel_weight_observer(), tq.default_per_channel_weight_observer()
    a(tn.randn(3, 4))
    b.load_state_dict(a.state_dict())
    assert b.calculate_qparams()[0].tolist() == a.calculate_qparams()[0].tolist()


# ---- Static ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["default", "x86", "qnnpack"])
def test_static(backend: str) -> None:
    qconfig = tq.default_qconfig if backend == "default" else tq.get_default_qconfig(backend)
    net, prepared, data = ready(qconfig)
    model = tq.convert(prepared)
    kinds = {name: type(m) for name, m in model.named_children()}
    assert kinds["conv1"] is kinds["conv2"] is quantized.Conv2d
    assert kinds["fc"] is quantized.Linear
    assert kinds["quant"] is quantized.Quantize
    assert kinds["sum"] is quantized.QFunctional
    assert model.conv1.relu
    assert not model.fc.relu
    got, want = model(data), net(data)
    assert 1e-4 < error(got, want) < 0.06
    levels = got / model.fc.scale
    assert tn.allclose(levels, levels.round(), atol=1e-3)
    assert type(prepared.conv1) is not quantized.Conv2d
    one = model(data[:1])
    assert tn.equal(one, got[:1])


def test_what_an_observer_left_out_still_has_numbers() -> None:
    """A range of seven bits is what is looked for; the numbers of a layer have eight."""
    model = nn.Sequential(tq.QuantStub(), nn.Linear(2, 2), tq.DeQuantStub()).eval()
    with tn.no_grad():
        model[1].weight.copy_(tn.eye(2))
        model[1].bias.zero_()
    model.qconfig = tq.default_qconfig
    prepared = tq.prepare(model)
    prepared(tn.tensor([[0.0, 1.27]]))
    got = tq.convert(prepared)(tn.tensor([[1.5, 4.0]]))
    assert got[0].tolist() == pytest.approx([1.5, 2.55], abs=0.011)


def test_a_layer_computes_with_whole_numbers() -> None:
    """One linear layer by hand: the grids that were observed, sums in int64."""
    tn.manual_seed(2)
    model = nn.Sequential(tq.QuantStub(), nn.Linear(20, 7), tq.DeQuantStub()).eval()
    model.qconfig = tq.default_qconfig
    data = tn.randn(30, 20)
    prepared = tq.prepare(model)
    prepared(data)
    done = tq.convert(prepared)
    x, w = data.numpy(), model[1].weight.detach().numpy()
    scale = np.float32((max(x.max(), 0) - min(x.min(), 0)) / 127)
    zero = int(-np.rint(min(x.min(), 0) / scale))
    numbers = np.clip(np.rint(x * (1 / scale)) + zero, 0, 127).astype(np.int64) - zero
    step = np.float32(np.abs(w).max() / 127.5)
    weight = np.clip(np.rint(w * (1 / step)), -128, 127).astype(np.int64)
    assert np.array_equal(done[1].weight_int8.numpy(), weight)
    assert done[1].input_grid[:2] == (pytest.approx(float(scale)), zero)
    sums = (numbers @ weight.T) * (float(scale) * float(step)) + model[1].bias.detach().numpy()
    grid, middle = done[1].scale, done[1].zero_point
    want = (np.clip(np.rint(sums / grid) + middle, 0, 127) - middle) * grid
    assert np.abs(done(data).numpy() - want).max() <= grid * 1.001
    assert np.abs(done(data).numpy() - want).mean() < grid * 0.01


def test_conv1d_and_wrapper() -> None:
    tn.manual_seed(3)
    model = tq.QuantWrapper(
        nn.Sequential(nn.Conv1d(3, 4, 3, stride=2, padding=1), nn.ReLU())
    ).eval()
    model.qconfig = tq.default_per_channel_qconfig
    data = tn.randn(9, 3, 15)
    done = tq.quantize(model, lambda m, x: m(x), [data])
    assert isinstance(done.module[0], quantized.Conv1d)
    assert error(done(data), model(data)) < 0.05


def test_states_of_converted_models_go_through_files() -> None:
    _, prepared, data = ready(tq.get_default_qconfig("x86"))
    model = tq.convert(prepared)
    file = io.BytesIO()
    tn.save(model.state_dict(), file)
    file.seek(0)
    _, other, _ = ready(tq.get_default_qconfig("x86"), seed=9)
    fresh = tq.convert(other)
    assert not tn.equal(fresh(data), model(data))
    fresh.load_state_dict(tn.load(file))
    assert tn.equal(fresh(data), model(data))
    assert tn.equal(copy.deepcopy(model)(data), model(data))


def test_converted_models_are_traced(tmp_path: object) -> None:
    _, prepared, data = ready(tq.default_qconfig)
    model = tq.convert(prepared)
    traced = tn.jit.trace(model, data)
    traced.save(str(tmp_path / "net.tng"))
    assert tn.equal(tn.jit.load(str(tmp_path / "net.tng"))(data), model(data))


# ---- Dynamic, weights alone --------------------------------------------------------------------


def test_dynamic() -> None:
    tn.manual_seed(4)
    model = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Sequential(nn.Linear(48, 5)))
    x = tn.randn(10, 32)
    done = tq.quantize_dynamic(model, {nn.Linear}, dtype=tn.qint8)
    assert "DynamicQuantizedLinear(in_features=32, out_features=48, dtype=torch.qint8" in repr(done)
    assert isinstance(model[0], nn.Linear)
    assert 1e-4 < error(done(x), model(x)) < 0.03
    part = tq.quantize_dynamic(model, {"2": tq.per_channel_dynamic_qconfig})
    assert isinstance(part[0], nn.Linear)
    assert part[2][0].weight_scale.shape == (5,)
    assert isinstance(tq.quantize_dynamic(nn.Linear(3, 2)), dynamic.Linear)
    assert done.half()(x.half()).dtype == tn.float16
    short = tq.quantize_dynamic(model, dtype=tn.float16)
    assert short[0].weight().equal(model[0].weight.half().float())
    assert 0 < error(short(x), model(x)) < 0.01


@pytest.mark.parametrize(
    ("config", "limit"),
    [(tq.Int8WeightOnlyConfig(), 0.01), (tq.Int4WeightOnlyConfig(16), 0.12),
     (tq.Int8DynamicActivationInt8WeightConfig(), 0.04)],
)  # fmt: skip
def test_weights_alone(config: object, limit: float) -> None:
    tn.manual_seed(5)
    model = nn.Sequential(nn.Linear(64, 40), nn.GELU(), nn.Linear(40, 16, bias=False))
    x = tn.randn(2, 9, 64)
    want = model(x)
    filtered = copy.deepcopy(model)
    tq.quantize_(filtered, config, lambda mod, name: name == "0")
    assert type(filtered[0]) is not nn.Linear
    assert type(filtered[2]) is nn.Linear
    if isinstance(config, tq.Int4WeightOnlyConfig):
        with pytest.raises(ValueError, match="40 columns"):
            tq.quantize_(copy.deepcopy(model), config)
        config = tq.Int4WeightOnlyConfig(8)
    tq.quantize_(model, config)
    assert 1e-4 < error(model(x), want) < limit
    assert error(model(x[0, :1]), want[0, :1]) < limit * 1.5


# ---- Training ----------------------------------------------------------------------------------


def test_training_on_grids() -> None:
    tn.manual_seed(6)
    model = tq.QuantWrapper(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    model.qconfig = tq.get_default_qat_qconfig("x86")
    x = tn.randn(200, 8)
    y = x[:, :1] * x[:, 1:2].sign()
    prepared = tq.prepare_qat(model.train())
    adam = tn.optim.Adam(prepared.parameters(), 0.01)
    losses = []
    for _ in range(150):
        adam.zero_grad()
        loss = (prepared(x) - y).square().mean()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] * 0.5
    done = tq.convert(prepared.eval())
    assert isinstance(done.module[0], quantized.Linear)
    prepared.apply(tq.disable_observer)
    # Training cuts off what lies outside of the average range; a layer has all numbers of a byte.
    steps = (done(x) - prepared(x)).abs() / done.module[2].scale
    assert float((steps < 2.01).float().mean()) > 0.95
    with pytest.raises(AssertionError, match="training"):
        tq.prepare_qat(model.eval())


# ---- What is refused ---------------------------------------------------------------------------


def test_refusals() -> None:
    with pytest.raises(ValueError, match="instance"):
        tq.QConfig(tq.MinMaxObserver(), tq.default_weight_observer)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        tq.prepare(nn.Sequential(nn.Linear(2, 2)))
    assert "qconfig" in str(seen[0].message)
    model = nn.Sequential(tq.QuantStub(), nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"))
    model.qconfig = tq.default_qconfig
    prepared = tq.prepare(model)
    prepared(tn.randn(1, 1, 5, 5))
    with pytest.raises(ValueError, match="zeros"):
        tq.convert(prepared)
    model = nn.Sequential(tq.QuantStub(), nn.Linear(2, 2))
    model.qconfig = tq.QConfig(tq.default_observer, tq.default_observer)
    prepared = tq.prepare(model)
    prepared(tn.randn(3, 2))
    with pytest.raises(ValueError, match="symmetric"):
        tq.convert(prepared)
    with pytest.raises(AssertionError, match="fuse"):
        tq.fuse_modules(nn.Sequential(nn.ReLU(), nn.Linear(2, 2)), ["0", "1"])
    with pytest.raises(AssertionError, match="backend"):
        tq.get_default_qconfig("abacus")


# ---- PyTorch's numbers -------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_as_pytorch_computes() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(
        torch.ao.quantization.QuantStub(), torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.Flatten(),
        torch.nn.Linear(4 * 36, 5), torch.ao.quantization.DeQuantStub(),
    ).eval()  # fmt: skip
    ours = nn.Sequential(tq.QuantStub(), nn.Conv2d(2, 4, 3, padding=1), nn.Flatten(),
                         nn.Linear(4 * 36, 5), tq.DeQuantStub()).eval()  # fmt: skip
    ours.load_state_dict({k: tn.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = torch.randn(20, 2, 6, 6)
    flat_t = torch.nn.Sequential(*[theirs[3]])
    flat_o = nn.Sequential(ours[3])
    y = torch.randn(7, 144)
    want = torch.ao.quantization.quantize_dynamic(flat_t)(y).detach().numpy()
    got = tq.quantize_dynamic(flat_o)(tn.tensor(y.numpy())).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    theirs.qconfig = torch.ao.quantization.default_qconfig
    ours.qconfig = tq.default_qconfig
    done = []
    for kit, net, data in ((torch.ao.quantization, theirs, x), (tq, ours, tn.tensor(x.numpy()))):
        prepared = kit.prepare(net)
        prepared(data)
        done.append(kit.convert(prepared))
    want, got = done[0](x).numpy(), done[1](tn.tensor(x.numpy())).numpy()
    for place in (1, 3):
        assert done[1][place].scale == pytest.approx(done[0][place].scale)
        assert done[1][place].zero_point == done[0][place].zero_point
    assert np.abs(got - want).max() <= done[1][3].scale * 1.01
    assert (np.abs(got - want) > done[1][3].scale / 2).mean() < 0.02
