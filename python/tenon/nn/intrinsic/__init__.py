"""The older name of `ao.nn.intrinsic`."""

from tenon._submodules import on_demand
from tenon.ao.nn.intrinsic import *  # noqa: F403
from tenon.ao.nn.intrinsic import __all__  # noqa: F401

on_demand(globals())
