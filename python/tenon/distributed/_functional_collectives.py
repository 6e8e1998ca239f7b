"""Collectives that return new tensors, by PyTorch's names. Results are there when they return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.distributed import nn as differentiable
from tenon.distributed._collectives import ReduceOp
from tenon.distributed._groups import ProcessGroup, _group
from tenon.distributed.device_mesh import DeviceMesh

__all__ = [
    "AsyncCollectiveTensor", "all_gather_into_tensor_coalesced", "all_gather_tensor",
    "all_gather_tensor_autograd", "all_reduce", "all_reduce_coalesced", "all_to_all_single",
    "all_to_all_single_autograd", "broadcast", "permute_tensor", "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd", "reduce_scatter_tensor_coalesced", "wait_tensor",
]  # fmt: skip


class AsyncCollectiveTensor(Tensor):
    """What a collective returns: `wait` gives the plain tensor, and so does every operator. All
    have come when they are returned."""

    __torch_function__ = tenon._C._disabled_torch_function_impl
    completed = True

    @property
    def elem(self) -> Tensor:
        """The plain tensor."""
        return self.as_subclass(Tensor)

    def wait(self) -> Tensor:
        """The plain tensor."""
        return self.elem

    trigger_wait = wait


def _came(tensor: Tensor) -> Tensor:
    return tensor.as_subclass(AsyncCollectiveTensor)


def _members(group: Any) -> ProcessGroup:
    """The group that an argument means: a group, a mesh of one dimension, (mesh, dimension), a
    name, or a list of all ranks."""
    if isinstance(group, DeviceMesh):
        return group.get_group()
    if isinstance(group, tuple) and group and isinstance(group[0], DeviceMesh):
        return group[0].get_group(group[1])
    if isinstance(group, str):
        from tenon.distributed.distributed_c10d import _resolve_process_group

        return _resolve_process_group(group)
    if isinstance(group, (list, tuple)):
        default = _group(None)
        if list(group) != default._ranks:
            raise NotImplementedError(
                f"functional collectives: the ranks {list(group)} are not all of the "
                f"{default.size()}; pass the group that new_group has made of them"
            )
        return default
    return _group(group)


def _op(reduce_op: Any) -> ReduceOp:
    if isinstance(reduce_op, ReduceOp):
        return reduce_op
    return ReduceOp[str(reduce_op).upper()]


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor, which has come."""
    return tensor.elem if isinstance(tensor, AsyncCollectiveTensor) else tensor


def all_reduce(self: Tensor, reduceOp: Any, group: Any, tag: str = "") -> Tensor:  # noqa: N803
    """The reduction over all processes."""
    return _came(differentiable.all_reduce(self, _op(reduceOp), _members(group)))


def all_reduce_coalesced(
    self: Sequence[Tensor],
    reduceOp: Any,  # noqa: N803 - PyTorch's name
    group: Any,
    tag: str = "",
) -> list[Tensor]:
    """all_reduce of each of the tensors."""
    return [all_reduce(t, reduceOp, group, tag) for t in self]


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """The tensor of process src of the default group."""
    return _came(differentiable.broadcast(self, src, _members(group)))


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The tensors of all processes, one after the other along a dimension."""
    everyone = differentiable.all_gather(self.contiguous(), _members(group))
    return _came(tenon.cat(list(everyone), gather_dim))


def reduce_scatter_tensor(
    self: Tensor,
    reduceOp: Any,  # noqa: N803 - PyTorch's name
    scatter_dim: int,
    group: Any,
    tag: str = "",
) -> Tensor:
    """The part of this process, along a dimension, of the reduction over all processes."""
    members, op = _members(group), _op(reduceOp)
    size = self.shape[scatter_dim]
    if size % members.size():
        raise ValueError(
            f"reduce_scatter_tensor(): dimension {scatter_dim} of size {size} is not "
            f"{members.size()} equal parts"
        )
    if not self.requires_grad:
        whole = self.movedim(scatter_dim, 0).contiguous()
        part = whole.new_empty((size // members.size(), *whole.shape[1:]))
        distributed.reduce_scatter_tensor(part, whole, op, members)
        return _came(part.movedim(0, scatter_dim))
    parts = [p.contiguous() for p in self.chunk(members.size(), scatter_dim)]
    summed = differentiable.reduce_scatter(parts[members.rank()], parts, ReduceOp.SUM, members)
    if op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise NotImplementedError(f"reduce_scatter_tensor: {op} has no gradient")
    return _came(summed / members.size() if op is ReduceOp.AVG else summed)


def all_gather_into_tensor_coalesced(
    self: Sequence[Tensor], group: Any, tag: str = ""
) -> list[Tensor]:
    """all_gather_tensor of each of the tensors, along the first dimension."""
    return [all_gather_tensor(t, 0, group, tag) for t in self]


def reduce_scatter_tensor_coalesced(
    inputs: Sequence[Tensor],
    reduceOp: Any,  # noqa: N803 - PyTorch's name
    scatter_dim: Sequence[int],
    group: Any,
    tag: str = "",
) -> list[Tensor]:
    """reduce_scatter_tensor of each of the tensors, along a dimension for each."""
    return [
        reduce_scatter_tensor(t, reduceOp, d, group, tag)
        for t, d in zip(inputs, scatter_dim, strict=True)
    ]


def all_to_all_single(
    self: Tensor,
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: Any,
    tag: str = "",
) -> Tensor:
    """Part i for process i; what came."""
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    like = self.detach().new_empty((rows, *self.shape[1:]))
    received = differentiable.all_to_all_single(
        like, self, output_split_sizes, input_split_sizes, _members(group)
    )
    return _came(received)


def permute_tensor(self: Tensor, src_dst: Sequence[int], group: Any, tag: str = "") -> Tensor:
    """Process i's tensor goes to process src_dst[i]."""
    members = _members(group)
    if sorted(src_dst) != list(range(members.size())):
        raise ValueError(f"permute_tensor(): {list(src_dst)} is no order of all processes")
    rows, mine = self.shape[0], members.rank()
    given = [rows if i == src_dst[mine] else 0 for i in range(members.size())]
    wanted = [rows if i == list(src_dst).index(mine) else 0 for i in range(members.size())]
    return all_to_all_single(self, wanted, given, members)


# Every one of them has a gradient.
all_gather_tensor_autograd = all_gather_tensor
reduce_scatter_tensor_autograd = reduce_scatter_tensor
all_to_all_single_autograd = all_to_all_single
