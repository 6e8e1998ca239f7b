"""Operations of a process group on tensors; how their memory goes to an engine is `_routes`'s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any

import tenon
from tenon import Tensor
from tenon.distributed import _engine
from tenon.distributed._groups import (
    GroupMember,
    ProcessGroup,
    _group,
    _seconds,
    get_group_rank,
)
from tenon.distributed._routes import Route, back, copy

__all__ = [
    "P2POp", "ReduceOp", "Work", "all_gather", "all_gather_coalesced", "all_gather_into_tensor",
    "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier",
    "batch_isend_irecv", "broadcast", "gather", "irecv", "isend", "monitored_barrier", "recv",
    "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "send", "supports_complex",
]  # fmt: skip


class ReduceOp(Enum):
    """How the values of all processes become one."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


# PyTorch's classes of these names hold the members, and annotations name them.
ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]
_HIGHEST_TAG = 32767  # the least that MPI promises for its MPI_TAG_UB
_OPS = {
    ReduceOp.SUM: _engine.SUM, ReduceOp.AVG: _engine.SUM, ReduceOp.PRODUCT: _engine.PRODUCT,
    ReduceOp.MIN: _engine.MIN, ReduceOp.MAX: _engine.MAX, ReduceOp.BAND: _engine.BAND,
    ReduceOp.BOR: _engine.BOR, ReduceOp.BXOR: _engine.BXOR,
}  # fmt: skip


class Work:
    """An operation that was started."""

    def __init__(self, operations: Sequence[_engine.Operation], result: Any = None) -> None:
        self._operations, self._result = list(operations), result

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits until it is done; its results are there then. Raises what went wrong."""
        seconds = None if timeout is None else _seconds(timeout)
        for operation in self._operations:
            operation.wait(seconds)
        return True

    def synchronize(self) -> None:
        """wait()."""
        self.wait()

    def block_current_stream(self) -> None:
        """Lets the current stream of its device wait for it."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is done, well or not."""
        return all(operation.done() for operation in self._operations)

    def is_success(self) -> bool:
        """Whether it is done and nothing went wrong."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return next((e for o in self._operations if (e := o.error()) is not None), None)

    def result(self) -> Any:
        """The tensors that it writes, when it is done."""
        self.wait()
        return self._result

    def _source_rank(self) -> int:
        """The rank in the group of whom the message came."""
        self.wait()
        return self._operations[0].peer()

    def get_future(self) -> Any:
        """A future of the list of tensors that it writes, which waits when it is asked."""
        from tenon.futures import Future

        future: Future[Any] = Future()
        try:
            self.wait()
        except Exception as err:
            future.set_exception(err)
        else:
            result = self._result
            future.set_result(list(result) if isinstance(result, (list, tuple)) else [result])
        return future


def _finish(work: Work, async_op: bool) -> Work | None:
    if async_op:
        return work
    work.wait()
    return None


# ---- Tensors as engines take them ----------------------------------------------------------------


def _checked(name: str, tensor: Any, argument: str = "tensor") -> Tensor:
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"{name}(): Invalid function argument. Expected parameter `{argument}` to be of type "
            f"torch.Tensor, got {type(tensor).__name__}"
        )
    return tensor.detach()


def _all(name: str, tensors: Any, argument: str) -> list[Tensor]:
    """The tensors of a list."""
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError(
            f"{name}(): Invalid function argument. Expected parameter `{argument}` to be of type "
            f"List[torch.Tensor], got {type(tensors).__name__}"
        )
    return [t.detach() for t in tensors]


def _peer(group: ProcessGroup, rank: Any, group_rank: Any, name: str) -> int:
    """The rank in the group of what was given as a rank of the default group, or of the group."""
    if rank is None and group_rank is None:
        raise ValueError(f"{name}(): expected a rank")
    if rank is not None and group_rank is not None:
        raise ValueError(f"{name}(): the rank is given twice")
    if not hasattr(group_rank if rank is None else rank, "__index__"):
        raise TypeError(
            f"{name}(): expected a rank of type int, got {group_rank if rank is None else rank!r}"
        )
    if group_rank is not None:
        if not 0 <= group_rank < group.size():
            raise ValueError(f"{name}(): rank {group_rank} of a group of {group.size()}")
        return int(group_rank)
    return get_group_rank(group, rank)


def _outside(group: Any) -> bool:
    """Whether this process has no part in the group: operations then do nothing, as in PyTorch."""
    return group is not None and group == GroupMember.NON_GROUP_MEMBER


# ---- Reductions ----------------------------------------------------------------------------------


def supports_complex(reduceOp: ReduceOp) -> bool:
    """Whether an operation is defined for complex numbers."""
    return reduceOp not in (
        ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR
    )  # fmt: skip


def _operation(op: Any, tensor: Tensor, name: str) -> ReduceOp:
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{name}(): expected an operation such as ReduceOp.SUM, got {op!r}")
    if op is ReduceOp.PREMUL_SUM:
        raise ValueError(f"{name}(): {op} is not served")
    bits = op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
    if bits and tensor.dtype.is_floating_point:
        raise RuntimeError(f"{name}(): cannot use {op} with a tensor of {tensor.dtype}")
    if tensor.dtype.is_complex and not supports_complex(op):
        raise ValueError(f"{name} does not support {op} on complex tensors")
    return op


def _write(target: Tensor, numbers: Tensor, op: ReduceOp, size: int) -> None:
    """What came of a reduction, as the dtype and at the place of the target."""
    if op is ReduceOp.AVG:
        exact = numbers.dtype.is_floating_point
        numbers.div_(size) if exact else numbers.div_(size, rounding_mode="trunc")
    if target.dtype.is_complex:
        numbers = tenon.view_as_complex(numbers)
    if target.dtype == tenon.bool:
        numbers = numbers != 0
    if numbers.data_ptr() != target.data_ptr():
        copy(target, numbers.view(target.shape))


def _reduced(
    group: ProcessGroup, tensor: Tensor, op: ReduceOp, kind: int, peer: int, later: bool
) -> _engine.Operation:
    route = Route(group, kind, tensor, op=_OPS[op])
    numbers = route.numbers(tensor)
    mine = kind == _engine.ALL_REDUCE or peer == group.rank()
    plain = numbers is tensor and op is not ReduceOp.AVG
    return route.reduce(
        later, numbers.numel(), output=numbers, peer=peer,
        after=None if plain or not mine else lambda: _write(tensor, numbers, op, group.size()),
    )  # fmt: skip


def all_reduce(
    tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """The reduction over all processes, in place."""
    if _outside(group):
        return None
    target = _checked("all_reduce", tensor)
    members, how = _group(group), _operation(op, target, "all_reduce")
    if members._world is None:
        return Work([], tensor) if async_op else None
    if target.is_sparse:
        if how is not ReduceOp.SUM:
            raise RuntimeError(f"all_reduce(): cannot use {how} with a sparse tensor")
        _sum_sparse(tensor, members)
        return Work([], tensor) if async_op else None
    work = Work([_reduced(members, target, how, _engine.ALL_REDUCE, 0, async_op)], tensor)
    return _finish(work, async_op)


def _sum_sparse(tensor: Tensor, members: ProcessGroup) -> None:
    """The sum of sparse tensors: their elements one behind the other."""
    own = tensor.detach().coalesce()
    indices, values = own.indices(), own.values()
    counts = [tenon.zeros(1, dtype=tenon.int64, device="cpu") for _ in range(members.size())]
    all_gather(counts, tenon.tensor([own._nnz()], device="cpu"), members)
    numbers = [int(n.item()) for n in counts]
    everywhere = [indices.new_empty((indices.shape[0], n)) for n in numbers]
    all_gather(everywhere, indices, members)
    found = [values.new_empty((n, *values.shape[1:])) for n in numbers]
    all_gather(found, values, members)
    total = tenon.sparse_coo_tensor(tenon.cat(everywhere, 1), tenon.cat(found), own.shape)
    copy(tensor, total.coalesce())


def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """all_reduce of each of the tensors."""
    if _outside(group):
        return None
    given = _all("all_reduce_coalesced", tensors, "tensors")
    works = [all_reduce(t, op, group, async_op=True) for t in given]
    return _finish(Work([o for w in works if w for o in w._operations], list(tensors)), async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """all_reduce whose result process dst gets; the others' tensors stay as they are."""
    if _outside(group):
        return None
    target = _checked("reduce", tensor)
    members, how = _group(group), _operation(op, target, "reduce")
    peer = _peer(members, dst, group_dst, "reduce")
    if members._world is None:
        return Work([], tensor) if async_op else None
    own = target if peer == members.rank() else target.clone()
    work = Work([_reduced(members, own, how, _engine.REDUCE, peer, async_op)], tensor)
    return _finish(work, async_op)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """The reduction of the input over all processes, of which each gets its part."""
    if _outside(group):
        return None
    target, given = _checked("reduce_scatter", output, "output"), _checked("reduce_scatter", input)
    members, how = _group(group), _operation(op, given, "reduce_scatter")
    if given.numel() != target.numel() * members.size() or given.dtype != target.dtype:
        raise RuntimeError(
            f"reduce_scatter_tensor(): expected an input of {members.size()} times the output's "
            f"{target.numel()} elements and of its dtype, got {given.numel()} of {given.dtype}"
        )
    if members._world is None:
        copy(target, given.reshape(target.shape))
        return Work([], output) if async_op else None
    route = Route(members, _engine.REDUCE_SCATTER, given, target, op=_OPS[how])
    numbers = route.numbers(given)
    part = route.empty(numbers.numel() // members.size(), numbers.dtype)

    def write() -> None:
        shape = (*target.shape, 2) if target.dtype.is_complex else target.shape
        _write(target, part.view(shape), how, members.size())

    started = route.reduce(async_op, part.numel(), input=numbers, output=part, after=write)
    return _finish(Work([started], output), async_op)


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """The reduction of the i-th tensor of each process's list, for process i."""
    if _outside(group):
        return None
    target = _checked("reduce_scatter", output, "output")
    parts, members = _all("reduce_scatter", input_list, "input_list"), _group(group)
    if len(parts) != members.size():
        raise RuntimeError("reduce_scatter(): expected one tensor for each process")
    mine = members.rank()
    _same_sizes("reduce_scatter", [parts[mine]], target, mine)
    other = next((t.dtype for t in parts if t.dtype != target.dtype), None)
    if other is not None:
        raise RuntimeError(
            f"reduce_scatter(): expected tensors of {target.dtype} in input_list, as output is, "
            f"got {other}"
        )
    if len({t.numel() for t in parts}) == 1:
        flat = tenon.cat([t.reshape(-1) for t in parts])
        return reduce_scatter_tensor(output, flat, op, group, async_op)
    _operation(op, target, "reduce_scatter")
    copy(target, parts[mine].view(target.shape))
    works = [
        reduce(t if i != mine else target, None, op, group, True, i) for i, t in enumerate(parts)
    ]
    return _finish(Work([o for w in works if w for o in w._operations], output), async_op)


# ---- Movements -----------------------------------------------------------------------------------


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """The tensor of process src, in all processes."""
    if _outside(group):
        return None
    target, members = _checked("broadcast", tensor), _group(group)
    peer = _peer(members, src, group_src, "broadcast")
    if members._world is None:
        return Work([], tensor) if async_op else None
    route = Route(members, _engine.BROADCAST, target)
    staged = route.packed(target)
    after = None if peer == members.rank() else back(target, staged)
    started = route.move(async_op, staged, output=staged, peer=peer, after=after)
    return _finish(Work([started], tensor), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """The tensors of all processes, one behind the other, in all processes."""
    if _outside(group):
        return None
    target = _checked("all_gather_into_tensor", output_tensor, "output_tensor")
    given, members = _checked("all_gather_into_tensor", input_tensor), _group(group)
    if target.numel() != given.numel() * members.size() or target.dtype != given.dtype:
        raise RuntimeError(
            f"all_gather_into_tensor(): expected an output of {members.size()} times the input's "
            f"{given.numel()} elements and of its dtype, got {target.numel()} of {target.dtype}"
        )
    if members._world is None:
        copy(target, given.reshape(target.shape))
        return Work([], output_tensor) if async_op else None
    route = Route(members, _engine.ALL_GATHER, given, target)
    source, staged = route.packed(given), route.packed(target)
    started = route.move(async_op, source, input=source, output=staged, after=back(target, staged))
    return _finish(Work([started], output_tensor), async_op)


def _spread(parts: Sequence[Tensor], flat: Tensor) -> Callable[[], None]:
    """Copies pieces of a flat tensor into tensors, one after the other."""

    def spread() -> None:
        at = 0
        for part in parts:
            copy(part, flat[at : at + part.numel()].view(part.shape))
            at += part.numel()

    return spread


def all_gather(
    tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """The tensors of all processes, in all processes. Each may have a size of its own, which the
    tensors of the list have in all processes."""
    if _outside(group):
        return None
    given, members = _checked("all_gather", tensor), _group(group)
    targets = _all("all_gather", tensor_list, "tensor_list")
    if len(targets) != members.size():
        raise RuntimeError("all_gather(): tensor list must have one tensor for each process")
    mine = targets[members.rank()]
    if any(t.dtype != given.dtype for t in targets):
        raise ValueError(
            f"all_gather(): the list has tensors of {sorted({str(t.dtype) for t in targets})}, the "
            f"tensor is of {given.dtype}"
        )
    _same_sizes("all_gather", [mine], given, members.rank())
    if members._world is None:
        copy(mine, given.view_as(mine))
        return Work([], list(tensor_list)) if async_op else None
    sizes = [t.numel() * t.element_size() for t in targets]
    even = len(set(sizes)) == 1
    route = Route(members, _engine.ALL_GATHER if even else _engine.ALL_TO_ALL, given, *targets)
    flat = route.empty(sum(t.numel() for t in targets), given.dtype)
    source = route.packed(given)
    after = _spread(targets, flat)
    if even:
        started = route.move(async_op, source, input=source, output=flat, after=after)
    else:
        repeated = source.reshape(-1).repeat(members.size())
        mine_each = [sizes[members.rank()]] * len(sizes)
        started = route.spread(async_op, repeated, flat, mine_each, sizes, after)
    return _finish(Work([started], list(tensor_list)), async_op)


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Tensor]],
    input_tensor_list: Sequence[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """all_gather of each of the tensors: output_tensor_lists[k] is what rank k gave."""
    if _outside(group):
        return None
    given = _all("all_gather_coalesced", input_tensor_list, "input_tensor_list")
    if not isinstance(output_tensor_lists, (list, tuple)):
        raise TypeError("all_gather_coalesced(): expected a list of lists of tensors")
    for outputs in output_tensor_lists:
        if len(_all("all_gather_coalesced", outputs, "output_tensor_lists")) != len(given):
            raise ValueError("all_gather_coalesced(): the lists are of different lengths")
    lists = [[outputs[i] for outputs in output_tensor_lists] for i in range(len(given))]
    works = [all_gather(o, t, group, True) for o, t in zip(lists, given, strict=True)]
    done = Work([o for w in works if w for o in w._operations], list(output_tensor_lists))
    return _finish(done, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Part i of the input goes to process i; the output is what came, by process. Parts are equal,
    or of the given sizes along dimension 0."""
    if _outside(group):
        return None
    target, given = _checked("all_to_all_single", output, "output"), _checked("all_to_all", input)
    members = _group(group)
    sizes = [
        _part_bytes(t, split, members.size())
        for t, split in ((given, input_split_sizes), (target, output_split_sizes))
    ]
    if given.dtype != target.dtype:
        raise ValueError("all_to_all_single(): input and output are of different dtypes")
    if members._world is None:
        copy(target, given.view_as(target))
        return Work([], output) if async_op else None
    route = Route(members, _engine.ALL_TO_ALL, given, target)
    source, staged = route.packed(given), route.packed(target)
    started = route.spread(async_op, source, staged, *sizes, back(target, staged))
    return _finish(Work([started], output), async_op)


def _part_bytes(tensor: Tensor, split: Sequence[int] | None, parts: int) -> list[int]:
    rows = tensor.shape[0] if tensor.ndim else 1
    if not split:
        if rows % parts:
            raise RuntimeError(f"all_to_all_single(): {rows} rows are not {parts} equal parts")
        split = [rows // parts] * parts
    if not isinstance(split, (list, tuple)) or not all(hasattr(n, "__index__") for n in split):
        raise TypeError(
            f"all_to_all_single(): expected split sizes as a list of int, got {split!r}"
        )
    if len(split) != parts or sum(split) != rows or min(split) < 0:
        raise RuntimeError(
            f"all_to_all_single(): split sizes {list(split)} are not {parts} parts of {rows} rows"
        )
    row = tensor.numel() // rows * tensor.element_size() if rows else 0
    return [n * row for n in split]


def all_to_all(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """The i-th tensor of the input list goes to process i; the output list is what came."""
    if _outside(group):
        return None
    members = _group(group)
    outputs = _all("all_to_all", output_tensor_list, "output_tensor_list")
    inputs = _all("all_to_all", input_tensor_list, "input_tensor_list")
    if len(outputs) != members.size() or len(inputs) != members.size():
        raise RuntimeError("all_to_all(): expected one tensor for each process in both lists")
    if members._world is None:
        copy(outputs[0], inputs[0])
        return Work([], list(output_tensor_list)) if async_op else None
    route = Route(members, _engine.ALL_TO_ALL, *inputs, *outputs)
    source = tenon.cat([route.packed(t).reshape(-1) for t in inputs])
    flat = route.empty(sum(t.numel() for t in outputs), source.dtype)
    sizes = [[t.numel() * t.element_size() for t in ts] for ts in (inputs, outputs)]
    started = route.spread(async_op, source, flat, *sizes, _spread(outputs, flat))
    return _finish(Work([started], list(output_tensor_list)), async_op)


def _same_sizes(name: str, tensors: Sequence[Tensor], one: Tensor, first: int = 0) -> None:
    for i, t in enumerate(tensors, first):
        if t.numel() != one.numel() or t.dtype != one.dtype:
            raise RuntimeError(
                f"{name}(): place {i} of the list has {t.numel()} elements of {t.dtype}, the "
                f"tensor {one.numel()} of {one.dtype}"
            )


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """The tensors of all processes, in process dst, 0 unless said."""
    if _outside(group):
        return None
    given, members = _checked("gather", tensor), _group(group)
    peer = _peer(members, 0 if dst is None and group_dst is None else dst, group_dst, "gather")
    mine = peer == members.rank()
    if mine and not gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if not mine and gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    targets = _all("gather", gather_list or (), "gather_list")
    if mine and len(targets) != members.size():
        raise RuntimeError("gather(): expected one tensor for each process in the list")
    _same_sizes("gather", targets, given)
    if members._world is None:
        copy(targets[0], given)
        return Work([], gather_list) if async_op else None
    route = Route(members, _engine.ALL_TO_ALL, given, *targets)
    source = route.packed(given)
    flat = route.empty(sum(t.numel() for t in targets), source.dtype)
    given_sizes = [0] * members.size()
    given_sizes[peer] = source.numel() * source.element_size()
    wanted = [t.numel() * t.element_size() for t in targets] or [0] * members.size()
    after = _spread(targets, flat) if mine else None
    started = route.spread(async_op, source, flat, given_sizes, wanted, after)
    return _finish(Work([started], gather_list), async_op)


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """One tensor of process src, 0 unless said, for each process."""
    if _outside(group):
        return None
    target, members = _checked("scatter", tensor), _group(group)
    peer = _peer(members, 0 if src is None and group_src is None else src, group_src, "scatter")
    mine = peer == members.rank()
    if mine and not scatter_list:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    if not mine and scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    inputs = _all("scatter", scatter_list or (), "scatter_list")
    if mine and len(inputs) != members.size():
        raise RuntimeError("scatter(): expected one tensor for each process in the list")
    _same_sizes("scatter", inputs, target)
    if members._world is None:
        copy(target, inputs[0])
        return Work([], tensor) if async_op else None
    route = Route(members, _engine.ALL_TO_ALL, target, *inputs)
    staged = route.packed(target)
    source = tenon.cat([route.packed(t).reshape(-1) for t in inputs]) if mine else staged
    size = target.numel() * target.element_size()
    wanted = [size if i == peer else 0 for i in range(members.size())]
    given = [size if mine else 0] * members.size()
    started = route.spread(async_op, source, staged, given, wanted, back(target, staged))
    return _finish(Work([started], tensor), async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Waits for all processes."""
    if _outside(group):
        return None
    members = _group(group)
    if members._world is None:
        return _finish(Work([]), async_op)
    members._finish_device_work()
    world = members._there or members._world
    started = world.start(_engine.BARRIER, members._seconds, later=async_op)
    return _finish(Work([started]), async_op)


# ---- Between two processes -----------------------------------------------------------------------


def _message(
    kind: int, tensor: Tensor, rank: Any, group: Any, tag: int, group_rank: Any, later: bool
) -> Work:
    name = "send" if kind == _engine.SEND else "recv"
    given, members = _checked(name, tensor), _group(group)
    if kind == _engine.RECV and rank is None and group_rank is None:
        peer = _engine.ANY
    else:
        peer = _peer(members, rank, group_rank, name)
    if peer == members.rank() or members.size() == 1:
        raise ValueError(f"{name}(): a process does not exchange messages with itself")
    if not hasattr(tag, "__index__"):
        raise TypeError(f"{name}(): expected a tag of type int, got {type(tag).__name__}")
    if not 0 <= tag <= _HIGHEST_TAG:
        raise ValueError(f"{name}(): expected a tag from 0 to {_HIGHEST_TAG}, got {tag}")
    route = Route(members, kind, given)
    staged = route.packed(given)
    sends = kind == _engine.SEND
    others = [r for i, r in enumerate(members._ranks) if i != members.rank()]
    started = route.move(
        later, staged, peer=peer, tag=tag, **({"input": staged} if sends else {"output": staged}),
        after=None if sends else back(given, staged),
        senders=others if peer == _engine.ANY else None,
    )  # fmt: skip
    return Work([started], tensor)


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Starts to send a tensor to process dst."""
    if _outside(group):
        return None
    return _message(_engine.SEND, tensor, dst, group, tag, group_dst, True)


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Starts to receive a tensor of process src, or of any that sends one."""
    if _outside(group):
        return None
    return _message(_engine.RECV, tensor, src, group, tag, group_src, True)


def send(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Sends a tensor to process dst."""
    if not _outside(group):
        _message(_engine.SEND, tensor, dst, group, tag, group_dst, False).wait()


def recv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0,
    group_src: int | None = None,
) -> int:  # fmt: skip
    """Receives a tensor of process src, or of any that sends one; returns whose it was."""
    if _outside(group):
        return -1
    work = _message(_engine.RECV, tensor, src, group, tag, group_src, False)
    return _group(group)._ranks[work._source_rank()]


class P2POp:
    """A message of batch_isend_irecv: op is isend or irecv, which takes one of any process where
    no peer is given."""

    def __init__(
        self, op: Any, tensor: Tensor, peer: int | None = None, group: Any = None, tag: int = 0,
        group_peer: int | None = None,
    ) -> None:  # fmt: skip
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be isend or irecv")
        _checked("P2POp", tensor)
        if not _outside(group) and not (op is irecv and peer is None and group_peer is None):
            place = _peer(_group(group), peer, group_peer, "P2POp")
            peer = _group(group)._ranks[place]
        self.op, self.tensor, self.peer = op, tensor, peer
        self.group, self.tag, self.group_peer = group, tag, group_peer


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Starts all of the messages."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to be a P2POp")
    works = [(p.op(p.tensor, p.peer, p.group, p.tag)) for p in p2p_op_list]
    return [w for w in works if w is not None]


def monitored_barrier(
    group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier whose error on rank 0 names the processes that have not come."""
    if _outside(group):
        return
    members = _group(group)
    if members._world is None:
        return
    seconds = members._seconds if timeout is None else _seconds(timeout)
    token = tenon.zeros(1, device="cpu")
    if members.rank() != 0:
        _message(_engine.SEND, token, None, group, _HIGHEST_TAG, 0, True).wait()
        _message(_engine.RECV, token, None, group, _HIGHEST_TAG, 0, True).wait()
        return
    waiting = {
        rank: _message(
            _engine.RECV, tenon.zeros(1, device="cpu"), None, group, _HIGHEST_TAG, rank, True
        )
        for rank in range(1, members.size())
    }
    missing = []
    for rank, work in waiting.items():
        try:
            work.wait(timedelta(seconds=0.001 if missing and not wait_all_ranks else seconds))
        except TimeoutError:
            missing.append(rank)
    if missing:
        listed = ", ".join(map(str, missing))
        raise RuntimeError(
            f"[Rank 0]: Ranks {listed} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms"
        )
    for rank in waiting:
        _message(_engine.SEND, token, None, group, _HIGHEST_TAG, rank, True).wait()
