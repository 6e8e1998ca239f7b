"""ONNX: models that are read, against ONNX's own node tests, its reference and onnxruntime."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import nn

F = nn.functional
onnx = pytest.importorskip("onnx")
ReferenceEvaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
helper = onnx.helper
FLOAT, INT, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def model_of(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], **weights: Any) -> Any:
    """A ModelProto; inputs by name: (dtype, shape)."""
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs],
        [onnx.numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


# ---- A module ------------------------------------------------------------------------------------


def linear(**more: Any) -> Any:
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((4, 3), np.float32), rng.standard_normal(3, np.float32)
    nodes = [node("MatMul", "x fc.weight", "h"), node("Add", "h fc.bias", "y"),
             node("Relu", "y", "z")]  # fmt: skip
    return model_of(nodes, {"x": (FLOAT, ["n", 4])}, ["y", "z"], **{"fc.weight": w, "fc.bias": b})


def test_a_model_is_a_module(tmp_path: Path) -> None:
    proto = linear()
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    x = tn.randn(5, 4)
    for source in (str(path), path, path.read_bytes(), proto):
        model = tn.onnx.load(source)
        assert isinstance(model, nn.Module) and model.input_names == ["x"]
        y, z = model(x)
        assert tn.equal(z, tn.relu(y)) and tn.equal(model(x=x)[0], y)
        assert list(model.state_dict()) == ["fc.weight", "fc.bias"]
        want = ReferenceEvaluator(proto).run(None, {"x": x.numpy()})
        np.testing.assert_allclose(y.detach().numpy(), want[0], rtol=1e-6, atol=1e-6)
    with pytest.raises(TypeError, match="needs its input 'x'"):
        model()
    with pytest.raises(TypeError, match="no input 'w'"):
        model(x, w=x)


def test_training() -> None:
    model = tn.onnx.load(linear())
    assert all(p.requires_grad for p in model.parameters())
    opt = tn.optim.SGD(model.parameters(), lr=0.1)
    tn.manual_seed(0)
    x, target = tn.randn(16, 4), tn.randn(16, 3)
    losses = []
    for _ in range(20):
        loss = F.mse_loss(model(x)[0], target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    twin = tn.onnx.load(linear())
    twin.load_state_dict(model.state_dict())
    assert tn.equal(twin(x)[0], model(x)[0])


def test_whole_numbers_are_no_parameters() -> None:
    proto = model_of(
        [node("Gather", "w i", "g"), node("Clip", "g low", "y")], {}, ["y"],
        w=np.eye(3, dtype=np.float32), i=np.array([2, 0]), low=np.float32(0.25),
    )  # fmt: skip
    model = tn.onnx.load(proto)
    assert [n for n, _ in model.named_parameters()] == ["w"]
    assert {n for n, _ in model.named_buffers()} == {"i", "low"}
    assert model().tolist() == [[0.25, 0.25, 1], [1, 0.25, 0.25]]


def test_names_that_no_attribute_may_have() -> None:
    one = np.ones(2, np.float32)
    nodes = [node("Sum", "a a.b training /x/0 .", "y")]
    weights = {"a": one, "a.b": 2 * one, "training": 3 * one, "/x/0": 4 * one, ".": 5 * one}
    model = tn.onnx.load(model_of(nodes, {}, ["y"], **weights))
    assert model().tolist() == [15, 15] and len(list(model.parameters())) == 5
    assert model.training is True


# ---- Control flow --------------------------------------------------------------------------------


def test_control_flow() -> None:
    def branch(op: str) -> Any:
        out = helper.make_tensor_value_info("r", FLOAT, None)
        return helper.make_graph([node(op, "x", "r")], op, [], [out])

    proto = model_of(
        [node("ReduceSum", "x", "s", keepdims=0), node("Greater", "s zero", "c"),
         node("If", "c", "y", then_branch=branch("Exp"), else_branch=branch("Neg"))],
        {"x": (FLOAT, [2])}, ["y"], zero=np.float32(0),
    )  # fmt: skip
    model = tn.onnx.load(proto)
    assert model(tn.tensor([-1.0, 0.5])).tolist() == [1, -0.5]
    assert tn.equal(model(tn.ones(2)), tn.ones(2).exp())

    body = helper.make_graph(
        [node("Add", "v step", "w"), node("Less", "w limit", "again"),
         node("Identity", "w", "row")],
        "body",
        [helper.make_tensor_value_info("i", INT, []), helper.make_tensor_value_info("k", BOOL, []),
         helper.make_tensor_value_info("v", FLOAT, [])],
        [helper.make_tensor_value_info("again", BOOL, []),
         helper.make_tensor_value_info("w", FLOAT, []),
         helper.make_tensor_value_info("row", FLOAT, [])],
    )  # fmt: skip
    proto = model_of(
        [helper.make_node("Loop", ["most", "", "start"], ["last", "rows"], body=body)],
        {"start": (FLOAT, [])}, ["last", "rows"],
        most=np.array(10), step=np.float32(2), limit=np.float32(7),
    )  # fmt: skip
    last, rows = tn.onnx.load(proto)(tn.tensor(1.0))
    assert last.item() == 7 and rows.tolist() == [3, 5, 7]
    last, rows = tn.onnx.load(proto)(tn.tensor(-90.0))
    assert last.item() == -70 and len(rows) == 10


# ---- What is refused -----------------------------------------------------------------------------


# What ONNX's own node tests say at length, in short: one node, inputs, weights.
NODES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "indices of maxima": (
        node("MaxPool", "x", "y i", kernel_shape=[2, 3], strides=[2, 1]), {"x": (2, 3, 5, 7)}, {}),
    "one hot": (
        node("OneHot", "i n v", "y", axis=1), {},
        {"i": np.array([[1, 9, -2]]), "n": np.array(5), "v": np.array([2.0, 7.0], np.float32)}),
    "group norm": (
        node("GroupNormalization", "x s b", "y", num_groups=2, epsilon=0.01), {"x": (2, 4, 3)},
        {"s": np.array([1.5, 0.5], np.float32), "b": np.array([0.25, -1.0], np.float32)}),
    "cross entropy": (
        node("SoftmaxCrossEntropyLoss", "x t", "y l", reduction="sum"), {"x": (3, 5)},
        {"t": np.array([4, 0, 2])}),
    "nearest": (
        node("Resize", "x r s", "y", mode="nearest", nearest_mode="floor"), {"x": (1, 1, 2, 3)},
        {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 3], np.float32)}),
    "linear": (
        node("Resize", "x r s", "y", mode="linear"), {"x": (1, 1, 2, 3)},
        {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 1.5], np.float32)}),
    "one hot along the last": (
        node("OneHot", "i n v", "y"), {},
        {"i": np.array([[1, 9, -2], [0, 4, 3]]), "n": np.array(5),
         "v": np.array([2.0, 7.0], np.float32)}),
    "one hot along the first": (
        node("OneHot", "i n v", "y", axis=0), {},
        {"i": np.array([[1, 4], [-1, 3], [0, 2]]), "n": np.array(5),
         "v": np.array([2.0, 7.0], np.float32)}),
    **{f"nearest, {way}, {how}, {scale}": (
        node("Resize", "x r s", "y", mode="nearest", nearest_mode=way,
             coordinate_transformation_mode=how), {"x": (1, 1, 3, 5)},
        {"r": np.zeros(0, np.float32), "s": np.array([1, 1, scale, scale], np.float32)})
        for way in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        for how in ("asymmetric", "half_pixel") for scale in (0.5, 2.0, 2.5)},
    **{f"regions, {mode}, {how}, {samples}": (
        node("RoiAlign", "x b i", "y", mode=mode, output_height=2, output_width=3,
             sampling_ratio=samples, spatial_scale=0.5, coordinate_transformation_mode=how),
        {"x": (2, 2, 6, 7)},
        {"b": np.array([[1, 2, 9, 11], [0, 0, 4, 13], [3, 3, 3.5, 3.25]], np.float32),
         "i": np.array([0, 1, 1])})
        for mode in ("avg", "max") for how in ("half_pixel", "output_half_pixel")
        for samples in (0, 1, 2)},
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_nodes(name: str) -> None:
    made, shapes, weights = NODES[name]
    inputs = {n: (FLOAT, shape) for n, shape in shapes.items()}
    proto = model_of([made], inputs, list(made.output), **weights)
    rng = np.random.default_rng(3)
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    got = tn.onnx.load(proto)(*map(tn.tensor, given.values()))
    wanted = ReferenceEvaluator(proto).run(None, given)
    for a, b in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("place", "order"), [(None, "abc"), (0, "cab"), (1, "acb"), (2, "abc"),
                                              (-1, "acb"), (-2, "cab")])  # fmt: skip
def test_a_part_goes_into_a_sequence(place: int | None, order: str) -> None:
    at = {} if place is None else {"k": np.array(place)}
    nodes = [node("SequenceConstruct", "a b", "two"),
             node("SequenceInsert", f"two c{' k' if at else ''}", "three"),
             node("ConcatFromSequence", "three", "y", axis=0)]  # fmt: skip
    run = tn.onnx.load(model_of(nodes, {n: (FLOAT, [1]) for n in "abc"}, ["y"], **at))
    found = run(*(tn.tensor([float(n)]) for n in range(3)))
    assert found.tolist() == ["abc".index(n) for n in order]


def test_places_of_maxima_are_counted_by_columns() -> None:
    made = node("MaxPool", "x", "y i", kernel_shape=[2, 2], storage_order=1)
    x = np.random.default_rng(5).standard_normal((2, 1, 4, 5)).astype(np.float32)
    y, places = tn.onnx.load(model_of([made], {"x": (FLOAT, x.shape)}, ["y", "i"]))(tn.tensor(x))
    for n, r, c in np.ndindex(2, 3, 4):
        window = x[n, 0, r : r + 2, c : c + 2]
        down, along = divmod(int(window.argmax()), 2)
        assert y[n, 0, r, c].item() == window.max()
        assert places[n, 0, r, c].item() == n * 20 + (c + along) * 4 + r + down


def test_gates_are_clipped() -> None:
    rng = np.random.default_rng(4)
    x, w, r = (rng.standard_normal(s).astype(np.float32) for s in ((3, 2, 4), (1, 5, 4), (1, 5, 5)))
    proto = model_of([node("RNN", "x w r", "y h", hidden_size=5, clip=0.75)],
                     {"x": (FLOAT, [3, 2, 4])}, ["y", "h"], w=w, r=r)  # fmt: skip
    y, last = tn.onnx.load(proto)(tn.tensor(x))
    h = np.zeros((2, 5))
    for k in range(3):
        h = np.tanh(np.clip(x[k] @ w[0].T + h @ r[0].T, -0.75, 0.75))
        np.testing.assert_allclose(y[k, 0].detach().numpy(), h, rtol=1e-5, atol=1e-6)
    assert abs(h).max() > 0.6 and tn.equal(last[0], y[2, 0])


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="StringNormalizer, my.domain.Op"):
        tn.onnx.load(model_of([node("StringNormalizer", "x", "y"),
                               helper.make_node("Op", ["y"], ["z"], domain="my.domain")],
                              {"x": (FLOAT, [1])}, ["z"]))  # fmt: skip
    for data in (b"", b"junk", linear().SerializeToString()[:50]):
        with pytest.raises(RuntimeError, match="no ONNX model"):
            tn.onnx.load(data)
    with pytest.raises(FileNotFoundError):
        tn.onnx.load(tmp_path / "none.onnx")
    wrong = model_of([node("Conv", "x w", "y", kernels=[1])], {"x": (FLOAT, None)}, ["y"],
                     w=np.ones((1, 1, 1), np.float32))  # fmt: skip
    with pytest.raises(RuntimeError, match="node Conv"):
        tn.onnx.load(wrong)(tn.ones(1, 1, 3))


# ---- Models there and back -----------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        x = F.relu(self.stem(x))
        x = F.relu(x + self.b(self.a(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.mid = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(6, 6, 2, stride=2), nn.Conv2d(12, 2, 1)

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        a = F.silu(self.down(x))
        b = self.up(F.silu(self.mid(F.max_pool2d(a, 2))))
        return self.out(tn.cat([a, b], 1))


class Words(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.table, self.rnn, self.out = (
            nn.Embedding(11, 6),
            kind(6, 7, batch_first=True),
            nn.Linear(7, 3),
        )

    def forward(self, i: tn.Tensor) -> tn.Tensor:
        return self.out(self.rnn(self.table(i))[0][:, -1])


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(11, 8), nn.Parameter(tn.randn(5, 8))
        self.qkv, self.norm, self.out = (
            nn.Linear(8, 24),
            nn.LayerNorm(8),
            nn.Linear(8, 11, bias=False),
        )

    def forward(self, i: tn.Tensor) -> tn.Tensor:
        x = self.table(i) + self.place
        q, k, v = (
            t.reshape(2, 5, 2, 4).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x + y.transpose(1, 2).reshape(2, 5, 8))


class TwoResults(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 4)

    def forward(self, x: tn.Tensor) -> tuple[tn.Tensor, tn.Tensor]:
        y = self.inner(x)
        return y @ y.transpose(0, 1), y.softmax(-1).amax(0)


def mlp(*sizes: int, act: Any = nn.ReLU) -> nn.Module:
    layers: list[nn.Module] = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def separable(n: int, m: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(n, n, 3, padding=1, groups=n), nn.BatchNorm2d(n), nn.ReLU6(),
                         nn.Conv2d(n, m, 1), nn.BatchNorm2d(m), nn.Hardswish())  # fmt: skip


PICTURE, TOKENS, ROWS = (2, 3, 8, 8), None, (3, 6)
MODELS: dict[str, tuple[Any, Any]] = {
    "mlp": (lambda: mlp(6, 8, 4), ROWS),
    "autoencoder": (lambda: mlp(6, 4, 2, 4, 6, act=nn.Tanh), ROWS),
    "deep": (lambda: mlp(6, 6, 6, 6, 6, 6, act=nn.GELU), ROWS),
    "cnn": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                  nn.Linear(36, 5), nn.LogSoftmax(-1)), PICTURE),
    "residual": (Residual, PICTURE),
    "unet": (UNet, PICTURE),
    "separable": (lambda: nn.Sequential(separable(3, 6), separable(6, 4),
                                        nn.AdaptiveAvgPool2d(1)), PICTURE),
    "lstm": (lambda: Words(nn.LSTM), TOKENS),
    "gru": (lambda: Words(nn.GRU), TOKENS),
    "rnn": (lambda: Words(nn.RNN), TOKENS),
    "gpt": (Gpt, TOKENS),
    "encoder": (lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(6, 2, 12, batch_first=True), 2), (2, 3, 6)),
    "tcn": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3, dilation=2, padding=2), nn.GroupNorm(2, 4),
                                  nn.ELU(), nn.Conv1d(4, 2, 1)), (2, 3, 9)),
    "two outputs": (TwoResults, (3, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models_there_and_back(name: str) -> None:
    """The same numbers, the same weights, the same gradients."""
    make, shape = MODELS[name]
    tn.manual_seed(0)
    model = make().eval()
    x = tn.randn(*shape) if shape else tn.randint(0, 11, (2, 5))
    proto = tn.onnx.export(model, (x,)).model_proto
    onnx.checker.check_model(proto)
    back = tn.onnx.load(proto)
    wanted, got = model(x), back(x)
    pairs = zip(*((v if isinstance(v, tuple) else (v,)) for v in (wanted, got)), strict=True)
    total = [tn.zeros(()), tn.zeros(())]
    for a, b in pairs:
        assert tn.allclose(a, b, rtol=2e-5, atol=2e-5)
        total = [t + v.square().sum() for t, v in zip(total, (a, b), strict=True)]
    if not total[0].requires_grad:
        return
    total[0].backward()
    total[1].backward()
    own, kept = dict(model.named_parameters()), dict(back.named_parameters())
    shared = [
        n for n in own if n in kept and own[n].grad is not None and kept[n].shape == own[n].shape
    ]
    assert shared
    for n in shared:
        assert tn.allclose(own[n].grad, kept[n].grad, rtol=1e-3, atol=1e-4), n


# ---- ONNX's own node tests -----------------------------------------------------------------------

# What is not read, by a part of the test's name; everything else must pass.
NOT_READ = (
    "FLOAT8", "FLOAT4", "INT4", "INT2", "float8", "float4", "int4", "int2", "e4m3", "e5m2", "e8m0",
    "uint16", "uint32", "uint64", "ui16", "ui32", "ui64", "bitwise_not_3d",
    "string", "strnorm", "regex", "tfidf", "label_encoder", "ai_onnx_ml", "_cast_no_saturate",
    "image_decoder", "momentum", "adagrad", "adam", "dft", "stft", "melweight", "col2im_5d",
    "gridsample", "affine_grid", "deform_conv", "training_dropout", "STRING",
)  # fmt: skip
LEAST = 1500


def tensors(value: Any) -> Any:
    from tenon.onnx import _load

    if isinstance(value, list):
        return [tensors(v) for v in value]
    if value is None:
        return None
    if isinstance(value, onnx.TensorProto):
        return _load.tensor_of(value)
    array = np.asarray(value)
    if array.dtype.kind in "biufc":
        return tn.from_numpy(array.copy())
    return tn.from_numpy(array.astype(np.float32)).to(getattr(tn, str(array.dtype)))


def alike(a: Any, b: Any, rtol: float, atol: float) -> bool:
    if isinstance(b, list):
        return len(a) == len(b) and all(alike(x, y, rtol, atol) for x, y in zip(a, b, strict=True))
    if b is None:
        return a is None
    if a.dtype in (tn.float16, tn.bfloat16):
        rtol = atol = 2e-2
    return a.dtype == b.dtype and tn.allclose(a.double(), b.double(), rtol, atol, equal_nan=True)


@pytest.mark.slow
def test_the_node_tests(capsys: pytest.CaptureFixture[str]) -> None:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    failed, passed, skipped = [], 0, 0
    for case in cases:
        ops = {n.op_type for n in case.model.graph.node}
        if any(part in case.name for part in NOT_READ):
            skipped += 1
            continue
        try:
            model = tn.onnx.load(case.model)
            for given, wanted in case.data_sets:
                with tn.no_grad():
                    got = model(*[tensors(v) for v in given])
                got = got if isinstance(got, tuple) else (got,)
                is_random = any(o.startswith(("Random", "Bernoulli", "Multinomial")) for o in ops)
                pairs = [] if is_random else zip(got, wanted, strict=True)
                ok = all(alike(a, tensors(b), max(case.rtol, 1e-3), max(case.atol, 1e-5))
                         for a, b in pairs)  # fmt: skip
                if not ok:
                    failed.append(case.name)
                    break
            else:
                passed += 1
        except Exception as err:  # noqa: BLE001 - all of them are listed
            failed.append(f"{case.name}: {type(err).__name__}: {err}")
    with capsys.disabled():
        print(f"\nONNX node tests: {passed} pass, {skipped} are not read, of {len(cases)}")
    assert not failed and passed >= LEAST


def resized(second: list[float], name: str = "scales") -> Any:
    """A model that resizes by these numbers."""
    inputs, kind = ("x  by", np.float32) if name == "scales" else ("x   by", np.int64)
    made = helper.make_node("Resize", inputs.split(" "), ["y"])
    return model_of([made], {"x": (FLOAT, [1, 1, 2, 2])}, ["y"], by=np.asarray(second, kind))


REFUSED = {
    "no sizes": (lambda: resized([]), "Resize has neither scales nor sizes"),
    "a scale of nothing": (lambda: resized([1, 1, 0, 1]), "Resize has the scales"),
    "a scale below": (lambda: resized([1, 1, -1, 1]), "Resize has the scales"),
    "a scale without end": (lambda: resized([1, 1, np.inf, 1]), "Resize has the scales"),
    "a great scale": (lambda: resized([1, 1, 3e38, 1]), "Resize would make sizes of"),
    "a size below": (lambda: resized([1, 1, -3, 2], "sizes"), "Resize would make sizes of"),
    "a text": (
        lambda: model_of([node("Constant", "", "y", value_string=b"a")], {}, ["y"]),
        "constants are no texts",
    ),
    "texts": (
        lambda: model_of([node("Constant", "", "y", value_strings=[b"a"])], {}, ["y"]),
        "constants are no texts",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_run_says_so(name: str) -> None:
    made, words = REFUSED[name]
    proto = made()
    inputs = [tn.ones(1, 1, 2, 2)] * len(proto.graph.input)
    with pytest.raises(RuntimeError, match=words):
        tn.onnx.load(proto)(*inputs)


def test_a_model_refuses_what_it_does_not_take() -> None:
    proto = linear()
    with pytest.raises(TypeError, match="the model takes 1 inputs, not 2"):
        tn.onnx.load(proto)(tn.ones(1, 4), tn.ones(1, 4))
    deep = model_of([node("Identity", "w", "y")], {}, ["y"])
    deep.graph.node[0].input[0] = name = ".".join("w" * 102)
    deep.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(1, np.float32), name))
    with pytest.raises(RuntimeError, match="lies too deep"):
        tn.onnx.load(deep)
    deep.graph.initializer[0].name = deep.graph.node[0].input[0] = ".".join("w" * 101)
    assert tn.onnx.load(deep)().tolist() == [1]
