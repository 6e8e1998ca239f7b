"""NumPy references that are longer than one line in the op table. Inputs are float64 or exact."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as special


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


def fftn(fn: Callable[..., Any], x: np.ndarray, s: Any, dim: Any, norm: str | None) -> np.ndarray:
    """A transform of NumPy or SciPy with the arguments of ours: a size of -1 is that of x."""
    if dim is None:
        dim = list(range(-(x.ndim if s is None else len(s)), 0))
    if s is not None:
        s = [x.shape[d] if n == -1 else n for d, n in zip(dim, s, strict=True)]
    return np.asarray(fn(x, s, dim, norm=norm))


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


def cosine_embedding_loss(x1: Any, x2: Any, target: Any, margin: float) -> Any:
    cos = (x1 * x2).sum(-1) / np.sqrt(((x1 * x1).sum(-1) + 1e-12) * ((x2 * x2).sum(-1) + 1e-12))
    near, far = 1 - cos, np.maximum(cos - margin, 0)
    return np.mean(np.where(target == 1, near, 0) + np.where(target == -1, far, 0))


def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: float, p: float, eps: float, swap: bool
) -> Any:
    def distance(x: Any, y: Any) -> Any:
        return np.linalg.norm(x - y + eps, p, -1)

    far = distance(anchor, negative)
    far = np.minimum(far, distance(positive, negative)) if swap else far
    return np.mean(np.maximum(distance(anchor, positive) - far + margin, 0))


def multigammaln(x: np.ndarray, p: int) -> np.ndarray:
    """The logarithm of the multivariate gamma function."""
    from scipy.special import multigammaln as one

    return np.vectorize(lambda v: float(one(v, p)))(x)


def chebyshev_v(x: np.ndarray, n: Any) -> np.ndarray:
    """The polynomial of the third kind, for |x| < 1; 0 where n is negative."""
    angle = np.arccos(x)
    return np.where(np.asarray(n) < 0, 0, np.cos((np.asarray(n) + 0.5) * angle) / np.cos(angle / 2))


def chebyshev_w(x: np.ndarray, n: Any) -> np.ndarray:
    """The polynomial of the fourth kind, for |x| < 1; 0 where n is negative."""
    angle = np.arccos(x)
    return np.where(np.asarray(n) < 0, 0, np.sin((np.asarray(n) + 0.5) * angle) / np.sin(angle / 2))


def diff(x: np.ndarray, n: int, dim: int, prepend: Any, append: Any) -> np.ndarray:
    """np.diff, for which an absent end is no end at all."""
    ends = {"prepend": prepend, "append": append}
    return np.diff(x, n, dim, **{k: v for k, v in ends.items() if v is not None})


def renorm(x: np.ndarray, p: float, dim: int, maxnorm: float) -> np.ndarray:
    """Slices along dim that are too long, scaled to a p-norm of maxnorm."""
    others = tuple(d for d in range(x.ndim) if d != dim % x.ndim)
    norm = (np.abs(x) ** p).sum(others, keepdims=True) ** (1 / p)
    return x * np.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1)


def combinations(x: np.ndarray, r: int, again: bool) -> np.ndarray:
    """Rows of r elements, as itertools has them."""
    choose = itertools.combinations_with_replacement if again else itertools.combinations
    return np.array(list(choose(x, r)), x.dtype).reshape(-1, r)


REDUCE: dict[str, Callable[..., Any]] = {"mean": np.mean, "sum": np.sum, "none": np.asarray}


def multi_margin_loss(
    x: Any, target: Any, p: float, margin: float, weight: Any, reduction: str
) -> Any:
    losses = []
    for row, k in zip(np.atleast_2d(x), np.ravel(target)):
        gaps = np.maximum(margin - row[k] + row, 0) ** p * (1 if weight is None else weight[k])
        losses.append(np.delete(gaps, k).sum() / row.size)
    return REDUCE[reduction](np.reshape(losses, np.shape(target)))


def multilabel_margin_loss(x: Any, target: Any, reduction: str) -> Any:
    losses = []
    for row, marks in zip(np.atleast_2d(x), np.atleast_2d(target)):
        wanted = [*marks, -1]
        wanted = wanted[: wanted.index(-1)]
        others = np.delete(row, wanted)
        losses.append(sum(np.maximum(1 - (row[k] - others), 0).sum() for k in wanted) / row.size)
    return REDUCE[reduction](np.reshape(losses, np.shape(x)[:-1]))


def standard_gamma_grad(a: Any, z: Any) -> Any:
    """By central differences of the inverse at a constant share, whose smaller side is kept."""
    a, z = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(z, np.float64))
    low, high, h = special.gammainc(a, z), special.gammaincc(a, z), 1e-5 * a
    left = (special.gammaincinv(a + h, low) - special.gammaincinv(a - h, low)) / (2 * h)
    right = (special.gammainccinv(a + h, high) - special.gammainccinv(a - h, high)) / (2 * h)
    return np.where(low < high, left, right)
