"""From one layout of a tensor to another, in a way that backward passes through.

Note [Gradients of parts]: what a rank has for the gradient of its part follows from the layout of
the part. Cut like the tensor where that is cut; whole and the same everywhere where the tensor is
replicated; and whole, too, where ranks have the terms of a sum, as each of them counts once. So
backward of a redistribution is a redistribution, from `dual(target)` to `dual(source)`. Terms of an
average have the gradient of the average, too: what makes such terms divides it (`_averaged`), and
what all ranks have alike and goes into them has the average of its gradients (`spread`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.autograd import Function
from tenon.distributed._collectives import ReduceOp
from tenon.distributed.device_mesh import DeviceMesh
from tenon.distributed.tensor.placement_types import (
    Partial,
    Placement,
    Replicate,
    Shard,
    cut_order,
)

__all__: list[str] = []

Layout = tuple[Placement, ...]
_OPS = {
    "sum": ReduceOp.SUM, "avg": ReduceOp.AVG, "product": ReduceOp.PRODUCT, "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
}  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """What a DTensor is beside its part: mesh, layout and shape of the whole."""

    mesh: DeviceMesh
    placements: Layout
    shape: tuple[int, ...]

    @cached_property
    def local(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(shape, index of the first element) of this rank's part."""
        from tenon.distributed.tensor import _utils

        return _utils.compute_local_shape_and_global_offset(self.shape, self.mesh, self.placements)

    def with_layout(self, placements: Sequence[Placement]) -> Spec:
        """The same tensor in another layout."""
        return Spec(self.mesh, tuple(placements), self.shape)


def normal(placements: Sequence[Placement], ndim: int) -> Layout:
    """Placements whose dimensions count from the front."""
    found = []
    for p in placements:
        if isinstance(p, Shard):
            if not -ndim <= p.dim < max(ndim, 1):
                raise IndexError(f"{p!r}: the tensor has {ndim} dimensions")
            p = Shard(p.dim % ndim) if p.dim < 0 and type(p) is Shard else p
        elif not isinstance(p, Placement):
            raise TypeError(f"expected placements such as Shard(0), got {p!r}")
        found.append(p)
    return tuple(found)


def dual(placements: Layout) -> Layout:
    """The layout of the gradient; see Note [Gradients of parts]."""
    return tuple(p if isinstance(p, Shard) else Replicate() for p in placements)


# ---- One dimension of the mesh -------------------------------------------------------------------


def _extent(spec: Spec, mesh_dim: int, dim: int) -> int:
    """The size along a tensor's dimension of what a mesh dimension cuts: the parts of those that
    cut before it."""
    size, coordinate = spec.shape[dim], spec.mesh.get_coordinate() or []
    order = cut_order(spec.placements)
    for d in order[: order.index(mesh_dim)]:
        if spec.placements[d].is_shard(dim):
            size, _ = Shard.local_shard_size_and_offset(size, spec.mesh.size(d), coordinate[d])
    return size


def _parts(size: int, count: int) -> list[int]:
    return [Shard.local_shard_size_and_offset(size, count, r)[0] for r in range(count)]


def _gather(local: Tensor, dim: int, size: int, group: Any) -> Tensor:
    """The whole along a dimension of what the ranks of a group have."""
    count = distributed.get_world_size(group)
    source = local.contiguous()
    rows = _parts(size, count)
    if dim == 0 and len(set(rows)) == 1:
        whole = source.new_empty((size, *source.shape[1:]))
        distributed.all_gather_into_tensor(whole, source, group)
        return whole
    shapes = [(*source.shape[:dim], n, *source.shape[dim + 1 :]) for n in rows]
    everyone = [source.new_empty(s) for s in shapes]
    distributed.all_gather(everyone, source, group)
    return tenon.cat(everyone, dim)


def _reduce_scatter(local: Tensor, dim: int, op: str, group: Any) -> Tensor:
    """This rank's part along a dimension of the reduction."""
    count = distributed.get_world_size(group)
    rows = _parts(local.shape[dim], count)
    parts = [p.contiguous() for p in local.split(rows, dim)]
    mine = tenon.empty_like(parts[distributed.get_rank(group)])
    distributed.reduce_scatter(mine, parts, _OPS[op], group)
    return mine


def _reduce(local: Tensor, op: str, group: Any) -> Tensor:
    whole = local.clone(memory_format=tenon.contiguous_format)
    distributed.all_reduce(whole, _OPS[op], group)
    return whole


def _slice(local: Tensor, dim: int, count: int, rank: int) -> Tensor:
    size, start = Shard.local_shard_size_and_offset(local.shape[dim], count, rank)
    return local.narrow(dim, start, size).contiguous()


def _term(local: Tensor, op: str, rank: int, count: int) -> Tensor:
    """This rank's term of a reduction whose result everybody has: an equal share of a sum, but of
    one of whole numbers, which is the first rank's."""
    if op == "sum" and (local.is_floating_point() or local.is_complex()):
        return local / count
    if op == "sum" and rank:
        return tenon.zeros_like(local)
    if op == "product" and rank:
        return tenon.ones_like(local)
    return local


# ---- All of them ---------------------------------------------------------------------------------


def _tied(source: Layout, target: Layout) -> list[bool]:
    """Which mesh dimensions have to be undone: those that change, and those that cut a tensor's
    dimension after one that changes."""
    changes = [s != t for s, t in zip(source, target, strict=True)]
    order = cut_order(source)
    if order != cut_order(target):
        return [True] * len(source)
    for at, d in enumerate(order):
        if changes[d]:
            dims = {p.dim for p in (source[d], target[d]) if isinstance(p, Shard)}
            for later in order[at + 1 :]:
                p = source[later]
                changes[later] |= isinstance(p, Shard) and p.dim in dims
    return changes


def move(local: Tensor, spec: Spec, target: Layout) -> Tensor:
    """This rank's part in another layout; nothing is recorded for backward."""
    mesh, now = spec.mesh, list(spec.placements)
    coordinate = mesh.get_coordinate()
    if coordinate is None or spec.placements == target:
        return local
    if distributed.GroupMember.NON_GROUP_MEMBER in mesh.get_all_groups():
        raise RuntimeError(
            f"{mesh!r}: this process has no groups of its ranks, so that only to_local() works; "
            "a mesh that was loaded takes those that are there: call init_process_group and "
            "init_device_mesh first"
        )
    undone = _tied(spec.placements, target)
    for d in reversed(cut_order(now)):
        if not undone[d]:
            continue
        p, goal, group = now[d], target[d], mesh.get_group(d)
        if isinstance(p, Shard):
            size = _extent(spec.with_layout(now), d, p.dim)
            local = _gather(local, p.dim, size, group)
            now[d] = Replicate()
        elif isinstance(p, Partial) and p != goal:
            alone = isinstance(goal, Shard) and not any(
                now[e].is_shard(goal.dim) or target[e].is_shard(goal.dim)
                for e in range(len(now)) if e != d
            )  # fmt: skip
            if alone:
                local = _reduce_scatter(local, goal.dim, p.reduce_op, group)
                now[d] = goal
            else:
                local = _reduce(local, p.reduce_op, group)
                now[d] = Replicate()
    for d in cut_order(target):
        goal = target[d]
        if now[d] == goal:
            continue
        if isinstance(goal, Shard):
            local = _slice(local, goal.dim, mesh.size(d), coordinate[d])
        elif isinstance(goal, Partial):
            local = _term(local, goal.reduce_op, coordinate[d], mesh.size(d))
    return local


class _Move(Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, spec: Spec, target: Layout) -> Tensor:
        ctx.spec, ctx.target = spec, target
        moved = move(local, spec, target)
        return moved.view_as(moved) if moved is local else moved

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        back = _Move.apply(
            grad, ctx.spec.with_layout(dual(ctx.target)), dual(ctx.spec.placements)
        )  # fmt: skip
        return back, None, None


def redistribute(local: Tensor, spec: Spec, target: Layout) -> Tensor:
    """This rank's part in another layout."""
    if spec.placements == target:
        return local
    for p in (*spec.placements, *target):
        differs = local.requires_grad and tenon.is_grad_enabled()
        if isinstance(p, Partial) and p.reduce_op not in ("sum", "avg") and differs:
            raise NotImplementedError(f"redistribute: {p!r} has no gradient; sums have")
    return _Move.apply(local, spec, target)


class _Spread(Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, groups: list[tuple[Any, bool]]) -> Tensor:
        ctx.groups = groups
        return local.view_as(local)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        total = grad.clone(memory_format=tenon.contiguous_format)
        for group, average in ctx.groups:
            distributed.all_reduce(total, ReduceOp.AVG if average else ReduceOp.SUM, group)
        return _Spread.apply(total, []), None


def spread(local: Tensor, groups: list[tuple[Any, bool]]) -> Tensor:
    """What every rank of the groups has alike, for a computation of which each does a part: the
    gradients of the parts are summed, or averaged where the group is said to average."""
    if not groups or not (local.requires_grad and tenon.is_grad_enabled()):
        return local
    return _Spread.apply(local, groups)
