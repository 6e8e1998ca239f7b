"""The older place of tenon.comm: tensors between devices."""

from __future__ import annotations

from tenon.comm import broadcast, broadcast_coalesced, gather, reduce_add, scatter

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "scatter"]
