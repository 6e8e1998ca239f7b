"""Reductions and sums along axes, by the names of the array API standard."""

from __future__ import annotations

from typing import Any

import tenon as tn
from tenon import Tensor
from tenon.array_api._dtypes import UNSIGNED, Axes, along, axes_of, isdtype


def _sum_dtype(x: Tensor, dtype: Any) -> tn.dtype:
    """Sums of integers are 64 bits wide, with a sign where the integers have one."""
    if dtype is not None or not isdtype(x.dtype, "integral"):
        return dtype or x.dtype
    return tn.uint64 if x.dtype in UNSIGNED.values() else tn.int64


def _wide(x: Tensor, dtype: tn.dtype) -> Tensor:
    """In a dtype that sums are made in: those of uint64 are made of the same bits, signed."""
    return x.to(tn.int64 if dtype is tn.uint64 else dtype)


def _cumulative(
    op: Any, first: int, x: Tensor, axis: int | None, dtype: Any, initial: bool
) -> Tensor:
    if axis is None:
        if x.ndim != 1:
            raise ValueError("say the axis of an array with other than one dimension")
        axis = 0
    to = _sum_dtype(x, dtype)
    result = op(_wide(x, to), axis).to(to)
    if not initial:
        return result
    (at,) = axes_of(x, axis)
    head = tn.full((*x.shape[:at], 1, *x.shape[at + 1 :]), first, dtype=to, device=x.device)
    return tn.cat([head, result], at)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Products up to each element, with a 1 before them if include_initial is true."""
    return _cumulative(tn.cumprod, 1, x, axis, dtype, include_initial)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Sums up to each element, with a 0 before them if include_initial is true."""
    return _cumulative(tn.cumsum, 0, x, axis, dtype, include_initial)


def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest elements."""
    axes = axes_of(x, axis)
    return tn.amax(x, axes, keepdims) if axes else x.clone()


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Arithmetic means."""
    axes = axes_of(x, axis)
    return tn.mean(x, axes, keepdims) if axes else x.clone()


def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The least elements."""
    axes = axes_of(x, axis)
    return tn.amin(x, axes, keepdims) if axes else x.clone()


def prod(x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Products; those of integers are 64 bits wide."""
    to = _sum_dtype(x, dtype)
    return along(tn.prod, _wide(x, to), axis, keepdims).to(to)


def std(
    x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Standard deviations: roots of `var`."""
    return tn.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def sum(x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sums; those of integers are 64 bits wide."""
    to, axes = _sum_dtype(x, dtype), axes_of(x, axis)
    wide = _wide(x, to)
    return (tn.sum(wide, axes, keepdims) if axes else wide.clone()).to(to)


def var(
    x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Variances: sums of squared deviations over the number of elements less the correction."""
    axes = axes_of(x, axis)
    if not axes:
        return x - x  # zero, or NaN
    return tn.var(x, axes, correction=correction, keepdim=keepdims)


def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are true, or not zero."""
    axes = axes_of(x, axis)
    return (tn.all(x, axes, keepdims) if axes else x).to(tn.bool)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether an element is true, or not zero."""
    axes = axes_of(x, axis)
    return (tn.any(x, axes, keepdims) if axes else x).to(tn.bool)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Differences of neighbours along an axis, n times."""
    return tn.diff(x, n, axis, prepend, append)
