"""Where the part of a rank lies in a tensor of several processes."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.distributed.device_mesh import DeviceMesh
from tenon.distributed.tensor.placement_types import Placement, Shard, cut_order

__all__: list[str] = []


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the shape of this rank's part, the index of its first element in the whole)"""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,), ()
    return _local_part(global_shape, mesh.shape, coordinate, placements)


def _local_part(
    global_shape: Sequence[int],
    mesh_shape: Sequence[int],
    coordinate: Sequence[int],
    placements: Sequence[Placement],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Mesh dimensions cut one after the other, in `cut_order`."""
    shape, offset = list(global_shape), [0] * len(global_shape)
    for d in cut_order(placements):
        size, rank, placement = mesh_shape[d], coordinate[d], placements[d]
        if isinstance(placement, Shard):
            dim = placement.dim
            if not -len(shape) <= dim < len(shape):
                raise IndexError(f"Shard({dim}): the tensor has {len(shape)} dimensions")
            shape[dim], start = Shard.local_shard_size_and_offset(shape[dim], size, rank)
            offset[dim] += start
    return tuple(shape), tuple(offset)
