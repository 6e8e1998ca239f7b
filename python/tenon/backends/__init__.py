"""Facts and settings of backends."""

from tenon._submodules import on_demand
from tenon.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]

on_demand(globals())
