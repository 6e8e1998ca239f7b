"""A unit of sharded parameters: gathered before they are used, let go of after, and the sums of
their gradients cut among the ranks.

Note [What backward keeps]: a layer saves its weights for backward. While a unit that is let go of
after forward runs, saved tensors that lie in gathered memory are replaced by their place in it, and
backward gathers the unit again when it asks for the first of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tenon
from tenon import _C, Tensor, distributed
from tenon.autograd import Function
from tenon.autograd.graph import saved_tensors_hooks
from tenon.distributed._collectives import Work
from tenon.distributed.fsdp import _ahead, _sums
from tenon.distributed.tensor.placement_types import Shard
from tenon.nn.modules.module import Module

__all__: list[str] = []


@dataclass
class Piece:
    """A tensor that is cut along a dimension; `part` gives that of this rank. Rows of parts are
    exchanged, which are those of the dimension that is cut."""

    shape: tuple[int, ...]
    part: Callable[[], Tensor]
    dtype: tenon.dtype
    trainable: bool
    dim: int = 0

    def rows_of(self, t: Tensor) -> Tensor:
        """The numbers of the whole or of a part, row by row."""
        return t.movedim(self.dim, 0).reshape(-1)

    def of_rows(self, numbers: Tensor, rows: int) -> Tensor:
        """The whole or a part, of its numbers row by row."""
        others = [n for d, n in enumerate(self.shape) if d != self.dim]
        found = numbers.reshape(-1, *others)[:rows] if rows else numbers.view(0, *others)
        return found.movedim(0, self.dim).contiguous() if self.dim else found


@dataclass
class Precision:
    """Dtypes of gathered parameters and of reductions; None: the parameters' own."""

    param: tenon.dtype | None = None
    reduce: tenon.dtype | None = None
    keeps_low: bool = False


@dataclass
class Groups:
    """Ranks that share a cut, and ranks that have the same part. None: this one alone."""

    cut: Any
    same: Any = None

    @property
    def parts(self) -> int:
        return 1 if self.cut is None else distributed.get_world_size(self.cut)

    @property
    def rank(self) -> int:
        return 0 if self.cut is None else distributed.get_rank(self.cut)

    @property
    def copies(self) -> int:
        return 1 if self.same is None else distributed.get_world_size(self.same)


def own_rows(whole: Tensor, groups: Groups, dim: int = 0) -> Tensor:
    """This rank's part of a tensor, as memory of its own."""
    size, start = Shard.local_shard_size_and_offset(whole.shape[dim], groups.parts, groups.rank)
    return whole.narrow(dim, start, size).clone(memory_format=tenon.contiguous_format)


@dataclass
class _Table:
    """Pieces of one dtype, whose parts all ranks exchange at once."""

    numbers: list[int]
    sizes: list[int]  # of what each rank gives
    everyone: Tensor
    work: Work | None


class _Gathering:
    """Pieces that are on their way to this rank."""

    def __init__(self, unit: Unit, tables: list[_Table]) -> None:
        self.unit, self.tables = unit, tables
        self.there: dict[int, Tensor] | None = None

    def wholes(self) -> dict[int, Tensor]:
        """The pieces by number, when all have come."""
        if self.there is None:
            self.there = {}
            for table in self.tables:
                if table.work is not None:
                    table.work.wait()
                parts, start = table.everyone.view(self.unit.groups.parts, -1), 0
                for i, size in zip(table.numbers, table.sizes, strict=True):
                    piece = self.unit.pieces[i]
                    rows = parts[:, start : start + size]
                    self.there[i] = piece.of_rows(rows, piece.shape[piece.dim])
                    start += size
            self.tables.clear()
        return self.there


@dataclass
class Unit:
    """Parameters that are gathered together."""

    pieces: list[Piece]
    groups: Groups
    precision: Precision = field(default_factory=Precision)
    device: Any = None  # where gathered tensors lie; None: where the parts do
    syncs: bool = True
    reduces_copies: bool = True
    divisor: float | None = None
    # In forward, in backward: whether the unit that came next the last time is gathered ahead, and
    # those that are in any case.
    ahead: tuple[bool, bool] = (True, True)
    asked: tuple[list[Unit], list[Unit]] = field(default_factory=lambda: ([], []))

    def __post_init__(self) -> None:
        self._pending: dict[int, Tensor] = {}  # gradients that were not exchanged yet
        # Sums that ranks with the same part have not added up yet, by the pieces they are of.
        self.partial: dict[tuple[int, ...], Tensor] = {}
        self._again: dict[int, Tensor] = {}  # what backward has gathered
        self._live: dict[int, tuple[int, int]] = {}  # piece -> (address, bytes) of this forward
        self._coming: _Gathering | None = None  # all pieces, begun ahead
        self.shown = False  # modules have the whole of it
        self.lent = False  # they have it of backward, which records nothing for the parts
        self.follows: list[Unit | None] = [None, None]  # what came next, in forward, in backward

    def rows(self, number: int) -> tuple[int, int, int]:
        """Of a piece: rows of any full part, rows of this rank's, elements of a row."""
        piece = self.pieces[number]
        size = piece.shape[piece.dim]
        full = -(-size // self.groups.parts)
        mine, _ = Shard.local_shard_size_and_offset(size, self.groups.parts, self.groups.rank)
        return full, mine, math.prod(n for d, n in enumerate(piece.shape) if d != piece.dim)

    # ---- Exchange ----

    def _begun(self, numbers: Sequence[int], parts: Sequence[Tensor], waits: bool) -> _Gathering:
        """An exchange for each dtype, of which nobody waits for the end, or this call."""
        kinds: dict[Any, list[int]] = {}
        for at, i in enumerate(numbers):
            kinds.setdefault(self.precision.param or self.pieces[i].dtype, []).append(at)
        tables = []
        for dtype, places in kinds.items():
            sizes = []
            for at in places:
                full, _, row = self.rows(numbers[at])
                sizes.append(full * row)
            device = self.device or parts[places[0]].device
            flat = tenon.zeros(sum(sizes), dtype=dtype, device=device)
            for at, room in zip(places, flat.split(sizes), strict=True):
                room[: parts[at].numel()].copy_(self.pieces[numbers[at]].rows_of(parts[at]))
            everyone, work = flat, None
            if self.groups.parts > 1:
                everyone = flat.new_empty(self.groups.parts * flat.numel())
                work = distributed.all_gather_into_tensor(
                    everyone, flat, self.groups.cut, async_op=not waits
                )
            tables.append(_Table([numbers[at] for at in places], sizes, everyone, work))
        return _Gathering(self, tables)

    def _gathered(self, numbers: Sequence[int], parts: Sequence[Tensor]) -> list[Tensor]:
        """The whole of some pieces: those that were begun ahead, or an exchange."""
        if self._coming is None:
            there = self._begun(numbers, parts, waits=True).wholes()
            return [there[i] for i in numbers]
        there = self._coming.wholes()
        found = [there.pop(i) for i in numbers]
        if not there:
            self._coming = None
        return found

    def begin(self) -> bool:
        """Gathers all pieces for their next use, while this process does something else; False:
        they are on their way, or here."""
        if self.shown or self._coming is not None or self._again or self.groups.parts == 1:
            return False
        with tenon.no_grad():
            parts = [p.part().detach() for p in self.pieces]
            self._coming = self._begun(range(len(self.pieces)), parts, waits=False)
        return True

    def give_up(self) -> None:
        """Forgets what was begun."""
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.wholes()

    def gather(self, numbers: Sequence[int]) -> list[Tensor]:
        """The whole of some pieces; nothing is recorded for backward."""
        with tenon.no_grad():
            return self._gathered(numbers, [self.pieces[i].part().detach() for i in numbers])

    # ---- Forward and backward ----

    def outlived(self) -> bool:
        """Whether modules still have the whole of a backward pass that is over."""
        return self.lent and not _C._current_pass()[0]

    def unshard(self) -> list[Tensor]:
        """The whole of all pieces, through which gradients come back to the parts."""
        _ahead.current()
        taped = [i for i, p in enumerate(self.pieces) if p.trainable] * tenon.is_grad_enabled()
        rest = [i for i in range(len(self.pieces)) if i not in taped]
        whole: dict[int, Tensor] = {}
        if rest:
            whole.update(zip(rest, self.gather(rest), strict=True))
        if taped:
            results = _Unshard.apply(self, taped, *(self.pieces[i].part() for i in taped))
            whole.update(zip(taped, results, strict=True))
        _ahead.gathered(self)
        return [whole[i] for i in range(len(self.pieces))]

    def receive(self, numbers: Sequence[int], grads: Sequence[Tensor | None]) -> list[Any]:
        """What backward has for the whole pieces, as gradients of the parts."""
        self._again.clear()
        whole = []
        for i, g in zip(numbers, grads, strict=True):
            piece = self.pieces[i]
            if g is None:
                dtype = self.precision.param or piece.dtype
                g = tenon.zeros(piece.shape, dtype=dtype, device=self.device)
            if i in self._pending:
                g = g + self._pending.pop(i)
            whole.append(g)
        if not self.syncs:
            self._pending.update(zip(numbers, whole, strict=True))
            return [None] * len(numbers)
        return _sums.parts_of(self, numbers, whole)

    @contextmanager
    def keeping_places(self, wholes: Sequence[Tensor]) -> Iterator[None]:
        """See Note [What backward keeps]."""
        for i, t in enumerate(wholes):
            self._live[i] = (t.data_ptr(), t.numel() * t.element_size())
        _inside.append(self)
        try:
            with saved_tensors_hooks(_pack, _unpack):
                yield
        finally:
            _inside.remove(self)
            self._live.clear()

    def place(self, t: Tensor) -> _Place | None:
        """Where a tensor lies in what was gathered."""
        at = t.data_ptr()
        for i, (start, size) in self._live.items():
            if start <= at < start + size:
                offset = (at - start) // t.element_size()
                return _Place(self, i, offset, tuple(t.shape), tuple(t.stride()), t.dtype)
        return None

    def again(self, number: int) -> Tensor:
        """The whole of a piece, in backward."""
        if number not in self._again:
            _ahead.current()
            numbers = list(range(len(self.pieces)))
            self._again.update(zip(numbers, self.gather(numbers), strict=True))
            _ahead.gathered(self)
        return self._again[number]

    def forget_gradients(self) -> None:
        """Drops what waits for a later pass."""
        self._pending.clear()
        self.partial.clear()

    def let_go(self) -> None:
        """Forgets what backward has gathered."""
        self._again.clear()


@dataclass
class _Place:
    unit: Unit
    piece: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: tenon.dtype


_inside: list[Unit] = []


def _pack(t: Tensor) -> Any:
    for unit in _inside:
        found = unit.place(t)
        if found is not None and found.dtype == t.dtype:
            return found
    return t


def _unpack(saved: Any) -> Tensor:
    if not isinstance(saved, _Place):
        return saved
    whole = saved.unit.again(saved.piece)
    return whole.as_strided(saved.shape, saved.stride, whole.storage_offset() + saved.offset)


class _Unshard(Function):
    @staticmethod
    def forward(ctx: Any, unit: Unit, numbers: list[int], *parts: Tensor) -> Any:
        ctx.unit, ctx.numbers = unit, numbers
        return tuple(unit._gathered(numbers, parts))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, *ctx.unit.receive(ctx.numbers, grads)


# ---- Places of parameters in modules -------------------------------------------------------------


@dataclass
class Owned:
    """A parameter of a unit, and the names that modules have for it."""

    name: str
    param: Any
    places: list[tuple[Module, str]]


def owned_parameters(
    modules: Sequence[Module], taken: Callable[[Module], bool], ignored: set[int]
) -> list[Owned]:
    """The parameters of modules that no unit inside them has."""
    found: dict[int, Owned] = {}

    def visit(module: Module, prefix: str) -> None:
        for name, param in module._parameters.items():
            if param is not None and id(param) not in ignored:
                own = found.setdefault(id(param), Owned(prefix + name, param, []))
                if (module, name) not in own.places:
                    own.places.append((module, name))
        for name, child in module._modules.items():
            if child is not None and not taken(child):
                visit(child, f"{prefix}{name}.")

    for module in modules:
        visit(module, "")
    return list(found.values())


def place(owned: Sequence[Owned], tensors: Sequence[Any]) -> None:
    """Puts tensors where modules look for their parameters."""
    for own, tensor in zip(owned, tensors, strict=True):
        for module, name in own.places:
            module.__dict__.pop(name, None)  # what take_away has left
            module._parameters[name] = tensor


def take_away(owned: Sequence[Owned], shapes: Sequence[tuple[int, ...]]) -> None:
    """Modules lose parameters, but not the attributes, by which they are printed and asked for
    their shapes: those have no data."""
    for own, shape in zip(owned, shapes, strict=True):
        empty = tenon.empty(shape, dtype=own.param.dtype, device="meta")
        for module, name in own.places:
            module._parameters.pop(name, None)
            module.__dict__[name] = empty


def cast(value: Any, dtype: tenon.dtype | None) -> Any:
    """Floating-point tensors in nested arguments as another dtype."""
    if dtype is None:
        return value
    if isinstance(value, Tensor):
        return value.to(dtype) if value.dtype.is_floating_point else value
    if isinstance(value, dict):
        return type(value)((k, cast(v, dtype)) for k, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(cast(v, dtype) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(cast(v, dtype) for v in value)
    return value
