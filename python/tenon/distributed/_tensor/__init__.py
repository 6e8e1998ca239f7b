"""The earlier name of torch.distributed.tensor."""

from tenon.distributed import tensor
from tenon.distributed.tensor import *  # noqa: F403 - the very same names

__all__ = list(tensor.__all__)
