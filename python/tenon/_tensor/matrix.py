"""Matrix functions of the main module that are older than tenon.linalg, which does their work."""

from __future__ import annotations

from typing import Any

from tenon import _C, linalg, return_types
from tenon._C import Tensor
from tenon._tape import overridable
from tenon.linalg import (
    _broadcast,
    _result,
    _writes_out,
    lu_factor_ex,
    lu_parts,
    lu_rows,
    matrix_norm,
    matrix_power,
    multi_dot,
    permutation,
    pinv,
    solve_triangular,
    vector_norm,
)

__all__ = [
    "chain_matmul", "cholesky_inverse", "cholesky_solve", "frobenius_norm", "lu", "lu_solve",
    "lu_unpack", "matrix_power", "nuclear_norm", "pinverse", "qr", "svd", "triangular_solve",
    "vander",
]  # fmt: skip

_ops = _C._ops


@_writes_out
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> return_types.svd:
    """linalg.svd with V in place of its adjoint.

    Shapes: (..., m, n) to (..., m, k), (..., k) and (..., n, k).

    >>> tn.svd(tn.eye(2))[1]
    tensor([1., 1.])
    """
    U, S, Vh = _ops._linalg_svd(input, not some)
    if not compute_uv:
        m, n = input.shape[-2:]
        batch = input.shape[:-2]
        return return_types.svd(input.new_zeros(*batch, m, m), S, input.new_zeros(*batch, n, n))
    return return_types.svd(U, S, Vh.mH)


@_writes_out
def qr(input: Tensor, some: bool = True) -> return_types.qr:
    """linalg.qr, reduced or complete.

    Shapes: (..., m, n) to (..., m, k) and (..., k, n).

    >>> tn.qr(tn.rand(3, 2))[0].shape
    tenon.Size([3, 2])
    """
    return return_types.qr(*_ops._linalg_qr(input, not some))


@_writes_out
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """linalg.pinv with a relative tolerance.

    Shapes: (..., m, n) to (..., n, m).

    >>> tn.pinverse(tn.tensor([[2.0]]))
    tensor([[0.5000]])
    """
    return pinv(input, rcond=rcond)


def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of matrices.

    >>> tn.chain_matmul(tn.rand(2, 3), tn.rand(3, 4), tn.rand(4, 5)).shape
    tenon.Size([2, 5])
    """
    for place, matrix in enumerate(matrices, 1):
        if not isinstance(matrix, Tensor):
            raise TypeError(
                f"chain_matmul(): argument 'matrices' (position {place}) must be Tensor, not "
                f"{type(matrix).__name__}"
            )
    if len(matrices) == 1:
        return _result(matrices[0], out)
    return multi_dot(matrices, out=out)


def cholesky_solve(
    input: Tensor, L: Tensor, upper: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """X with A X = input for A = L L^H, or L^H L where L is upper.

    Shapes: input (..., n, k), L (..., n, n) to input's.

    >>> tn.cholesky_solve(tn.tensor([[4.0]]), tn.tensor([[2.0]]))
    tensor([[1.]])
    """
    if L.ndim < 2 or input.ndim < 2:
        raise RuntimeError("cholesky_solve: input and L should have at least 2 dimensions")
    L, input = _broadcast(L, input)
    return _result(_ops._cholesky_solve(input, L, upper), out)


def cholesky_inverse(L: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The inverse of A = L L^H, or of L^H L where L is upper.

    Shapes: (..., n, n) to the same.

    >>> tn.cholesky_inverse(tn.tensor([[2.0]]))
    tensor([[0.2500]])
    """
    if L.ndim < 2:
        raise RuntimeError("cholesky_inverse: The input tensor A must have at least 2 dimensions.")
    unit = _ops.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    return cholesky_solve(unit.expand(L.shape), L, upper, out=out)


@_writes_out
def triangular_solve(
    b: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> return_types.triangular_solve:
    """X with A X = b for a triangular A, or its transpose; and A.

    Shapes: b (..., n, k), A (..., n, n) to b's.

    >>> tn.triangular_solve(tn.tensor([[4.0]]), tn.tensor([[2.0]]))[0]
    tensor([[2.]])
    """
    matrix, is_upper = (A.mT, not upper) if transpose else (A, upper)
    X = solve_triangular(matrix, b, upper=is_upper, unitriangular=unitriangular)
    return return_types.triangular_solve(X, A.clone())


def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values of matrices.

    >>> tn.nuclear_norm(tn.eye(3))
    tensor(3.)
    """
    return matrix_norm(input, "nuc", dim, keepdim)


def frobenius_norm(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The root of the sum of squares along dim, of all elements without it.

    >>> tn.frobenius_norm(tn.tensor([3.0, 4.0]))
    tensor(5.)
    """
    return vector_norm(input, 2, dim or None, keepdim)


def lu(
    A: Tensor, pivot: bool = True, get_infos: bool = False, *, out: Any = None
) -> tuple[Tensor, ...]:
    """linalg.lu_factor; get_infos: with the numbers of zeros on the diagonal of U.

    Shapes: (..., m, n) to the factors in one matrix and the exchanges.

    >>> tn.lu(tn.eye(2))[0]
    tensor([[1., 0.],
            [0., 1.]])
    """
    count = 3 if get_infos else 2
    if out is not None and len(out) != count:
        raise TypeError(f"expected tuple of {count} elements but got {len(out)}")
    factors = tuple(lu_factor_ex(A, pivot=pivot))[:count]
    return factors if out is None else tuple(map(_result, factors, out))


@_writes_out
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> return_types.lu_unpack:
    """P, L and U of what linalg.lu_factor gives."""
    if LU_data.ndim < 2:
        raise RuntimeError(
            f"lu_unpack: Expected tensor with 2 or more dimensions. Got size: {list(LU_data.shape)}"
        )
    P = L = U = LU_data.new_empty(0)
    if unpack_pivots:
        P = permutation(lu_rows(LU_data, LU_pivots, "lu_unpack"), LU_data)
    if unpack_data:
        L, U = lu_parts(LU_data)
    return return_types.lu_unpack(P, L, U)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """linalg.lu_solve with the right side first."""
    return linalg.lu_solve(LU_data, LU_pivots, b, out=out)


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of the elements of a vector, each row from N - 1 down to 0, or up with increasing."""
    if x.ndim != 1:
        raise RuntimeError(f"vander(): x must be a one-dimensional tensor, but has {x.ndim}")
    n = len(x) if N is None else N
    if n < 0:
        raise RuntimeError(f"vander(): N must be non-negative, but is {n}")
    column = x.unsqueeze(1)
    factors = _ops.cat([_ops.ones_like(column), column.expand(-1, max(n - 1, 0))], 1)
    powers = factors.cumprod(1)[:, :n]
    return powers if increasing else powers.flip(1)


_FLAGS = "some compute_uv upper transpose unitriangular keepdim pivot unpack_data unpack_pivots"
overridable.make_overridable(globals(), flags=(*_FLAGS.split(), "increasing"))
