"""ONNX: models that are exported, against Tenon, by onnx's reference and onnxruntime."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import nn

F = nn.functional
onnx = pytest.importorskip("onnx")


def run_reference(model: Any, feeds: dict[str, Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, feeds)


def run_runtime(model: Any, feeds: dict[str, Any]) -> list[Any]:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    data = model.SerializeToString()
    return runtime.InferenceSession(data, options, ["CPUExecutionProvider"]).run(None, feeds)


def run_loaded(model: Any, feeds: dict[str, Any]) -> list[Any]:
    loaded = tn.onnx.load(model.SerializeToString())
    with tn.no_grad():
        got = loaded(**{n: tn.from_numpy(a.copy()) for n, a in feeds.items()})
    return [t.numpy() for t in (got if isinstance(got, tuple) else (got,))]


ALL = (run_reference, run_runtime, run_loaded)


def check(model: nn.Module, *args: Any, runs: Any = ALL) -> None:
    model.eval()
    exported = tn.onnx.export(model, args)
    flat = leaves(args)
    names = [i.name for i in exported.model_proto.graph.input]
    with tn.no_grad():
        wanted = leaves(model(*args))
    for run in runs:
        feeds = {n: t.numpy() for n, t in zip(names, flat, strict=True)}
        got = run(exported.model_proto, feeds)
        for a, b in zip(got, wanted, strict=True):
            assert str(a.dtype) == str(b.dtype).split(".")[-1]
            np.testing.assert_allclose(a, b.numpy(), rtol=2e-5, atol=2e-5)


def leaves(tree: Any) -> list[Any]:
    from tenon.utils import _pytree

    return [t for t in _pytree.tree_leaves(tree) if isinstance(t, tn.Tensor)]


IMAGE, ROWS, LINE = (2, 4, 8, 8), (3, 6), (2, 4, 9)
LAYERS: list[tuple[Any, tuple[int, ...]]] = [
    (lambda: nn.Linear(6, 5), ROWS),
    (lambda: nn.Linear(6, 5, bias=False), ROWS),
    (lambda: nn.Linear(9, 5), LINE),
    (lambda: nn.Conv1d(4, 6, 3, padding=1), LINE),
    (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), IMAGE),
    (lambda: nn.Conv2d(4, 8, (3, 1), dilation=2, groups=4, bias=False), IMAGE),
    (lambda: nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
    (lambda: nn.ConvTranspose1d(4, 3, 3, stride=2), LINE),
    (lambda: nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1), IMAGE),
    (lambda: nn.BatchNorm1d(6), ROWS),
    (lambda: nn.BatchNorm1d(4), LINE),
    (lambda: nn.BatchNorm2d(4), IMAGE),
    (lambda: nn.BatchNorm2d(4, affine=False), IMAGE),
    (lambda: nn.InstanceNorm2d(4, affine=True), IMAGE),
    (lambda: nn.LayerNorm(6), ROWS),
    (lambda: nn.LayerNorm((8, 8)), IMAGE),
    (lambda: nn.LayerNorm(6, elementwise_affine=False), ROWS),
    (lambda: nn.GroupNorm(2, 4), IMAGE),
    (lambda: nn.RMSNorm(6), ROWS),
    (lambda: nn.MaxPool1d(2), LINE),
    (lambda: nn.MaxPool2d(3, stride=2, padding=1), IMAGE),
    (lambda: nn.MaxPool2d(3, stride=2, ceil_mode=True), IMAGE),
    (lambda: nn.AvgPool1d(3), LINE),
    (lambda: nn.AvgPool2d(3, padding=1), IMAGE),
    (lambda: nn.AvgPool2d(3, padding=1, count_include_pad=False), IMAGE),
    (lambda: nn.AdaptiveAvgPool2d(1), IMAGE),
    (lambda: nn.AdaptiveAvgPool2d((2, 4)), IMAGE),
    (lambda: nn.AdaptiveAvgPool1d(3), LINE),
    (nn.ReLU, ROWS), (nn.ReLU6, ROWS), (nn.Tanh, ROWS),
    (nn.Sigmoid, ROWS), (nn.LeakyReLU, ROWS), (nn.ELU, ROWS), (nn.SELU, ROWS), (nn.CELU, ROWS),
    (nn.GELU, ROWS), (lambda: nn.GELU("tanh"), ROWS), (nn.SiLU, ROWS), (nn.Mish, ROWS),
    (nn.Softplus, ROWS), (lambda: nn.Softplus(2.0, 1.0), ROWS), (nn.Hardtanh, ROWS),
    (nn.Hardsigmoid, ROWS), (nn.Hardswish, ROWS), (nn.Softsign, ROWS), (nn.LogSigmoid, ROWS),
    (lambda: nn.Threshold(0.1, -2.0), ROWS), (nn.Hardshrink, ROWS), (nn.Softshrink, ROWS),
    (nn.Tanhshrink, ROWS), (lambda: nn.Softmax(-1), ROWS), (lambda: nn.Softmax(1), LINE),
    (lambda: nn.LogSoftmax(-1), ROWS), (lambda: nn.Softmin(-1), ROWS), (nn.PReLU, ROWS),
    (lambda: nn.Dropout(0.5), ROWS), (nn.Flatten, IMAGE), (nn.Identity, ROWS),
    (lambda: nn.Unflatten(1, (2, 3)), ROWS), (lambda: nn.ZeroPad2d(1), IMAGE),
    (lambda: nn.ConstantPad2d((1, 2, 0, 1), 3.0), IMAGE), (lambda: nn.ReflectionPad2d(2), IMAGE),
    (lambda: nn.ReplicationPad2d(1), IMAGE), (lambda: nn.Upsample(scale_factor=2), IMAGE),
    (lambda: nn.Upsample(size=(5, 7), mode="bilinear"), IMAGE),
    (lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), IMAGE),
    (lambda: nn.LSTM(6, 5, batch_first=True), (2, 3, 6)),
    (lambda: nn.LSTM(6, 5, num_layers=2, bidirectional=True), (3, 2, 6)),
    (lambda: nn.GRU(6, 5, num_layers=2), (3, 2, 6)),
    (lambda: nn.GRU(6, 5, bidirectional=True, bias=False, batch_first=True), (2, 3, 6)),
    (lambda: nn.RNN(6, 5), (3, 2, 6)),
    (lambda: nn.RNN(6, 5, nonlinearity="relu", num_layers=2), (3, 2, 6)),
    (lambda: nn.MultiheadAttention(6, 2, batch_first=True), (2, 3, 6)),
    (lambda: nn.TransformerEncoderLayer(6, 2, 12, batch_first=True), (2, 3, 6)),
    (lambda: nn.TransformerEncoderLayer(6, 2, 12, activation="gelu", norm_first=True), (3, 2, 6)),
]  # fmt: skip


@pytest.mark.parametrize("make, shape", LAYERS, ids=[str(i) for i in range(len(LAYERS))])
def test_layers(make: Any, shape: tuple[int, ...]) -> None:
    tn.manual_seed(0)
    layer = make()
    for name, buffer in layer.named_buffers():
        if name.startswith("running"):
            buffer.uniform_(0.5, 2.0)
    x = tn.randn(*shape)
    recursive = isinstance(layer, nn.RNNBase)
    runs = (run_runtime, run_loaded) if recursive else ALL
    check(layer, *((x, x, x) if isinstance(layer, nn.MultiheadAttention) else (x,)), runs=runs)


class Function(nn.Module):
    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


FUNCTIONS = {
    "numbers": lambda x: (x + 1) * 2 - 3 / x.abs().clamp(min=0.5) + (2 - x) ** 2,
    "dtypes": lambda x: (x.to(tn.int64) + 2.5, (x > 0) & (x.int() != 1), x.double() * 2),
    "reductions": lambda x: (
        x.sum(), x.mean(1), x.amax(0, keepdim=True), x.max(1), x.argmax(1), x.std(), x.var(1),
        x.norm(), x.logsumexp(1), x.cumsum(0), x.min(dim=0),
    ),
    "shapes": lambda x: (
        x.t(), x.unsqueeze(0).squeeze(0), x.view(2, 9), x[1], x[:, 1:4:2], x.chunk(3, dim=1),
        x.split([2, 4], dim=1), x.unbind(0), tn.stack([x, x], 1), tn.cat([x, x], -1), x[..., 0],
        x.expand(2, 3, 6), x.reshape(-1),
    ),
    "choices": lambda x: (
        tn.where(x > 0, x, tn.zeros(6)), x.masked_fill(x < 0, -1.0), x.tril(), x.triu(1),
        tn.maximum(x, -x), x.exp().log1p(), x.square().rsqrt(), x.expm1(),
    ),
    "products": lambda x: (
        x @ x.t(), tn.einsum("ij,kj->ik", x, x), tn.addmm(x @ x.t(), x, x.t(), alpha=2, beta=0.5),
    ),
    "in place": lambda x: x.clone().add_(1).relu_().mul_(x),
    "indexing": lambda x: (
        x.gather(1, tn.tensor([[0], [2], [1]])), x.index_select(0, tn.tensor([2, 0])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    tn.manual_seed(1)
    check(Function(FUNCTIONS[name]), tn.randn(3, 6))


class Attention(nn.Module):
    """A block of a language model, with free sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 8), nn.Embedding(16, 8)
        self.qkv, self.norm, self.out = nn.Linear(8, 24), nn.LayerNorm(8), nn.Linear(8, 20)

    def forward(self, ids: tn.Tensor) -> tn.Tensor:
        b, t = ids.shape
        x = self.tokens(ids) + self.places(tn.arange(t))
        q, k, v = (
            z.view(b, t, 2, 4).transpose(1, 2) for z in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x + y.transpose(1, 2).reshape(b, t, 8))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Dropout(0.2), nn.Flatten(), nn.Linear(64, 10), nn.LogSoftmax(1),
    )  # fmt: skip


@pytest.mark.parametrize("opset", [18, 21])
def test_models_with_free_sizes(opset: int, tmp_path: Path) -> None:
    model = cnn().eval()
    path = tmp_path / "cnn.onnx"
    made = tn.onnx.export(
        model, (tn.randn(2, 1, 8, 8),), path, input_names=["image"], output_names=["scores"],
        dynamic_axes={"image": {0: "batch"}, "scores": {0: "batch"}}, opset_version=opset,
    )  # fmt: skip
    proto = onnx.load(path)
    assert proto.opset_import[0].version == opset
    assert [i.name for i in proto.graph.input] == ["image"]
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    weights = {t.name for t in proto.graph.initializer}
    assert {"0.weight", "6.bias"} <= weights and made.exported_program is not None
    for n in (1, 5):
        x = tn.randn(n, 1, 8, 8)
        for run in (run_reference, run_runtime):
            got = run(proto, {"image": x.numpy()})[0]
            np.testing.assert_allclose(got, model(x).detach().numpy(), rtol=2e-5, atol=2e-5)


def test_a_language_model_with_two_free_sizes() -> None:
    model = Attention().eval()
    sizes = {0: tn.export.Dim("b", min=1), 1: tn.export.Dim("t", min=1, max=16)}
    made = tn.onnx.export(model, (tn.randint(0, 20, (2, 5)),), dynamic_shapes={"ids": sizes})
    for shape in ((1, 1), (3, 9), (2, 16)):
        ids = tn.randint(0, 20, shape)
        for run in (run_reference, run_runtime):
            got = run(made.model_proto, {"ids": ids.numpy()})[0]
            np.testing.assert_allclose(got, model(ids).detach().numpy(), rtol=2e-5, atol=2e-5)


def views(x: tn.Tensor) -> Any:
    y = x * 1
    a, b = y[1:, ::2], y.t()
    a.add_(10)
    b[0].mul_(2)
    y[:, 0] = 1
    y[1] += 2
    return y, a, b, y.view(-1)


def parts(x: tn.Tensor) -> Any:
    y = x + 0
    first, second = y.chunk(2, 1)
    first.relu_()
    second.neg_()
    y.unbind(0)[1].zero_()
    return y, first + second, y.sum()


def chosen(x: tn.Tensor) -> Any:
    y = x.clone()
    y[x > 0] = -1.0
    y[:, [0, 2]] = 5.0
    y[:, tn.tensor([1, 1]), tn.newaxis] += 0.5
    y.diagonal().fill_(9.0)
    y.mT[1:].masked_fill_(y.mT[1:] < 0, 0.25)
    return y


def chained(x: tn.Tensor) -> Any:
    y = tn.empty(2, 4, 4)
    for i in range(2):
        y[i] = x * i
    z = y[1].view(2, 8)
    z[1].copy_(x.flatten()[:8])
    y[0, 0] = 100
    z += y[0].view(2, 8)
    return z, y, tn.special.ndtr(y), z.sub_(1).erfc()


@pytest.mark.parametrize("fn", [views, parts, chosen, chained])
def test_writes_to_what_others_look_at(fn: Any) -> None:
    check(Function(fn), tn.randn(4, 4))


class Slots(nn.Module):
    def forward(self, x: tn.Tensor, at: tn.Tensor) -> tn.Tensor:
        kept = tn.zeros(x.shape[0], 6, 4)
        kept[:, 2:5] = x
        kept.index_copy_(1, at, x[:, :1])
        return kept.cumsum(1)


def test_writes_where_sizes_are_free() -> None:
    at = tn.tensor([0])
    made = tn.onnx.export(Slots(), (tn.randn(2, 3, 4), at), input_names=["x", "at"],
                          dynamic_axes={"x": {0: "b"}})  # fmt: skip
    for n in (1, 5):
        x = tn.randn(n, 3, 4)
        for run in ALL:
            got = run(made.model_proto, {"x": x.numpy(), "at": at.numpy()})[0]
            np.testing.assert_allclose(got, Slots()(x, at).numpy(), rtol=2e-5, atol=2e-5)


def test_free_sizes_of_any_number_of_inputs() -> None:
    class Any_(nn.Module):
        def forward(self, *xs: tn.Tensor) -> tn.Tensor:
            return sum(x.flatten(1) for x in xs)

    made = tn.onnx.export(Any_(), (tn.ones(2, 2, 2), tn.ones(2, 4)), input_names=["a", "b"],
                          dynamic_axes={"a": {0: "n"}, "b": {0: "n"}})  # fmt: skip
    feeds = {"a": np.ones((5, 2, 2), np.float32), "b": np.ones((5, 4), np.float32)}
    assert run_reference(made.model_proto, feeds)[0].shape == (5, 4)


def test_older_opsets_become_the_oldest_that_is_written() -> None:
    with pytest.warns(UserWarning, match="writes opset 18: opset 11"):
        made = tn.onnx.export(Function(lambda x: x + 1), (tn.randn(3),), opset_version=11)
    assert made.model_proto.opset_import[0].version == 18


def test_what_is_refused() -> None:
    def refused(fn: Any, match: str, **options: Any) -> None:
        with pytest.raises(RuntimeError, match=match):
            tn.onnx.export(Function(fn), (tn.randn(3, 3),), **options)

    both = "no translation of special_bessel_j0, special_bessel_j1"
    refused(lambda x: tn.special.bessel_j1(tn.special.bessel_j0(x)), both)
    refused(lambda x: x.add_(1), "writes to an input")

    refused(lambda x: x.t()[0].mul_(2), "writes to an input")
    refused(lambda x: F.dropout(x, 0.5, True), "eval")
    refused(lambda x: x, "opset 18", opset_version=99)
    refused(lambda x: x * 2 if x.sum() > 0 else x, "looks at values")
    with pytest.raises(RuntimeError, match="batch_norm"):
        tn.onnx.export(nn.BatchNorm1d(3, track_running_stats=False), (tn.randn(3, 3),))


def test_files_and_constants() -> None:
    buffer = io.BytesIO()
    tn.onnx.export(Function(lambda x: x * math.pi), (tn.ones(2),), buffer)
    model = onnx.load_from_string(buffer.getvalue())
    got = run_reference(model, {model.graph.input[0].name: np.ones(2, np.float32)})
    np.testing.assert_allclose(got[0], [math.pi] * 2, rtol=1e-6)


def test_options_of_exports(tmp_path: Path) -> None:
    """What has no effect is taken, what asks for something else is refused; PyTorch's numbers."""
    net, x, path = nn.Linear(2, 2), tn.ones(1, 2), tmp_path / "model.onnx"
    kinds, modes = tn.onnx.OperatorExportTypes, tn.onnx.TrainingMode
    assert {k.name: k.value for k in kinds} == {
        "ONNX": 0, "ONNX_ATEN": 1, "ONNX_ATEN_FALLBACK": 2, "ONNX_FALLTHROUGH": 3
    }  # fmt: skip
    assert {m.name: m.value for m in modes} == {"EVAL": 0, "PRESERVE": 1, "TRAINING": 2}
    taken: dict[str, Any] = {
        "dynamo": True, "verbose": True, "export_params": True, "training": modes.PRESERVE,
        "operator_export_type": kinds.ONNX, "custom_opsets": {}, "verify": True,
        "keep_initializers_as_inputs": False,
    }  # fmt: skip
    assert tn.onnx.export(net, (x,), path, **taken) is not None
    refused: dict[str, Any] = {
        "export_params": False, "training": modes.TRAINING,
        "operator_export_type": kinds.ONNX_ATEN, "export_modules_as_functions": True,
        "keep_initializers_as_inputs": True, "custom_translation_table": {1: 2},
    }  # fmt: skip
    for name, value in refused.items():
        with pytest.raises(tn.onnx.OnnxExporterError, match=f"{name}=.* is not there"):
            tn.onnx.export(net, (x,), path, **{name: value})
    with pytest.raises(TypeError, match="unexpected keyword argument 'speed'"):
        tn.onnx.export(net, (x,), path, speed=3)
    for opset in (0, -1, 99):
        with pytest.raises(tn.onnx.OnnxExporterError, match=f"writes opset .* not {opset}"):
            tn.onnx.export(net, (x,), path, opset_version=opset)


def test_whether_an_export_goes_on() -> None:
    seen: list[bool] = []

    class Looks(nn.Module):
        def forward(self, x: Any) -> Any:
            seen.append(tn.onnx.is_in_onnx_export())
            return x * 2

    assert not tn.onnx.is_in_onnx_export()
    tn.onnx.export(Looks(), (tn.ones(2),))
    Looks()(tn.ones(2))
    assert seen[0] and not seen[-1] and not tn.onnx.is_in_onnx_export()
    with pytest.raises(tn.onnx.OnnxExporterError, match="batch dimension"):
        tn.onnx.export(nn.Conv1d(2, 2, 1), (tn.ones(2, 4),))
    assert not tn.onnx.is_in_onnx_export()
