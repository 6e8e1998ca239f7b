"""Tensors of any dtype with random numbers."""

from __future__ import annotations

import math
import warnings
from typing import Any

import tenon
from tenon import Tensor

__all__ = ["make_tensor"]


def _range(dtype: tenon.dtype) -> tuple[float, float]:
    """The least number of a dtype, and the first that is none any more, or the greatest."""
    if dtype == tenon.bool:
        return 0, 2
    if dtype.is_floating_point or dtype.is_complex:
        return tenon.finfo(dtype).min, tenon.finfo(dtype).max
    greatest = tenon.iinfo(dtype).max
    return tenon.iinfo(dtype).min, greatest + (dtype != tenon.int64)


def _bounds(dtype: tenon.dtype, low: float | None, high: float | None) -> tuple[float, float]:
    """The interval that numbers come from, as PyTorch has it."""
    real = dtype.is_floating_point or dtype.is_complex
    least, end = _range(dtype)
    if dtype == tenon.bool:
        low, high = 0 if low is None else low, 2 if high is None else high
    low = -9 if low is None else low
    high = (9 if real else 10) if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"make_tensor: `low` and `high` cannot be NaN, but got {low} and {high}")
    if low == high and real:
        warnings.warn(
            "make_tensor: low == high is deprecated for floating and complex dtypes; use full",
            FutureWarning,
            stacklevel=3,
        )
    elif low >= high:
        raise ValueError(f"make_tensor: `low` must be less than `high`, but got {low} >= {high}")
    elif high < least or low >= end:
        raise ValueError(
            f"make_tensor: [{low}, {high}) was asked for, but {dtype} has [{least}, {end})"
        )
    low, high = (min(max(v, least), end) for v in (low, high))
    return (low, high) if real else (math.ceil(low), math.ceil(high))


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
    number stands for 0. noncontiguous: every second element of a larger tensor, where there are
    two."""
    size = list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else list(shape)
    if noncontiguous and memory_format is not None:
        raise ValueError("make_tensor: noncontiguous and memory_format exclude each other")
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"make_tensor: {dtype} has no gradients: requires_grad=True")
    first, end = _bounds(dtype, low, high)
    spread = noncontiguous and math.prod(size) > 1
    wide = [*size[:-1], 2 * size[-1]] if spread else size
    numbers: Any = {"dtype": tenon.float64, "device": "cpu"}
    if dtype.is_floating_point:
        result = tenon.empty(wide, **numbers).uniform_(first, end).to(dtype)
    elif dtype.is_complex:
        parts = [tenon.empty(wide, **numbers).uniform_(first, end) for _ in range(2)]
        result = tenon.complex(*parts).to(dtype)
    else:
        result = tenon.randint(first, end, wide, dtype=tenon.int64, device="cpu").to(dtype)
    if exclude_zero:
        tiny = tenon.finfo(dtype).tiny if dtype.is_floating_point or dtype.is_complex else 1
        result = result.masked_fill(result == 0, tiny)
    result = result.to(device)
    if spread:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    return result.requires_grad_(requires_grad)
