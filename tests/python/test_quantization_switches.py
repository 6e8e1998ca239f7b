"""Switches of grids while a model is trained, and what layers of whole numbers keep and give."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from refusals import check_beside
from tenon import nn
from tenon.ao import quantization as tq
from tenon.ao.nn import quantized
from tenon.ao.nn.quantized import dynamic
from tenon.ao.quantization import quantize_fx

X = tn.tensor([[0.0, 0.4, 1.1, 2.55], [-2.55, -1.3, 0.3, 1.0]])


def test_switches_of_a_fake_grid() -> None:
    net = nn.Sequential(tq.FakeQuantize(), nn.Sequential(tq.FakeQuantize()), nn.ReLU())
    first, second = net[0], net[1][0]
    for off, on, name in (
        (tq.disable_observer, tq.enable_observer, "observer_enabled"),
        (tq.disable_fake_quant, tq.enable_fake_quant, "fake_quant_enabled"),
    ):
        for switch, want in ((off, 0), (on, 1), (off, 0)):
            net.apply(switch)
            assert [getattr(m, name).tolist() for m in (first, second)] == [[want]] * 2
    assert first(X).equal(X) and first.scale.tolist() == [1] and first.zero_point.tolist() == [0]
    net.apply(tq.enable_fake_quant)
    assert first(X).equal(X.round().clamp(0, 255))  # the grid that it began with
    net.apply(tq.enable_observer)
    assert first(X).sub(X).abs().max().item() <= first.scale.item() / 2 * 1.001
    assert first.scale.item() == pytest.approx(5.1 / 255)
    seen = first.scale.clone()
    net.apply(tq.disable_observer)
    first(X * 100)
    assert first.scale.equal(seen)
    assert {"scale", "zero_point", "fake_quant_enabled", "observer_enabled"} <= set(
        first.state_dict()
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_averages_of_each_channel(axis: int) -> None:
    """The first batch whole, then a part of the way to each later one."""
    for kind, share in ((tq.MovingAveragePerChannelMinMaxObserver, 0.25),
                        (tq.PerChannelMinMaxObserver, None)):  # fmt: skip
        options = {} if share is None else {"averaging_constant": share}
        observer = kind(ch_axis=axis, **options)
        for batch in (X, X * 2 + 1):
            observer(batch)
        low, high = (getattr(X, end)(1 - axis).numpy() for end in ("amin", "amax"))
        low2, high2 = low * 2 + 1, high * 2 + 1
        want = (np.minimum(low, low2), np.maximum(high, high2))
        if share is not None:
            want = (low + share * (low2 - low), high + share * (high2 - high))
        np.testing.assert_allclose(observer.min_val.numpy(), want[0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(observer.max_val.numpy(), want[1], rtol=1e-6, atol=1e-6)
        scale, middle = observer.calculate_qparams()
        assert scale.shape == middle.shape == (X.shape[axis],)
    whole = tq.MovingAverageMinMaxObserver(averaging_constant=0.25)
    whole(X)
    whole(X * 2)
    assert whole.max_val.item() == pytest.approx(2.55 * 1.25)


@pytest.mark.parametrize(("backend", "channels", "high"), [
    ("x86", True, 127), ("fbgemm", True, 127), ("onednn", True, 255), ("qnnpack", False, 255),
])  # fmt: skip
def test_grids_of_training(backend: str, channels: bool, high: int) -> None:
    config = tq.get_default_qat_qconfig(backend)
    activation, weight = config.activation(), config.weight()
    assert weight.is_per_channel is channels
    activation(X)
    assert activation.scale.item() == pytest.approx(5.1 / high)
    assert (activation.quant_min, activation.quant_max) == (0, high)


@pytest.mark.parametrize("options", [
    {"reduce_range": True}, {"quant_min": 0, "quant_max": 255, "reduce_range": True},
    {"quant_min": 0, "quant_max": 127, "reduce_range": True}, {"quant_min": 0, "quant_max": 100},
    {"quant_min": -100, "quant_max": 99, "dtype": "qint8", "reduce_range": True},
    {"dtype": "qint8", "reduce_range": True, "qscheme": "per_tensor_symmetric"},
], ids=str)  # fmt: skip
def test_half_a_range_is_half_of_what_was_given(options: dict[str, object]) -> None:
    def run(lib: Any) -> list[Any]:
        words = {k: getattr(lib, v) if isinstance(v, str) else v for k, v in options.items()}
        found: list[Any] = []
        for name in ("MinMaxObserver", "MovingAverageMinMaxObserver", "FakeQuantize"):
            seen = getattr(lib.ao.quantization, name)(**words)
            seen(lib.tensor(X.tolist()))
            scale, middle = seen.calculate_qparams()
            found.append([scale.reshape(1), int(middle), seen.quant_min, seen.quant_max])
        return found

    def of_torch(torch: Any) -> list[Any]:
        importlib.import_module("torch.ao.quantization")
        return run(torch)

    stored.same(run(tn), stored.of_torch(of_torch))


def test_whole_convolutions_take_one_sample_or_many() -> None:
    tn.manual_seed(5)
    for layer, shape in (
        (nn.Conv2d(2, 4, (2, 3), stride=(2, 1), padding=(1, 0), dilation=(1, 2)), (3, 2, 6, 8)),
        (nn.Conv1d(2, 4, 3, stride=2, padding=1, dilation=2), (3, 2, 11)),
    ):
        data = tn.randn(shape)
        model = nn.Sequential(tq.QuantStub(), layer, tq.DeQuantStub()).eval()
        model.qconfig = tq.default_per_channel_qconfig
        done = tq.quantize(model, lambda m, x: m(x), [data])
        got, want = done(data), model(data)
        assert got.shape == want.shape and float((got - want).abs().max()) < 0.1
        if len(shape) == 4:
            for sample, row in zip(data, got, strict=True):
                assert done[1](done[0](sample)).equal(row)
        weight = done[1].weight()
        near = (weight - layer.weight).abs().amax(list(range(1, weight.dim())))
        assert weight.shape == layer.weight.shape and done[1].weight_scale.shape == (4,)
        assert bool((near <= done[1].weight_scale * 0.5001).all())
        assert done[1].bias().equal(layer.bias)


def test_the_grid_of_a_layer() -> None:
    layer = quantized.Linear(2, 1)
    assert (layer.scale, layer.zero_point, layer.input_grid) == (1.0, 0, (1.0, 0, 0, 127))
    layer.scale, layer.zero_point, layer.output_range = 0.5, 3, (1, 90)
    assert layer._grids() == (1.0, 0, 0, 127, 0.5, 3, 1, 90)
    layer.relu = True
    assert layer._grids()[-2:] == (3, 90)
    layer.output_range = (1, 3)
    assert layer._grids()[-2:] == (3, 4)  # a grid has two places at least


def test_settings_leave_with_their_model() -> None:
    model = nn.Sequential(tq.QuantStub(), nn.Linear(4, 2), tq.DeQuantStub()).eval()
    model.qconfig = tq.default_qconfig
    prepared = tq.prepare(model)
    prepared(X)
    kept = tq.convert(prepared, remove_qconfig=False)
    assert hasattr(kept, "qconfig") and not hasattr(tq.convert(prepared), "qconfig")
    assert isinstance(prepared[1], nn.Linear) and isinstance(kept[1], quantized.Linear)
    whole = tq.convert(prepared, inplace=True)
    assert whole is prepared and isinstance(prepared[1], quantized.Linear)


def test_scales_that_are_tensors() -> None:
    want = tn.quantize_per_tensor(X, 0.25, 10, tn.quint8)
    got = tn.quantize_per_tensor(X, tn.tensor(0.25), tn.tensor(10), tn.quint8)
    assert got.int_repr().equal(want.int_repr())
    assert type(got.q_scale()) is float and type(got.q_zero_point()) is int
    rows = tn.quantize_per_tensor([X[0], X[1]], tn.tensor([0.25, 0.5]), tn.tensor([10, 20]),
                                  tn.quint8)  # fmt: skip
    assert [(r.q_scale(), r.q_zero_point()) for r in rows] == [(0.25, 10), (0.5, 20)]


def test_an_observer_that_sees_nothing() -> None:
    observer = tq.PlaceholderObserver(dtype=tn.float16, is_dynamic=True)
    assert observer.dtype is tn.float16 and observer.is_dynamic and observer(X) is X
    assert not tq.PlaceholderObserver().is_dynamic
    with pytest.raises(RuntimeError, match="should not be called for PlaceholderObserver"):
        observer.calculate_qparams()


def test_engines_have_names_of_their_own() -> None:
    chosen = tn.backends.quantized
    before = chosen.engine
    assert before in chosen.supported_engines
    chosen.engine = "qnnpack"
    assert chosen.engine == "qnnpack"
    chosen.engine = before
    for wrong in ("abacus", None, 3):
        with pytest.raises(RuntimeError, match="not a valid value for quantized engine"):
            chosen.engine = wrong
    with pytest.raises(RuntimeError, match="supported_engines"):
        chosen.supported_engines = []


def test_the_older_name_has_the_same_modules() -> None:
    for name in ("fake_quantize", "fuse_modules", "observer", "qconfig", "quantize", "stubs"):
        older = importlib.import_module(f"tenon.quantization.{name}")
        newer = importlib.import_module(f"tenon.ao.quantization.{name}")
        public = [key for key in vars(newer) if not key.startswith("_")]
        assert all(getattr(older, key) is getattr(newer, key) for key in public)
    older = importlib.import_module("tenon.quantization.quantize_fx")
    newer = importlib.import_module("tenon.ao.quantization.quantize_fx")
    assert all(getattr(older, key) is getattr(newer, key) for key in newer.__all__)


# ---- Beside PyTorch ------------------------------------------------------------------------------


def room(lib: Any, *names: str) -> Any:
    return importlib.import_module(".".join([lib.__name__, "ao", *names]))


def values(lib: Any, *shape: int) -> Any:
    count = int(np.prod(shape))
    return ((lib.arange(count) * 37 % 23).float() / 7 - 1.5).reshape(shape)


def text(lib: Any, thing: Any) -> str:
    return str(thing).replace("torch.", "lib.").replace("tenon.", "lib.")


def test_functions_whose_results_are_observed() -> None:
    def run(lib: Any) -> list[Any]:
        found, x, y = [], values(lib, 2, 3), values(lib, 2, 3) * 2 + 0.25
        for name, args in (
            ("add", (x, y)), ("add_scalar", (x, 3.0)), ("mul", (x, y)), ("mul_scalar", (x, 3.0)),
            ("cat", ([x, y], 1)), ("cat", ([x, y],)), ("add_relu", (x, y)), ("matmul", (x, y.t())),
        ):  # fmt: skip
            functional = room(lib, "nn", "quantized").FloatFunctional()
            seen = room(lib, "quantization").MinMaxObserver()
            functional.activation_post_process = seen
            result = getattr(functional, name)(*args)
            found.append([name, result, seen.min_val, seen.max_val])
        return found

    stored.same(run(tn), stored.of_torch(run))


@pytest.mark.parametrize(
    "kind",
    ["MinMaxObserver", "MovingAverageMinMaxObserver", "PerChannelMinMaxObserver",
     "MovingAveragePerChannelMinMaxObserver", "FixedQParamsObserver"],
)  # fmt: skip
def test_observers_see_and_forget_as_pytorchs(kind: str) -> None:
    def run(lib: Any) -> list[Any]:
        given = (0.5, 3) if kind.startswith("Fixed") else ()
        seen, found = getattr(room(lib, "quantization"), kind)(*given), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for x in (lib.ones(0, 3), values(lib, 2, 3), values(lib, 2, 3) * 3, lib.ones(0)):
                found.append(seen(x).shape == x.shape)
                found += list(seen.calculate_qparams())
            if given:
                return [*found, seen.quant_min, seen.quant_max, text(lib, seen.qscheme)]
            if "PerChannel" in kind:
                found += [seen.min_val, seen.max_val]
            else:
                found.append(text(lib, seen))
            seen.reset_min_max_vals()
            return [*found, *seen.calculate_qparams()]

    stored.same(run(tn), stored.of_torch(run))


def test_histograms_forget_and_see_nothing() -> None:
    seen, fresh = tq.HistogramObserver(bins=8), tq.HistogramObserver(bins=8)
    assert [v.tolist() for v in seen.calculate_qparams()] == [[1.0], [0]]
    assert seen(tn.ones(0, 2)).shape == (0, 2) and not seen.seen
    seen(tn.tensor([-1.0, 3.0, 3.0]))
    assert seen.seen and seen.histogram.tolist() == [1.0, *[0.0] * 6, 2.0]
    seen.reset_min_max_vals()
    for name, value in fresh.state_dict().items():
        assert tn.equal(seen.state_dict()[name], value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = repr(tq.PerChannelMinMaxObserver())
    assert text == "PerChannelMinMaxObserver(min_val=inf, max_val=-inf)"


def test_an_observer_that_was_kept_before_it_saw_a_channel() -> None:
    def run(lib: Any) -> list[Any]:
        seen, found = room(lib, "quantization").PerChannelMinMaxObserver(), []
        for ends in (lib.zeros(0), lib.tensor([1.0, 2.0])):
            seen.load_state_dict({"min_val": -ends, "max_val": ends})
            found += [*seen.calculate_qparams(), text(lib, seen)]
        return found

    stored.same(run(tn), stored.of_torch(run))


def test_a_state_brings_its_count_of_grids() -> None:
    """One scale for all rows, or one for each."""
    made = []
    for config in (tq.default_qconfig, tq.default_per_channel_qconfig):
        model = nn.Sequential(tq.QuantStub(), nn.Linear(4, 3), tq.DeQuantStub()).eval()
        model.qconfig = config
        made.append(tq.quantize(model, lambda m, x: m(x), [X]))
    one, each = made
    assert one[1].weight_scale.shape == (1,) and each[1].weight_scale.shape == (3,)
    for here, there in ((one, each), (each, one)):
        state = there.state_dict()
        here.load_state_dict(state)
        assert here[1].weight_scale.equal(state["1.weight_scale"]) and here(X).equal(there(X))


def test_warnings_point_at_the_program() -> None:
    plain = nn.Sequential(nn.Linear(2, 2))
    for call in (
        lambda: tq.prepare(plain),
        lambda: quantize_fx.prepare_fx(plain, {"": None}),
        lambda: quantize_fx.prepare_qat_fx(plain, {"": None}),
        lambda: tq.HistogramObserver().forward(tn.tensor([1.0, float("inf")])),
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            call()
        assert [w.filename for w in told] == [__file__]


def test_ends_in_the_wrong_order_are_refused() -> None:
    def ask(lib: Any) -> Any:
        seen = room(lib, "quantization").MinMaxObserver()
        return seen._calculate_qparams(lib.tensor(2.0), lib.tensor(1.0))

    check_beside("should be less than max", ask)
    with pytest.raises(ValueError, match="an observer's dtype is one of qint8, quint8, got"):
        tq.MinMaxObserver(dtype=tn.float32)
    for base in (tq.ObserverBase, tq.UniformQuantizationObserverBase):
        name = "calculate_qparams" if base is tq.ObserverBase else "reset_min_max_vals"
        with pytest.raises(NotImplementedError):
            getattr(base(tn.quint8), name)()


@pytest.mark.parametrize("backend", ["x86", "fbgemm", "qnnpack", "onednn"])
@pytest.mark.parametrize("version", [0, 1])
def test_settings_of_training_are_pytorchs(backend: str, version: int) -> None:
    def run(lib: Any) -> list[Any]:
        config = room(lib, "quantization").get_default_qat_qconfig(backend, version)
        found = []
        for make in config:
            fake = make()
            found += [type(fake).__name__, text(lib, fake.extra_repr())]
            fake(values(lib, 4, 3) * 2)
            found += [fake.scale, fake.zero_point, fake.quant_min, fake.quant_max]
        return found

    stored.same(run(tn), stored.of_torch(run))


def trained(lib: Any, layers: Callable[[Any], list[Any]], *shape: int, joined: Any = None) -> Any:
    """Results of a model that is trained on grids, and the gradient of its first weight."""
    model = lib.nn.Sequential(*layers(lib))
    for p in model.parameters():
        p.data.copy_(values(lib, *p.shape) / 3)
    quantization = room(lib, "quantization")
    if joined:
        model = quantization.fuse_modules_qat(model.train(), joined)
    model.qconfig = quantization.QConfig(
        quantization.default_fake_quant, quantization.default_weight_fake_quant)  # fmt: skip
    model = quantization.prepare_qat(model.train())
    result = model(values(lib, *shape))
    result.square().sum().backward()
    first = next(p for p in model.parameters() if p.dim() > 1)
    return [result, first.grad, [type(m).__name__ for m in model.children()]]


LAYERS: dict[str, tuple[Any, ...]] = {
    "images": (
        lambda t: [t.nn.Conv2d(2, 4, 3, 2, 1, groups=2, padding_mode="reflect")], 2, 2, 5, 5),
    "linear": (lambda t: [t.nn.Linear(3, 2), t.nn.Linear(2, 4)], 5, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("relu", [False, True])
def test_layers_that_are_trained_on_grids(name: str, relu: bool) -> None:
    layers, *shape = LAYERS[name]

    def run(lib: Any) -> Any:
        made = (lambda t: [layers(t)[0], t.nn.ReLU()]) if relu else layers
        return trained(lib, made, *shape, joined=[["0", "1"]] if relu else None)

    stored.same(run(tn), stored.of_torch(run), rtol=1e-5, atol=1e-6)


def test_a_model_is_trained_and_converted_at_once() -> None:
    tn.manual_seed(0)
    model = nn.Sequential(tq.QuantStub(), nn.Linear(4, 3), tq.DeQuantStub())
    model.qconfig = tq.get_default_qat_qconfig("x86")
    seen: list[Any] = []

    def run(net: nn.Module, x: tn.Tensor, count: int) -> None:
        for _ in range(count):
            net(x)
        seen.append((net, net.training))

    x = tn.randn(16, 4)
    made = tq.quantize_qat(model.train(), run, (x, 3))
    assert seen[0][1] and type(made[1]) is quantized.Linear and not made.training
    assert type(model[1]) is nn.Linear and seen[0][0] is not model
    assert np.abs((made(x) - model(x)).detach().numpy()).max() < 0.1
    assert tq.quantize_qat(model, run, (x, 1), inplace=True) is model
    assert type(model[1]) is quantized.Linear


def test_leaves_with_a_setting_are_wrapped() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), tq.QuantStub()))
    model[0].qconfig = model[1][0].qconfig = model[1][1].qconfig = tq.default_qconfig
    made = tq.add_quant_dequant(model)
    assert made is model and type(model[0]) is tq.QuantWrapper
    assert type(model[1][0]) is tq.QuantWrapper and type(model[1][1]) is tq.QuantStub
    wrapped = model[0]
    assert wrapped.quant.qconfig is wrapped.dequant.qconfig is tq.default_qconfig
    alone = tq.add_quant_dequant(nn.Linear(2, 2))
    assert type(alone) is nn.Linear
    with pytest.raises(ValueError, match="put it into a QuantWrapper"):
        tq.prepare(nn.Linear(2, 2))


def test_settings_by_order_are_written_as_pytorchs() -> None:
    def run(lib: Any) -> list[Any]:
        mapping = room(lib, "quantization").QConfigMapping()
        same = mapping.set_module_name_object_type_order("a.b", lib.nn.ReLU, 2, None)
        return [same is mapping, text(lib, mapping.to_dict()["module_name_object_type_order"])]

    stored.same(run(tn), stored.of_torch(run))


def test_what_layers_of_whole_numbers_say_of_themselves() -> None:
    layer = nn.Linear(4, 2)
    half, byte = dynamic.HalfLinear(layer), dynamic.Int8WeightLinear(layer)
    four = dynamic.Int4WeightLinear(layer, 2)
    assert repr(half) == (
        "DynamicQuantizedLinear(in_features=4, out_features=2, dtype=torch.float16)")  # fmt: skip
    assert tn.equal(half.bias(), layer.bias)
    assert byte.extra_repr() == "in_features=4, out_features=2, int8 weight"
    assert four.extra_repr() == "in_features=4, out_features=2, group_size=2, int4 weight"
    grid = quantized.QFunctional()
    grid.scale, grid.zero_point = 0.5, 3
    assert repr(grid).startswith("QFunctional(\n  scale=0.5, zero_point=3\n")
    assert grid.add(tn.tensor([0.3]), tn.tensor([0.4])).tolist() == [0.5]
    assert grid.mul(tn.tensor([100.0]), tn.tensor([-4.0])).tolist() == [-1.5]
    stub = tq.QuantStub(tq.default_qconfig)
    assert stub.qconfig is tq.default_qconfig and not hasattr(tq.QuantStub(), "qconfig")
    text_of = quantized.Quantize(0.5, 3, tn.quint8).extra_repr()
    assert text_of == "scale=tensor([0.5000]), zero_point=tensor([3]), dtype=torch.quint8"
