"""The older name of `ao.nn.qat`."""

from tenon._submodules import on_demand
from tenon.ao.nn.qat import *  # noqa: F403
from tenon.ao.nn.qat import __all__  # noqa: F401

on_demand(globals())
