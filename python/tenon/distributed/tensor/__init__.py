"""Tensors of several processes: DTensor, its layouts, and modules made of them."""

from tenon._submodules import on_demand
from tenon.distributed.device_mesh import DeviceMesh, init_device_mesh
from tenon.distributed.tensor._api import (
    DTensor,
    distribute_module,
    distribute_tensor,
    empty,
    full,
    ones,
    rand,
    randn,
    zeros,
)
from tenon.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module",
    "distribute_tensor", "empty", "full", "init_device_mesh", "ones", "rand", "randn", "zeros",
]  # fmt: skip

on_demand(globals())
