"""Attention over a sequence that is cut among processes."""

from tenon.distributed.tensor.experimental._context_parallel import *  # noqa: F403
from tenon.distributed.tensor.experimental._context_parallel import __all__ as __all__
