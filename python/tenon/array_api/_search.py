"""Searching, sorting, sets and choosing by indices, by the names of the array API standard."""

from __future__ import annotations

from typing import Any, NamedTuple

import tenon as tn
from tenon import Tensor
from tenon.array_api._dtypes import Axes, axes_of, together


class unique_all_result(NamedTuple):
    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class unique_counts_result(NamedTuple):
    values: Tensor
    counts: Tensor


class unique_inverse_result(NamedTuple):
    values: Tensor
    inverse_indices: Tensor


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the largest element is, the first of several; without an axis in the flat array."""
    return _first(tn.argmax, x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the least element is, the first of several; in the flattened array without an axis."""
    return _first(tn.argmin, x, axis, keepdims)


def _first(op: Any, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    if axis is None and keepdims:
        return op(x).reshape((1,) * x.ndim)
    return op(x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero."""
    axes = axes_of(x, axis)
    return tn.sum(x != 0, axes, keepdims) if axes else (x != 0).to(tn.int64)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of elements that are not zero, one array for each axis."""
    if x.ndim == 0:
        raise ValueError("nonzero: an array without dimensions has no indices")
    return tuple(tn.nonzero(x, as_tuple=True))


def searchsorted(
    x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Where the elements of x2 belong among the sorted ones of x1."""
    x1, x2 = together(x1, x2)
    return tn.searchsorted(x1, x2, side=side, sorter=sorter)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Elements of x1 where the condition holds, else those of x2."""
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        return tn.where(condition, x1, x2)
    return tn.where(condition, *together(x1, x2))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Slices along an axis, which may be left out of an array with one."""
    if axis is None and x.ndim != 1:
        raise ValueError("take: say the axis of an array with several dimensions")
    (at,) = axes_of(x, 0 if axis is None else axis)
    picked = tn.index_select(x, at, _from_zero(indices, x.shape[at]).flatten())
    return picked.reshape(*x.shape[:at], *indices.shape, *x.shape[at + 1 :])


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements along an axis, others for every row."""
    (at,) = axes_of(x, axis)
    return tn.take_along_dim(x, _from_zero(indices, x.shape[at]), at)


def _from_zero(indices: Tensor, size: int) -> Tensor:
    """Indices as int64, negative ones counted from the end."""
    wide = indices.to(tn.int64)
    return tn.where(wide < 0, wide + size, wide)


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """Whether elements of x1 are among those of x2."""
    return tn.isin(*together(x1, x2), invert=invert)


def _unique(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if x.is_complex():
        return _unique_complex(x)
    return tn.unique(x, return_inverse=True, return_counts=True)


def _unique_complex(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In order of real parts, equal ones in order of imaginary parts; every NaN is another one."""
    flat = x.flatten()
    order = tn.argsort(flat.imag, stable=True)
    order = order[tn.argsort(flat.real[order], stable=True)]
    ordered = flat[order]
    new = tn.ones(flat.shape, dtype=tn.bool, device=x.device)
    new[1:] = ordered[1:] != ordered[:-1]
    groups = tn.cumsum(new, 0) - 1
    values = ordered[new]
    inverse = tn.empty_like(groups).scatter_(0, order, groups)
    return values, inverse.reshape(x.shape), tn.bincount(groups, minlength=values.numel())


def unique_all(x: Tensor, /) -> unique_all_result:
    """Different elements, where the first of each is, which one each element is, and how many."""
    values, inverse, counts = _unique(x)
    places = tn.arange(x.numel(), device=x.device)
    first = tn.full((values.numel(),), x.numel(), device=x.device)
    first = first.scatter_reduce(0, inverse.flatten(), places, "amin")
    return unique_all_result(values, first, inverse, counts)


def unique_counts(x: Tensor, /) -> unique_counts_result:
    """Different elements and how many there are of each."""
    values, _, counts = _unique(x)
    return unique_counts_result(values, counts)


def unique_inverse(x: Tensor, /) -> unique_inverse_result:
    """Different elements, and which of them each element is."""
    values, inverse, _ = _unique(x)
    return unique_inverse_result(values, inverse)


def unique_values(x: Tensor, /) -> Tensor:
    """Different elements."""
    return _unique_complex(x)[0] if x.is_complex() else tn.unique(x)


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices that sort the array along an axis."""
    return tn.sort(x, dim=axis, descending=descending, stable=stable).indices


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis."""
    return tn.sort(x, dim=axis, descending=descending, stable=stable).values


__all__ = [
    "argmax", "argmin", "argsort", "count_nonzero", "isin", "nonzero", "searchsorted", "sort",
    "take", "take_along_axis", "unique_all", "unique_counts", "unique_inverse", "unique_values",
    "where",
]  # fmt: skip
