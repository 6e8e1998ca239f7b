"""Exchanges along a dimension of a mesh, and parts that are made of one size."""

from __future__ import annotations

from typing import Any

from tenon import Tensor, distributed
from tenon.distributed.device_mesh import DeviceMesh
from tenon.nn import functional

__all__: list[str] = []


def mesh_scatter(
    output: Tensor, scatter_list: list[Tensor], mesh: DeviceMesh, mesh_dim: int = 0,
    async_op: bool = False, *, group_src: int = 0,
) -> Any:  # fmt: skip
    """Each rank of a dimension gets its tensor of the list that one of them has."""
    if mesh.get_coordinate() is None:
        return None
    group = mesh.get_group(mesh_dim)
    given = scatter_list if distributed.get_rank(group) == group_src else None
    return distributed.scatter(output, given, group=group, async_op=async_op, group_src=group_src)


def mesh_broadcast(
    tensor: Tensor, mesh: DeviceMesh, mesh_dim: int = 0, async_op: bool = False, *,
    group_src: int = 0,
) -> Any:  # fmt: skip
    """Each rank of a dimension gets the tensor of one of them."""
    if mesh.get_coordinate() is None:
        return None
    return distributed.broadcast(
        tensor, group=mesh.get_group(mesh_dim), async_op=async_op, group_src=group_src
    )


def pad_tensor(tensor: Tensor, pad_dim: int, pad_size: int) -> Tensor:
    """The tensor with zeros behind it."""
    if not pad_size:
        return tensor
    behind = pad_dim % tensor.ndim
    return functional.pad(tensor, [*[0, 0] * (tensor.ndim - behind - 1), 0, pad_size])


def unpad_tensor(tensor: Tensor, pad_dim: int, pad_size: int) -> Tensor:
    """The tensor without what is behind it."""
    return tensor.narrow(pad_dim, 0, tensor.size(pad_dim) - pad_size) if pad_size else tensor


def fill_empty_tensor_to_shards(
    shards: list[Tensor], shard_dim: int, num_empty_tensors: int
) -> list[Tensor]:
    """The parts, behind which are some without elements."""
    size = list(shards[0].shape)
    size[shard_dim] = 0
    shards.extend(shards[0].new_zeros(size) for _ in range(num_empty_tensors))
    return shards
