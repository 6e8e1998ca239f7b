"""What PyTorch may still change."""

from tenon.distributed.tensor._dispatch import implicit_replication
from tenon.distributed.tensor.experimental._context_parallel import context_parallel
from tenon.distributed.tensor.experimental._func_map import local_map
from tenon.distributed.tensor.experimental._register_sharding import register_sharding

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]
