"""Decompositions of large matrices by products with few random columns (Halko and others)."""

from __future__ import annotations

from tenon import _C
from tenon._C import Tensor
from tenon._tape import overridable
from tenon.linalg import qr

__all__ = ["pca_lowrank", "svd_lowrank"]


def _basis(A: Tensor, q: int, niter: int) -> Tensor:
    """Orthonormal columns that nearly span the largest singular vectors on the left."""
    drawn = _C._ops.randn((A.shape[-1], q), dtype=A.dtype, device=A.device)
    Q = qr(A @ drawn).Q
    for _ in range(niter):
        Q = qr(A.mH @ Q).Q
        Q = qr(A @ Q).Q
    return Q


def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The q largest singular values of A, or of A - M, with their vectors: U diag(S) V^H."""
    if M is not None:
        A = A - M
    q = 6 if q is None else q
    m, n = A.shape[-2:]
    wide = m < n
    A = A.mH if wide else A
    Q = _basis(A, q, 2 if niter is None else niter)
    U, S, Vh = _C._ops._linalg_svd(Q.mH @ A, False)
    U, V = Q @ U, Vh.mH
    return (V, S, U) if wide else (U, S, V)


def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """The q principal components of the rows of A, less their mean where `center` says so."""
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}"
        )
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(dim=-2, keepdim=True) if center else A, q, niter)


overridable.make_overridable(globals())
