"""Sparse tensors, with the names of PyTorch's ``torch.sparse``."""

from __future__ import annotations

from typing import Any

from tenon import Tensor
from tenon._C import _ops
from tenon._tensor import tensor_types
from tenon._tensor.sparse import check_sparse_tensor_invariants, to_sparse
from tenon.sparse.semi_structured import (
    SparseSemiStructuredTensor,
    SparseSemiStructuredTensorCUSPARSELT,
    SparseSemiStructuredTensorCUTLASS,
    to_sparse_semi_structured,
)

__all__ = [
    "SparseSemiStructuredTensor",
    "SparseSemiStructuredTensorCUSPARSELT",
    "SparseSemiStructuredTensorCUTLASS",
    "addmm",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "sum",
    "to_sparse_semi_structured",
]


def __getattr__(name: str) -> Any:
    """`FloatTensor` and its kin: types of sparse tensors."""
    return tensor_types.member(__name__, name, tensor_types.SPARSE)


def mm(sparse: Tensor, dense: Tensor, reduce: str | None = None) -> Tensor:
    """The product of two matrices of which at least one is sparse. `reduce` ("sum", "mean", "amax",
    "amin") says what becomes of the products of a row's elements, where `sparse` is sparse_csr."""
    if reduce is not None:
        return _ops._sparse_mm_reduce(sparse, dense, reduce)
    return _ops.mm(sparse, dense)


def addmm(
    mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0
) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2), where mat1 is sparse."""
    return _ops.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    out: Tensor | None = None,
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2) at the places of input, which is sparse_csr."""
    result = _ops._sampled_addmm(input, mat1, mat2, beta, alpha)
    return result if out is None else out.copy_(result)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """Sums over dimensions; what keeps sparse dimensions stays sparse."""
    return _ops.sum(input, dtype=dtype) if dim is None else _ops.sum(input, dim, dtype=dtype)


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """softmax along dim over the elements that are there; others count as minus infinity."""
    return _ops.softmax(input, dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of softmax."""
    return _ops.log_softmax(input, dim, dtype=dtype)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> Tensor:
    """A matrix with the rows of `diagonals` along its diagonals, counted from the main one."""
    if len(set(offsets.flatten().tolist())) < offsets.numel():
        raise RuntimeError("spdiags(): argument 'offsets' has a diagonal twice")
    matrix = _ops._spdiags(diagonals, offsets, tuple(shape))
    return to_sparse(matrix) if layout is None else to_sparse(matrix, layout=layout)
