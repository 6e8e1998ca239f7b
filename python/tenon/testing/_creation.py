"""Tensors of any dtype with random numbers."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor

__all__ = ["make_tensor"]


def _bounds(dtype: tenon.dtype, low: float | None, high: float | None) -> tuple[float, float]:
    """The interval that numbers come from, where nothing else is said: PyTorch's."""
    if dtype == tenon.bool:
        ends: tuple[float, float] = (0, 2)
    elif dtype == tenon.uint8:
        ends = (0, 10)
    else:
        ends = (-9, 9) if dtype.is_floating_point or dtype.is_complex else (-9, 10)
    found = (ends[0] if low is None else low, ends[1] if high is None else high)
    if not found[0] < found[1]:
        raise ValueError(
            f"make_tensor: `low` must be less than `high`, but got {found[0]} >= {found[1]}"
        )
    return found


def make_tensor(
    *shape: Any,
    dtype: tenon.dtype,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Numbers from [low, high), by default about [-9, 9); exclude_zero: the smallest positive
    number stands for 0. noncontiguous: every second element of a larger tensor."""
    size = list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else list(shape)
    first, end = _bounds(dtype, low, high)
    wide = [*size[:-1], 2 * size[-1]] if noncontiguous and size else size
    if dtype.is_floating_point:
        result = tenon.empty(wide, dtype=tenon.float64).uniform_(first, end).to(dtype)
    elif dtype.is_complex:
        parts = [tenon.empty(wide, dtype=tenon.float64).uniform_(first, end) for _ in range(2)]
        result = tenon.complex(*parts).to(dtype)
    else:
        result = tenon.randint(int(first), int(end), wide, dtype=tenon.int64).to(dtype)
    if exclude_zero:
        tiny = tenon.finfo(dtype).tiny if dtype.is_floating_point or dtype.is_complex else 1
        result = result.masked_fill(result == 0, tiny)
    result = result.to(device)
    if noncontiguous and size:
        result = result[..., ::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    return result.requires_grad_(requires_grad)
