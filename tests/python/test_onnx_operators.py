"""ONNX: parts of tensors that are picked, ordered and written; losses, cells; other sizes, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import nn

onnx = pytest.importorskip("onnx")
from test_onnx import check, leaves, run_runtime  # noqa: E402

F = nn.functional


def normal(*shape: int, seed: int = 1) -> tn.Tensor:
    data = np.random.default_rng(seed).standard_normal(shape)
    return tn.tensor(data.astype("float32"))


def whole(*shape: int) -> tn.Tensor:
    return (tn.arange(int(np.prod(shape))).reshape(shape) * 7) % 5


class Of(nn.Module):
    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


X, IMAGE = (normal(2, 4, 6),), (normal(2, 4, 8, 8),)
FOUR = tn.tensor([[0, 1], [2, 3], [1, 4]])
PAIR = normal(3, 5), normal(3, 5, seed=3)
ODD = (tn.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 2.5, -7.5]),)
SIGNED = (tn.tensor([[-7, -3, 0], [5, 3, -1]]),)
CASES: dict[str, tuple[Any, tuple[tn.Tensor, ...]]] = {
    "index one": (lambda x, i: x[i], (normal(5, 3), whole(2, 3))),
    "index behind": (lambda x, i: x[:, i], (normal(2, 5, 3), whole(4))),
    "index two": (lambda x, i, j: x[i, j], (normal(5, 5, 2), whole(3), whole(2, 3))),
    "index two inside": (
        lambda x, i, j: x[:, i, j], (normal(2, 5, 5, 3), whole(3), whole(2, 1))),
    "index apart": (lambda x, i, j: x[i, :, j], (normal(5, 2, 5), whole(3), whole(3))),
    "index below zero": (lambda x: x[tn.tensor([-1, 0])], X),
    "index mask": (lambda x: x[x > 0], X),
    "index rows by mask": (lambda x: x[x[:, 0] > 0], (normal(6, 3),)),
    "index_put": (lambda x, i, s: x.index_put((i,), s), (normal(5, 3), whole(2), normal(2, 3))),
    "index_put added": (
        lambda x, i, s: x.index_put((i,), s, accumulate=True),
        (normal(5, 3), tn.tensor([1, 1]), normal(2, 3))),
    "index_put mask": (lambda x: x.clone().index_put((x > 0,), tn.tensor(3.0)), X),
    "written in place": (lambda x, i: (x * 1).index_fill_(0, i, 2.0), (normal(5, 3), whole(2))),
    "take": (lambda x, i: x.take(i), (normal(5, 5), whole(3))),
    "take_along_dim": (lambda x, i: x.take_along_dim(i, 1), (normal(3, 5), FOUR)),
    "argmax": (lambda x: (x.argmax(), x.argmin(), x.argmax(1), x.argmin(-1, keepdim=True)), X),
    "argmax of all as one": (lambda x: (x.argmax(keepdim=True), x.argmin(keepdim=True)), X),
    "any and all": (
        lambda x: (x.any(), x.all(1), x.all(()), x.any((), True), x.any((0, 2)), x.all((0,), True)),
        ((X[0] > 0.5).float(),)),
    "norms of all": (
        lambda x: (x.norm(), x.norm(dim=1), x.norm(1, -1, True), tn.linalg.vector_norm(x, 3.0),
                   tn.linalg.vector_norm(x, 2.0, (0, 2), True)), X),
    "sizes in sums": (lambda x: (x + x.shape[1], x.long() * x.shape[-1], x / x.shape[0]), X),
    "nothing picked": (lambda x: (x[:, :0].sum(1), x[:0].reshape(0, 3)), X),
    "nonzero": (lambda x: (x.relu().nonzero(), *tn.where(x > 0)), X),
    "scatter": (lambda x, i, s: x.scatter(1, i, s), (normal(3, 5), FOUR, normal(3, 4))),
    "scatter value": (lambda x, i: x.scatter(1, i, 2.0), (normal(3, 5), FOUR)),
    "scatter_add": (
        lambda x, i, s: x.scatter_add(1, i, s), (normal(3, 5), whole(3, 2), normal(3, 2))),
    **{f"scatter_reduce {kind} {own}": (
        lambda x, i, s, kind=kind, own=own: x.scatter_reduce(1, i, s, kind, include_self=own),
        (normal(3, 5), whole(3, 2), normal(3, 2)),
    ) for kind in ("sum", "prod", "amax", "amin") for own in (True, False)},
    "index_add": (
        lambda x, i, s: x.index_add(1, i, s, alpha=2), (normal(2, 5), whole(2), normal(2, 2))),
    "index_copy": (
        lambda x, i, s: x.index_copy(0, i, s), (normal(5, 3), tn.tensor([1, 3]), normal(2, 3))),
    "index_fill": (lambda x, i: x.index_fill(1, i, 1.0), (normal(3, 5), whole(2))),
    "topk": (lambda x: (x.topk(2, -1), x.topk(2, 1, largest=False)), X),
    "sort": (lambda x: (x.sort(1), x.argsort(-1, descending=True)), X),
    "kthvalue": (lambda x: (x.kthvalue(2, -1), x.kthvalue(2, 1, keepdim=True), x.median(1)), X),
    "bucketize": (
        lambda x: (tn.bucketize(x, tn.tensor([-1.0, 0.0, 2.5])),
                   tn.searchsorted(tn.tensor([-1.0, 0.0, 2.5]), x, right=True)), ODD),
    "flip": (lambda x: (x.flip(2), x.flip([0, 1]), x.fliplr(), x.flipud()), X),
    "roll": (lambda x: (x.roll(1, 1), x.roll((1, -2), (1, 2)), x.roll(3)), X),
    "repeat": (lambda x: (x.repeat(2, 1, 2, 1), x.tile(2)), X),
    "repeat_interleave": (lambda x: (x.repeat_interleave(2, 1), x.repeat_interleave(3)), X),
    "unfold": (lambda x: (x.unfold(2, 3, 1), x.unfold(1, 2, 2)), X),
    "windows": (lambda x: F.unfold(x, (2, 3), dilation=(1, 2), padding=1, stride=(2, 1)), IMAGE),
    "fold": (
        lambda x: F.fold(x, (5, 6), (2, 3), dilation=(2, 1), padding=(1, 0), stride=(2, 1)),
        (normal(2, 12, 12),)),
    "shuffles": (
        lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2)),
        (normal(2, 4, 4, 6),)),
    "one_hot": (lambda i: F.one_hot(i, 5), (whole(2, 3),)),
    "diff": (lambda x: x.diff(n=2, dim=1), X),
    "movedim": (lambda x: (x.movedim(0, 2), x.movedim((0, 1), (2, 0))), X),
    "meshgrid": (lambda x, y: tn.meshgrid(x, y, indexing="ij"), (normal(3), normal(2))),
    "meshgrid xy": (lambda x, y: tn.meshgrid(x, y, indexing="xy"), (normal(3), normal(2))),
    "stacks": (lambda x: (tn.hstack([x, x]), tn.vstack([x, x]), x.tensor_split(4, 2)), X),
    "odd numbers": (
        lambda x: (x.isfinite(), x.isinf(), x.nan_to_num(), x.nan_to_num(1.0, 2.0, 3.0),
                   x.trunc(), tn.heaviside(x, x * 0 + 0.5)), ODD),
    "parts of numbers": (lambda x: (x.frac(), x.exp2(), x.deg2rad(), x.rad2deg()), X),
    "logit": (lambda x: (x.sigmoid().logit(), x.sigmoid().logit(0.4)), X),
    "remainder": (lambda x: (x.remainder(0.7), x.remainder(-0.7), x.fmod(0.7)), X),
    "remainder whole": (lambda i: (i % 3, i % -3, i.fmod(3), i // 2, i // -2), SIGNED),
    "division whole": (
        lambda i: [tn.div(i, 2, rounding_mode=how) for how in ("trunc", "floor")], SIGNED),
    "bits": (lambda i: ((i & 3) | (i ^ 1), ~i), SIGNED),
    "lerp": (lambda x, y: (tn.lerp(x, y, 0.3), tn.lerp(x, y, 0.8), tn.lerp(x, y, y.abs())), PAIR),
    "addc": (lambda x, y: (tn.addcmul(x, x, y, value=2), tn.addcdiv(x, x, y)), PAIR),
    "xlogy": (lambda x, y: tn.xlogy(x.relu(), y), PAIR),
    "some": (lambda x: ((x > 0).any(1), (x > 0).all(), (x > 0).any(-1, keepdim=True)), X),
    "products": (lambda x: (x.prod(1), x.prod(), x.prod(2, keepdim=True)), X),
    "counts": (lambda x: (x.relu().count_nonzero(1), x.relu().count_nonzero()), X),
    "both": (lambda x: (tn.std_mean(x, 1), tn.var_mean(x, (0, 2)), tn.aminmax(x, dim=1)), X),
    "norms": (lambda x: (x.norm(float("inf"), 1), x.norm(-float("inf"), 2), x.norm(1, 1)), X),
    "outer": (lambda x, y: (tn.outer(x, y), tn.addr(tn.ones(3, 2), x, y)), (normal(3), normal(2))),
    "tensordot": (
        lambda x, y: tn.tensordot(x, y, dims=([1, 0], [0, 2])), (normal(3, 4), normal(4, 2, 3))),
    "addbmm": (lambda x: tn.addbmm(tn.ones(3, 3), x, x, beta=2, alpha=3), (normal(2, 3, 3),)),
    "det": (lambda x: tn.linalg.det(x), (normal(2, 3, 3),)),
    "cdist": (lambda x, y: tn.cdist(x, y), (normal(2, 3, 4), normal(2, 5, 4))),
    "sparse targets": (nn.CrossEntropyLoss(ignore_index=2), (normal(3, 5), whole(3))),
    "targets with weights": (nn.NLLLoss(tn.arange(5.0) + 1), (normal(3, 5), whole(3))),
    "kl_div": (nn.KLDivLoss(reduction="batchmean"), (normal(3, 5), PAIR[1].softmax(1))),
    "kl_div of logarithms": (nn.KLDivLoss(reduction="sum", log_target=True), PAIR),
    "bce": (nn.BCELoss(), (PAIR[0].sigmoid(), PAIR[1].sigmoid())),
    "bce of logits": (nn.BCEWithLogitsLoss(reduction="none"), (PAIR[0] * 9, PAIR[1].sigmoid())),
    "squares": (
        lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum"),
                      F.huber_loss(x, y, delta=0.5), F.smooth_l1_loss(x, y, beta=2.0)), PAIR),
    "distances": (lambda x, y: (F.pairwise_distance(x, y), F.cosine_similarity(x, y)), PAIR),
    "bilinear": (nn.Bilinear(3, 4, 5), (normal(2, 3), normal(2, 4))),
    "same padding": (nn.Conv2d(4, 4, (4, 3), padding="same", dilation=(1, 2)), IMAGE),
    "pool and places": (nn.MaxPool2d(2, return_indices=True), IMAGE),
    "adaptive maximum": (nn.AdaptiveMaxPool2d((3, 2)), IMAGE),
    "linear upsampling": (nn.Upsample(scale_factor=2, mode="linear"), X),
    "bag": (nn.EmbeddingBag(5, 3, mode="max"), (whole(2, 3),)),
    "RNNCell": (nn.RNNCell(6, 3, nonlinearity="relu"), (normal(2, 6),)),
    "LSTMCell": (nn.LSTMCell(6, 3), (normal(2, 6),)),
    "GRUCell": (nn.GRUCell(6, 3), (normal(2, 6), normal(2, 3))),
    "instance norm of its own": (nn.InstanceNorm2d(4), IMAGE),
    "expand_as": (lambda x, y: x.expand_as(y), (normal(3, 1), normal(2, 3, 4))),
    "rows put by mask": (
        lambda x: x.clone().index_put((x[:, 0] > 0,), tn.tensor(3.0)), (normal(6, 3),)),
    "flip nothing": (lambda x: x.flip([]) * 1, X),
    "masked attention": (
        lambda x, m: F.scaled_dot_product_attention(x, x, x, m, scale=0.3),
        (normal(2, 4, 6), normal(4, 4))),
    "attention that is seen": (
        lambda x: F.scaled_dot_product_attention(x, x, x, tn.ones(4, 4).tril() > 0), X),
    "losses without a bend": (lambda x, y: F.smooth_l1_loss(x, y, beta=0.0), PAIR),
    "logarithms": (lambda x: (x.abs().log2(), x.abs().log10()), X),
    "odd whole numbers": (
        lambda i: (i.nan_to_num() * 2, i.trunc() + 1, i.logical_not(), (i > 0).logical_not(),
                   ~(i > 0)), SIGNED),
    "more of another": (
        lambda x, y: (tn.add(x, y, alpha=2), tn.sub(x, y, alpha=3), tn.rsub(x, y, alpha=0.5)),
        PAIR),
    "quotients": (
        lambda x, y: (x / y, x // y, tn.div(x, y, rounding_mode="trunc"),
                      tn.div(x, y, rounding_mode="floor")), PAIR),
    "only the product": (
        lambda x: (tn.addbmm(tn.ones(3, 3), x, x, beta=0, alpha=3),
                   tn.addr(tn.ones(3, 3), x[0, 0], x[0, 1], beta=0, alpha=2)), (normal(2, 3, 3),)),
    "one column": (
        lambda a, b: tn.linalg.solve(a + 3 * tn.eye(3), b), (normal(2, 3, 3), normal(2, 3))),
    "the sum of squares": (lambda x: (tn._C._ops._sum_squares(x, None, False),
                                      tn._C._ops._sum_squares(x, [1], True)), X),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators(name: str) -> None:
    fn, args = CASES[name]
    tn.manual_seed(0)
    check(fn if isinstance(fn, nn.Module) else Of(fn), *args, runs=(run_runtime,))


@pytest.mark.parametrize("name", [
    "index behind", "index two inside", "index rows by mask", "scatter_add", "index_fill", "sort",
    "flip", "repeat", "repeat_interleave", "one_hot", "products", "kl_div", "distances", "GRUCell",
])  # fmt: skip
def test_at_another_size(name: str) -> None:
    fn, args = CASES[name]
    model = (fn if isinstance(fn, nn.Module) else Of(fn)).eval()
    moves = [i == 0 or name not in ("index behind", "index two inside", "index_fill")
             for i in range(len(args))]  # fmt: skip
    rows = tn.export.Dim("rows", min=1, max=64)
    shapes = tuple({0: rows} if m else {} for m in moves)
    given: Any = (shapes,) if isinstance(model, Of) else shapes
    exported = tn.onnx.export(model, args, dynamic_shapes=given)
    args = tuple(tn.cat([t, t, t[:1]]) if m else t for t, m in zip(args, moves, strict=True))
    names = [i.name for i in exported.model_proto.graph.input]
    feeds = {n: t.numpy() for n, t in zip(names, args, strict=True)}
    with tn.no_grad():
        wanted = leaves(model(*args))
    for a, b in zip(run_runtime(exported.model_proto, feeds), wanted, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=2e-5, atol=2e-5)
