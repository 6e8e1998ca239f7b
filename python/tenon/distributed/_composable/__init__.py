"""Functions that change a module in place."""

from tenon.distributed._composable.checkpoint_activation import checkpoint
from tenon.distributed._composable.replicate import replicate
from tenon.distributed.fsdp import fully_shard

__all__ = ["checkpoint", "fully_shard", "replicate"]
