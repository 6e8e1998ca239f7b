"""What PyTorch may still change."""

from tenon.distributed._absent import absent
from tenon.distributed.tensor._dispatch import implicit_replication

_MODULE = "torch.distributed.tensor.experimental"
context_parallel = absent(_MODULE, "context_parallel")
local_map = absent(_MODULE, "local_map")

__all__ = ["context_parallel", "implicit_replication", "local_map"]
