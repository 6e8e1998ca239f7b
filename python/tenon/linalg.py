"""tenon.linalg: norms, products and factorisations of matrices, batched over leading dimensions.

Factorisations are operators of the table; what is here arranges their arguments and results. A
function that solves or inverts raises LinAlgError where a matrix has no solution or inverse.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

from tenon import _C
from tenon._C import Tensor
from tenon._tape import overridable
from tenon._tensor.functions import finfo
from tenon.return_types import (
    linalg_cholesky_ex,
    linalg_eig,
    linalg_eigh,
    linalg_ldl_factor,
    linalg_ldl_factor_ex,
    linalg_lstsq,
    linalg_lu,
    linalg_lu_factor,
    linalg_lu_factor_ex,
    linalg_qr,
    linalg_slogdet,
    linalg_solve_ex,
    linalg_svd,
)

_ops = _C._ops
_R = TypeVar("_R")

LinAlgError = _C.LinAlgError
matmul = _ops.matmul
vector_norm = _ops.linalg_vector_norm
inv_ex = _ops.linalg_inv_ex
householder_product = _ops.linalg_householder_product


def _result(value: Tensor, out: Tensor | None) -> Tensor:
    return value if out is None else _ops._given(value, out=out)


def _result_as(value: Tensor, out: Tensor | None) -> Tensor:
    """The result where PyTorch takes an out= of another dtype that holds the values."""
    return value if out is None else _ops._given_as(value, out=out)


def _writes_out(
    function: Callable[..., _R], give: Callable[[Tensor, Tensor | None], Tensor] = _result
) -> Callable[..., _R]:
    """The function with `out=`: a tensor, or as many as there are results."""

    @functools.wraps(function)
    def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        if out is None:
            return value
        if isinstance(value, Tensor):
            return give(value, out)
        return type(value)(*map(give, value, out))

    return call


def _writes_out_as(function: Callable[..., _R]) -> Callable[..., _R]:
    return _writes_out(function, _result_as)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, as a view."""
    return A.diagonal(offset, dim1, dim2)


@_writes_out
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sum of products along dim, the first factor conjugated."""
    if x.dtype is not y.dtype:
        raise RuntimeError(
            "linalg.vecdot: Expected x and y to have the same dtype, but found x of type "
            f"{x.dtype} and y of type {y.dtype} instead"
        )
    first = x.conj() if x.is_complex() else x
    return (first * y).sum(dim)


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Cross products of vectors of three elements along dim."""
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. "
            f"Got {input.shape[dim]} and {other.shape[dim]}"
        )
    return _ops.cross(input, other, dim, out=out)


def _order(sizes: Sequence[int], first: int, last: int, memo: dict[Any, Any]) -> tuple[int, int]:
    """Cost of the product of matrices first to last, and after which one to split it."""
    if first == last:
        return 0, first
    if (first, last) not in memo:
        memo[first, last] = min(
            (
                _order(sizes, first, k, memo)[0]
                + _order(sizes, k + 1, last, memo)[0]
                + sizes[first] * sizes[k + 1] * sizes[last + 1],
                k,
            )
            for k in range(first, last)
        )
    return memo[first, last]


def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The product of matrices in the cheapest order; the outer ones may be vectors."""
    n = len(tensors)
    if n < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {n}")
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            kind = type(t).__name__
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {kind}")
    row, column = tensors[0].ndim == 1, tensors[-1].ndim == 1
    chain = list(tensors)
    chain[0] = chain[0].unsqueeze(0) if row else chain[0]
    chain[-1] = chain[-1].unsqueeze(1) if column else chain[-1]
    for i, t in enumerate(chain):
        if t.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {tensors[i].ndim}D")
    sizes = [chain[0].shape[0], *(t.shape[1] for t in chain)]
    memo: dict[Any, Any] = {}

    def product(first: int, last: int) -> Tensor:
        if first == last:
            return chain[first]
        k = _order(sizes, first, last, memo)[1]
        return product(first, k) @ product(k + 1, last)

    result = product(0, n - 1)
    result = result.squeeze(-1) if column else result
    return _result(result.squeeze(0) if row else result, out)


def _largest(x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """The largest of norms or sums of magnitudes along dim; 0 where there are none."""
    return x.amax(dim, keepdim) if x.shape[dim] else x.sum(dim, keepdim)


@_writes_out
def matrix_norm(
    input: Tensor,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """Norm of matrices: 'fro', 'nuc', 1, -1, 2, -2, inf or -inf."""
    if input.ndim < 2:
        raise RuntimeError(
            "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."
        )
    if isinstance(dim, int):
        raise TypeError("linalg.matrix_norm: dim must be a 2-tuple, not an int")
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}")
    if not (input.is_floating_point() or input.is_complex()):
        raise RuntimeError(
            "linalg.matrix_norm: Expected a floating point or complex tensor as input. "
            f"Got {input.dtype}"
        )
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(
            f"linalg.matrix_norm: dtype should be floating point or complex, but got {dtype}"
        )
    if ord == "fro":
        return vector_norm(input, 2, tuple(dim), keepdim, dtype=dtype)
    if dtype is not None and dtype.is_complex != input.is_complex():
        kind = "complex" if input.is_complex() else "real"
        raise RuntimeError(
            f"linalg.matrix_norm: dtype should be {kind} for {kind} inputs, but got {dtype}"
        )
    input = input if dtype is None else input.to(dtype)
    if ord != "nuc" and (isinstance(ord, str) or abs(ord) not in (1, 2, math.inf)):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    rows, columns = (d % input.ndim for d in dim)
    if ord == "nuc" or abs(ord) == 2:
        values = svdvals(input.movedim((rows, columns), (-2, -1)))
        if ord == "nuc":
            result = values.sum(-1)
        else:
            result = _largest(values, -1) if ord == 2 else values.amin(-1)
        for d in sorted((rows, columns)) if keepdim else ():
            result = result.unsqueeze(d)
        return result
    inner, outer = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = input.abs().sum(inner, keepdim=True)
    result = _largest(sums, outer, True) if ord > 0 else sums.amin(outer, keepdim=True)
    return result if keepdim else result.squeeze((rows, columns))


@_writes_out
def norm(
    input: Tensor,
    ord: float | str | None = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """vector_norm, or matrix_norm where ord is given for two dimensions or is a name."""
    if ord is None:
        return vector_norm(input, 2, dim, keepdim, dtype=dtype)
    dims = (dim,) if isinstance(dim, int) else dim
    if dims is None and input.ndim not in (1, 2):
        raise RuntimeError(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. "
            f"Got {input.ndim}D."
        )
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}"
        )
    if dims is not None and len(dims) == 1 and isinstance(ord, str):
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}")
    if dims is None and (input.ndim == 2 or isinstance(ord, str)):
        dims = (-2, -1)
    if isinstance(ord, str) or (dims is not None and len(dims) == 2):
        return matrix_norm(input, ord, dims, keepdim, dtype=dtype)
    return vector_norm(input, ord, dims, keepdim, dtype=dtype)


# ---- Determinants and inverses -------------------------------------------------------------------


def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Determinants."""
    return _ops.det(A, out=out)


def slogdet(A: Tensor, *, out: tuple[Tensor, Tensor] | None = None) -> Any:
    """Signs of determinants and logarithms of their absolute values."""
    return linalg_slogdet(*_ops.slogdet(A, out=out))


def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Inverses."""
    return _ops.inverse(A, out=out)


# ---- Factorisations ------------------------------------------------------------------------------


@_writes_out
def cholesky_ex(
    input: Tensor, *, upper: bool = False, check_errors: bool = False
) -> linalg_cholesky_ex:
    """cholesky that reports in info where a matrix is not positive-definite, without raising."""
    factor, info = _ops._linalg_cholesky(input.adjoint() if upper else input, check_errors)
    return linalg_cholesky_ex(factor.adjoint() if upper else factor, info)


def cholesky(input: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """Lower L with A = L L^T, or its transpose."""
    return _ops.cholesky(input, upper, out=out)


@_writes_out
def qr(A: Tensor, mode: str = "reduced") -> linalg_qr:
    """Q with orthogonal columns and upper triangular R; mode: 'reduced', 'complete' or 'r'."""
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), "
            "'r', or 'complete'"
        )
    Q, R = _ops._linalg_qr(A, mode == "complete")
    return linalg_qr(A.new_empty(0) if mode == "r" else Q, R)


def _check_driver(name: str, A: Tensor, driver: str | None) -> None:
    if driver is not None and A.device.type == "cpu":
        raise RuntimeError(
            f"torch.linalg.{name}: keyword argument `driver=` is only supported on CUDA inputs "
            "with cuSOLVER backend."
        )


@_writes_out
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> linalg_svd:
    """(U, S, Vh) with A = U diag(S) Vh and S descending."""
    _check_driver("svd", A, driver)
    return linalg_svd(*_ops._linalg_svd(A, full_matrices))


@_writes_out
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values, descending."""
    _check_driver("svdvals", A, driver)
    return _ops._linalg_svdvals(A)


def _is_upper(UPLO: str) -> bool:
    if UPLO.upper() not in ("L", "U") or len(UPLO) != 1:
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return UPLO.upper() == "U"


@_writes_out
def eigh(input: Tensor, UPLO: str = "L") -> linalg_eigh:
    """Ascending eigenvalues and eigenvectors of symmetric matrices, from one triangle."""
    return linalg_eigh(*_ops._linalg_eigh(input, _is_upper(UPLO)))


@_writes_out
def eigvalsh(input: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric matrices, ascending."""
    return _ops._linalg_eigvalsh(input, _is_upper(UPLO))


@_writes_out_as
def eig(input: Tensor) -> linalg_eig:
    """Complex eigenvalues and eigenvectors of square matrices."""
    return linalg_eig(*_ops._linalg_eig(input))


@_writes_out_as
def eigvals(input: Tensor) -> Tensor:
    """The complex eigenvalues of square matrices."""
    return _ops._linalg_eigvals(input)


def _lu(A: Tensor, pivot: bool, check: bool) -> linalg_lu_factor_ex:
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    return linalg_lu_factor_ex(*_ops._linalg_lu_factor(A, check))


@_writes_out
def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> linalg_lu_factor_ex:
    """lu_factor that reports in info where U has a zero on its diagonal, without raising."""
    return _lu(A, pivot, check_errors)


@_writes_out
def lu_factor(A: Tensor, *, pivot: bool = True) -> linalg_lu_factor:
    """L and U with A = P L U in one matrix, and the exchanges of rows that make P."""
    return linalg_lu_factor(*_lu(A, pivot, True)[:2])


def lu_parts(factors: Tensor) -> tuple[Tensor, Tensor]:
    """L and U, from both in one matrix."""
    rows, k = factors.shape[-2], min(factors.shape[-2:])
    unit = _ops.eye(rows, k, dtype=factors.dtype, device=factors.device)
    return factors[..., :k].tril(-1) + unit, factors[..., :k, :].triu()


def lu_rows(factors: Tensor, pivots: Tensor, name: str) -> Tensor:
    """The rows of A in the order of L's."""
    if pivots.dtype != _C.int32:
        raise RuntimeError(f"{name}: pivots should be a Tensor of scalar type torch.int32")
    if pivots.shape != (*factors.shape[:-2], min(factors.shape[-2:])):
        raise RuntimeError(
            f"{name}: Number of pivots per batch should be same as the dimension of the matrix"
        )
    return _ops._lu_permutation(pivots, factors.shape[-2])


@_writes_out
def lu(A: Tensor, *, pivot: bool = True) -> linalg_lu:
    """P, L and U with A = P L U."""
    factors, pivots, _ = _lu(A, pivot, False)
    return linalg_lu(permutation(lu_rows(factors, pivots, "linalg.lu"), A), *lu_parts(factors))


def permutation(order: Tensor, like: Tensor) -> Tensor:
    """The matrix that puts row i into place order[i]."""
    places = _ops.arange(order.shape[-1], device=order.device)
    return (places.unsqueeze(-1) == order.unsqueeze(-2)).to(like.dtype)


@_writes_out
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X with A X = B, or X A = B without left, for lu_factor's A or its adjoint."""
    if LU.ndim < 2 or B.ndim < 2 or LU.shape[-1] != LU.shape[-2]:
        raise RuntimeError("linalg.lu_solve: LU must be batches of square matrices, B of matrices")
    if not left:
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    if LU.shape[-1] != B.shape[-2]:
        sizes = "x".join(map(str, LU.shape[-2:])), "x".join(map(str, B.shape[-2:]))
        raise RuntimeError(
            "linalg.lu_solve: Incompatible shapes of A and B for the equation AX = B "
            f"({sizes[0]} and {sizes[1]})"
        )
    order = lu_rows(LU, pivots, "linalg.lu_solve")
    LU, B = _broadcast(LU, B)
    order = order.expand(B.shape[:-1]).unsqueeze(-1)
    if adjoint:
        half = _ops._linalg_solve_triangular(LU.mH, B, False, False)
        half = _ops._linalg_solve_triangular(LU.mH, half, True, True)
        return half.take_along_dim(order.argsort(-2), -2)
    half = _ops._linalg_solve_triangular(LU, B.take_along_dim(order, -2), False, True)
    return _ops._linalg_solve_triangular(LU, half, True, False)


@_writes_out
def ldl_factor_ex(
    input: Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> linalg_ldl_factor_ex:
    """ldl_factor that reports in info where D has a zero on its diagonal, without raising."""
    return linalg_ldl_factor_ex(*_ops._linalg_ldl_factor(input, hermitian, check_errors))


@_writes_out
def ldl_factor(input: Tensor, *, hermitian: bool = False) -> linalg_ldl_factor:
    """L and D with A = L D L^T for symmetric A, or L D L^H for Hermitian A, from its lower half."""
    return linalg_ldl_factor(*_ops._linalg_ldl_factor(input, hermitian, True)[:2])


def ldl_solve(
    LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False, out: Tensor | None = None
) -> Tensor:
    """X with A X = B for ldl_factor's A."""
    if B.ndim < 2:
        raise RuntimeError(
            "torch.linalg.ldl_solve: Expected B to have at least 2 dimensions, "
            f"but it has {B.ndim} dimensions instead"
        )
    if pivots.shape != LD.shape[:-1]:
        raise RuntimeError(
            f"torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, "
            f"but got pivots with shape {tuple(pivots.shape)} instead"
        )
    factors, B = _broadcast(LD, B)
    pivots = pivots.expand(factors.shape[:-1])
    return _result(_ops._linalg_ldl_solve(factors, pivots, B, hermitian), out)


def matrix_exp(input: Tensor) -> Tensor:
    """Exponentials of square matrices."""
    return _ops.matrix_exp(input)


# ---- Equations -----------------------------------------------------------------------------------


def _broadcast(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the batch shape that they broadcast to."""
    pairs = zip_longest(reversed(A.shape[:-2]), reversed(B.shape[:-2]), fillvalue=1)
    # sizes that do not fit are left for expand to refuse
    batch = [b if a == 1 else a for a, b in pairs][::-1]
    return A.expand(*batch, *A.shape[-2:]), B.expand(*batch, *B.shape[-2:])


def _is_vector(A: Tensor, B: Tensor) -> bool:
    """B is a vector, or a batch of vectors that has A's batch shape."""
    if B.ndim == 0:
        raise RuntimeError("linalg: the right side B must have at least 1 dimension")
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])


def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Tensor | None = None) -> Tensor:
    """X with A X = B, or X A = B without left."""
    if A.ndim < 2:
        raise RuntimeError("linalg.solve: The input tensor A must have at least 2 dimensions.")
    vector = _is_vector(A, B)
    right = B.unsqueeze(-1) if vector else B
    if not left and not vector:
        return _result(solve(A.mT, right.mT).mT, out)
    A, right = _broadcast(A, right)
    X = _ops._linalg_solve(A, right)
    return _result(X.squeeze(-1) if vector else X, out)


@_writes_out
def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> linalg_solve_ex:
    """solve, and in info the number of a zero on the diagonal of U, without raising."""
    if check_errors:
        return linalg_solve_ex(solve(A, B, left=left), A.new_zeros(A.shape[:-2], dtype=_C.int32))
    if A.ndim < 2:
        raise RuntimeError("linalg.solve: The input tensor A must have at least 2 dimensions.")
    vector = _is_vector(A, B)
    factors, pivots, info = _lu(A, True, False)
    X = lu_solve(factors, pivots, B.unsqueeze(-1) if vector else B, left=left or vector)
    return linalg_solve_ex(X.squeeze(-1) if vector else X, info)


def tensorinv(input: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """The inverse of tensordot with A over its first ind dimensions."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    if input.ndim == 0:
        raise RuntimeError("linalg.tensorinv: A must have dimensions")
    rows, columns = input.shape[:ind], input.shape[ind:]
    if math.prod(rows) != math.prod(columns):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {math.prod(columns)} != {math.prod(rows)}"
        )
    square = input.reshape(math.prod(rows), math.prod(columns))
    return _result_as(inv(square).reshape(*columns, *rows), out)


def tensorsolve(
    input: Tensor, other: Tensor, dims: Sequence[int] | None = None, *, out: Tensor | None = None
) -> Tensor:
    """X with tensordot(input, X, X.ndim) = other; dims of input are moved to its end first."""
    input = input if dims is None else input.movedim(tuple(dims), tuple(range(-len(dims), 0)))
    unknown, count = input.shape[other.ndim :], other.numel()
    if not math.prod(unknown) == math.prod(input.shape[: other.ndim]) == count:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {math.prod(unknown)} != {count}"
        )
    X = solve(input.reshape(count, count), other.reshape(-1))
    return _result_as(X.reshape(unknown), out)


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """Powers 0 to N - 1 of vectors, along a new last dimension."""
    if x.dtype == _C.bool:
        raise RuntimeError(
            "linalg.vander supports floating point, complex, and integer tensors, but got Bool"
        )
    x = x if x.ndim else x.unsqueeze(0)
    n = x.shape[-1] if N is None else N
    if n <= 1:
        raise RuntimeError(f"linalg.vander: N must be greater than 1, but is {n}")
    powers = x.unsqueeze(-1).expand(*x.shape, n - 1).cumprod(-1)
    return _ops.cat([_ops.ones_like(powers[..., :1]), powers], -1)


def solve_triangular(
    input: Tensor,
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """X with A X = B, or X A = B without left, for a triangular A; the rest of A is not read."""
    if input.ndim < 2 or B.ndim < 2:
        raise RuntimeError(
            "linalg.solve_triangular: The input tensors must have at least 2 dimensions."
        )
    if not left:
        X = solve_triangular(input.mT, B.mT, upper=not upper, unitriangular=unitriangular)
        return _result(X.mT, out)
    input, B = _broadcast(input, B)
    return _result(_ops._linalg_solve_triangular(input, B, upper, unitriangular), out)


def _of_batch(t: Tensor, batch: Sequence[int], wide: Tensor) -> Tensor:
    """What was computed for each of the wide matrices, for each of the batch that they repeat."""
    if not t.numel():
        return t
    for _ in range(wide.ndim - 2 - len(batch)):
        t = t[0]
    for d, size in enumerate(batch):
        t = t.narrow(d, 0, size)
    return t.contiguous()


@_writes_out_as
def lstsq(
    input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> linalg_lstsq:
    """The smallest X of those that minimise the norm of A X - B."""
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
        )
    if input.ndim < 2:
        raise RuntimeError("torch.linalg.lstsq: input must have at least 2 dimensions.")
    if input.dtype is not b.dtype:
        raise RuntimeError(
            "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's "
            f"dtype {input.dtype} and other's dtype {b.dtype}"
        )
    if not (input.is_floating_point() or input.is_complex()):
        raise RuntimeError(f"torch.linalg.lstsq does not compute in {input.dtype}")
    if not 0 <= input.ndim - b.ndim <= 1:
        raise RuntimeError(
            "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and "
            f"(input.dim() - other.dim()) <= 1, but they have {input.ndim} and {b.ndim} dimensions"
        )
    vector = input.ndim > b.ndim
    right = b.unsqueeze(-1) if vector else b
    batch = input.shape[:-2]
    input, right = _broadcast(input, right)
    m, n = input.shape[-2:]
    full = driver == "gels"  # what has full rank, whatever rcond is
    eps = finfo(input.dtype).eps
    cut = eps if full else max(m, n) * eps if rcond is None else float(rcond)
    by_values = driver in ("gelsd", "gelss")
    X, rank, values = _ops._linalg_lstsq(input, right, cut, by_values)
    if full and bool((rank < min(m, n)).any()):
        at = int((rank.reshape(-1) < min(m, n)).nonzero()[0])
        which = f"(Batch element {at}): " if rank.ndim else ""
        raise LinAlgError(
            f"torch.linalg.lstsq: {which}The least squares solution could not be computed because "
            f"the input matrix does not have full rank: {rank.reshape(-1)[at]} of {min(m, n)}."
        )
    rank, values = _of_batch(rank, batch, input), _of_batch(values, batch, input)
    residuals = X.reshape(-1)[:0].abs()
    if m > n and driver not in (None, "gelsy") and bool((rank == n).all()):
        residuals = (input @ X - right).abs().square().sum(-2)
    return linalg_lstsq(
        X.squeeze(-1) if vector else X,
        residuals,
        input.new_empty(0, dtype=_C.int64) if full else rank,
        values.detach() if by_values else values.new_empty(0),
    )


def _cut(A: Tensor, atol: float | None, rtol: float | None) -> tuple[float, float]:
    """The tolerances below which singular values count as zero."""
    if rtol is None:
        rtol = 0.0 if atol else max(A.shape[-2:]) * finfo(A.dtype).eps
    return float(atol or 0.0), float(rtol)


def pinv(
    input: Tensor,
    rtol: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: float | Tensor | None = None,
    rcond: float | Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Pseudo-inverses; singular values up to max(atol, rtol * the largest) count as zero."""
    if input.ndim < 2 or not (input.is_floating_point() or input.is_complex()):
        raise RuntimeError(
            f"linalg.pinv: expected a floating point or complex tensor of 2 or more dimensions, "
            f"but got one of {input.ndim} and dtype {input.dtype}"
        )
    rtol = rtol if rcond is None else rcond
    if input.numel() == 0:
        return _result_as(_ops._linalg_pinv(input, 0.0, 0.0), out)
    if hermitian and input.shape[-1] != input.shape[-2]:
        raise RuntimeError(
            "linalg.eigh: A must be batches of square matrices, "
            f"but they are {input.shape[-2]} by {input.shape[-1]} matrices"
        )
    if hermitian:
        input = _ops._from_lower(input)
    if not isinstance(atol, Tensor) and not isinstance(rtol, Tensor):
        return _result_as(_ops._linalg_pinv(input, *_cut(input, atol, rtol)), out)
    U, S, Vh = _ops._linalg_svd(input, False)
    inverse = S.reciprocal().masked_fill(S <= _limits(S, input, atol, rtol), 0.0)
    return _result_as(Vh.mH @ (inverse.unsqueeze(-1) * U.mH), out)


def _as_tensor(value: float | Tensor | None, like: Tensor) -> Tensor:
    """A tolerance, or those of matrices, as a tensor."""
    if isinstance(value, Tensor):
        return value.to(like.dtype)
    return like.new_full((), value or 0.0)


def _limits(
    values: Tensor, A: Tensor, atol: float | Tensor | None, rtol: float | Tensor | None
) -> Tensor:
    """Up to where the singular values of A count as zero, with a last dimension of size 1."""
    largest = values.detach().amax(-1, keepdim=True)
    if isinstance(atol, Tensor) or isinstance(rtol, Tensor):
        if rtol is None:
            rtol = _ops.where(atol > 0, 0.0, max(A.shape[-2:]) * finfo(A.dtype).eps)
        least, share = (_ops.unsqueeze(_as_tensor(t, values), -1) for t in (atol, rtol))
        return largest.mul(share).maximum(least)
    absolute, relative = _cut(A, atol, rtol)
    return (largest * relative).clamp(min=absolute)


def matrix_rank(
    input: Tensor,
    tol: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """How many singular values are larger than max(atol, rtol * the largest)."""
    if tol is not None:
        atol, rtol = tol, 0.0
    if input.numel() == 0:
        return _result_as(input.new_zeros(input.shape[:-2], dtype=_C.int64), out)
    values = eigvalsh(input.detach()).abs() if hermitian else svdvals(input.detach())
    return _result_as((values > _limits(values, input, atol, rtol)).sum(-1), out)


def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """The n-th power of square matrices; of the inverse where n is negative."""
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise RuntimeError(
            "linalg.matrix_power: A must be batches of square matrices, "
            f"but they are {' by '.join(map(str, input.shape[-2:]))} matrices"
        )
    if n == 0:
        unit = _ops.eye(input.shape[-1], dtype=input.dtype, device=input.device)
        return _result(input.clone().copy_(unit.expand(input.shape)), out)
    square, power, n = (inv(input) if n < 0 else input), None, abs(n)
    while n:
        if n & 1:
            power = square if power is None else power @ square
        n >>= 1
        square = square @ square if n else square
    return _result(input.clone() if power is input else power, out)


def cond(input: Tensor, p: float | str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The condition number in a norm; of the singular values by default."""
    if input.ndim < 2:
        raise RuntimeError("linalg.cond: The input tensor must have at least 2 dimensions.")
    if input.numel() == 0:
        return _result_as(input.abs().new_zeros(input.shape[:-2]), out)
    if p is None or p in (2, -2):
        values = svdvals(input)
        largest, least = values[..., 0], values[..., -1]
        return _result_as(least / largest if p == -2 else largest / least, out)
    inverse, info = inv_ex(input)
    product = matrix_norm(input, p) * matrix_norm(inverse, p)
    return _result_as(product.masked_fill(info != 0, math.inf), out)


_FLAGS = "keepdim upper left unitriangular pivot adjoint hermitian full_matrices check_errors"
overridable.make_overridable(globals(), flags=_FLAGS.split(), as_numpy=True)
