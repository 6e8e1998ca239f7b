"""What PyTorch may still change."""

from tenon.distributed._absent import absent
from tenon.distributed.tensor._dispatch import implicit_replication
from tenon.distributed.tensor.experimental._func_map import local_map
from tenon.distributed.tensor.experimental._register_sharding import register_sharding

_MODULE = "torch.distributed.tensor.experimental"
context_parallel = absent(_MODULE, "context_parallel")

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]
