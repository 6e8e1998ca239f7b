"""NumPy references that are longer than one line in the op table. Inputs are float64 or exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def sgn(x: np.ndarray) -> np.ndarray:
    """x / |x|, 0 at 0; works for complex numbers."""
    size = np.abs(x)
    return np.where(size == 0, 0, x / np.where(size == 0, 1, size))


def flatten(x: np.ndarray, start: int, end: int) -> np.ndarray:
    """Dimensions start to end as one."""
    if x.ndim == 0:
        return x.reshape(1)
    start, end = start % x.ndim, end % x.ndim
    return x.reshape(*x.shape[:start], -1, *x.shape[end + 1 :])


def unflatten(x: np.ndarray, dim: int, sizes: list[int]) -> np.ndarray:
    """Dimension dim as several."""
    dim %= x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def axes(dim: int | list[int] | None) -> int | tuple[int, ...] | None:
    return tuple(dim) if isinstance(dim, list) else dim


def reduce(
    fn: Callable[..., Any], x: np.ndarray, dim: Any, keepdim: bool, **more: Any
) -> np.ndarray:
    """A NumPy reduction with the arguments of ours."""
    return np.asarray(fn(x, axis=axes(dim), keepdims=keepdim, **more))


def arg_reduce(fn: Callable[..., Any], x: np.ndarray, dim: int | None, keepdim: bool) -> np.ndarray:
    """argmax and argmin; a 0-d tensor has the position 0."""
    if x.ndim == 0:
        return np.asarray(0)
    return np.asarray(fn(x, axis=dim, keepdims=keepdim))


def vector_norm(x: np.ndarray, p: float, dim: Any, keepdim: bool) -> np.ndarray:
    """(sum |x|^p)^(1/p) over any dimensions."""
    size = np.abs(x)
    if p == 0:
        return np.asarray(np.sum(x != 0, axis=axes(dim), keepdims=keepdim), dtype=float)
    return np.asarray(np.sum(size**p, axis=axes(dim), keepdims=keepdim) ** (1.0 / p))


def trapezoid(y: np.ndarray, x: np.ndarray | None, dx: float, dim: int) -> np.ndarray:
    """np.trapezoid, which older NumPy calls trapz; a vector x lies along dim."""
    y = np.moveaxis(y, dim, -1)
    if x is not None and x.ndim == y.ndim:
        x = np.moveaxis(x, dim, -1)
    steps = dx if x is None else np.diff(x, axis=-1)
    return np.asarray(((y[..., 1:] + y[..., :-1]) / 2 * steps).sum(-1))
