"""Dimensions counted from either end, for what Python does with them itself: `dim % rank` would
take one that is not there for another one."""

from __future__ import annotations

import operator
from typing import Any


def wrapped_dim(dim: Any, rank: int) -> int:
    """The dimension counted from 0; a tensor without dimensions has 0 and -1, as for operators."""
    if isinstance(dim, bool):
        raise TypeError("a dimension must be int, not bool")
    place, n = operator.index(dim), max(rank, 1)
    if not -n <= place < n:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {place})"
        )
    return place % n
