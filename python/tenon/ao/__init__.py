"""ao: models of whole numbers. `ao.quantization` makes them, `ao.nn` holds their modules."""

from tenon.ao import nn, quantization

__all__ = ["nn", "quantization"]
