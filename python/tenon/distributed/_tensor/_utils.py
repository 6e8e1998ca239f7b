"""The earlier name of torch.distributed.tensor._utils."""

from tenon.distributed.tensor._utils import (
    compute_local_shape,
    compute_local_shape_and_global_offset,
)

__all__ = ["compute_local_shape", "compute_local_shape_and_global_offset"]
