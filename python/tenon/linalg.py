"""tenon.linalg: norms and products of vectors and matrices. Factorisations are not there yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon import _C
from tenon._C import Tensor

_ops = _C._ops

matmul = _ops.matmul
vector_norm = _ops.linalg_vector_norm


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, as a view."""
    return A.diagonal(offset, dim1, dim2)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sum of products along dim, the first factor conjugated."""
    first = x.conj() if x.is_complex() else x
    return (first * y).sum(dim)


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Cross products of vectors of three elements along dim."""
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. "
            f"Got {input.shape[dim]} and {other.shape[dim]}"
        )
    a, b = input.unbind(dim), other.unbind(dim)
    parts = [a[(i + 1) % 3] * b[(i + 2) % 3] - a[(i + 2) % 3] * b[(i + 1) % 3] for i in range(3)]
    return _ops.stack(parts, dim if dim < 0 else min(dim, parts[0].ndim))


def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The product of several matrices, from the left."""
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    product = tensors[0]
    for t in tensors[1:]:
        product = product @ t
    return product if out is None else out.copy_(product)


def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """Norm of matrices: 'fro', 1, -1, inf or -inf."""
    A = A if dtype is None else A.to(dtype)
    if ord == "fro":
        return vector_norm(A, 2, tuple(dim), keepdim)
    if not isinstance(ord, (int, float)) or abs(ord) not in (1, float("inf")):
        raise NotImplementedError(f"linalg.matrix_norm: the norm {ord!r} needs singular values")
    rows, columns = (d % A.ndim for d in dim)
    inner, outer = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = A.abs().sum(inner, keepdim=True)
    result = sums.amax(outer, keepdim=True) if ord > 0 else sums.amin(outer, keepdim=True)
    return result if keepdim else result.squeeze((rows, columns))


def norm(
    A: Tensor,
    ord: float | str | None = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """vector_norm, or matrix_norm where ord is given for two dimensions or is a name."""
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    dims = (dim,) if isinstance(dim, int) else dim
    if dims is None and (A.ndim == 2 or isinstance(ord, str)):
        dims = (-2, -1)
    if dims is not None and len(dims) == 2:
        return matrix_norm(A, ord, dims, keepdim, dtype=dtype)
    return vector_norm(A, ord, dims, keepdim, dtype=dtype)
