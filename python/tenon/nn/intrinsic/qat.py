"""The older name of `ao.nn.intrinsic.qat`."""

from tenon.ao.nn.intrinsic.qat import *  # noqa: F403
from tenon.ao.nn.intrinsic.qat import __all__  # noqa: F401
