"""Optimizers of several processes."""

from tenon._submodules import on_demand
from tenon.distributed._absent import absent
from tenon.distributed.optim.apply_optimizer_in_backward import (
    _apply_optimizer_in_backward,  # noqa: F401 - packages use them
    _get_in_backward_optimizers,  # noqa: F401
)
from tenon.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer
from tenon.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

DistributedOptimizer = absent(
    "torch.distributed.optim", "DistributedOptimizer", "it works by RPC, which is not planned"
)

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]

on_demand(globals())
