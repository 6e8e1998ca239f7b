"""Compiled functions with a backend: graphs that stand for calls as long as guards hold.

The first call is recorded while it runs as Python. Later calls for which all guards hold walk the
recording's graphs (parts.py); where a value that was looked at is another one, the call runs as
Python once more and its new part is added. Sizes that differ from call to call become free.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tenon
from tenon import _C, _program
from tenon._program import foreign, guards, parts, quick, told, watched
from tenon._program.errors import Unsupported
from tenon._program.guards import Unfit
from tenon._program.parts import Recorded
from tenon._program.traced import (
    Layout,
    all_resized,
    input_names,
    resized,
    unchanged,
    weights_of,
)
from tenon._program.watch import Watch

_most = 8  # graphs of one function; beyond that it runs as Python
_MISSED = 16  # calls that take the long way though a short one stands for them
_REFUSED = 4  # calls whose arguments cannot be taken apart, or that no short way serves
_ANY = (1 << 62) - 1
_busy = threading.local()  # .on: a call is being recorded


@contextmanager
def without_limit() -> Iterator[None]:
    """Inside it a function may have as many graphs as it takes."""
    global _most
    before, _most = _most, sys.maxsize
    try:
        yield
    finally:
        _most = before


@dataclass
class Entry:
    """Graphs of a call, and when they stand for another one."""

    static: Any
    shapes: list[list[Any]]  # a text: a free size
    own: Any
    names: list[tuple[dict[str, Any], str, Any]]
    globals: Any  # what the names stood for
    program: Any
    weights: dict[int, Any]
    ids: list[int]
    steps: Any
    acts: bool
    sized: bool
    held: dict[int, int]  # memory of a weight, or of another tensor that guards compare: which
    inside: list[int]  # what `shared` said of the first call
    outputs: Layout
    way: Any = None  # the short one (python/src/quick.c)
    missed: int = 0  # calls that it did not serve

    def holds(self, static: Any, shapes: Sequence[Any], own: Any, places: Sequence[int]) -> bool:
        return (
            self.static == static
            and self._fits(shapes)
            and self.own == own
            and self.inside == self.shared(places)
            and guards.of_names(self.names) == self.globals
        )

    def _fits(self, shapes: Sequence[Any]) -> bool:
        sizes: dict[str, int] = {}
        for wanted, shape in zip(self.shapes, shapes, strict=True):
            for w, s in zip(wanted, shape, strict=True):
                same = sizes.setdefault(w, s) == s and s >= 2 if isinstance(w, str) else w == s
                if not same:
                    return False
        return True

    def shared(self, places: Sequence[int]) -> list[int]:
        """For each input the tensor of these in whose memory it lies, or -1."""
        return [self.held.get(p, -1) if p else -1 for p in places]


@dataclass
class Report:
    """What a compiled function has done so far."""

    graphs: list[Any] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    op_count: int = 0
    programs: list[Any] = field(default_factory=list)

    def broke(self, reason: str) -> None:
        if reason not in self.breaks:
            self.breaks.append(reason)


@dataclass
class Call:
    """One call, taken apart."""

    args: Any
    kwargs: Any
    tensors: list[Any]
    static: Any
    shapes: list[list[Any]]
    own: Any
    places: list[int]
    layout: Layout


class Compiled:
    """Calls of one function by graphs that a backend has seen; without a backend, by programs that
    the short way serves, or as Python."""

    def __init__(
        self,
        fn: Callable[..., Any],
        backend: Callable[..., Any] | None,
        fullgraph: bool,
        options: Any,
        dynamic: bool | None = None,
    ) -> None:
        self.fn, self.backend, self.fullgraph, self.options = fn, backend, fullgraph, options
        self.dynamic = dynamic
        self.entries: list[Entry] = []
        self.ways: list[Any] = []
        self.report = Report()
        self.given_up, self.refused = False, 0

    def reset(self) -> None:
        self.entries.clear()
        self.ways.clear()
        self.report = Report()
        self.given_up, self.refused = False, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.given_up or getattr(_busy, "on", False) or _C._program_is_recording():
            return self.fn(*args, **kwargs)
        if self.backend is None and _C._quick_seen():
            return self.fn(*args, **kwargs)
        try:
            call = self._take_apart(args, kwargs)
        except MemoryError:
            raise
        except RuntimeError as err:
            self.refused += 1
            self.given_up = self.backend is None and self.refused >= _REFUSED
            return self._as_python(str(err), args, kwargs)
        for entry in self.entries:
            if self._holds(entry, call):
                return self._replay(entry, call)
        return self._first(call)

    @staticmethod
    def _holds(entry: Entry, call: Call) -> bool:
        try:
            return entry.holds(call.static, call.shapes, call.own, call.places)
        except Unfit:  # a name stands for something that cannot be seen through
            return False

    def _take_apart(self, args: Any, kwargs: Any) -> Call:
        layout, found = Layout.of((args, kwargs), "arguments")
        tensors: list[Any] = []
        at: dict[int, int] = {}
        for t in found:
            if at.setdefault(id(t), len(tensors)) == len(tensors):
                tensors.append(t)
        places = [guards.memory(t) for t in tensors]
        static = (
            layout.spec, [guards.token(v) for v in layout.fixed], layout.tensors,
            [at[id(t)] for t in found], guards.sharing(places),
            [guards.of_tensor(t) for t in tensors], guards.of_modes(tensors),
        )  # fmt: skip
        shapes = [list(t.shape) for t in tensors]
        own = guards.of_function(self.fn)
        return Call(args, kwargs, tensors, static, shapes, own, places, layout)

    def _as_python(self, reason: str, args: Any, kwargs: Any) -> Any:
        self._refuse(reason)
        return self.fn(*args, **kwargs)

    def _refuse(self, reason: str) -> None:
        if self.fullgraph:
            raise Unsupported(f"fullgraph=True, and the function is no graph: {reason}")
        if reason not in self.report.breaks:
            told.tell("graph_breaks", lambda: f"{self._name()} is no graph: {reason}")
        self.report.broke(reason)

    def _name(self) -> str:
        return str(getattr(self.fn, "__qualname__", type(self.fn).__name__))

    # ---- Later calls -----------------------------------------------------------------------------

    def _replay(self, entry: Entry, call: Call) -> Any:
        if self.backend is None:
            self._renew(entry, call)
        values = dict(zip(entry.ids, call.tensors, strict=True))
        try:
            result = parts.walk(entry.steps, values, entry.weights)
        except Unfit as err:
            self.given_up = True
            return self._as_python(str(err), call.args, call.kwargs)
        except Exception:
            if entry.acts:
                raise
            # Fails in the user's lines, or takes sizes at which operators give others than follow.
            return self.fn(*call.args, **call.kwargs)
        if not isinstance(result, parts.Look):
            return result
        return self._first(call, entry)

    # ---- Recording -------------------------------------------------------------------------------

    def _first(self, call: Call, entry: Entry | None = None) -> Any:
        stance = tenon.compiler._stance()
        if stance == "eager_on_recompile":
            return self.fn(*call.args, **call.kwargs)
        if stance == "fail_on_recompile":
            raise RuntimeError(
                "Detected recompile when torch.compile stance is 'fail_on_recompile': "
                f"{self._name()} has no graph for this call"
            )
        if len(self.report.graphs) >= _most:
            self.given_up = True
            return self.fn(*call.args, **call.kwargs)
        if self.entries and entry is None:
            told.tell("recompiles", lambda: f"{self._name()}: no graph of it is for this call")
        rec, reason, watch, result = self._record(call.args, call.kwargs, call.tensors)
        if reason is not None or rec is None:
            return self._give_up(str(reason), result)
        try:
            return self._keep(call, rec, watch, entry)
        except Unfit as err:
            return self._give_up(str(err), result)

    def _give_up(self, reason: str, result: Any) -> Any:
        self.given_up = True
        self._refuse(reason)
        return result

    def _record(
        self, args: Any, kwargs: Any, tensors: Sequence[Any]
    ) -> tuple[Recorded | None, str | None, Watch, Any]:
        """Calls the function; its recording or why there is none, and what it returned."""
        kept: list[Any] = []
        watch = Watch((self.fn, args, kwargs))
        program = _C._program_begin()
        watch.stop = lambda: _C._program_cancel(program)
        watch.count = lambda: _C._program_position(program)
        calls = foreign.Calls(program, watch)
        try:
            names = input_names(self.fn, args, kwargs)
            if len(names) != len(tensors):
                names = [f"x{i}" for i in range(len(tensors))]
            for name, t in zip(names, tensors, strict=True):
                _C._program_input(program, t, name)
            known = {id(t) for t in tensors}
            for name, kind, t in weights_of(getattr(self.fn, "__self__", self.fn)):
                if id(t) not in known:
                    _C._program_weight(program, t, name, kind)
            _C._program_tolerate(program)
            _busy.on, foreign.state.calls = True, calls
            with watched.noted() as events, watch:
                kept.append(self.fn(*args, **kwargs))
            kept[0] = watched.plain(kept[0])
            watch.sized = watch.sized or any(not e.inside for e in events)
            foreign.state.calls = None
            watch.check()
            if watch.reason is not None:
                return None, watch.reason, watch, kept[0]
            layout, flat = Layout.of(kept[0], "results")
            looks = _C._program_looks(program)
            _C._program_end(program, tuple(flat))
        except MemoryError:
            raise
        except (RuntimeError, NotImplementedError) as err:
            if not kept:
                raise
            return None, watch.reason or calls.reason or str(err), watch, kept[0]
        finally:
            _busy.on, foreign.state.calls = False, None
            _C._program_cancel(program)
        reason = watch.reason or calls.reason
        rec = Recorded(_program.Program(program), looks, calls.made, layout, kept[0])
        return rec, reason, watch, kept[0]

    def _keep(self, call: Call, rec: Recorded, watch: Watch, entry: Entry | None) -> Any:
        sizes = rec.sizes()
        cuts = [lk[2] or "an unknown place" for lk in rec.looks] + [s.where for _, s in sizes]
        cuts += [c.where for c in rec.calls if c.fn is None]
        for where in cuts:
            self._refuse(f"the graph ends at {where}")
        ends = [lk[0] for lk in rec.looks] + [at for at, _ in sizes]
        why = rec.acts_before(max(ends)) if ends else None
        if why is not None:
            raise Unfit(f"a value was looked at after {why}: {cuts[0]}")
        if self.backend is None and (cuts or rec.calls):
            raise Unfit(f"the graph ends at {cuts[0] if cuts else rec.calls[0].where}")
        around = [call.own, guards.of_names(watch.values())]
        rec.check_outputs({id(t) for t in guards.tensors_in(around)})
        if {guards.memory(t) for t in guards.tensors_in(around)} & (set(call.places) - {0}):
            self._refuse("an argument is a weight, too")
            return rec.result
        shapes: Any = call.shapes
        if entry is None and not cuts and not rec.calls:
            rec, shapes = self._free_sizes(call, rec, watch)
            if shapes is None:
                return rec.result
        steps = parts.path(rec)
        fresh: Any = steps if entry is None else parts.merge(entry.steps, steps)
        if fresh is None:
            raise Unfit(f"the way to {cuts[-1]} is another one each time")
        self._compile(rec, fresh, call.tensors, entry is None)
        if entry is None:
            entry = self._add(call, rec, watch, steps, shapes)
        if self.backend is None:
            if not self._shorten(entry, call):
                self._miss(entry)
            return rec.result
        if entry.acts or cuts or rec.calls:
            return rec.result
        return parts.walk(steps, dict(zip(entry.ids, call.tensors, strict=True)), entry.weights)

    def _compile(self, rec: Recorded, steps: Any, tensors: Sequence[Any], begins: bool) -> None:
        self.report.programs.append(rec.program)
        if self.backend is None:
            self.report.graphs.append(rec.program)
            self.report.op_count += len(rec.program.data["nodes"])
            told.tell("graph_code", lambda: f"of {self._name()}\n{rec.program}")
            parts.run_as_one(steps, rec.program, tensors)
            return
        options = {"options": self.options} if self.options else {}

        def backend(gm: Any, inputs: list[Any]) -> Any:
            from tenon._torch._dynamo.utils import counters

            counters["stats"]["unique_graphs"] += 1
            return self.backend(gm, inputs, **options)

        graphs = parts.compile_path(rec, steps, tensors, begins, backend)
        self.report.graphs += graphs
        for gm in graphs:
            told.tell("graph_code", lambda gm=gm: f"of {self._name()}\n{gm.code}")
        self.report.op_count += sum(
            n.op == "call_function" for gm in graphs for n in gm.graph.nodes
        )
        parts.settle(steps)

    def _add(self, call: Call, rec: Recorded, watch: Watch, steps: Any, shapes: Any) -> Entry:
        data = rec.program.data
        ids = [i for i, v in enumerate(data["values"]) if v["role"] == "weight"]
        weights = dict(zip(ids, (t for _, _, t in rec.program.weights), strict=True))
        entry = Entry(
            call.static, shapes, call.own,
            watch.values(), guards.of_names(watch.values()), rec.program, weights,
            data["inputs"][: len(call.tensors)], steps, parts.acts(rec.program) or bool(rec.calls),
            watch.sized, {}, [], rec.outputs,
        )  # fmt: skip
        seen = [*weights.values(), *guards.tensors_in([call.own, entry.globals])]
        for t in seen:
            entry.held.setdefault(guards.memory(t), len(entry.held))
        entry.inside = entry.shared(call.places)
        self.entries.append(entry)
        return entry

    # ---- The short way ---------------------------------------------------------------------------

    def _shorten(self, entry: Entry, call: Call) -> bool:
        """Makes the short way for calls like this one; whether there is one."""
        if entry.way in self.ways:
            self.ways.remove(entry.way)
        entry.way = quick.find(self.fn, entry, call)
        if entry.way is not None:
            self.ways.append(entry.way)
        return entry.way is not None

    def _miss(self, entry: Entry) -> None:
        """No short way serves such calls. After some of them nothing is recorded any more."""
        self.entries.remove(entry)
        self.refused += 1
        if self.refused >= _REFUSED:
            raise Unfit("no short way serves such calls")
        self._refuse("no short way serves such calls")

    def _renew(self, entry: Entry, call: Call) -> None:
        """A call went the long way: what it depends on is equal, and not the very same."""
        entry.missed += 1
        if entry.missed > _MISSED or not self._shorten(entry, call):
            self.given_up = True
            self.ways.clear()

    # ---- Sizes that differ -----------------------------------------------------------------------

    def _free_sizes(self, call: Call, rec: Recorded, watch: Watch) -> tuple[Recorded, Any]:
        """A recording for many sizes in place of one for these, if there can be one, and what
        shapes it is for; None: for none any more."""
        marked = [
            (i, d) for i, t in enumerate(call.tensors)
            for d in sorted(getattr(t, "_dynamo_dynamic_indices", ()))
        ]  # fmt: skip
        if self.dynamic or marked:
            return self._free_at_once(call, rec, watch, marked)
        general = self._free_what_differs(call, rec, watch) if self.dynamic is None else None
        return (rec, call.shapes) if general is None else (general, _shapes(general))

    def _free_what_differs(self, call: Call, rec: Recorded, watch: Watch) -> Recorded | None:
        if parts.acts(rec.program):
            return None  # a rule needs a third size, and the call would do twice what it does
        for entry in self.entries:
            if entry.static != call.static or entry.own != call.own or entry.sized or watch.sized:
                continue
            if not entry.outputs.matches(rec.outputs):
                continue  # a number that is returned follows from the size
            by: dict[tuple[int, Any, int], list[int]] = {}
            for i, (old, new) in enumerate(zip(entry.shapes, call.shapes, strict=True)):
                for d, (a, b) in enumerate(zip(old, new, strict=True)):
                    if a != b:
                        by.setdefault((d, a, b), []).append(i)
            (dim, a, b), inputs = next(iter(by.items()), ((0, 0, 0), []))
            if len(by) != 1 or isinstance(a, str) or a < 2 or b < 2:
                continue
            if _generalize(entry.program, rec.program, inputs, dim):
                entry.sized = True  # its program is another one now
                if not self._holds_elsewhere(call, entry.program, inputs, dim, sorted((a, b))):
                    self.dynamic = False
                    self.entries.remove(entry)
                    if entry.way in self.ways:
                        self.ways.remove(entry.way)
                    return None
                if self._keeps(entry.program.data):
                    return Recorded(entry.program, [], [], rec.outputs, rec.result)
        return None

    def _keeps(self, data: Any) -> bool:
        """Whether calls with other sizes get what is right, or go another way: quotients do not,
        nor do, in what a backend makes, sizes that a run would have to look at."""
        ruled = self.backend is not None and any("rules" in v for v in data["values"])
        return not (ruled or _divides(data["nodes"]))

    def _holds_elsewhere(
        self, call: Call, program: Any, inputs: list[int], dim: int, seen: list[int]
    ) -> bool:
        """Whether what follows from a size, by two of them that may lie side by side, does so far
        from both."""
        above = [2 * seen[1] + 1, 2 * seen[1] + 2]
        below = [[seen[0] // 2 + 1, seen[0] - 1]] if seen[0] >= 8 else []
        chosen = [(i, dim) for i in inputs]
        return all(
            self._agree(call, program, (resized(call.tensors, chosen, n) for n in sizes))
            for sizes in (above, *below)
        )

    def _free_at_once(
        self, call: Call, rec: Recorded, watch: Watch, marked: list[tuple[int, int]]
    ) -> tuple[Recorded, Any]:
        wanted: dict[tuple[int, int], list[int]] = {}
        for i, shape in enumerate(call.shapes):
            for d, size in enumerate(shape):
                if size >= 2 and (not marked or (i, d) in marked):
                    wanted.setdefault((d, size), []).append(i)
        if watch.sized or parts.acts(rec.program):
            return rec, call.shapes
        owner = getattr(self.fn, "__self__", self.fn)
        for (dim, size), inputs in wanted.items():
            other = resized(call.tensors, [(i, dim) for i in inputs], 2 * size + 1)
            args, kwargs = call.layout.build([other[i] for i in call.static[3]])
            try:
                with unchanged(owner):
                    second, reason, _, _ = self._record(args, kwargs, other)
            except MemoryError:
                raise
            except Exception:  # noqa: BLE001, S112 - the function does not take the size
                continue
            if second is not None and reason is None and second.outputs.matches(rec.outputs):
                _generalize(rec.program, second.program, inputs, dim)
        others = all_resized(rec.program, call.tensors)
        mixed = rec.program.mixes and not self._agree(call, rec.program, others)
        if mixed or not self._keeps(rec.program.data):
            self.dynamic = False
            return rec, None
        return rec, _shapes(rec)

    def _agree(self, call: Call, program: Any, others: Iterable[list[Any]]) -> bool:
        """Whether what follows from sizes is what it is in the first of these calls that works."""
        owner = getattr(self.fn, "__self__", self.fn)

        def record(other: list[Any]) -> Any:
            args, kwargs = call.layout.build([other[i] for i in call.static[3]])
            with unchanged(owner):
                together, reason, _, _ = self._record(args, kwargs, other)
            return None if together is None or reason is not None else together.program

        try:
            program.agrees("dynamic", (partial(record, other) for other in others))
        except MemoryError:
            raise
        except RuntimeError:
            return False
        return True


def _generalize(program: Any, other: Any, inputs: Iterable[int], dim: int) -> bool:
    try:
        program.generalize(other, inputs, dim, 2, _ANY, f"s{len(program.data['symbols'])}")
    except MemoryError:
        raise
    except (RuntimeError, ValueError):
        return False
    return True


def _shapes(rec: Recorded) -> list[list[Any]]:
    data = rec.program.data
    return [data["values"][i]["shape"] for i in data["inputs"]]


def _divides(data: Any) -> bool:
    """Whether a number among the arguments is a quotient of a free size."""
    if isinstance(data, dict):
        return data.get("den", 1) != 1 or any(_divides(v) for v in data.values())
    return isinstance(data, list) and any(_divides(v) for v in data)
