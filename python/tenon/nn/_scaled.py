"""How products of narrow floating-point numbers are scaled, by PyTorch's names: packages ask."""

from __future__ import annotations

from enum import Enum
from typing import Any

__all__ = ["ScalingType", "SwizzleType", "scaled_grouped_mm"]


class ScalingType(Enum):
    """To which elements one scale belongs."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(Enum):
    """In which order scales lie."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def scaled_grouped_mm(*args: Any, **kwargs: Any) -> Any:
    """Raises: there is no kernel for it.

    >>> tn.nn.functional.scaled_grouped_mm()
    Traceback (most recent call last):
    NotImplementedError: scaled_grouped_mm(): there is no kernel for groups of float8
    """
    raise NotImplementedError("scaled_grouped_mm(): there is no kernel for groups of float8")
