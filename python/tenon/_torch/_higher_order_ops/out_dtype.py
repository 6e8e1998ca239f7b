"""Products of narrow integers in a wider dtype."""

from __future__ import annotations

from typing import Any

from tenon import Tensor

__all__ = ["out_dtype"]


def out_dtype(op: Any, output_dtype: Any, *args: Any) -> Any:
    """What an operator gives for tensors of that dtype."""
    return op(*(a.to(output_dtype) if isinstance(a, Tensor) else a for a in args))
