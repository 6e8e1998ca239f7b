"""The earlier name of torch.distributed.tensor.placement_types."""

from tenon.distributed.tensor.placement_types import (
    Partial,
    Placement,
    Replicate,
    Shard,
    _Partial,
    _StridedShard,
)

__all__ = ["Partial", "Placement", "Replicate", "Shard", "_Partial", "_StridedShard"]
