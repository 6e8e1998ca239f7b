"""Modules that models are changed into by `ao.quantization`."""

from tenon._submodules import on_demand
from tenon.ao.nn import intrinsic, qat, quantized

__all__ = ["intrinsic", "qat", "quantized"]

on_demand(globals())
