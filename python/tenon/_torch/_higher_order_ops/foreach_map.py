"""foreach_map: a function of single tensors, called for the members of lists."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

__all__ = ["foreach_map"]


def foreach_map(op: Callable[..., Any], *operands: Any, **kwargs: Any) -> Any:
    """[op(a, b, **kwargs) for each a, b of the lists]; an operand that is no list is the same for
    all of them. One call where none is a list."""
    lists = [value for value in operands if isinstance(value, list | tuple)]
    if not lists:
        return op(*operands, **kwargs)
    counts = [len(value) for value in lists]
    if len(set(counts)) > 1:
        raise ValueError(f"foreach_map: lists of one length are needed, got {counts}")
    columns = [v if isinstance(v, list | tuple) else itertools.repeat(v) for v in operands]
    return [op(*row, **kwargs) for row in zip(*columns, strict=False)]
