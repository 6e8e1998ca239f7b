"""The older name of `ao.quantization`."""

from tenon._submodules import on_demand
from tenon.ao.quantization import *  # noqa: F403
from tenon.ao.quantization import __all__  # noqa: F401

on_demand(globals())
