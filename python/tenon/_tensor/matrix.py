"""Matrix functions of the main module that are older than tenon.linalg, which does their work."""

from __future__ import annotations

from typing import NamedTuple

from tenon import _C
from tenon._C import Tensor
from tenon.linalg import QR, _result, _writes_out, matrix_power, multi_dot, pinv, solve_triangular

__all__ = [
    "chain_matmul", "cholesky_inverse", "cholesky_solve", "matrix_power", "pinverse", "qr", "svd",
    "triangular_solve",
]  # fmt: skip

_ops = _C._ops


class SVD(NamedTuple):
    """input = U diag(S) V^T."""

    U: Tensor
    S: Tensor
    V: Tensor


class TriangularSolve(NamedTuple):
    """The solution and the coefficients that were used."""

    solution: Tensor
    cloned_coefficient: Tensor


@_writes_out
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> SVD:
    """linalg.svd with V in place of its transpose."""
    U, S, Vh = _ops._linalg_svd(input, not some)
    if not compute_uv:
        m, n = input.shape[-2:]
        batch = input.shape[:-2]
        return SVD(input.new_zeros(*batch, m, m), S, input.new_zeros(*batch, n, n))
    return SVD(U, S, Vh.mT)


@_writes_out
def qr(input: Tensor, some: bool = True) -> QR:
    """linalg.qr, reduced or complete."""
    return QR(*_ops._linalg_qr(input, not some))


@_writes_out
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """linalg.pinv with a relative tolerance."""
    return pinv(input, rcond=rcond)


def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of matrices."""
    if len(matrices) == 1:
        return _result(matrices[0], out)
    return multi_dot(matrices, out=out)


def cholesky_solve(
    input: Tensor, L: Tensor, upper: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """X with A X = input for A = L L^T, or L^T L where L is upper."""
    first = L.mT if upper else L
    half = solve_triangular(first, input, upper=False)
    return _result(solve_triangular(first.mT, half, upper=True), out)


def cholesky_inverse(L: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The inverse of A = L L^T, or of L^T L where L is upper."""
    unit = _ops.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    return cholesky_solve(unit.expand(L.shape), L, upper, out=out)


@_writes_out
def triangular_solve(
    b: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> TriangularSolve:
    """X with A X = b for a triangular A, or its transpose; and A."""
    matrix, is_upper = (A.mT, not upper) if transpose else (A, upper)
    X = solve_triangular(matrix, b, upper=is_upper, unitriangular=unitriangular)
    return TriangularSolve(X, A.clone())
