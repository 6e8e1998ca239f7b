"""Joining, indexing, scattering, sorting, searching and the reductions' forms: against PyTorch,
values, dtypes, errors and gradients of two orders.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from both import both, both_fail

RNG = np.random.default_rng(11)
X = RNG.standard_normal((2, 3, 4))
M = RNG.standard_normal((4, 6))
N = RNG.standard_normal((4, 6))
V = RNG.standard_normal(6)
W = RNG.standard_normal(50)
TIES = np.array([[3.0, 1.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 2.0, 1.0]])
NANS = np.array([[1.0, np.nan, 3.0, np.nan], [5.0, 4.0, 2.0, 6.0]])
INTS = RNG.integers(-5, 5, (5, 7))
I1 = np.array([2, 0, 3, 0])
I2 = np.array([[1, -1], [3, 0]])
MASK = RNG.integers(0, 2, (4, 6)).astype(bool)
ROWS = np.array([True, False, True, True])
PLACES = RNG.integers(0, 4, (3, 6))
ALONG = RNG.integers(0, 6, (4, 3))
SRC = RNG.standard_normal((3, 6))
SRC_ALONG = RNG.standard_normal((4, 3))

Case = tuple[Callable[..., Any], tuple[Any, ...]]

JOINS: dict[str, Case] = {
    "cat": (lambda m, a, b: m.cat([a, b]), (M, N)),
    "cat_dim": (lambda m, a, b: m.cat((a, b[:, :2]), 1), (M, N)),
    "cat_negative": (lambda m, a, b: m.cat((a, b), dim=-1), (M, N)),
    "cat_empty": (lambda m, a: m.cat([m.zeros(0, dtype=a.dtype), a]), (M,)),
    "cat_promotes": (lambda m, a, b: m.cat([a, b]), (M, INTS[:, :6])),
    "cat_transposed": (lambda m, a, b: m.cat([a.t(), b.t()], 1), (M, N)),
    "stack": (lambda m, a, b: m.stack([a, b]), (M, N)),
    "stack_inner": (lambda m, a, b: m.stack([a, b], 1), (M, N)),
    "stack_end": (lambda m, a, b: m.stack([a, b], -1), (M, N)),
    "hstack": (lambda m, a, b: m.hstack([a, b]), (M, N)),
    "hstack_vectors": (lambda m, a: m.hstack([a, a]), (V,)),
    "vstack": (lambda m, a, b: m.vstack([a, b]), (M, V)),
    "dstack": (lambda m, a, b: m.dstack([a, b]), (M, N)),
    "column_stack": (lambda m, a, b: m.column_stack([a, b]), (I1 * 1.0, M)),
    "broadcast_tensors": (lambda m, a, b: m.broadcast_tensors(a, b), (M, V)),
    "meshgrid": (lambda m, a, b: m.meshgrid(a, b, indexing="ij"), (V, I1 * 1.0)),
    "meshgrid_xy": (lambda m, a, b: m.meshgrid(a, b, indexing="xy"), (V, I1 * 1.0)),
    "cartesian_prod": (lambda m, a, b: m.cartesian_prod(a, b), (V, I1 * 1.0)),
    "repeat": (lambda m, a: a.repeat(2, 3), (M,)),
    "repeat_more": (lambda m, a: a.repeat(2, 1, 2), (M,)),
    "tile": (lambda m, a: a.tile((2,)), (M,)),
    "repeat_interleave": (lambda m, a: a.repeat_interleave(2, 1), (M,)),
    "repeat_interleave_flat": (lambda m, a: m.repeat_interleave(a, 3), (M,)),
    "repeat_interleave_counts": (
        lambda m, a, n: m.repeat_interleave(a, n, 0),
        (M, np.array([1, 0, 3, 2])),
    ),
    "roll": (lambda m, a: a.roll(1, 0), (M,)),
    "roll_flat": (lambda m, a: a.roll(-5), (M,)),
    "roll_several": (lambda m, a: a.roll((2, -9), (0, 1)), (M,)),
    "flip": (lambda m, a: a.flip(0, 2), (X,)),
    "fliplr": (lambda m, a: m.fliplr(a), (M,)),
    "rot90": (lambda m, a: m.rot90(a, 3, (0, 1)), (M,)),
    "diag": (lambda m, a: m.diag(a, 1), (V,)),
    "diag_matrix": (lambda m, a: m.diag(a, -1), (M,)),
    "diag_embed": (lambda m, a: m.diag_embed(a, 1), (M,)),
    "trace": (lambda m, a: a.trace(), (M,)),
    "diff": (lambda m, a: a.diff(n=2), (M,)),
    "atleast_2d": (lambda m, a: m.atleast_2d(a), (V,)),
}

INDEXING: dict[str, Case] = {
    "vector": (lambda m, x, i: x[i], (M, I1)),
    "matrix": (lambda m, x, i: x[i], (M, I2)),
    "int32": (lambda m, x, i: x[i], (M, I1.astype(np.int32))),
    "second": (lambda m, x, i: x[:, i], (M, I2)),
    "pair": (lambda m, x, i, j: x[i, j], (M, I1, I1)),
    "broadcast": (lambda m, x, i, j: x[i[:, None], j], (M, I1, I1)),
    "apart": (lambda m, x, i: x[i, :, i], (X, np.array([0, 1, 1]))),
    "with_slice": (lambda m, x, i: x[1:, i], (X, np.array([0, 2, 2, 1]))),
    "with_integer": (lambda m, x, i: x[1, :, i], (X, np.array([0, 2]))),
    "mask": (lambda m, x, i: x[i], (M, MASK)),
    "mask_rows": (lambda m, x, i: x[i], (M, ROWS)),
    "mask_columns": (lambda m, x, i: x[:, i], (M, np.array([1, 0, 0, 1, 1, 0], bool))),
    "mask_none": (lambda m, x, i: x[i], (M, np.zeros(4, bool))),
    "ellipsis": (lambda m, x, i: x[..., i], (X, np.array([3, 0]))),
    "none": (lambda m, x, i: x[None, i], (M, I1)),
    "list": (lambda m, x: x[[0, 2, 2]], (M,)),
    "empty": (lambda m, x, i: x[i], (M, np.zeros(0, np.int64))),
    "transposed": (lambda m, x, i: x.t()[i], (M, I1)),
    "index_select": (lambda m, x, i: x.index_select(0, i), (M, I1)),
    "index_select_dim": (lambda m, x, i: m.index_select(x, -1, i), (M, I1)),
    "gather": (lambda m, x, i: x.gather(0, i), (M, PLACES)),
    "gather_along": (lambda m, x, i: x.gather(1, i), (M, ALONG)),
    "gather_middle": (lambda m, x, i: x.gather(1, i), (X, RNG.integers(0, 3, (2, 5, 4)))),
    "take": (lambda m, x, i: x.take(i), (M, I2)),
    "take_along_dim": (lambda m, x, i: m.take_along_dim(x, i, 1), (M, ALONG)),
    "take_along_flat": (lambda m, x, i: m.take_along_dim(x, i), (M, I1)),
    "masked_select": (lambda m, x, i: x.masked_select(i), (M, MASK)),
    "masked_select_broadcast": (lambda m, x, i: x.masked_select(i), (M, ROWS[:, None])),
    "nonzero": (lambda m, x: m.nonzero(x), (INTS,)),
    "nonzero_tuple": (lambda m, x: m.nonzero(x, as_tuple=True), (INTS,)),
    "nonzero_point": (lambda m, x: m.nonzero(x), (np.array(3),)),
    "argwhere": (lambda m, x: m.argwhere(x), (MASK,)),
    "where": (lambda m, x: m.where(x), (MASK,)),
    "one_hot": (lambda m, x: m.nn.functional.one_hot(x, 5), (I1,)),
}


def put(x: Any, i: Any, v: Any) -> Any:
    x = x * 1
    x[i] = v
    return x


WRITING: dict[str, Case] = {
    "setitem": (lambda m, x, i, v: put(x, i, v), (M, np.array([2, 0]), V)),
    "setitem_mask": (lambda m, x, i: put(x, i, 0.5), (M, MASK)),
    "setitem_number": (lambda m, x, i: put(x, i, 2.0), (M, I1)),
    "setitem_columns": (
        lambda m, x, i, v: put(x, (slice(None), i), v),
        (M, np.array([1, 4]), N[:, :2]),
    ),
    "index_put": (lambda m, x, i, v: x.index_put((i,), v), (M, np.array([3, 1]), SRC[:2])),
    "index_put_add": (lambda m, x, i, v: x.index_put((i,), v, accumulate=True), (M, I1, N)),
    "index_put_pair": (lambda m, x, i, v: x.index_put((i, i), v, True), (M, I1, I1 * 1.0)),
    "index_add": (lambda m, x, i, v: x.index_add(0, i, v, alpha=2), (M, I1, N)),
    "index_add_dim": (lambda m, x, i, v: x.index_add(1, i, v), (M, I1, N[:, :4])),
    "index_copy": (lambda m, x, i, v: x.index_copy(0, i, v), (M, np.array([2, 0]), N[:2])),
    "index_fill": (lambda m, x, i: x.index_fill(1, i, 3.0), (M, I1)),
    "scatter": (lambda m, x, i, v: x.scatter(0, i[:1], v), (M, PLACES, SRC[:1])),
    "scatter_value": (lambda m, x, i: x.scatter(1, i, 1.5), (M, ALONG)),
    "scatter_add": (lambda m, x, i, v: x.scatter_add(0, i, v), (M, PLACES, SRC)),
    "scatter_add_along": (lambda m, x, i, v: x.scatter_add(1, i, v), (M, ALONG, SRC_ALONG)),
    "scatter_multiply": (
        lambda m, x, i, v: x.detach().scatter(0, i, v.detach(), reduce="multiply"),
        (M, PLACES, SRC),
    ),
    "reduce_sum": (lambda m, x, i, v: x.scatter_reduce(0, i, v, "sum"), (M, PLACES, SRC)),
    "reduce_prod": (lambda m, x, i, v: x.scatter_reduce(0, i, v, "prod"), (M, PLACES, SRC)),
    "reduce_mean": (lambda m, x, i, v: x.scatter_reduce(1, i, v, "mean"), (M, ALONG, SRC_ALONG)),
    "reduce_amax": (lambda m, x, i, v: x.scatter_reduce(0, i, v, "amax"), (M, PLACES, SRC)),
    "reduce_amin_alone": (
        lambda m, x, i, v: x.scatter_reduce(0, i, v, "amin", include_self=False),
        (M, PLACES, SRC),
    ),
    "reduce_mean_alone": (
        lambda m, x, i, v: x.scatter_reduce(0, i, v, "mean", include_self=False),
        (M, PLACES, SRC),
    ),
    "masked_scatter": (
        lambda m, x, i, v: x.masked_scatter(i, v),
        (M, MASK, RNG.standard_normal(30)),
    ),
    "masked_fill": (lambda m, x, i: x.masked_fill(i, -1.0), (M, MASK)),
    # in place, on a copy that has a history
    "index_put_": (lambda m, x, i, v: (x * 1).index_put_((i,), v), (M, np.array([3, 1]), SRC[:2])),
    "index_put_add_": (lambda m, x, i, v: (x * 1).index_put_((i,), v, True), (M, I1, N)),
    "index_add_": (lambda m, x, i, v: (x * 1).index_add_(0, i, v, alpha=2), (M, I1, N)),
    "index_copy_": (
        lambda m, x, i, v: (x * 1).index_copy_(1, i, v),
        (M, np.array([2, 0]), N[:, :2]),
    ),
    "index_fill_": (lambda m, x, i: (x * 1).index_fill_(1, i, 3.0), (M, I1)),
    "scatter_": (lambda m, x, i, v: (x * 1).scatter_(0, i[:1], v), (M, PLACES, SRC[:1])),
    "scatter_value_": (lambda m, x, i: (x * 1).scatter_(1, i, 1.5), (M, ALONG)),
    "scatter_reduced_": (
        lambda m, x, i, v: (x * 1).detach().scatter_(0, i, v.detach(), reduce="add"),
        (M, PLACES, SRC),
    ),
    "scatter_value_reduced_": (
        lambda m, x, i: (x * 1).detach().scatter_(1, i, 3.0, reduce="multiply"),
        (M, ALONG),
    ),
    "scatter_add_": (lambda m, x, i, v: (x * 1).scatter_add_(1, i, v), (M, ALONG, SRC_ALONG)),
}

ORDER: dict[str, Case] = {
    "sort": (lambda m, x: x.sort(), (M,)),
    "sort_dim": (lambda m, x: m.sort(x, 0, descending=True), (M,)),
    "sort_stable": (lambda m, x: m.sort(x, dim=-1, stable=True), (TIES,)),
    "sort_stable_down": (lambda m, x: m.sort(x, dim=-1, descending=True, stable=True), (TIES,)),
    "sort_nan": (lambda m, x: x.detach().sort(1), (NANS,)),
    "sort_nan_down": (lambda m, x: x.detach().sort(1, descending=True), (NANS,)),
    "sort_long": (lambda m, x: x.sort(), (W,)),
    "sort_int": (lambda m, x: m.sort(x, stable=True), (INTS,)),
    "sort_byte": (lambda m, x: m.sort(x.to(m.int8).repeat(1, 20), stable=True), (INTS,)),
    "sort_bool": (lambda m, x: m.sort(x, stable=True), (MASK,)),
    "sort_half": (lambda m, x: m.sort(x.to(m.float16).repeat(3), stable=True)[1], (W,)),
    "argsort": (lambda m, x: x.argsort(1), (M,)),
    "msort": (lambda m, x: m.msort(x), (M,)),
    "topk": (lambda m, x: x.topk(3), (M,)),
    "topk_small": (lambda m, x: m.topk(x, 2, 0, largest=False), (M,)),
    "topk_long": (lambda m, x: x.topk(45), (W,)),
    "topk_nan": (lambda m, x: x.detach().topk(3)[0], (NANS,)),
    "kthvalue": (lambda m, x: x.kthvalue(2, 1), (M,)),
    "kthvalue_keep": (lambda m, x: x.kthvalue(20, 0, True), (W,)),
    "median": (lambda m, x: x.median(), (M,)),
    "median_dim": (lambda m, x: x.median(1), (M,)),
    "median_nan": (lambda m, x: x.detach().median(1), (NANS,)),
    "nanmedian": (lambda m, x: x.detach().nanmedian(), (NANS,)),
    "max_among_nans": (lambda m, x: x.max(), (NANS,)),
    "min_among_nans": (lambda m, x: x.min(), (NANS,)),
    "median_among_nans": (lambda m, x: x.median(), (NANS,)),
    "nanmedian_dim": (lambda m, x: x.detach().nanmedian(1), (NANS,)),
    "mode": (lambda m, x: x.mode(1)[0], (TIES,)),
    "cummax": (lambda m, x: x.cummax(1), (TIES,)),
    "cummin": (lambda m, x: x.cummin(0), (M,)),
    "cummax_nan": (lambda m, x: x.detach().cummax(1), (NANS,)),
    "unique": (lambda m, x: m.unique(x), (INTS,)),
    "unique_all": (lambda m, x: m.unique(x, return_inverse=True, return_counts=True), (INTS,)),
    "unique_consecutive": (
        lambda m, x: m.unique_consecutive(x, return_inverse=True, return_counts=True),
        (INTS // 4,),
    ),
    "bincount": (lambda m, x: m.bincount(x), (I1,)),
    "bincount_weights": (lambda m, x, w: m.bincount(x, w.detach(), 8), (I1, V[:4])),
    "searchsorted": (lambda m, s, x: m.searchsorted(s.detach(), x.detach()), (np.sort(V), M)),
    "searchsorted_right": (
        lambda m, s, x: m.searchsorted(s, x, right=True),
        (np.array([1, 2, 2, 3]), np.array([2, 0, 5])),
    ),
    "searchsorted_rows": (
        lambda m, s, x: m.searchsorted(s.detach(), x.detach(), side="left"),
        (np.sort(M), N),
    ),
    "searchsorted_number": (lambda m, s: m.searchsorted(s, 2), (np.array([1, 2, 2, 3]),)),
    "bucketize": (
        lambda m, x, b: m.bucketize(x.detach(), b.detach(), out_int32=True),
        (M, np.sort(V)),
    ),
    "histc": (lambda m, x: m.histc(x.detach(), 5, -1, 1), (M,)),
    "histc_auto": (lambda m, x: x.detach().histc(7), (M,)),
}

REDUCTIONS: dict[str, Case] = {
    "sum": (lambda m, x: x.sum(), (X,)),
    "sum_dim": (lambda m, x: x.sum(1), (X,)),
    "sum_dims": (lambda m, x: x.sum((0, 2), keepdim=True), (X,)),
    "sum_int": (lambda m, x: x.to(m.int32).sum(), (INTS,)),
    "sum_bool": (lambda m, x: x.sum(0), (MASK,)),
    "sum_dtype": (lambda m, x: x.sum(dtype=m.float64), (INTS,)),
    "sum_empty": (lambda m, x: x[:0].sum(0), (M,)),
    "mean": (lambda m, x: x.mean(), (X,)),
    "mean_dim": (lambda m, x: x.mean(-1, keepdim=True), (X,)),
    "mean_dtype": (lambda m, x: m.mean(x, 0, dtype=m.float64), (INTS,)),
    "prod": (lambda m, x: x.prod(), (M,)),
    "prod_dim": (lambda m, x: x.prod(1), (M,)),
    "prod_zero": (lambda m, x: x.prod(), (np.array([2.0, 0.0, 3.0]),)),
    "prod_zero_dim": (lambda m, x: x.prod(1), (np.array([[2.0, 0.0, 3.0], [1.0, 2.0, 4.0]]),)),
    "prod_zeros": (lambda m, x: x.prod(0, keepdim=True), (np.array([[0.0, 2.0], [0.0, 0.0]]),)),
    "amax": (lambda m, x: x.amax(), (TIES,)),
    "amax_dim": (lambda m, x: x.amax(1), (TIES,)),
    "amin_dims": (lambda m, x: x.amin((0, 1)), (TIES,)),
    "max": (lambda m, x: x.max(), (TIES,)),
    "min": (lambda m, x: m.min(x), (TIES,)),
    "max_dim": (lambda m, x: x.max(1), (TIES,)),
    "max_dim_first": (lambda m, x: m.max(x, 0, keepdim=True), (M,)),
    "min_dim": (lambda m, x: x.min(-1), (TIES,)),
    "max_dim_nan": (lambda m, x: x.detach().max(1), (NANS,)),
    "max_nan": (lambda m, x: x.detach().max(), (NANS,)),
    "max_other": (lambda m, x, y: m.max(x, y), (M, N)),
    "max_int": (lambda m, x: x.max(1), (INTS,)),
    "argmax": (lambda m, x: x.argmax(), (TIES,)),
    "argmax_dim": (lambda m, x: x.argmax(1), (TIES,)),
    "argmax_first": (lambda m, x: x.argmax(0, keepdim=True), (M,)),
    "argmin": (lambda m, x: m.argmin(x), (INTS,)),
    "argmin_strided": (lambda m, x: x.t().argmin(), (TIES,)),
    "argmax_nan": (lambda m, x: x.detach().argmax(1), (NANS,)),
    "aminmax": (lambda m, x: m.aminmax(x, dim=1), (M,)),
    "all": (lambda m, x: x.all(), (MASK,)),
    "all_dim": (lambda m, x: m.all(x, 1), (MASK,)),
    "any_dim": (lambda m, x: x.any(0, keepdim=True), (MASK,)),
    "var": (lambda m, x: x.var(), (X,)),
    "var_dim": (lambda m, x: x.var(1), (X,)),
    "var_biased": (lambda m, x: x.var(unbiased=False), (X,)),
    "var_correction": (lambda m, x: m.var(x, (0, 2), correction=0, keepdim=True), (X,)),
    "std": (lambda m, x: x.std(), (X,)),
    "std_dim": (lambda m, x: x.std(1, unbiased=False), (X,)),
    "var_mean": (lambda m, x: m.var_mean(x, 1), (X,)),
    "std_mean": (lambda m, x: m.std_mean(x, 1, keepdim=True), (X,)),
    "nansum": (lambda m, x: x.nansum(1), (M,)),
    "nanmean": (lambda m, x: x.detach().nanmean(1), (NANS,)),
    "count_nonzero": (lambda m, x: m.count_nonzero(x, 0), (INTS,)),
    "norm": (lambda m, x: x.norm(), (M,)),
    "norm_p": (lambda m, x: x.norm(3, 1), (M,)),
    "norm_one": (lambda m, x: m.norm(x, 1, 1, True), (M,)),
    "norm_inf": (lambda m, x: x.norm(float("inf")), (M,)),
    "norm_fro": (lambda m, x: m.norm(x, "fro"), (M,)),
    "norm_zero": (lambda m, x: x.norm(), (np.zeros(3),)),
    "vector_norm": (lambda m, x: m.linalg.vector_norm(x, 2.5, dim=0), (M,)),
    "dist": (lambda m, x, y: m.dist(x, y), (M, N)),
    "logsumexp": (lambda m, x: x.logsumexp(1), (M,)),
    "cumsum": (lambda m, x: x.cumsum(1), (M,)),
    "cumprod": (lambda m, x: x.cumprod(0), (M,)),
    "cumprod_zero": (lambda m, x: x.cumprod(0), (np.array([2.0, 0.0, 3.0, 4.0]),)),
    "equal": (lambda m, x, y: m.equal(x, y), (M, M)),
    "equal_not": (lambda m, x, y: m.equal(x, y), (M, V)),
    "allclose": (lambda m, x, y: m.allclose(x, y), (M, M + 1e-9)),
}

ALL = {
    f"{group}_{name}": case
    for group, cases in (
        ("join", JOINS),
        ("index", INDEXING),
        ("write", WRITING),
        ("order", ORDER),
        ("reduce", REDUCTIONS),
    )
    for name, case in cases.items()
}


# PyTorch's second derivative is NaN there.
ONE_SIDED = {"reduce_norm_zero"}


@pytest.mark.parametrize("name", ALL)
def test_like_pytorch(name: str) -> None:
    fn, arrays = ALL[name]
    both(fn, *arrays, grad=name not in ONE_SIDED)


BIG = np.array([9])
FAILURES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "cat_none": (lambda m, x: m.cat([]), (M,), "expected a non-empty list of Tensors"),
    "cat_sizes": (
        lambda m, x, v: m.cat([x, x[:, :2]]),
        (M, V),
        "Sizes of tensors must match except in",
    ),
    "cat_ranks": (
        lambda m, x, v: m.cat([x, v]),
        (M, V),
        "Tensors must have same number of dimensions",
    ),
    "cat_point": (lambda m, x: m.cat([x.sum(), x.sum()]), (M,), "cannot be concatenated"),
    "stack_sizes": (
        lambda m, x, v: m.stack([x, v]),
        (M, V),
        "stack expects each tensor to be equal size",
    ),
    "index_high": (
        lambda m, x, i: x[i],
        (M, BIG),
        "index 9 is out of bounds for dimension 0 with size 4",
    ),
    "index_second": (lambda m, x, i: x[:, i], (M, BIG), "index 9 is out of bounds for dimension"),
    "index_low": (lambda m, x, i: x[i], (M, -BIG), "index -9 is out of bounds for dimension 0"),
    "index_float": (lambda m, x, v: x[v], (M, V), "tensors used as indices must be long"),
    "index_many": (
        lambda m, x, i: x[i, i, i],
        (M, I1),
        "too many indices for tensor of dimension 2",
    ),
    "index_mask": (lambda m, x, i: x[i], (M, MASK[:3]), "The shape of the mask [3, 6] at index 0"),
    "index_broadcast": (
        lambda m, x, i, j: x[i, j],
        (M, I1, I1[:3]),
        "could not be broadcast together",
    ),
    "put_shape": (
        lambda m, x, i, v: put(x, i, v),
        (M, I1, V[:3]),
        "shape mismatch: value tensor of shape [3]",
    ),
    "put_high": (
        lambda m, x, i: put(x, i, 0.0),
        (M, BIG),
        "index 9 is out of bounds for dimension 0",
    ),
    "select_high": (lambda m, x, i: x.index_select(0, i), (M, BIG), "out of range"),
    "select_matrix": (
        lambda m, x, i: x.index_select(0, i),
        (M, I2),
        "Index is supposed to be a vector",
    ),
    "gather_high": (
        lambda m, x, i: x.gather(0, i),
        (M, BIG[:, None]),
        "index 9 is out of bounds for dimension 0",
    ),
    "gather_rank": (
        lambda m, x, i: x.gather(0, i),
        (M, I1),
        "must have the same number of dimensions as input",
    ),
    "gather_float": (lambda m, x, y: x.gather(0, y), (M, N), "for index"),
    "scatter_high": (
        lambda m, x, i: x.scatter(1, i, 1.0),
        (M, BIG[:, None]),
        "index 9 is out of bounds for dimension 1",
    ),
    "scatter_dtype": (
        lambda m, x, i, v: x.scatter(0, i, v),
        (M, PLACES, SRC.astype(np.float32)),
        "Expected self.dtype to be equal to src.dtype",
    ),
    "add_count": (
        lambda m, x, i, v: x.index_add(0, i, v),
        (M, I1[:3], N),
        "Number of indices (3) should be equal to",
    ),
    "topk": (lambda m, x: x.topk(7), (M,), "selected index k out of range"),
    "kthvalue": (
        lambda m, x: x.kthvalue(0),
        (M,),
        "selected number k out of range for dimension 1",
    ),
    "max_empty": (
        lambda m, x: x[:0].max(),
        (M,),
        "Expected reduction dim to be specified for input.numel() == 0",
    ),
    "max_empty_dim": (
        lambda m, x: x[:0].max(0),
        (M,),
        "Expected reduction dim 0 to have non-zero size",
    ),
    "amax_empty_dim": (
        lambda m, x: x[:0].amax(0),
        (M,),
        "Expected reduction dim 0 to have non-zero size",
    ),
    "argmax_empty": (lambda m, x: x[:0].argmax(), (M,), "Expected reduction dim to be specified"),
    "mean_int": (lambda m, x: x.mean(), (INTS,), "could not infer output dtype"),
    "sum_dim": (lambda m, x: x.sum(2), (M,), "Dimension out of range"),
    "sum_twice": (lambda m, x: x.sum((0, 0)), (M,), "appears multiple times in the list of dims"),
    "repeat": (
        lambda m, x: x.repeat(2),
        (M,),
        "Number of dimensions of repeat dims can not be smaller",
    ),
    "roll": (lambda m, x: x.roll((1, 2), 0), (M,), "shifts and dimensions must align"),
    "flip": (lambda m, x: x.flip(2), (M,), "Dimension out of range"),
    "bincount": (
        lambda m, x: m.bincount(x),
        (INTS,),
        "bincount only supports 1-d non-negative integral inputs",
    ),
    "one_hot": (
        lambda m, x: m.nn.functional.one_hot(x, 2),
        (I1,),
        "Class values must be smaller than num_classes",
    ),
    "norm_int": (
        lambda m, x: m.linalg.vector_norm(x),
        (INTS,),
        "Expected a floating point or complex",
    ),
    "masked_scatter": (
        lambda m, x, i, v: x.masked_scatter(i, v),
        (M, MASK, V[:1]),
        "Number of elements of source",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures(name: str) -> None:
    fn, arrays, words = FAILURES[name]
    both_fail(fn, *arrays, words=words)


def test_a_bad_index_writes_nothing() -> None:
    x = tn.zeros(4)
    with pytest.raises(IndexError):
        x[tn.tensor([0, 1, 9])] = 1.0
    assert x.tolist() == [0, 0, 0, 0]


def test_equal_places_add_up_in_parallel() -> None:
    """Many threads, one place: nothing is lost."""
    n = 100_000
    x = tn.zeros(3).index_add(0, tn.zeros(n, dtype=tn.int64), tn.ones(n))
    assert x.tolist() == [n, 0, 0]
    y = tn.zeros(2, 3).scatter_add(1, tn.ones(2, n, dtype=tn.int64), tn.ones(2, n))
    assert y.tolist() == [[0, n, 0], [0, n, 0]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "complex64"])
@pytest.mark.parametrize("n", [0, 1, 7, 300])
def test_vectors_by_vectors_of_places(dtype: str, n: int) -> None:
    """Packed, strided and reversed in turn; 32 and 64-bit places; two indices to an element."""
    at = np.random.default_rng(n).integers(0, 9, 2 * n)
    x = np.arange(2 * max(n, 20)).astype(dtype)
    t = tn.from_numpy(x)
    for places in (tn.from_numpy(at)[:n], tn.from_numpy(at)[::2], tn.from_numpy(at)[:n].int()):
        rows = places.numpy()
        for source, values in ((t[:n], x[:n]), (t[1 : 2 * n : 2], x[1 : 2 * n : 2])):
            want = np.zeros(18, dtype)
            np.add.at(want, 2 * rows, np.asarray(3, dtype) * values)
            got = tn.zeros(18, dtype=t.dtype)
            got[::2].index_add_(0, places, source, alpha=3)
            np.testing.assert_array_equal(got.numpy(), want)
            grid = tn.zeros(2, 9, dtype=t.dtype).index_put(
                (places % 2, places), source, accumulate=True
            )
            plane = np.zeros((2, 9), dtype)
            np.add.at(plane, (rows % 2, rows), values)
            np.testing.assert_array_equal(grid.numpy(), plane)
        for from_t, from_x in ((t[:9], x[:9]), (t[:18:2], x[:18:2])):
            np.testing.assert_array_equal(from_t.index_select(0, places).numpy(), from_x[rows])
            np.testing.assert_array_equal(from_t[places.long() - 9].numpy(), from_x[rows])


@pytest.mark.parametrize("place", [9, -1, 2**62, -(2**63)])
def test_places_outside_of_vectors(place: int) -> None:
    places, x = tn.tensor([0, place]), tn.zeros(9)
    for call in (
        lambda: x.index_select(0, places),
        lambda: x[::3].index_select(0, places),
        lambda: x.index_add_(0, places, tn.ones(2)),
        lambda: tn.zeros(0).index_select(0, places),
    ):
        with pytest.raises(IndexError):
            call()
    assert x.tolist() == [0] * 9


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "int64"])
def test_long_rows_are_sorted(dtype: str) -> None:
    x = RNG.integers(0, 200, 10_001).astype(dtype)
    values, order = tn.from_numpy(x).sort(stable=True)
    expect = np.argsort(x, kind="stable")
    np.testing.assert_array_equal(order.numpy(), expect)
    np.testing.assert_array_equal(values.numpy(), x[expect])
    np.testing.assert_array_equal(tn.from_numpy(x).topk(100)[0].numpy(), np.sort(x)[::-1][:100])


@pytest.mark.parametrize("dtype", ["float64", "float32", "int16"])
@pytest.mark.parametrize("order", ["random", "rising", "falling", "ties"])
@pytest.mark.parametrize(("n", "k"), [(256, 32), (300, 1), (1000, 100), (5000, 65), (2056, 257)])
def test_topk_of_few_among_many(n: int, k: int, order: str, dtype: str) -> None:
    rng = np.random.default_rng(n)
    x = (rng.standard_normal((3, n)) * 5000).astype(dtype)
    if order == "ties":
        x = x // 2500
    elif order != "random":
        x = np.sort(x, axis=1)[:, :: 1 if order == "rising" else -1].copy()
    x[1, ::50] = np.nan if dtype != "int16" else 32767
    for largest in (True, False):
        values, indices = tn.from_numpy(x).topk(k, dim=1, largest=largest)
        rows = np.sort(x, axis=1)  # NaN last
        expected = rows[:, ::-1][:, :k] if largest else rows[:, :k]
        np.testing.assert_array_equal(values.numpy(), expected)
        np.testing.assert_array_equal(np.take_along_axis(x, indices.numpy(), 1), expected)
        assert all(np.unique(row).size == k for row in indices.numpy())


@pytest.mark.parametrize(
    "call",
    [
        lambda x, at, to: x.scatter(0, to, 1.0),
        lambda x, at, to: x.scatter(0, to, x),
        lambda x, at, to: x.scatter(0, to, x, reduce="add"),
        lambda x, at, to: x.scatter(0, to, 2.0, reduce="multiply"),
        lambda x, at, to: x.scatter_add(0, to, x),
        lambda x, at, to: x.scatter_reduce(0, to, x, "sum"),
        lambda x, at, to: x.index_reduce(0, at, x, "prod"),
        lambda x, at, to: x.index_add(0, at, x),
        lambda x, at, to: x.index_copy(0, at, x),
    ],
)
def test_copies_that_are_written_to_are_packed(call):
    """As in PyTorch: a dropout behind them draws its mask in the order of their elements."""
    x = tn.randn(5, 3, 6).transpose(0, 1)
    at, to = tn.tensor([2, 0, 1]), tn.zeros(3, 5, 6, dtype=tn.int64)
    before = x.clone()
    got = call(x, at, to)
    assert got.stride() == (30, 6, 1) and x.equal(before)
    assert got.equal(call(x.contiguous(), at, to))
    packed = x.contiguous()
    call(packed, at, to)
    assert packed.equal(before)  # it is not its own copy


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "uint8"])
@pytest.mark.parametrize("right", [False, True])
def test_searches_of_any_length(dtype: str, right: bool) -> None:
    """Sequences and values of every length around those that are looked up together."""
    draw = np.random.default_rng(5)
    side = "right" if right else "left"
    for length in [*range(20), 31, 32, 33, 1000]:
        seq = np.sort(draw.integers(0, 25, length)).astype(dtype)
        for count in (0, 1, 2, 7, 8, 9, 17, 1300):
            x = draw.integers(0, 26, count).astype(dtype)
            got = tn.searchsorted(tn.from_numpy(seq), tn.from_numpy(x), right=right)
            np.testing.assert_array_equal(got.numpy(), np.searchsorted(seq, x, side))
    rows = np.sort(draw.integers(0, 9, (5, 12)).astype(dtype), -1)
    x = draw.integers(0, 10, (5, 11)).astype(dtype)
    got = tn.searchsorted(tn.from_numpy(rows), tn.from_numpy(x), right=right).numpy()
    for i in range(5):
        np.testing.assert_array_equal(got[i], np.searchsorted(rows[i], x[i], side))


def test_searches_put_nan_behind_everything() -> None:
    seq = np.array([-np.inf, -0.0, 0.0, 2.0, np.inf, np.nan, np.nan], np.float32)
    x = np.array([np.nan, 0.0, -0.0, -np.inf, 1.0, 3.0, np.nan, 2.0, -np.inf], np.float32)
    for right in (False, True):
        got = tn.searchsorted(tn.from_numpy(seq), tn.from_numpy(x), right=right).numpy()
        want = np.searchsorted(seq, x, "right" if right else "left")
        np.testing.assert_array_equal(got, np.where(np.isnan(x), 7, want))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "bool"])
def test_runs_of_any_length(dtype: str) -> None:
    draw = np.random.default_rng(6)
    for count in (0, 1, 2, 3, 100, 70_000):
        for kinds in (1, 2, 50):
            x = draw.integers(0, kinds, count).astype(dtype)
            out, inverse, counts = tn.unique_consecutive(
                tn.from_numpy(x), return_inverse=True, return_counts=True
            )
            begins = np.flatnonzero(np.concatenate([[True] * (count > 0), x[1:] != x[:-1]]))
            np.testing.assert_array_equal(out.numpy(), x[begins])
            np.testing.assert_array_equal(counts.numpy(), np.diff([*begins, count]))
            np.testing.assert_array_equal(
                inverse.numpy(), np.repeat(np.arange(begins.size), np.diff([*begins, count]))
            )
    x = tn.tensor([0.0, -0.0, float("nan"), float("nan"), -0.0, 0.0])
    out, counts = tn.unique_consecutive(x, return_counts=True)
    assert str(out.tolist()) == "[0.0, nan, nan, -0.0]" and counts.tolist() == [2, 1, 1, 2]


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 4, 5)])
def test_what_is_indexed_lies_as_its_tensor_does(shape: tuple[int, ...]) -> None:
    orders = list(itertools.permutations(range(len(shape))))

    def look(tensor: Any, x: Any) -> list[Any]:
        few, table = tensor([1, 0]), tensor([[1, 0, 1], [0, 1, 0]])
        return [x[few], x[:, few], x[:, :, table], x[table, few[:, None]], x[:, table, :2],
                x[few, :, few], x[:, few, table[:, :2]], x[table[:0]], x[1:, few]]  # fmt: skip

    def strides(lib: Any) -> list[Any]:
        x = lib.arange(60.0 * (len(shape) - 2)).reshape(shape)
        return [str([tuple(y.stride()) for y in look(lib.tensor, x.permute(o))]) for o in orders]

    assert strides(tn) == stored.of_torch(strides)
    numbers = np.arange(60.0 * (len(shape) - 2)).reshape(shape)
    for order in orders:
        mine = look(tn.tensor, tn.from_numpy(numbers).permute(order))
        for a, b in zip(mine, look(np.array, numbers.transpose(order)), strict=True):
            assert np.array_equal(a.numpy(), b), order


def test_indexed_dimensions_stay_together_beside_one_of_size_one() -> None:
    """Whose place in memory is no place among the others'."""
    numbers, table = np.arange(60.0).reshape(5, 4, 3, 1), np.array([[2, 0, 1], [1, 3, 4]])
    for order in itertools.permutations(range(4)):
        x = numbers.transpose(order)
        for first in range(3):
            key = [slice(None)] * first + [table % n for n in x.shape[first : first + 2]]
            at = tuple(k if isinstance(k, slice) else tn.from_numpy(k) for k in key)
            mine = tn.from_numpy(numbers).permute(order)[at]
            assert np.array_equal(mine.numpy(), x[tuple(key)]), (order, first)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, bool])
def test_places_of_many(dtype: Any) -> None:
    """More than one block of elements, packed and strided, none and all of a block among them."""
    x = RNG.random((3, 5000)) < 0.3
    x[0], x[1, :4500] = False, True
    for array in (x, x[:, ::2], x.T, x.reshape(-1)[:4097], x.reshape(-1)[:4096]):
        mine = tn.from_numpy(np.ascontiguousarray(x).astype(dtype))
        mine = mine.as_strided(array.shape, [s // x.itemsize for s in array.strides])
        assert np.array_equal(mine.nonzero().numpy(), np.argwhere(array))
        assert mine.count_nonzero().item() == array.sum()
        assert tn.equal(mine[mine != 0], tn.ones(int(array.sum()), dtype=mine.dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize(
    ("first", "last", "steps"), [(3, 10, 8), (9.5, 2, 6), (1, 77, 11), (5, 5, 3), (4, 9, 1)]
)
def test_even_places(dtype: str, first: float, last: float, steps: int) -> None:
    def made(lib: Any) -> list[float]:
        return lib.linspace(first, last, steps, dtype=getattr(lib, dtype)).double().tolist()

    stored.same(made(tn), stored.of_torch(made))


IN_PLACE: dict[str, Callable[..., Any]] = {
    "index_add_": lambda x, i, y: x.index_add_(0, i, y),
    "index_copy_": lambda x, i, y: x.index_copy_(0, i, y),
    "index_reduce_": lambda x, i, y: x.index_reduce_(0, i, y, "amax"),
    "index_put_": lambda x, i, y: x.index_put_((i,), y),
    "index_put_ add": lambda x, i, y: x.index_put_((i,), y, accumulate=True),
    "setitem": lambda x, i, y: x.__setitem__(i, y),
    "scatter_": lambda x, i, y: x.scatter_(0, i, y),
    "scatter_ reduce": lambda x, i, y: x.scatter_(0, i, y, reduce="add"),
    "scatter_add_": lambda x, i, y: x.scatter_add_(0, i, y),
    "scatter_reduce_": lambda x, i, y: x.scatter_reduce_(0, i, y, "sum"),
    "put_": lambda x, i, y: x.put_(i, y),
}
OUT_OF_PLACE = ["index_add", "index_copy", "scatter", "scatter_add"]


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_written_lies_apart_from_what_is_read(name: str) -> None:
    write, room = IN_PLACE[name], tn.arange(12)
    before, i = room.clone(), tn.arange(5, -1, -1)
    for x, index, y in [
        (room[:6], i, room[:6]),
        (room[:6], i, room[3:9]),
        (room[:6], room[:6], tn.ones(6, dtype=tn.int64)),
    ]:
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            write(x, index, y)
        assert tn.equal(room, before)
    write(room[::2], i, room[1::2])
    apart = before[::2].clone()
    write(apart, i, before[1::2])
    assert tn.equal(room[::2], apart)
    assert tn.equal(room[1::2], before[1::2])


@pytest.mark.parametrize("name", OUT_OF_PLACE)
def test_out_may_be_the_tensor_itself(name: str) -> None:
    x, i, y = tn.arange(6.0), tn.arange(5, -1, -1), tn.ones(6)
    want = getattr(tn, name)(x, 0, i, y)
    assert getattr(tn, name)(x, 0, i, y, out=x) is x
    assert tn.equal(x, want)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        getattr(tn, name)(x, 0, i, y, out=y)


def test_one_element_of_the_tensor_fills_what_a_mask_shows() -> None:
    x = tn.arange(4.0)
    x[x > 1] = x[1]
    assert x.tolist() == [0, 1, 1, 1]


def test_index_fill_is_refused_where_its_index_is_written():
    x = tn.tensor([2, 1, 0])
    for call in (lambda: x.index_fill_(0, x, 0), lambda: x.index_fill_(0, x[1:], 0)):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            call()
    assert x.tolist() == [2, 1, 0] and x.index_fill(0, x, 7).tolist() == [7, 7, 7]
    pair = tn.tensor([0, 1, 5, 6])
    assert pair[2:].index_fill_(0, pair[:1], 9).tolist() == [9, 6]
