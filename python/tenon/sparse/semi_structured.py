"""Tensors of which two of four neighbours are kept, by PyTorch's names: not planned."""

from __future__ import annotations

from typing import Any

from tenon import Tensor

__all__ = [
    "SparseSemiStructuredTensor",
    "SparseSemiStructuredTensorCUSPARSELT",
    "SparseSemiStructuredTensorCUTLASS",
    "to_sparse_semi_structured",
]


class SparseSemiStructuredTensor(Tensor):
    """No tensor is one; packages ask."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{cls.__name__}: there are no semi-structured sparse tensors")


class SparseSemiStructuredTensorCUTLASS(SparseSemiStructuredTensor):
    """No tensor is one; packages ask."""


class SparseSemiStructuredTensorCUSPARSELT(SparseSemiStructuredTensor):
    """No tensor is one; packages ask."""


def to_sparse_semi_structured(original_tensor: Tensor, transposed: bool = False) -> Any:
    """Raises: there is no kernel for them."""
    del transposed
    return SparseSemiStructuredTensor(original_tensor)
