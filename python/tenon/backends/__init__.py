"""Facts and settings of backends."""

from tenon._submodules import on_demand
from tenon.backends import cpu, cuda, cudnn, mha, mkl, mkldnn, mps, openmp

__all__ = ["cpu", "cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "openmp"]

on_demand(globals())
