"""Linear algebra, by the names of the array API standard."""

from __future__ import annotations

from typing import Any, NamedTuple

import tenon as tn
from tenon import Tensor, linalg
from tenon.array_api._dtypes import axes_of, together
from tenon.array_api._statistics import sum as _sum


class eig_result(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class eigh_result(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class qr_result(NamedTuple):
    Q: Tensor
    R: Tensor


class slogdet_result(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class svd_result(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """L with L L^H = x, or U with U^H U = x."""
    return linalg.cholesky(x, upper=upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Cross products of vectors with three elements."""
    x1, x2 = together(x1, x2)
    for x in (x1, x2):
        if x.shape[axis] != 3:
            raise ValueError(f"cross: vectors have 3 elements, not {x.shape[axis]}")
    return linalg.cross(*tn.broadcast_tensors(x1, x2), dim=axis)


def det(x: Tensor, /) -> Tensor:
    """Determinants."""
    return linalg.det(x)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Diagonals of matrices."""
    return tn.diagonal(x, offset, -2, -1)


def eig(x: Tensor, /) -> eig_result:
    """Eigenvalues and eigenvectors of matrices."""
    return eig_result(*linalg.eig(x))


def eigh(x: Tensor, /) -> eigh_result:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    return eigh_result(*linalg.eigh(x))


def eigvals(x: Tensor, /) -> Tensor:
    """Eigenvalues of matrices."""
    return linalg.eigvals(x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of Hermitian matrices."""
    return linalg.eigvalsh(x)


def inv(x: Tensor, /) -> Tensor:
    """Inverse matrices."""
    return linalg.inv(x)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Products of matrices."""
    return tn.matmul(*together(x1, x2))


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Norms of matrices."""
    return linalg.matrix_norm(x, ord, (-2, -1), keepdims)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Powers of matrices, inverses where n is negative."""
    return linalg.matrix_power(x, n)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are larger than rtol times the largest."""
    return linalg.matrix_rank(x, rtol=rtol)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes swapped."""
    return x.mT


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of elements of two vectors."""
    return tn.outer(*together(x1, x2))


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """Pseudo-inverses; singular values up to rtol times the largest count as zero."""
    return linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> qr_result:
    """Q with orthonormal columns and upper triangular R with Q R = x."""
    return qr_result(*linalg.qr(x, mode))


def slogdet(x: Tensor, /) -> slogdet_result:
    """Signs of determinants and logarithms of their absolute values."""
    return slogdet_result(*linalg.slogdet(x))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """x with x1 x = x2; x2 is a vector only where it has one dimension."""
    x1, x2 = together(x1, x2)
    if x2.ndim == 1:
        return linalg.solve(x1, x2.unsqueeze(-1)).squeeze(-1)
    shape = tn.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return linalg.solve(x1.expand(*shape, *x1.shape[-2:]), x2.expand(*shape, *x2.shape[-2:]))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> svd_result:
    """U, S, Vh with U diag(S) Vh = x."""
    return svd_result(*linalg.svd(x, full_matrices))


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values, the largest first."""
    return linalg.svdvals(x)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Sums of products over the last axes of x1 and the first of x2, or over pairs of axes."""
    return tn.tensordot(*together(x1, x2), dims=axes)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sums of diagonals; those of integers are 64 bits wide."""
    return _sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sums of products along an axis counted from the end, the first factor conjugated."""
    x1, x2 = together(x1, x2)
    if axis >= 0 or axis < -min(x1.ndim, x2.ndim):
        raise ValueError(f"vecdot: axis counts from the end of both arrays, and is not {axis}")
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(
            f"vecdot: vectors of one length, not {x1.shape[axis]} and {x2.shape[axis]} elements"
        )
    return linalg.vecdot(x1, x2, dim=axis).to(x1.dtype)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """Norms of vectors, over all elements where there is no axis."""
    axes = axes_of(x, axis)
    if axes:
        return linalg.vector_norm(x, ord, axes, keepdims)
    return tn.where(x == 0, 0.0, 1.0).to(tn.abs(x).dtype) if ord == 0 else tn.abs(x)


__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr",
    "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
