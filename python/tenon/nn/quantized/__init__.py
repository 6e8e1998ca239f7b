"""The older name of `ao.nn.quantized`."""

from tenon._submodules import on_demand
from tenon.ao.nn.quantized import *  # noqa: F403
from tenon.ao.nn.quantized import __all__  # noqa: F401

on_demand(globals())
