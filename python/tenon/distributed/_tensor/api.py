"""The earlier name of torch.distributed.tensor, where DTensor and what makes one are."""

from tenon.distributed.tensor import (
    DTensor,
    distribute_module,
    distribute_tensor,
    empty,
    full,
    ones,
    rand,
    randn,
    zeros,
)

__all__ = [
    "DTensor", "distribute_module", "distribute_tensor", "empty", "full", "ones", "rand", "randn",
    "zeros",
]  # fmt: skip
