"""Conversions of arguments that packages import from here."""

from __future__ import annotations

from typing import Any

from tenon import Tensor


def _maybe_convert_to_dtype(a: Any, dtype: Any) -> Any:
    """A tensor, a number, or a sequence of them in a dtype; None stays."""
    from tenon._torch._prims_common import dtype_to_type

    if isinstance(a, Tensor):
        return a if a.dtype == dtype else a.to(dtype)
    if isinstance(a, (bool, int, float, complex)):
        return dtype_to_type(dtype)(a)
    if isinstance(a, (list, tuple)):
        return tuple(_maybe_convert_to_dtype(x, dtype) for x in a)
    if a is None:
        return None
    raise ValueError(
        f"Received unsupported type {type(a)}. Expected TensorLike, Number, or Sequence."
    )
