"""Tensors that several devices exchange: what tenon.comm does, by the names that modules use."""

from __future__ import annotations

from typing import Any

from tenon import Tensor
from tenon.comm import broadcast, broadcast_coalesced, gather, reduce_add, scatter

__all__ = [
    "broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter",
]  # fmt: skip


def reduce_add_coalesced(
    inputs: Any, destination: Any = None, buffer_size: int = 10485760
) -> tuple[Tensor, ...]:
    """The sums of the tensors of several devices, one list a device, on one of the devices."""
    return tuple(reduce_add(row, destination) for row in zip(*inputs, strict=True))
