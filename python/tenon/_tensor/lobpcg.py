"""Some eigenpairs of large symmetric matrices by products with them (Knyazev's LOBPCG)."""

from __future__ import annotations

from typing import Any

from tenon import _C
from tenon._C import Tensor
from tenon._tape import overridable
from tenon._tensor.functions import finfo
from tenon.linalg import cholesky, eigh, qr, solve_triangular

__all__ = ["lobpcg"]


def _orthonormal(S: Tensor, B: Tensor | None) -> Tensor:
    """Columns that span what those of S do, orthonormal, with B in between where it is given."""
    Q = qr(S).Q
    if B is None:
        return Q
    return solve_triangular(cholesky(Q.mT @ (B @ Q)).mT, Q, upper=True, left=False)


def _best(A: Tensor, Q: Tensor, n: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The n eigenpairs of A as far as the columns of Q span them."""
    values, turn = eigh(Q.mT @ (A @ Q))
    if largest:
        values, turn = values.flip(-1), turn.flip(-1)
    return values[:n], Q @ turn[:, :n]


def _iterate(
    A: Tensor, B: Tensor | None, X: Tensor, iK: Tensor | None, niter: int, tol: float, largest: bool
) -> tuple[Tensor, Tensor]:
    """Better and better: what is wrong with X, and where it came from, join the space searched."""
    n = X.shape[-1]
    scale = (A @ X).norm() / X.norm()
    values, X = _best(A, _orthonormal(X, B), n, largest)
    before = X.new_empty((X.shape[0], 0))
    for _ in range(niter):
        across = X if B is None else B @ X
        wrong = A @ X - across * values
        if bool((wrong.norm(dim=0) <= tol * (scale + values.abs())).all()):
            break
        parts = [X, wrong if iK is None else iK @ wrong, before]
        old, weighed = X, across
        values, X = _best(A, _orthonormal(_C._ops.cat(parts, -1), B), n, largest)
        before = X - old @ (weighed.mT @ X)
    return values, X


def _whole(A: Tensor, B: Tensor | None, n: int, largest: bool) -> tuple[Tensor, Tensor]:
    """By the decomposition of the whole matrix, through which gradients go."""
    A = A.to_dense()
    eye = _C._ops.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    if B is None:
        return _best(A, eye, n, largest)
    lower = cholesky(B.to_dense())
    inner = solve_triangular(lower, A, upper=False)
    inner = solve_triangular(lower.mT, inner, upper=True, left=False)
    values, vectors = _best(inner, eye, n, largest)
    return values, solve_triangular(lower.mT, vectors, upper=True)


def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) eigenvalues of symmetric A, or of A x = e B x, and their vectors.
    A and B may be sparse; with a gradient to come they are decomposed whole. Vectors are kept
    orthonormal by QR whatever `method` and the `ortho_` settings say; `tracker` is not called."""
    if tracker is not None:
        raise NotImplementedError("lobpcg: tracker is not called; leave it None")
    if A.shape[-2] != A.shape[-1]:
        raise AssertionError(f"lobpcg: A must be square, got shape {tuple(A.shape)}")
    if B is not None and B.shape != A.shape:
        raise AssertionError(
            f"lobpcg: B must have A's shape {tuple(A.shape)}, got {tuple(B.shape)}"
        )
    m = A.shape[-1]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = X.shape[-1] if X is not None else k if n is None else n
    if m < 3 * n:
        raise ValueError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than "
            f"3 x the number of requested eigenpairs (={n})"
        )
    if A.ndim > 2:
        given = [[None] * A[..., 0, 0].numel() if t is None else t.flatten(0, -3) for t in (B, X)]
        each = [
            lobpcg(a, k, b, x, n, iK, niter, tol, largest)
            for a, b, x in zip(A.flatten(0, -3), *given, strict=True)
        ]
        lead = tuple(A.shape[:-2])
        values, vectors = (_C._ops.stack(list(part)) for part in zip(*each, strict=True))
        return values.reshape((*lead, k)), vectors.reshape((*lead, m, k))
    most = largest is not False
    if A.requires_grad or (B is not None and B.requires_grad):
        values, vectors = _whole(A, B, n, most)
        return values[:k], vectors[:, :k]
    with _C.no_grad():
        start = _C._ops.randn((m, n), dtype=A.dtype, device=A.device) if X is None else X
        limit = 100 + 20 * m if niter is None or niter < 0 else niter
        near = finfo(A.dtype).eps ** 0.5 if tol is None else tol
        values, vectors = _iterate(A, B, start, iK, limit, near, most)
    return values[:k], vectors[:, :k]


overridable.make_overridable(globals())
