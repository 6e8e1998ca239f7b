"""Tensors of other libraries without a copy."""

from __future__ import annotations

from typing import Any

from tenon import Tensor, from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule of the tensor, to be used once."""
    return tensor.__dlpack__()
