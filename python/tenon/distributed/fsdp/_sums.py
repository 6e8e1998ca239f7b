"""Sums of the gradients of a unit, cut among the ranks. They go on while backward computes what
comes before: the next unit's gradients wait for them, so that there are those of one unit at a
time, and so does the end of the pass.

A pass that fails forgets what it has begun: the queue of its end alone holds it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tenon
from tenon import _C, Tensor, distributed
from tenon.autograd import Variable, backward
from tenon.distributed._collectives import ReduceOp, Work

if TYPE_CHECKING:
    from tenon.distributed.fsdp._unit import Unit

__all__: list[str] = []


@dataclass
class _Table:
    """Gradients of one dtype, whose sums all ranks exchange at once."""

    places: list[int]
    whole: Tensor  # a row for each rank
    mine: Tensor
    work: Work | None


class _Sums:
    """Averages of some pieces' gradients that are on their way."""

    def __init__(self, unit: Unit, numbers: Sequence[int], grads: Sequence[Tensor]) -> None:
        self.unit, self.numbers = unit, list(numbers)
        self.dtypes = [g.dtype for g in grads]
        kinds: dict[Any, list[int]] = {}
        for at, g in enumerate(grads):
            kinds.setdefault(unit.precision.reduce or g.dtype, []).append(at)
        self.tables = [self._begun(dtype, places, grads) for dtype, places in kinds.items()]

    def _layout(self, places: list[int]) -> list[tuple[int, int, int]]:
        return [self.unit.rows(self.numbers[at]) for at in places]

    def _begun(self, dtype: Any, places: list[int], grads: Sequence[Tensor]) -> _Table:
        groups, layout = self.unit.groups, self._layout(places)
        sizes = [full * row for full, _, row in layout]
        whole = grads[places[0]].new_zeros((groups.parts, sum(sizes)), dtype=dtype)
        start = 0
        for at, size, (full, _, row) in zip(places, sizes, layout, strict=True):
            numbers = self.unit.pieces[self.numbers[at]].rows_of(grads[at]).to(dtype)
            for rank in range(groups.parts):
                piece = numbers[rank * full * row : (rank + 1) * full * row]
                whole[rank, start : start + piece.numel()].copy_(piece)
            start += size
        if groups.parts == 1:
            return _Table(places, whole, whole[0], None)
        mine = whole.new_empty(whole.shape[1])
        work = distributed.reduce_scatter_tensor(
            mine, whole.view(-1), ReduceOp.SUM, groups.cut, async_op=True
        )
        return _Table(places, whole, mine, work)

    def parts(self) -> list[Tensor | None]:
        """This rank's, when they have come; None: they wait for a later pass."""
        unit = self.unit
        result: list[Tensor | None] = [None] * len(self.numbers)
        for table in self.tables:
            if table.work is not None:
                table.work.wait()
            if unit.groups.copies > 1:
                key = tuple(self.numbers[at] for at in table.places)
                before = unit.partial.pop(key, None)
                if before is not None:
                    table.mine.add_(before)
                if not unit.reduces_copies:
                    unit.partial[key] = table.mine
                    continue
                distributed.all_reduce(table.mine, ReduceOp.SUM, unit.groups.same)
            mine = table.mine.div_(unit.divisor or unit.groups.parts * unit.groups.copies)
            start, layout = 0, self._layout(table.places)
            for at, (full, rows, row) in zip(table.places, layout, strict=True):
                piece = unit.pieces[self.numbers[at]]
                part = piece.of_rows(mine[start : start + rows * row], rows)
                kept = self.dtypes[at] if unit.precision.keeps_low else piece.dtype
                result[at] = part.to(dtype=kept, device=piece.part().device).clone()
                start += full * row
        self.tables.clear()
        return result

    def hand_over(self) -> None:
        """Gives them to the parameters, unless that was done."""
        if not self.tables:
            return
        with tenon.no_grad():
            found = self.parts()
        with tenon.enable_grad():
            parts = [self.unit.pieces[i].part() for i in self.numbers]
        taken = [
            (p, g) for p, g in zip(parts, found, strict=True) if g is not None and p.requires_grad
        ]
        if taken:
            backward(*map(list, zip(*taken, strict=True)))


_last: weakref.ref[_Sums] | None = None


def _wait_for_last() -> None:
    sums = _last() if _last is not None else None
    if sums is not None:
        sums.hand_over()


def parts_of(unit: Unit, numbers: Sequence[int], grads: Sequence[Tensor]) -> list[Any]:
    """This rank's parts of the averages of gradients, or None for each: they are on their way to
    the parameters. A pass that computes gradients of given tensors alone gets them at once."""
    global _last
    _wait_for_last()
    with tenon.no_grad():
        sums = _Sums(unit, numbers, grads)
        for_given_tensors = _C._current_pass()[1]
        if for_given_tensors or all(table.work is None for table in sums.tables):
            return sums.parts()
    Variable._execution_engine.queue_callback(sums.hand_over)
    _last = weakref.ref(sums)
    return [None] * len(numbers)
