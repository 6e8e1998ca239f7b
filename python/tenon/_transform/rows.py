"""Several gradients of the same results: the rows of a Jacobian.

One backward pass computes many rows at once. It is given a `Row` for a gradient: a tensor of that
gradient's sizes without memory, behind which all rows stand. What the pass computes with it comes
to `_Pass.compute`, which runs the operator on all rows by vmap's rules. Where one has no rule, or
somebody looks at numbers, the rows are computed one after the other, as those of a few always are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import tenon
from tenon import _C
from tenon._program import foreign
from tenon._tape import call_modes
from tenon._transform import vmap, vmap_calls, vmap_rules

_MANY = 64  # rows from which on one pass for all takes less time than a pass for each
_ROOM = 1 << 20  # elements that the gradients of one pass for all begin with, so that caches help


class _NoRuleError(RuntimeError):
    """An operator of the pass has no rule for all rows."""


class Row(tenon.Tensor):
    """A gradient as one row has it, all rows behind it."""

    __torch_function__ = _C._disabled_torch_function_impl
    _rows: vmap.Batched
    _pass: _Pass

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _NoRuleError(f"{func} is called with a gradient that has no memory")

    @staticmethod
    def _compute_rows(name: str, inplace: bool, fields: list[Any]) -> Any:
        """An operator of the table with rows among its arguments."""
        values = vmap.flat([f[3] for f in fields])
        return next(v for v in values if type(v) is Row)._pass.compute(name, inplace, fields)

    def __repr__(self) -> str:
        return f"Row({self._rows!r})"


class _Pass:
    """A backward pass for `size` rows, which itself is recorded or not."""

    def __init__(self, size: int, recorded: bool) -> None:
        self.level = vmap.new_level(size, "error")
        self.recorded = recorded

    def row(self, rows: vmap.Batched) -> Row:
        made: Row = _C._make_wrapped(Row, rows.shape, None, rows.dtype, rows.device, False)
        made._rows, made._pass = rows, self
        return made

    def compute(self, name: str, inplace: bool, fields: list[Any]) -> Any:
        entry = vmap_calls.table().by_c_name.get(name)
        if entry is None or inplace:
            raise _NoRuleError(name)
        values = [vmap.mapped(_behind, f[3]) for f in fields]
        values = [_as_tensor(v, a["type"]) for v, a in zip(values, entry.args, strict=True)]
        args = tuple(v for v, f in zip(values, fields) if not f[1])
        kwargs = {f[0]: v for v, f in zip(values, fields) if f[1]}
        call = vmap.call_of(entry.py_name, _C._op(name), args, kwargs, self.level)
        with tenon.set_grad_enabled(self.recorded):
            out = vmap_rules.by_entry(call, entry)
        if out is NotImplemented:
            raise _NoRuleError(name)
        return vmap.mapped(self._in_front, out)

    def _in_front(self, value: Any) -> Any:
        return self.row(value) if type(value) is vmap.Batched else value


def _behind(value: Any) -> Any:
    return value._rows if type(value) is Row else value


_NUMBERS = {bool: tenon.bool, int: tenon.int64, float: tenon.float64, complex: tenon.complex128}


def _as_tensor(value: Any, type_: str) -> Any:
    """A formula's number in a tensor's place; as a tensor of no dimension it changes no dtype."""
    dtype = _NUMBERS.get(type(value)) if type_ == "Tensor" else None
    return value if dtype is None else tenon.tensor(value, dtype=dtype, device="cpu")


def _all_at_once(
    roots: Sequence[Any], wanted: Sequence[Any], seeds: Sequence[Any], create_graph: bool,
    unused: bool, size: int,
) -> list[Any]:  # fmt: skip
    one = _Pass(size, create_graph)
    with vmap.entered(one.level):
        rows = tuple(
            None if s is None else one.row(vmap.batched(s, one.level.number)) for s in seeds
        )
        found = _C._grad(tuple(roots), tuple(wanted), rows, True, create_graph, unused)
    return [_stacked(g, size) for g in found]


def _stacked(g: Any, size: int) -> Any:
    if g is None:
        return None
    return g._rows._batch if type(g) is Row else g.expand(size, *g.shape)


def _one_by_one(
    roots: Sequence[Any], wanted: Sequence[Any], seeds: Sequence[Any], retain: bool,
    create_graph: bool, unused: bool, size: int,
) -> list[Any]:  # fmt: skip
    if not size:
        return [w.new_zeros((0, *w.shape)) for w in wanted]
    columns: list[list[Any]] = [[] for _ in wanted]
    for i in range(size):
        row = [None if s is None else s[i] for s in seeds]
        keep = retain or i + 1 < size
        found = tenon.autograd.grad(roots, wanted, row, keep, create_graph, allow_unused=unused)
        for column, g in zip(columns, found, strict=True):
            column.append(g)
    return [None if c[0] is None else tenon.stack(c) for c in columns]


def _goes_at_once(tensors: Sequence[Any]) -> bool:
    """Nobody has to see every row's own calls, and they are of the library's own kind."""
    seen = call_modes.dispatch() or call_modes.entered[0] or tenon.autograd.forward_level()
    traced = _C._program_is_recording() or foreign.is_open()
    plain = (tenon.Tensor, tenon.nn.Parameter)
    return not (seen or traced) and all(
        type(t) in plain and t.layout == tenon.strided for t in tensors
    )


def gradients(
    roots: Sequence[Any], wanted: Sequence[Any], seeds: Sequence[Any], retain: bool,
    create_graph: bool, unused: bool,
) -> list[Any]:  # fmt: skip
    """Gradients of roots for each entry along dimension 0 of the seeds, stacked likewise. None:
    the roots do not depend on that tensor, which is an error unless `unused` tensors may be."""
    given = [s for s in seeds if s is not None]
    size, options = len(given[0]), (create_graph, unused)
    if size >= _MANY and _goes_at_once((*roots, *wanted, *given)):
        if not retain:  # a pass that frees the graph could not be tried
            most, last = ([None if s is None else s[part] for s in seeds]
                          for part in (slice(-1), slice(-1, None)))  # fmt: skip
            return _joined([
                gradients(roots, wanted, most, True, *options),
                gradients(roots, wanted, last, False, *options),
            ])  # fmt: skip
        try:
            return _all_at_once(roots, wanted, seeds, *options, size)
        except Exception:  # noqa: BLE001, S110 - what is wrong, the rows will tell
            pass
    return _one_by_one(roots, wanted, seeds, retain, *options, size)


def _joined(parts: list[list[Any]]) -> list[Any]:
    if len(parts) == 1:
        return parts[0]
    return [None if c[0] is None else tenon.cat(c) for c in zip(*parts, strict=True)]


def _units(like: Any, shape: Sequence[int], start: int, count: int) -> Any:
    """Zeros of that shape with one 1, for count elements; the same for all that `like` has more."""
    made = tenon.zeros((count, math.prod(shape)), dtype=like.dtype, device=like.device)
    made.diagonal(start).fill_(1)
    more = [1] * (like.dim() - len(shape))
    return made.view(count, *more, *shape).expand(count, *like.shape)


def _parts(total: int, width: int, chunk_size: int | None) -> Iterator[tuple[int, int]]:
    step = chunk_size or max(1, _ROOM // max(width, 1))
    for start in range(0, total, step):
        yield start, min(step, total - start)


def of_elements(
    root: Any, shape: Sequence[int], wanted: Sequence[Any], create_graph: bool,
    chunk_size: int | None = None,
) -> list[Any]:  # fmt: skip
    """The gradients of each element of `root`, stacked: (elements, *those of a wanted tensor).
    `shape`: root's, or its last sizes, where all in front of them are computed at once. None: root
    does not depend on that tensor."""
    total = math.prod(shape)
    if not total or not root.requires_grad:
        return [None] * len(wanted)
    return _joined([
        gradients([root], wanted, [_units(root, shape, start, count)], True, create_graph, True)
        for start, count in _parts(total, root.numel(), chunk_size)
    ])  # fmt: skip
