"""The older place of tenon.comm: collectives over lists of tensors, one for each device."""

from __future__ import annotations

from tenon.comm import (
    AVG,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    all_gather,
    all_reduce,
    broadcast,
    reduce,
    reduce_scatter,
)

__all__ = [
    "AVG", "MAX", "MIN", "PRODUCT", "SUM", "all_gather", "all_reduce", "broadcast", "reduce",
    "reduce_scatter",
]  # fmt: skip
