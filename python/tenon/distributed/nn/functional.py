"""Operations of a process group that backward passes through. The loss of the whole is the sum of
the losses of all processes; each process computes the gradient of that sum by its own inputs."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.autograd import Function
from tenon.distributed import ReduceOp
from tenon.distributed._collectives import _peer
from tenon.distributed._groups import _group

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce",
    "reduce_scatter", "scatter",
]  # fmt: skip


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, op: Any, tensor: Tensor) -> Tensor:
        if op not in (ReduceOp.SUM, ReduceOp.AVG) and tensor.requires_grad:
            raise NotImplementedError(f"all_reduce: {op} has no gradient; SUM and AVG have")
        ctx.group, ctx.op = group, op
        result = tensor.clone()
        distributed.all_reduce(result, op, group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, _AllReduce.apply(ctx.group, ctx.op, grad.contiguous())


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The reduction over all processes, as a new tensor."""
    return _AllReduce.apply(group, op, tensor)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, peer: int, group: Any, tensor: Tensor) -> Tensor:
        ctx.peer, ctx.group = peer, group
        result = tensor.clone()
        distributed.broadcast(result, None, group, False, peer)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, _Reduce.apply(ctx.peer, ReduceOp.SUM, ctx.group, grad.contiguous())


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of process src, as a new tensor in all processes."""
    return _Broadcast.apply(_peer(_group(group), src, None, "broadcast"), group, tensor)


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, peer: int, op: Any, group: Any, tensor: Tensor) -> Tensor:
        if op is not ReduceOp.SUM and tensor.requires_grad:
            raise NotImplementedError(f"reduce: {op} has no gradient; SUM has")
        ctx.peer, ctx.group = peer, group
        result = tensor.clone()
        distributed.reduce(result, None, op, group, False, peer)
        if _group(group).rank() != peer:
            result.zero_()
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, None, _Broadcast.apply(ctx.peer, ctx.group, grad.contiguous())


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The reduction over all processes in process dst; zeros in the others."""
    return _Reduce.apply(_peer(_group(group), dst, None, "reduce"), op, group, tensor)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(
        ctx: Any, group: Any, output: Tensor, out_split: Any, in_split: Any, x: Tensor
    ) -> Any:
        ctx.group, ctx.splits, ctx.shape = group, (in_split, out_split), x.shape
        result = tenon.empty_like(output)
        distributed.all_to_all_single(result, x.contiguous(), out_split, in_split, group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        room = grad.new_empty(ctx.shape)
        back = _AllToAllSingle.apply(ctx.group, room, *ctx.splits, grad.contiguous())
        return None, None, None, None, back


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None,
    group: Any = None,
) -> Tensor:  # fmt: skip
    """Part i of the input for process i, as a new tensor like `output`."""
    return _AllToAllSingle.apply(group, output, output_split_sizes, input_split_sizes, input)


def _exchanged(tensors: Any, like: Any, group: Any) -> tuple[Tensor, ...]:
    """tensors[i] goes to process i; what came, each part shaped as that of `like`."""
    flat = tenon.cat([t.reshape(-1) for t in tensors])
    wanted, given = [t.numel() for t in like], [t.numel() for t in tensors]
    result = all_to_all_single(flat.new_empty(sum(wanted)), flat, wanted, given, group)
    parts = result.split(wanted)
    return tuple(p.view(t.shape) for p, t in zip(parts, like, strict=True))


def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None) -> Any:
    """The i-th tensor of the input list for process i; what came."""
    return _exchanged(input_tensor_list, output_tensor_list, group)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes, which have one shape."""
    copies = [tensor] * _group(group).size()
    return _exchanged(copies, copies, group)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes in process dst; zeros in the others."""
    everyone = all_gather(tensor, group)
    mine = _peer(_group(group), dst, None, "gather") == _group(group).rank()
    return everyone if mine else tuple(t * 0 for t in everyone)


def scatter(tensors: Any, src: int = 0, group: Any = None) -> Tensor:
    """The part of this process of what process src gives."""
    members = _group(group)
    peer = _peer(members, src, None, "scatter")
    mine = members.rank() == peer
    given = list(tensors) if mine else [t * 0 for t in tensors]
    return _exchanged(given, [tensors[members.rank()]] * members.size(), group)[peer]


def reduce_scatter(
    output: Tensor, input_list: Any, op: Any = ReduceOp.SUM, group: Any = None
) -> Tensor:
    """The sum of the i-th tensors of all processes, for process i."""
    if op is not ReduceOp.SUM:
        raise NotImplementedError(f"reduce_scatter: {op} has no gradient; SUM has")
    parts = _exchanged(list(input_list), [output] * _group(group).size(), group)
    return tenon.stack(parts).sum(0)
