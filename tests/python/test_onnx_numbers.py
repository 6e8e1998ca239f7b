"""ONNX: operators that need several nodes, and composites, which are exported as their parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon import nn

onnx = pytest.importorskip("onnx")
from test_onnx import ALL, check, run_loaded, run_reference, run_runtime  # noqa: E402
from test_onnx_operators import ODD, Of, normal  # noqa: E402

F = nn.functional
EVERY = ODD[0][:, None].expand(7, 7).contiguous(), ODD[0][None].expand(7, 7).contiguous()
PAIR = normal(3, 4), normal(3, 4, seed=2)
X, LINE = PAIR[:1], (normal(4),)
IMAGES = normal(2, 3, 5, 6), normal(2, 4, 4, 2, seed=5)
WHOLE = (tn.arange(12).reshape(4, 3) * 7 % 5,)
GAMMA = (tn.cat([tn.linspace(-5.25, 12, 70), ODD[0], tn.tensor([-3.0, 1.0, 2.0, 1e-3, 3e4])]),)
AT = tn.tensor([[0, 1], [1, 2], [3, 3]])
CASES: dict[str, tuple[Callable[..., Any], tuple[tn.Tensor, ...]]] = {
    "atan2": (tn.atan2, EVERY),
    "copysign": (tn.copysign, EVERY),
    "hypot": (tn.hypot, EVERY),
    "hypot of large": (lambda a, b: tn.hypot(a * 1e30, b * 1e30), PAIR),
    "fmax": (tn.fmax, EVERY),
    "fmin": (tn.fmin, EVERY),
    "fmin whole": (lambda a: tn.fmin(a, 2 - a), WHOLE),
    "logaddexp": (tn.logaddexp, EVERY),
    "logaddexp2": (lambda a, b: tn.logaddexp2(a * 100, b), PAIR),
    "angle": (tn.angle, ODD),
    "sgn": (lambda a: tn.sgn(a[3:]), ODD),
    "entr": (lambda a: tn.special.entr(a[2:]), ODD),
    "xlog1py": (lambda a, b: tn.special.xlog1py(a * (b > 0), b.abs()), PAIR),
    "isclose": (lambda a, b: tn.isclose(a, b + 1e-6), PAIR),
    "isclose at ends": (tn.isclose, EVERY),
    "isclose nan": (lambda a, b: tn.isclose(a, b, equal_nan=True), EVERY),
    "shifts": (lambda a: (a << 2, (a - 3) >> 1), WHOLE),
    "addmv": (lambda m, v, a: tn.addmv(a, m, v, beta=0.5, alpha=2), (*X, *LINE, normal(3))),
    "cumprod": (lambda a: (a.cumprod(1), a.cumprod(0)), X),
    "logcumsumexp": (lambda a: tn.logcumsumexp(a * 90, 1), X),
    "cummax": (lambda a, b: tuple(tn.cummax(a + b, 1)), EVERY),
    "cummin": (lambda a: tuple(tn.cummin(a, 1)), (normal(4, 3, 2),)),
    "cummax whole": (lambda a: tuple(tn.cummax(a, 0)), WHOLE),
    "diagonal": (lambda a: (a.diagonal(1, 1, 2), a.diagonal(-2, 2, 0)), (normal(2, 3, 4),)),
    "diag": (lambda a, b: (tn.diag(a, 1), tn.diag(b, -1)), (*LINE, *X)),
    "diag_embed": (lambda a: (tn.diag_embed(a, -1), tn.diag_embed(a, 1, 0, 2)), X),
    "diag_embed in turn": (lambda a: tn.diag_embed(a, 0, 2, 0), X),
    "diagflat": (lambda a: tn.diagflat(a, -2), (normal(2, 2),)),
    "diagonal_scatter": (tn.diagonal_scatter, (*X, normal(3))),
    "diagonal_scatter up": (lambda a, v: tn.diagonal_scatter(a, v, 1, 2, 0),
                            (normal(4, 2, 3), normal(2, 3))),
    "slice_scatter": (lambda a, b: tn.slice_scatter(a, b[:, :2], 1, 0, 4, 2), PAIR),
    "select_scatter": (lambda a: tn.select_scatter(a, a[:, 1], 1, -1), X),
    "scatter added": (lambda a, s: a.scatter(1, AT, s, reduce="add"), PAIR),
    "scatter in place": (lambda a: (a * 1).scatter_(1, AT, 2.5), X),
    "scatter multiplied": (lambda a: a.scatter(1, AT, 2.5, reduce="multiply"), X),
    "index_reduce": (
        lambda a, s: a.index_reduce(0, tn.tensor([0, 2]), s[:2], "amax"), PAIR),
    "circular pad": (lambda a: F.pad(a, (1, 2, 0, 1), mode="circular"), IMAGES[:1]),
    "area": (lambda a: F.interpolate(a, scale_factor=0.5, mode="area"), (normal(1, 2, 4, 4),)),
    "averages of windows": (
        lambda a: [F.avg_pool2d(a, k, s, p, True, i, d) for k, s, p, i, d in (
            (3, 2, 0, True, None), (3, 2, 1, False, None), (3, 2, 1, True, None),
            (2, 3, 1, True, 5), ((2, 3), (3, 2), (1, 0), True, None), (2, 1, 0, False, 3))],
        (normal(1, 2, 6, 8),)),
    "averages of lines": (
        lambda a: F.avg_pool1d(a, 3, 2, 1, True, False), (normal(1, 2, 8),)),
    "lgamma": (tn.lgamma, GAMMA),
    "digamma": (tn.digamma, GAMMA),
    "erfinv": (tn.erfinv, (tn.cat([tn.linspace(-1.5, 1.5, 61), 1 - 2.0 ** -tn.arange(1.0, 25)]),)),
    "histc": (
        lambda a: (tn.histc(a, 5, -1, 1), tn.histc(a, 4), tn.histc(a * 0, 3), tn.histc(a, 1, 0, 9)),
        (tn.cat([normal(40), tn.tensor([-1.0, 1.0, 0.6])]),)),
    "inverse": (
        lambda a: (tn.inverse(a), tn.linalg.inv(a[0, 0])),
        (normal(2, 2, 5, 5) + tn.eye(5)[[2, 0, 1, 4, 3]] * 4,)),
    "solve": (
        lambda a, b: (tn.linalg.solve(a, b), tn.linalg.solve(a[0], b[0, :, 0])),
        (normal(2, 5, 5) + tn.eye(5)[[2, 0, 1, 4, 3]] * 4, normal(2, 5, 3))),
    "solve broadcast": (
        lambda a, b: tn.linalg.solve(a, b), (normal(2, 3, 3) + tn.eye(3) * 4, normal(3, 1))),
    "unequal averages": (lambda a: F.adaptive_avg_pool2d(a, (3, 7)), IMAGES[:1]),
    "averages of volumes": (
        lambda a: F.adaptive_avg_pool3d(a, (2, 1, 3)), (normal(1, 2, 3, 2, 4),)),
    "unequal area": (lambda a: F.interpolate(a, size=(4, 4), mode="area"), IMAGES[:1]),
    "trilinear": (lambda a: F.interpolate(a, scale_factor=2.0, mode="trilinear"),
                  (normal(1, 2, 3, 2, 3),)),
    "cdist": (lambda a, b: [tn.cdist(a, b, p) for p in (2.0, 1.0, 3.0, float("inf"), 0.0)], PAIR),
    "norms": (
        lambda a: [a.norm(p, 1) for p in (0, 0.5, 3, float("inf"), -float("inf"))], X),
    "pairwise_distance": (lambda a, b: F.pairwise_distance(a, b, 3.0), PAIR),
    "filled": (lambda a: (a * 2).zero_() + (a + 1).fill_(2.5), X),
    # Composites, which are their parts.
    "kron": (lambda a, b: tn.kron(a, b[:2, :2]), PAIR),
    "cross": (lambda a, b: tn.linalg.cross(a[:, :3], b[:, :3]), PAIR),
    "trace": (lambda a: tn.trace(a[:, :3]), X),
    "rot90": (tn.rot90, X),
    "sinc": (tn.sinc, X),
    "renorm": (lambda a: tn.renorm(a, 2, 0, 1.0), X),
    "quantile": (lambda a: tn.quantile(a, 0.3), X),
    "cov": (lambda a: (tn.cov(a), tn.corrcoef(a)), X),
    "trapezoid": (tn.trapezoid, X),
    "nansum": (lambda a: tn.nansum(a[[0, 3, 5]]), ODD),
    "pdist": (F.pdist, X),
    "vander": (tn.vander, LINE),
    "masked_scatter": (lambda a, b: a.masked_scatter(a > 0, b), PAIR),
    "triplet": (lambda a, b: F.triplet_margin_loss(a, b, a + 1), PAIR),
    "poisson": (lambda a, b: F.poisson_nll_loss(a, b.abs(), full=True), PAIR),
    "cosine embedding": (lambda a, b: F.cosine_embedding_loss(a, b, tn.ones(3)), PAIR),
    "multi margin": (lambda a: F.multi_margin_loss(a, tn.tensor([1, 0, 3])), X),
    "affine grid": (
        lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False), (normal(2, 2, 3),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:invalid value|divide by zero:RuntimeWarning")
def test_numbers(name: str) -> None:
    fn, args = CASES[name]
    check(Of(fn), *args, runs=ALL)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grids(mode: str, padding: str) -> None:
    for corners in (False, True):
        model = Of(lambda a, g, c=corners: F.grid_sample(a, g * 0.7, mode, padding, c))
        check(model, *IMAGES, runs=(run_runtime, run_loaded))
    # Until opset 20 the evaluator does not know the names that the standard has.
    exported = tn.onnx.export(model, IMAGES, opset_version=20)
    if mode != "bicubic":
        names = [i.name for i in exported.model_proto.graph.input]
        feeds = dict(zip(names, (t.numpy() for t in IMAGES), strict=True))
        (got,) = run_reference(exported.model_proto, feeds)
        tn.testing.assert_close(tn.from_numpy(got), model(*IMAGES), rtol=1e-4, atol=1e-4)


def test_parts_with_free_sizes() -> None:
    class Turn(nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return tn.rot90(tn.sinc(x)).cumprod(1)

    exported = tn.onnx.export(Turn(), X, dynamic_axes={"x": {0: "n"}})
    for n in (1, 5):
        x = normal(n, 4)
        for run in ALL:
            (got,) = run(exported.model_proto, {"x": x.numpy()})
            tn.testing.assert_close(tn.from_numpy(got), Turn()(x))


def test_operators_without_any_translation_are_named() -> None:
    with pytest.raises(tn.onnx.OnnxExporterError, match=r"no translation of _fft_r2c"):
        tn.onnx.export(Of(lambda x: tn.fft.rfft(x).abs()), X)


FREE = {"input_names": ["x"], "dynamic_axes": {"x": {2: "height"}}}
# A function, its arguments, what an export is asked for, the words.
REFUSED: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), (normal(1, 2, 6, 6),), FREE,
     "avg_pool2d: a size that is free"),
    (lambda x: F.max_pool2d(x, 2, return_indices=True), (normal(1, 2, 6, 6),), FREE,
     "max_pool2d_with_indices: a size that is free"),
    (lambda x: F.adaptive_avg_pool2d(x, 3), (normal(1, 2, 6, 6),), FREE,
     "adaptive_avg_pool2d: a size that is free"),
    (tn.erfinv, (normal(3).double() / 9,), {}, "erfinv: values of float64"),
    (tn.inverse, (tn.eye(65),), {}, "matrices of more than 64 rows"),
    (lambda x: x[x[:, 0] > 0, tn.tensor([0])], X, {}, "a mask beside other indices"),
    (lambda x: x.scatter_reduce(0, x.long() * 0, x, "mean"), X, {},
     "scatter_reduce: means, and whole numbers"),
    (lambda i: i.scatter_reduce(0, i * 0, i, "sum"), WHOLE, {},
     "scatter_reduce: means, and whole numbers"),
    (lambda x: tn.searchsorted(x.sort(1)[0], x), X, {}, "rows of edges, and a sorter"),
    (lambda x: tn.searchsorted(x, x, sorter=tn.arange(4)), LINE, {}, "and a sorter"),
    (lambda x: x.diff(prepend=x), X, {}, "diff: parts in front or behind"),
    (lambda x: x.take_along_dim(x.long()[:1, :2] * 0, 1), X, {}, "indices of another shape"),
    (lambda x: x.take_along_dim(x.long().flatten() * 0), X, {}, "indices of another shape"),
    (lambda i: F.one_hot(i), WHOLE, {}, "a number of classes that follows from values"),
    (lambda x: tn.clamp(x, x * 0), X, {}, "clamp_min: bounds that are tensors"),
    (lambda x: tn.clamp_max(x, x * 0), X, {}, "clamp_max: bounds that are tensors"),
    (lambda x: tn.hstack([x[0, 0], x[0]]), X, {}, "hstack: tensors of fewer dimensions"),
    (lambda x: tn.vstack([x, x]), LINE, {}, "vstack: tensors of fewer dimensions"),
    (lambda x: F.fold(x, (4, 4), 2), (normal(8, 9),), {}, "inputs without a batch dimension"),
    (lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), (normal(2, 3, 4),), {},
     "attention: dropout"),
    (lambda x: F.scaled_dot_product_attention(x, x[:, :1], x[:, :1], enable_gqa=True),
     (normal(1, 2, 3, 4),), {}, "attention: enable_gqa"),
    (lambda x: F.binary_cross_entropy(x, x, x), (normal(3).sigmoid(),), {},
     "binary_cross_entropy: weights"),
    (lambda x: F.binary_cross_entropy_with_logits(x, x, pos_weight=x), LINE, {},
     "with_logits: pos_weight"),
    (lambda x: F.cross_entropy(x, x), X, {}, "probabilities as labels"),
    (lambda x: F.cross_entropy(x, tn.tensor([0, 1, 2]), label_smoothing=0.1), X, {},
     "smoothed labels"),
    (lambda x: F.nll_loss(x, tn.tensor(1)), LINE, {}, "inputs without a batch dimension"),
    (lambda i: tn.isclose(i, i), WHOLE, {}, "isclose: whole numbers"),
    (lambda x: x.cumprod(0), (tn.tensor(3.0),), {}, "a tensor without dimensions"),
    (lambda x: tn.diag_embed(x, 1, 1, 0), X, {}, "dimensions in this order, with an offset"),
    (lambda x: F.grid_sample(x, x[..., :3], align_corners=True), (normal(1, 3, 3, 3, 3),), {},
     "volumes"),
    (lambda i: i.isnan(), WHOLE, {}, "isnan: whole numbers"),
    (lambda i: i.isinf(), WHOLE, {}, "isinf: whole numbers"),
    (lambda i: i.isfinite(), WHOLE, {}, "isfinite: whole numbers"),
    (lambda x: F.pad(x, (-1, 2), mode="circular"), (normal(1, 2, 5),), {},
     "circular padding below zero, or by a free size"),
    (lambda x: x.to(tn.complex64).real, X, {}, "no translation of view_as_real"),
    (nn.LSTM(4, 3, proj_size=2), (normal(2, 1, 4),), {}, "lstm: projections"),
    (nn.RNN(4, 3, 2, dropout=0.5), (normal(2, 1, 4),), {}, "dropout in training"),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(REFUSED)))
def test_what_translations_refuse_is_named(at: int) -> None:
    fn, args, options, message = REFUSED[at]
    with pytest.raises(tn.onnx.OnnxExporterError, match=message):
        tn.onnx.export(fn if isinstance(fn, nn.Module) else Of(fn), args, **options)


def test_every_translation_is_of_an_operator() -> None:
    from tenon.onnx import _translate

    rows = json.loads(Path(tn.__file__).with_name("ops.json").read_text(encoding="utf-8"))
    assert not set(_translate.TRANSLATIONS) - {row["name"] for row in rows}
