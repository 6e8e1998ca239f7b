"""Modules that models are changed into by `ao.quantization`."""

from tenon.ao.nn import intrinsic, qat, quantized

__all__ = ["intrinsic", "qat", "quantized"]
