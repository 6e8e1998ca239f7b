"""Optimizers of several processes."""

from tenon.distributed._absent import absent
from tenon.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer
from tenon.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

DistributedOptimizer = absent(
    "torch.distributed.optim", "DistributedOptimizer", "it works by RPC, which is not planned"
)

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]
