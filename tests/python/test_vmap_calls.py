"""vmap of single calls is the loop over the elements that it stands for: arguments by name or by
place, dimensions from the end, elements without any, mapped operands in any place."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.nn import functional as F
from tenon.utils import _pytree

G = tn.Generator().manual_seed(4)
CUBE = tn.randn(3, 2, 4, 5, dtype=tn.float64, generator=G)
MATRIX = tn.randn(3, 4, 4, dtype=tn.float64, generator=G)
ROW = tn.randn(3, 4, dtype=tn.float64, generator=G)
ONE = tn.randn(3, dtype=tn.float64, generator=G)
LEFT = tn.randn(4, 4, dtype=tn.float64, generator=G)
WORDS = tn.tensor([[0, 3, 1, 2], [2, 2, 0, 1], [3, 1, 0, 0]])
FLAGS, PLACES = tn.tensor([[0, 1], [1, 1], [-1, 0]]), tn.tensor([2, 0])


def set_items(y: Any, x: Any) -> Any:
    y[0] = 1.5
    y[1, 1:3] = x[0, :2]
    y[..., None, -1] = x[:, :1]
    return y


CALLS: dict[str, tuple[Callable[..., Any], Any]] = {
    "T": (lambda x: x.T, MATRIX), "mT": (lambda x: x.mT, CUBE), "mH": (lambda x: x.mH, CUBE),
    "iterate": (lambda x: tn.stack([row * i for i, row in enumerate(x)]), CUBE),
    "length": (lambda x: x * len(x), CUBE), "sum": (lambda x: x.sum(), CUBE),
    "sum of one": (lambda x: x.sum(), ONE), "sum of one along": (lambda x: x.sum(0), ONE),
    "sum from the end": (lambda x: x.sum(-1), CUBE), "sum of two": (lambda x: x.sum((0, -1)), CUBE),
    "sum kept": (lambda x: x.sum(1, keepdim=True), CUBE),
    "sum of all kept": (lambda x: x.mean(keepdim=True, dim=None), CUBE),
    "sum of none": (lambda x: x.sum(()), CUBE), "sum as": (lambda x: x.sum(dtype=tn.float32), CUBE),
    "max": (lambda x: x.max(), CUBE), "max along": (lambda x: x.max(1)[0], CUBE),
    "max index": (lambda x: x.max(dim=-2).indices, CUBE), "argmin": (lambda x: x.argmin(), CUBE),
    "std": (lambda x: x.std(), CUBE), "var": (lambda x: tn.var(x, (0, 1), correction=0), CUBE),
    "norm": (lambda x: x.norm(), CUBE), "any": (lambda x: (x > 2).any(), CUBE),
    "logsumexp": (lambda x: x.logsumexp((0, 2)), CUBE), "prod": (lambda x: x.prod(0), CUBE),
    "softmax": (lambda x: x.softmax(0), CUBE), "softmax end": (lambda x: x.softmax(-3), CUBE),
    "softmax of one": (lambda x: x.softmax(0), ONE), "cumsum": (lambda x: x.cumsum(dim=1), CUBE),
    "sort": (lambda x: x.sort()[0], CUBE), "sort along": (lambda x: x.sort(0).values, CUBE),
    "topk": (lambda x: x.topk(2, 1)[0], CUBE), "flip": (lambda x: x.flip(0, -1), CUBE),
    "roll": (lambda x: x.roll(1, 0), CUBE), "rolled flat": (lambda x: x.roll(3), CUBE),
    "unsqueeze": (lambda x: x.unsqueeze(0), CUBE),
    "unsqueeze end": (lambda x: x.unsqueeze(-1), CUBE),
    "unsqueeze of one": (lambda x: x.unsqueeze(-1), ONE),
    "squeeze": (lambda x: x[:1].squeeze(0), CUBE), "squeeze all": (lambda x: x[:1].squeeze(), CUBE),
    "select": (lambda x: x.select(1, -1), CUBE), "narrow": (lambda x: x.narrow(-1, 1, 2), CUBE),
    "split": (lambda x: x.split(2, 1)[1], CUBE), "chunk": (lambda x: x.chunk(2)[1], CUBE),
    "unbind": (lambda x: x.unbind(-1)[2], CUBE), "diagonal": (lambda x: x.diagonal(), MATRIX),
    "diagonal of": (lambda x: x.diagonal(1, -2, -1), CUBE), "tril": (lambda x: x.tril(-1), CUBE),
    "permute": (lambda x: x.permute(2, 0, 1), CUBE),
    "permute end": (lambda x: x.permute(-1, 0, -2), CUBE),
    "permute list": (lambda x: x.permute([1, 2, 0]), CUBE),
    "permute by name": (lambda x: x.permute(dims=(1, 0, 2)), CUBE),
    "permute function": (lambda x: tn.permute(x, (1, 0, 2)), CUBE),
    "transpose": (lambda x: x.transpose(0, -1), CUBE), "t": (lambda x: x.t(), MATRIX),
    "t of a row": (lambda x: x.t(), ROW), "movedim": (lambda x: x.movedim(0, -1), CUBE),
    "movedim lists": (lambda x: x.movedim((0, 1), (1, 2)), CUBE),
    "transpose by name": (lambda x: x.transpose(dim0=0, dim1=2), CUBE),
    "transpose of one": (lambda x: x.transpose(0, 0), ONE),
    "reshape": (lambda x: x.reshape(4, -1), CUBE),
    "reshape list": (lambda x: x.reshape([10, 4]), CUBE),
    "reshape by name": (lambda x: tn.reshape(x, shape=(40,)), CUBE),
    "view": (lambda x: x.view(-1), CUBE), "reshape of one": (lambda x: x.reshape(1, 1), ONE),
    "expand": (lambda x: x.expand(2, 4), ROW), "expand one": (lambda x: x.expand(2, 3), ONE),
    "flatten": (lambda x: x.flatten(), CUBE), "flatten from": (lambda x: x.flatten(1), CUBE),
    "flatten some": (lambda x: x.flatten(0, -2), CUBE), "flatten one": (lambda x: x.flatten(), ONE),
    "flatten by name": (lambda x: x.flatten(start_dim=-2, end_dim=-1), CUBE),
    "cat": (lambda x: tn.cat([x, x]), CUBE), "cat end": (lambda x: tn.cat([x, x * 2], -1), CUBE),
    "cat with a plain one": (lambda x: tn.cat([LEFT, x], dim=1), MATRIX),
    "stack": (lambda x: tn.stack([x, x], 1), CUBE), "stack ones": (lambda x: tn.stack([x, x]), ONE),
    "item": (lambda x: x[1], CUBE), "items": (lambda x: x[..., 1:3, None], CUBE),
    "item of items": (lambda x: x[0, :, -1], CUBE), "item by list": (lambda x: x[[1, 0]], CUBE),
    "item by truth": (lambda x: x[True], CUBE), "item by tensor": (lambda x: LEFT[x], WORDS),
    "as_strided": (lambda x: x.as_strided((2, 2), (1, 4)), MATRIX),
    "as_strided from": (lambda x: x.as_strided((2,), (2,), 3), MATRIX),
    "as_strided named": (lambda x: tn.as_strided(x, size=(3,), stride=(1,), storage_offset=1), ROW),
    "as_strided inside": (lambda x: x[1:].as_strided((2,), (1,)), MATRIX),
    "matmul": (lambda x: x @ LEFT, MATRIX), "rmatmul": (lambda x: LEFT @ x, MATRIX),
    "row matmul": (lambda x: x @ LEFT, ROW), "matmul row": (lambda x: LEFT @ x, ROW),
    "dot": (lambda x: x @ x, ROW), "batch matmul": (lambda x: x @ x[0].t(), CUBE),
    "row by batch": (lambda x: tn.ones(4, dtype=tn.float64) @ x, CUBE),
    "mm": (tn.mm, (MATRIX, MATRIX)),
    "linear": (lambda x: F.linear(x, LEFT), CUBE[..., :4]),
    "linear bias": (lambda x, b: F.linear(x, LEFT, b), (MATRIX, ROW)),
    "linear weight": (lambda w, b: F.linear(LEFT, w, bias=b), (MATRIX, ROW)),
    "add": (lambda x, y: x + y, (MATRIX, ONE)), "radd": (lambda x: 1 - x, ONE),
    "where": (lambda x: tn.where(x > 0, x, 0.5), CUBE), "lerp": (tn.lerp, (MATRIX, MATRIX, ROW)),
    "clamp": (lambda x: x.clamp(min=-0.5, max=0.5), CUBE), "gelu": (F.gelu, CUBE),
    "to": (lambda x: x.to(tn.float32), ROW), "int": (lambda x: x.int(), CUBE),
    "neg": (lambda x: -x, ONE),
    "gather": (lambda x, i: x.gather(0, i), (ROW, WORDS)),
    "embedding": (lambda i: F.embedding(i, LEFT), WORDS),
    "layer_norm": (lambda x: F.layer_norm(x, (5,)), CUBE),
    "pad": (lambda x: F.pad(x, (1, 2)), CUBE),
    "conv": (lambda x: F.conv1d(x, tn.ones(2, 4, 3, dtype=tn.float64)), CUBE),
    "conv of several": (lambda x: F.conv1d(x[0], tn.ones(2, 4, 3, dtype=tn.float64)), CUBE),
    "pool": (lambda x: F.max_pool1d(x, 2), CUBE), "fft": (lambda x: tn.fft.fft(x).abs(), CUBE),
    "fft of two": (lambda x: tn.fft.fft2(x).abs(), CUBE),
    "fftn": (lambda x: tn.fft.fftn(x).abs(), CUBE),
    "fftn of sizes": (lambda x: tn.fft.fftn(x, s=(4, 3)).abs(), CUBE),
    "fft along": (lambda x: tn.fft.fft(x, dim=0).real, CUBE), "inverse": (tn.linalg.inv, MATRIX),
    "det": (lambda x: x.det(), MATRIX), "solve": (tn.linalg.solve, (MATRIX, ROW)),
    "kron": (lambda x: tn.kron(x, LEFT), ROW), "outer": (lambda x: tn.outer(x, x), ROW),
    "einsum": (lambda x, y: tn.einsum("ij,j->i", x, y), (MATRIX, ROW)), "cross": (
        lambda x: tn.linalg.cross(x[:3], x[1:]), MATRIX[..., :3]),
}  # fmt: skip
for _loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss):
    for _how in ("mean", "sum", "none"):
        CALLS[f"{_loss.__name__} {_how}"] = (
            partial(_loss, reduction=_how), (MATRIX, LEFT.expand(3, 4, 4)),
        )  # fmt: skip
CALLS["mse_loss plain"] = (lambda x: F.mse_loss(LEFT, x), MATRIX)
CALLS["mse_loss of ones"] = (lambda x: F.mse_loss(x, x * 2), ONE)
CALLS["cross_entropy"] = (lambda x, i: F.cross_entropy(x, i), (MATRIX, WORDS))
CALLS["cross_entropy sum"] = (lambda x, i: F.cross_entropy(x, i, reduction="sum"), (MATRIX, WORDS))

for _how in ("mean", "sum", "none"):
    _more = {"ignore_index": 1, "reduction": _how}
    CALLS[f"cross_entropy without a class {_how}"] = (
        partial(F.cross_entropy, **_more), (MATRIX, WORDS))  # fmt: skip
    CALLS[f"nll_loss of one {_how}"] = (
        lambda x, i, _how=_how: F.nll_loss(x[0], i[0], reduction=_how),
        (MATRIX, WORDS))  # fmt: skip
CALLS |= {
    "cross_entropy smooth": (partial(F.cross_entropy, label_smoothing=0.1), (MATRIX, WORDS)),
    "cross_entropy weighed": (
        lambda x, i: F.cross_entropy(x, i, tn.arange(1.0, 5.0, dtype=tn.float64)),
        (MATRIX, WORDS)),
    "group_norm": (lambda x: F.group_norm(x, 2, tn.arange(1.0, 5.0, dtype=tn.float64)), CUBE),
    "interpolate": (lambda x: F.interpolate(x[None], size=(7, 3), mode="bilinear"), CUBE),
    "unfold": (lambda x: F.unfold(x[None, :], (2, 3), padding=1), CUBE),
    "trace": (tn.trace, MATRIX), "adjoint": (lambda x: x.adjoint(), CUBE),
    "addmm": (lambda x, y: tn.addmm(x, y, y, beta=0.5, alpha=2), (MATRIX, MATRIX)),
    "addmm of nothing": (lambda y: tn.addmm(LEFT * float("nan"), y, y, beta=0), MATRIX),
    "baddbmm": (lambda x: tn.baddbmm(x, x, x), MATRIX[:, None].expand(3, 2, 4, 4)),
    "argmax": (lambda x: x.argmax(), CUBE), "argmin": (lambda x: x.argmin(0, keepdim=True), CUBE),
    "var_mean": (lambda x: tn.stack(tn.var_mean(x, 1)), CUBE),
    "aminmax": (lambda x: tn.stack(list(tn.aminmax(x, dim=0))), CUBE),
    "cosine": (lambda x, y: F.cosine_similarity(x, y, 0), (MATRIX, MATRIX)),
    "cosine of two ranks": (lambda x, y: F.cosine_similarity(x, y, 1), (MATRIX, ROW[:, :1])),
    "cdist": (tn.cdist, (MATRIX, MATRIX)), "cdist to one": (lambda x: tn.cdist(x, LEFT), MATRIX),
    "attention": (F.scaled_dot_product_attention, (MATRIX, MATRIX, MATRIX)),
    "attention with a mask": (
        lambda x: F.scaled_dot_product_attention(x, x, LEFT, attn_mask=LEFT > 0), MATRIX),
    "slogdet": (lambda x: tn.stack(tn.slogdet(x)), MATRIX),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x.transpose(0, 1), 2), CUBE),
    "entropy": (lambda x: F.binary_cross_entropy(x.sigmoid(), LEFT.sigmoid()), MATRIX),
    "kl_div": (lambda x: F.kl_div(x, LEFT, reduction="sum"), MATRIX),
    "unflatten": (lambda x: x.unflatten(1, (2, 2)), CUBE),
    "split": (lambda x: tn.cat(x.split([1, 3], 1)[::-1], 1), CUBE),
    "squeeze": (lambda x: x.unsqueeze(0).squeeze((0, 1)), CUBE),
    "rolled": (lambda x: x.roll((1, 2), (0, 1)), CUBE),
    "diagonal": (lambda x: x.diagonal(1, 1, 0), CUBE),
    "diag_embed": (lambda x: tn.diag_embed(x, -1, 0, 2), MATRIX),
    "chosen": (lambda x: x.index_select(0, tn.tensor([1, 0])), CUBE),
    "windows": (lambda x: x.unfold(0, 2, 1), CUBE), "part": (lambda x: x.narrow(0, 1, 1), CUBE),
    "padded": (lambda x: F.pad(x, (1, -1, 2, 0), value=3.0), CUBE),
    "as pairs": (lambda x: tn.view_as_real(tn.complex(x, x * 2)), ROW),
    "squeezed": (lambda x: x[None, :, :1].squeeze(), CUBE),
    "repeated": (lambda x: x.repeat(2, 1, 3), MATRIX), "tiled": (lambda x: x.tile(2), MATRIX),
    "tiled more": (lambda x: tn.tile(x, (2, 1, 2)), MATRIX),
    "conv of weights": (lambda w: F.conv1d(CUBE[0], w, padding=1), CUBE[:, :, :4, :3]),
    "conv of both": (
        lambda x, w, b: F.conv1d(x, w, b, stride=2), (CUBE, CUBE[:, :, :4, :3], MATRIX[:, 0, :2])),
    "conv of one": (lambda x, w: F.conv1d(x[0], w), (CUBE, CUBE[:, :, :4, :2])),
    "conv of groups": (
        lambda x, w: F.conv1d(x, w, groups=2), (CUBE, CUBE[:, :, :2, :2])),
    "conv of groups' weights": (
        lambda w: F.conv1d(CUBE[1], w, groups=2), CUBE[:, :, :2, :2]),
    "conv of biases": (lambda b: F.conv1d(CUBE[1], LEFT[:, :, None], b), MATRIX[:, 0]),
    "transposed conv": (
        lambda x, w: F.conv_transpose1d(x, w, groups=2), (CUBE, MATRIX[..., :2, None])),
    "transposed conv of weights": (
        lambda w: F.conv_transpose1d(CUBE[1], w, stride=2), MATRIX[..., :2, None]),
    "embedding of tables": (lambda t: F.embedding(WORDS, t), MATRIX),
    "embedding of both": (lambda t, i: F.embedding(i, t), (MATRIX, WORDS)),
    "embedding with padding": (lambda t: F.embedding(WORDS, t, padding_idx=1), MATRIX),
    "layer_norm of weights": (lambda x, w: F.layer_norm(x, (4,), w, w * 2), (MATRIX, ROW)),
    "layer_norm of biases": (lambda b: F.layer_norm(LEFT, (4,), None, b), ROW),
    "rms_norm of weights": (lambda w: F.rms_norm(LEFT, (4,), w), ROW),
    "median": (lambda x: x.median(0).values, CUBE),
    "kthvalue": (lambda x: x.kthvalue(2, 1).indices, CUBE),
    "diff": (lambda x: x.diff(dim=0), CUBE), "diff of more": (
        lambda x: x.diff(prepend=x[..., :1]), CUBE),
    "addr": (lambda x, v: tn.addr(x, v, v, beta=2, alpha=0.5), (MATRIX, ROW)),
    "scatter": (lambda x, i: x.scatter(0, i[None], x), (MATRIX, WORDS)),
    "scatter a number": (lambda x, i: x.scatter(1, i[:, None], 7.0), (MATRIX, WORDS)),
    "scatter_add": (lambda x, i: x.scatter_add(0, i[None], LEFT), (MATRIX, WORDS)),
    "index_add": (lambda x: x.index_add(0, PLACES, x[:2], alpha=2), MATRIX),
    "index_copy": (lambda x: x.index_copy(1, PLACES, LEFT[:, :2]), MATRIX),
    "index_fill": (lambda x: x.index_fill(0, PLACES, 3.0), MATRIX),
    "index_add of places": (lambda x, i: x.index_add(0, i, LEFT), (MATRIX, WORDS)),
    "searchsorted": (lambda x, y: tn.searchsorted(x.sort().values, y), (ROW, ROW.flip(0))),
    "new zeros": (lambda x: x.new_zeros(4) + x, ROW),
    "new numbers": (lambda x: x.new_full((2, 4), 3) * x, ROW),
    "written items": (lambda x: set_items(x.clone(), x), MATRIX),
    "interpolate, nearest": (lambda x: F.interpolate(x[None], scale_factor=2), CUBE),
    "einsum of one": (lambda x: tn.einsum("ij->ji", x), MATRIX),
    "einsum of all": (lambda x, y: tn.einsum("bij, jk", x, y), (CUBE[..., :4], MATRIX)),
    "einsum beside one": (lambda x: tn.einsum("ij,kj", LEFT, x), MATRIX),
    "einsum of more": (lambda x: tn.einsum("...ab,...cb->...ac", x, LEFT[:, :3]), CUBE[..., :3]),
    "einsum of more, open": (lambda x: tn.einsum("...Ba,c", x, LEFT[0]), CUBE),
    "places": (lambda x, i: x[i], (MATRIX, WORDS)), "place": (lambda x, i: x[i[0]], (CUBE, FLAGS)),
    "places of one": (lambda i: LEFT[i], WORDS), "one's places": (lambda x: x[PLACES], MATRIX),
    "places of two": (lambda x, i: x[i, :, i.flip(0)[:, None]], (CUBE, FLAGS)),
    "pairs of places": (lambda x, i: x[i, i[:, None] * 0 + PLACES, ..., None], (CUBE, FLAGS)),
    "places behind": (lambda x, i: x[:, i], (MATRIX, WORDS)),
    "places and a number": (lambda x, i: x[i, 1], (MATRIX, WORDS)),
    "mask": (lambda x, i: x[i.bool() | True], (MATRIX, WORDS)),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), CUBE),
    "batch_norm of weights": (
        lambda x, w: F.batch_norm(x, None, None, w, LEFT[0], True), (CUBE, MATRIX[:, 0])),
    "batch_norm, frozen": (
        lambda x: F.batch_norm(x, LEFT[0], LEFT[1] ** 2, LEFT[2], LEFT[3]), CUBE),
    "batch_norm, own statistics": (
        lambda x, m: F.batch_norm(x, m, LEFT[1] ** 2), (CUBE, MATRIX[:, 0])),
    "zeros": (lambda x: (x * 1).zero_() + x, CUBE), "fill": (lambda x: (x * 1).fill_(2), CUBE),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_the_loop(name: str) -> None:
    fn, given = CALLS[name]
    args = given if isinstance(given, tuple) else (given,)
    # Copies, because some offsets count from the beginning of the memory. Sums in float32 may be
    # made in another order.
    want = tn.stack([fn(*(a[i].clone() for a in args)) for i in range(3)])
    for out in (0, -1):
        found = tn.vmap(fn, out_dims=out)(*args)
        assert found.dtype == want.dtype
        ends = (1e-5, 1e-5) if want.dtype is tn.float32 else (1e-9, 1e-12)
        np.testing.assert_allclose(found.movedim(out, 0).numpy(), want.numpy(), *ends)
    inner = tn.vmap(lambda *xs: tn.vmap(fn)(*xs))(*(tn.stack([a, a.flip(0)]) for a in args))
    twice = tn.stack([want, want.flip(0)])
    np.testing.assert_allclose(inner.numpy(), twice.numpy(), *ends)


WRITTEN: dict[str, Callable[[Any], Any]] = {
    "values": lambda y: y[0].fill_(7.0), "an item": lambda y: y.__setitem__((0, 0), 7.0),
    "transpose": lambda y: y.mul_(2).transpose_(0, 1),
    "squeeze": lambda y: y.squeeze_(0), "unsqueeze": lambda y: y.unsqueeze_(-1).add_(1),
    "swapaxes": lambda y: y.swapaxes_(0, -1),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_an_element_that_is_written(name: str) -> None:
    def fn(x: Any) -> Any:
        y = x.clone()
        WRITTEN[name](y)
        assert y.shape == (y + 0).shape
        return y

    batch = CUBE[:, :1]
    want = tn.stack([fn(m) for m in batch])
    np.testing.assert_array_equal(tn.vmap(fn)(batch).numpy(), want.numpy())


def test_where_results_are_put() -> None:
    for dim in range(-4, 4):
        assert tn.vmap(lambda x: x, out_dims=dim)(CUBE).shape[dim] == 3
    first, rest = tn.vmap(lambda x: (x, {"y": x}), out_dims=(1, {"y": 2}))(CUBE)
    assert first.shape == (2, 3, 4, 5) and rest["y"].shape == (2, 4, 3, 5)
    assert tn.vmap(lambda x: x + 1)(tn.zeros(2, 0)).shape == (2, 0)


@pytest.mark.parametrize("index", [True, False, (None, True), (True, slice(1, None)), (0, True)],
                         ids=str)  # fmt: skip
def test_truth_values_are_indices(index: Any) -> None:
    x = tn.arange(12.0).view(3, 4)
    want = tn.stack([row[index] for row in x])
    assert tn.vmap(lambda row: row[index])(x).equal(want)


def test_what_an_element_refuses_all_refuse() -> None:
    x = tn.ones(3, 2)

    def rows_of_all(v: Any) -> Any:
        v = v.clone()
        v[:] = tn.arange(6.0).view(3, 2)
        return v

    with pytest.raises(RuntimeError, match="shape|size"):
        tn.vmap(rows_of_all)(x)
    target = tn.zeros(3, dtype=tn.int64)
    with pytest.raises(ValueError, match="is not a valid value for reduction"):
        tn.vmap(lambda v, t: F.cross_entropy(v, t, reduction="some"))(x, target)
    with pytest.raises(IndexError):
        tn.vmap(lambda v, i: v[i])(x, target + 2)
    with pytest.raises(IndexError):
        tn.vmap(lambda v, i: F.embedding(i, v[:, None]))(x, target + 2)


def test_an_argument_behind_the_first_may_be_mapped_alone_or_in_a_list() -> None:
    x, y = tn.arange(6.0).view(3, 2), tn.arange(6.0).view(3, 2) * 10
    one, place = tn.ones(2), tn.tensor([1, 0, 1])
    for call, args in (
        (lambda a, b: tn.cat([one, a, b]), (x, y)),
        (lambda a, b: tn.where(a > 2, one, b), (x, y)),
        (lambda a, i: tn.index_select(a, 0, i.view(1)), (x, place)),
        (lambda a, i: one.index_select(0, i.view(1)) + a, (x, place)),
        (lambda a, i: one.gather(0, i.view(1)) * a, (x, place)),
        (lambda a, b: a.clamp(b - 1, b), (x, y)),
        (lambda a, b: tn.addmm(tn.eye(2), a.view(2, 1), b.view(1, 2)), (x, y)),
        (lambda a, b: a.masked_fill(a > 1, b.sum()), (x, y)),
    ):
        want = tn.stack([call(*(t[k] for t in args)) for k in range(3)])
        assert tn.vmap(call)(*args).equal(want)


@pytest.mark.parametrize("name", ["rand_like", "randn_like", "bernoulli", "dropout", "multinomial"])
def test_what_draws_says_so_unless_it_may(name: str) -> None:
    options = {"rand_like": (), "randn_like": (), "bernoulli": (), "dropout": (0.5, True),
               "multinomial": (1,)}[name]  # fmt: skip
    x = tn.full((3, 4), 0.5)
    with pytest.raises(RuntimeError, match="andom"):
        tn.vmap(lambda row: getattr(tn, name)(row, *options))(x)
    drawn = tn.vmap(lambda row: getattr(tn, name)(row, *options), randomness="same")(x)
    assert drawn[0].equal(drawn[1]) and drawn[0].equal(drawn[2])


def test_values_beside_gradients_have_no_history() -> None:
    both = tn.func.grad_and_value(lambda x: ((x * x).sum(), {"twice": x * 2}), has_aux=True)
    grads, (value, aux) = both(tn.tensor([1.0, 3.0]))
    assert grads.tolist() == [2, 6] and value.item() == 10 and aux["twice"].tolist() == [2, 6]
    for t in (grads, value, aux["twice"]):
        assert not t.requires_grad and t.grad_fn is None
    x = tn.tensor([1.0, 3.0], requires_grad=True)
    _, (value, _) = both(x)
    assert tn.autograd.grad(value, x)[0].tolist() == [2, 6]


def test_what_transforms_refuse() -> None:
    for call, text in (
        (lambda: tn.func.grad(lambda x: x)(3.0), "must be Tensor, got <class 'float'>"),
        (lambda: tn.func.jacrev(lambda x: x, chunk_size=0)(tn.ones(2)), "greater than 0"),
        (lambda: tn.func.jacrev(lambda x: x, chunk_size=-1)(tn.ones(2)), "greater than 0"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    assert tn.func.jacrev(lambda x: x * 3, chunk_size=1)(tn.ones(2)).equal(tn.eye(2) * 3)


def test_arguments_with_names_are_what_they_are_by_place() -> None:
    tn.manual_seed(0)
    x, w, b = tn.randn(3, 2, 4), tn.randn(5, 4), tn.randn(5)
    for call in (
        lambda a: F.linear(a, weight=w, bias=b),
        lambda a: F.linear(input=a, weight=w),
        lambda a: tn.matmul(a, other=w.T),
        lambda a: tn.cat(tensors=[a, a], dim=1),
        lambda a: tn.stack(tensors=(a, a)),
        lambda a: tn.where(condition=a > 0, input=a, other=0.0),
        lambda a: tn.searchsorted(sorted_sequence=b.sort()[0], input=a),
        lambda a: tn.transpose(input=a, dim0=0, dim1=1),
        lambda a: tn.reshape(a, shape=(4, 2)),
        lambda a: F.interpolate(input=a[None], size=3),
        lambda a: F.interpolate(a[None], scale_factor=2.0, mode="nearest"),
    ):
        tn.testing.assert_close(tn.vmap(call)(x), tn.stack([call(a) for a in x]))


@pytest.mark.parametrize(
    "take",
    [
        lambda v, x: tn.tensor(v), lambda v, x: tn.tensor([v[0], v[1]]),
        lambda v, x: tn.from_numpy(np.asarray(v)), lambda v, x: tn.from_dlpack(v),
        lambda v, x: setattr(x, "data", v), lambda v, x: x.set_(v), lambda v, x: 1.0 in v,
        lambda v, x: tn.add(x, v, out=x), lambda v, x: tn.sort(v, out=(x, x.long())),
    ],
)  # fmt: skip
def test_what_takes_memory_takes_no_mapped_tensor(take):
    """It would see the first element alone."""
    x = tn.zeros(3)
    with pytest.raises(RuntimeError, match="vmap"):
        tn.vmap(lambda v: take(v, x))(tn.eye(3))
    assert x.equal(tn.zeros(3))


# ---- Random numbers, structures, results ---------------------------------------------------------


def test_same_random_numbers_of_a_generator_of_ones_own() -> None:
    gen = tn.Generator().manual_seed(0)
    x = tn.zeros(4, 50)
    for f in (lambda t: t.clone().bernoulli_(0.5, generator=gen),
              lambda t: t + tn.rand(50, generator=gen),
              lambda t: t.clone().normal_(generator=gen)):  # fmt: skip
        rows = tn.vmap(f, randomness="same")(x)
        assert all(tn.equal(r, rows[0]) for r in rows) and rows.any()
        rows = tn.vmap(f, randomness="different")(x)
        assert not tn.equal(rows[0], rows[1])


def test_elements_of_all_chunks_draw_the_same() -> None:
    x = tn.zeros(5, 8)
    for inner in ("same", "different"):

        def rows(t: Any, inner: str = inner) -> Any:
            each = tn.vmap(lambda e: e + tn.rand(()), randomness=inner, chunk_size=3)
            return each(t) + tn.rand(8)

        tn.manual_seed(3)
        whole = tn.vmap(rows, randomness="same")(x)
        tn.manual_seed(3)
        assert tn.equal(tn.vmap(rows, randomness="same", chunk_size=2)(x), whole)
    assert not tn.equal(tn.vmap(rows, randomness="same", chunk_size=2)(x), whole)


def test_draws_from_a_generator_of_ones_own_are_refused_like_others() -> None:
    gen = tn.Generator()
    for f in (lambda t: t + tn.rand(2, generator=gen), lambda t: t.clone().normal_(generator=gen),
              lambda t: tn.randperm(2, generator=gen) + t):  # fmt: skip
        with pytest.raises(RuntimeError, match="randomness error mode"):
            tn.vmap(f)(tn.zeros(3, 2))
    with pytest.raises(RuntimeError, match="different inplace randomness on an unbatched tensor"):
        tn.vmap(lambda t: tn.zeros(2).normal_() + t, randomness="different")(tn.zeros(3, 2))


class Pair:
    def __init__(self, one: Any, other: Any) -> None:
        self.one, self.other = one, other


def test_structures_come_back_as_they_were() -> None:
    x = tn.arange(6.0).reshape(2, 3)
    both = tn.vmap(lambda t: OrderedDict(b=t.sin(), a=t.cos()))(x)
    assert type(both) is OrderedDict and list(both) == ["b", "a"] and tn.equal(both["b"], x.sin())
    kept = tn.vmap(lambda t: defaultdict(int, a=t * 2))(x)
    assert kept.default_factory is int and tn.equal(kept["a"], x * 2)
    assert type(tn.func.grad(lambda d: d["a"].sum())(OrderedDict(a=x))) is OrderedDict
    _pytree.register_pytree_node(
        Pair, lambda p: ([p.one, p.other], None), lambda parts, _: Pair(*parts)
    )
    out = tn.vmap(lambda p: Pair(p.one + p.other, p.one * 2))(Pair(x, x * 3))
    assert tn.equal(out.one, x * 4) and tn.equal(out.other, x * 2)


def test_a_conversion_to_another_tensors_dtype_keeps_the_sizes() -> None:
    x, other = tn.rand(3), tn.zeros(1, 2, dtype=tn.float64)
    for f in (lambda t: t.to(other), lambda t: t.type_as(other), lambda t: t.to(tn.float64)):
        assert tn.equal(tn.vmap(f)(x), x.double())
    several = tn.zeros(3, 2, dtype=tn.float64)
    assert tn.equal(tn.vmap(lambda t, o: t.to(o))(x, several), x.double())


def test_written_in_place_the_result_is_the_argument() -> None:
    x = tn.rand(2, 3)
    want = x.acos()
    assert tn.vmap(lambda t: t.acos_())(x) is x and tn.equal(x, want)


def test_cat_leaves_out_what_has_no_elements_and_one_dimension() -> None:
    x = tn.rand(3, 2, 4)
    for nothing, dim in ((tn.zeros(0), None), (tn.zeros(3, 0), 0)):
        got = tn.vmap(lambda a, b: tn.cat([a, b, a], 1), in_dims=(0, dim))(x, nothing)
        assert tn.equal(got, tn.cat([x, x], 2))


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: tn.vmap(tn.sin)(), "got no inputs"),
        (
            lambda: tn.vmap(tn.sin, in_dims=[0])(tn.ones(2)),
            "expected `in_dims` to be int or a \\(p",
        ),
        (lambda: tn.vmap(tn.add, in_dims=(0,))(tn.ones(2), tn.ones(2)), "structure of `inputs`"),
        (lambda: tn.vmap(tn.sin, out_dims="x")(tn.ones(2)), "an int, None or a python collection"),
        (lambda: tn.vmap(tn.sin, out_dims=(0, 0))(tn.ones(2)), "structure of `outputs`"),
        (lambda: tn.vmap(tn.sin, out_dims=None)(tn.ones(2)), "can not return a BatchedTensor when"),
        (lambda: tn.vmap(tn.sin, in_dims=(None,))(tn.ones(2)), "at least one Tensor"),
    ],
)
def test_what_is_wrong_with_a_call_is_said_in_pytorchs_words(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
