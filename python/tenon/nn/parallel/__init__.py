"""Wrappers for training on several devices and in several processes."""

from tenon._submodules import on_demand
from tenon.nn.parallel.data_parallel import DataParallel
from tenon.nn.parallel.distributed import DistributedDataParallel
from tenon.nn.parallel.scatter_gather import gather, scatter

__all__ = ["DataParallel", "DistributedDataParallel", "gather", "scatter"]

on_demand(globals())
