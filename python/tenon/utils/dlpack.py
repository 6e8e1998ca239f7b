"""Tensors of other libraries without a copy."""

from __future__ import annotations

from typing import Any

from tenon import Tensor, from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule of the tensor, to be used once."""
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"to_dlpack(): argument 'tensor' (position 1) must be Tensor, "
            f"not {type(tensor).__name__}"
        )
    return tensor.__dlpack__()
