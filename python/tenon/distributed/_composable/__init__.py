"""Functions that change a module in place."""

from tenon.distributed.fsdp import fully_shard

__all__ = ["fully_shard"]
