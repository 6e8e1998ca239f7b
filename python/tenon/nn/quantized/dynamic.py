"""The older name of `ao.nn.quantized.dynamic`."""

from tenon.ao.nn.quantized.dynamic import *  # noqa: F403
from tenon.ao.nn.quantized.dynamic import __all__  # noqa: F401
