"""ao: models of whole numbers. `ao.quantization` makes them, `ao.nn` holds their modules."""

from tenon._submodules import on_demand
from tenon.ao import nn, quantization

__all__ = ["nn", "quantization"]

on_demand(globals())
