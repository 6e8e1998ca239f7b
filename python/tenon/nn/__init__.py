"""Networks: modules, functions without state, initial values, and helpers around them."""

from tenon._submodules import on_demand
from tenon.nn import _plans as _plans
from tenon.nn import functional, init, modules, parallel, parameter, utils
from tenon.nn.modules import *  # noqa: F403
from tenon.nn.modules import __all__ as _modules
from tenon.nn.parallel import DataParallel
from tenon.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    *_modules,
    "Buffer",
    "DataParallel",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "functional",
    "init",
    "modules",
    "parallel",
    "parameter",
    "utils",
]

on_demand(globals())
