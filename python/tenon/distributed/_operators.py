"""Functional collectives as operators: `tenon.ops._c10d_functional`, which take a group's name,
`_c10d_functional_autograd`, which have gradients, and `c10d_functional`, which take ranks; and
`c10d`, which write to their tensors and return them with the work.

They are looked up by name, as keys of what a tensor class does with them, and called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenon import Tensor, distributed
from tenon.distributed import _functional_collectives as functional
from tenon.library import Library


def _members(group: Any, group_size: int) -> Any:
    """The group, of which the caller knows the size."""
    members = functional._members(group)
    if members.size() != group_size:
        raise ValueError(
            f"group_size is {group_size}, and the group has {members.size()} processes"
        )
    return members


def _gathered(input: Tensor, group_size: int, group: Any) -> Tensor:
    return functional.all_gather_tensor(input, 0, _members(group, group_size))


def _scattered(input: Tensor, reduce_op: str, group_size: int, group: Any) -> Tensor:
    return functional.reduce_scatter_tensor(input, reduce_op, 0, _members(group, group_size))


def _reduced_in_place(input: Tensor, reduce_op: str, group: Any) -> Tensor:
    distributed.all_reduce(input, functional._op(reduce_op), functional._members(group))
    return input


def _sent_in_place(input: Tensor, src: int, group: Any) -> Tensor:
    distributed.broadcast(input, src, functional._members(group))
    return input


def _gathered_into(input: Tensor, group_size: int, group: Any, *, out: Tensor) -> Tensor:
    distributed.all_gather_into_tensor(out, input.contiguous(), _members(group, group_size))
    return out


def _scattered_into(
    input: Tensor, reduce_op: str, group_size: int, group: Any, *, out: Tensor
) -> Tensor:
    members, op = _members(group, group_size), functional._op(reduce_op)
    distributed.reduce_scatter_tensor(out, input.contiguous(), op, members)
    return out


def _each(one: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """A collective of every tensor of a list."""

    def all_of(inputs: Sequence[Tensor], *rest: Any) -> list[Tensor]:
        return [one(t, *rest) for t in inputs]

    return all_of


def _by_ranks(one: Callable[..., Any]) -> Callable[..., Any]:
    """An operator whose last arguments are a tag, ranks and how many they are."""

    def older(*args: Any) -> Any:
        *given, _tag, ranks, group_size = args
        return one(*given, _members(ranks, group_size))

    return older


def _gathered_all(input: Tensor, group: Any) -> Tensor:
    return functional.all_gather_tensor(input, 0, group)


def _scattered_all(input: Tensor, reduce_op: str, group: Any) -> Tensor:
    return functional.reduce_scatter_tensor(input, reduce_op, 0, group)


_NAMED: dict[str, Callable[..., Any]] = {
    "all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor": functional.all_reduce,
    "all_reduce_(Tensor(a!) input, str reduce_op, str group_name) -> Tensor(a!)":
        _reduced_in_place,
    "all_reduce_coalesced(Tensor[] inputs, str reduce_op, str group_name) -> Tensor[]":
        _each(functional.all_reduce),
    "all_gather_into_tensor(Tensor input, int group_size, str group_name) -> Tensor": _gathered,
    "all_gather_into_tensor_out(Tensor input, int group_size, str group_name, *, Tensor(a!) out)"
    " -> Tensor(a!)": _gathered_into,
    "all_gather_into_tensor_coalesced(Tensor[] inputs, int group_size, str group_name)"
    " -> Tensor[]": _each(_gathered),
    "reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, str group_name)"
    " -> Tensor": _scattered,
    "reduce_scatter_tensor_out(Tensor input, str reduce_op, int group_size, str group_name, *,"
    " Tensor(a!) out) -> Tensor(a!)": _scattered_into,
    "reduce_scatter_tensor_coalesced(Tensor[] inputs, str reduce_op, int group_size,"
    " str group_name) -> Tensor[]": _each(_scattered),
    "all_to_all_single(Tensor input, SymInt[] output_split_sizes, SymInt[] input_split_sizes,"
    " str group_name) -> Tensor": functional.all_to_all_single,
    "broadcast(Tensor input, int src, str group_name) -> Tensor": functional.broadcast,
    "broadcast_(Tensor(a!) input, int src, str group_name) -> Tensor(a!)": _sent_in_place,
    "wait_tensor(Tensor tensor) -> Tensor": functional.wait_tensor,
    "_wrap_tensor_autograd(Tensor input) -> Tensor": functional.wait_tensor,
}  # fmt: skip

_BY_RANKS: dict[str, Callable[..., Any]] = {
    "all_reduce(Tensor self, str reduceOp, {}) -> Tensor": functional.all_reduce,
    "all_reduce_coalesced(Tensor[] self, str reduceOp, {}) -> Tensor[]":
        _each(functional.all_reduce),
    "all_gather_into_tensor(Tensor shard, {}) -> Tensor": _gathered_all,
    "all_gather_into_tensor_coalesced(Tensor[] input, {}) -> Tensor[]": _each(_gathered_all),
    "reduce_scatter_tensor(Tensor input, str reduceOp, {}) -> Tensor": _scattered_all,
    "reduce_scatter_tensor_coalesced(Tensor[] inputs, str reduceOp, {}) -> Tensor[]":
        _each(_scattered_all),
    "all_to_all_single(Tensor input, SymInt[]? output_split_sizes, SymInt[]? input_split_sizes,"
    " {}) -> Tensor": functional.all_to_all_single,
    "broadcast(Tensor self, int src, {}) -> Tensor": functional.broadcast,
}  # fmt: skip


def _sent(tensors: list[Tensor], group: Any, root_rank: int, root_tensor: int, *_: Any) -> Any:
    work = [distributed.broadcast(t, group=group, group_src=root_rank, async_op=True)
            for t in tensors]  # fmt: skip
    return tensors, work[root_tensor]


def _summed(tensors: list[Tensor], group: Any, op: Any, sparse_indices: Any, *_: Any) -> Any:
    if sparse_indices is not None:
        raise NotImplementedError("c10d::allreduce_: sparse_indices is not there")
    work = [distributed.all_reduce(t, op, group, async_op=True) for t in tensors]
    return tensors, work[-1]


def _dealt(out: list[Tensor], parts: list[list[Tensor]], group: Any, root: int, *_: Any) -> Any:
    given = parts[0] if parts else None
    return out, distributed.scatter(out[0], given, group=group, group_src=root, async_op=True)


def _collected(out: Tensor, tensor: Tensor, group: Any, *_: Any) -> Any:
    return out, distributed.all_gather_into_tensor(out, tensor, group, async_op=True)


def _divided(out: Tensor, tensor: Tensor, group: Any, op: Any, *_: Any) -> Any:
    return out, distributed.reduce_scatter_tensor(out, tensor, op, group, async_op=True)


_WRITING: dict[str, Callable[..., Any]] = {
    "broadcast_(Tensor[] tensors, {} process_group, int root_rank, int root_tensor, {})"
    " -> (Tensor[], Any)": _sent,
    "allreduce_(Tensor[] tensors, {} process_group, Any reduce_op, Tensor? sparse_indices, {})"
    " -> (Tensor[], Any)": _summed,
    "scatter_(Tensor[] output_tensors, Tensor[][] input_tensors, {} process_group, int root_rank,"
    " {}) -> (Tensor[], Any)": _dealt,
    "_allgather_base_(Tensor output_tensor, Tensor input_tensor, {} process_group, {})"
    " -> (Tensor, Any)": _collected,
    "_reduce_scatter_base_(Tensor output_tensor, Tensor input_tensor, {} process_group,"
    " Any reduce_op, {}) -> (Tensor, Any)": _divided,
}

_WITH_GRADIENTS = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")


def _define() -> None:
    named, recorded = (
        Library("_c10d_functional", "DEF"),
        Library("_c10d_functional_autograd", "DEF"),
    )
    for schema, fn in _NAMED.items():
        name = named.define(schema)
        named.impl(name, fn, "CompositeExplicitAutograd")
        if name in _WITH_GRADIENTS:
            recorded.define(schema)
            recorded.impl(name, fn, "CompositeImplicitAutograd")
    older = Library("c10d_functional", "DEF")
    for schema, fn in _BY_RANKS.items():
        name = older.define(schema.format("str tag, int[] ranks, int group_size"))
        older.impl(name, _by_ranks(fn), "CompositeExplicitAutograd")
    writing = Library("c10d", "DEF")
    for schema, fn in _WRITING.items():
        name = writing.define(schema.format("Any", "bool async_op=True, int timeout=-1"))
        writing.impl(name, fn, "CompositeExplicitAutograd")
    older.define("wait_tensor(Tensor self) -> Tensor")
    older.impl("wait_tensor", functional.wait_tensor, "CompositeExplicitAutograd")


_define()
