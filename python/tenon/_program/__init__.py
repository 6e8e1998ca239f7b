"""Programs: graphs of operators as Python sees them (tenon/program.h)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import Any

from tenon import _C

CONSTANT, PARAMETER, BUFFER = range(3)
DEAD, COMMON, FOLD, FREEZE = 1, 2, 4, 8
_FORMS = {"text": 0, "dot": 1, "json": 2}


class Program:
    """What a thread's operators computed, to be run again on other inputs."""

    def __init__(self, capsule: Any) -> None:
        self._program = capsule

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return _C._program_run(self._program, inputs)

    def __str__(self) -> str:
        return self.print("text")

    def print(self, form: str) -> str:
        """As "text", as a picture for Graphviz ("dot"), as data ("json")."""
        return _C._program_print(self._program, _FORMS[form])

    @cached_property
    def data(self) -> dict[str, Any]:
        """The graph as dicts and lists; not changed by later passes."""
        return json.loads(self.print("json"))

    @property
    def inputs(self) -> tuple[tuple[str, Any, tuple[int, ...], Any], ...]:
        """Name, dtype, shape (-1: any size) and device of each."""
        return _C._program_slots(self._program)[0]

    @property
    def outputs(self) -> tuple[tuple[str, Any, tuple[int, ...], Any], ...]:
        return _C._program_slots(self._program)[1]

    @property
    def weights(self) -> list[tuple[str, int, Any]]:
        """Name, kind and tensor of each; constants that nobody declared have no name."""
        return _C._program_weights(self._program)

    def set_weight(self, i: int, tensor: Any) -> None:
        """Puts another tensor of the same kind in a weight's place."""
        _C._program_set_weight(self._program, i, tensor)

    @property
    def note(self) -> str:
        """Text that travels with the program."""
        return _C._program_note(self._program)

    @note.setter
    def note(self, text: str) -> None:
        _C._program_note(self._program, text)

    @property
    def reads(self) -> tuple[int, str | None]:
        """How often computed values were looked at while it was recorded, and where first."""
        return _C._program_reads(self._program)

    @property
    def fused(self) -> list[tuple[int, int]]:
        """Nodes that run as one kernel: the first one and how many, of each group."""
        return _C._program_fused(self._program)

    @property
    def regions(self) -> list[tuple[int, int]]:
        """Nodes that a device takes as its own: the first one and how many, of each region."""
        return _C._program_regions(self._program)

    def groups(self) -> list[str]:
        """In words, which operators run as one, and what ends each group of pointwise ones."""
        data = self.data
        nodes, values = data["nodes"], data["values"]

        def shape(node: dict[str, Any]) -> Any:
            out = node["outs"][0] if len(node["outs"]) == 1 else -1
            return values[out]["shape"] if out >= 0 else None

        found = [
            "the device's own: " + ", ".join(n["op"] for n in nodes[first : first + count])
            for first, count in self.regions
        ]
        for first, count in self.fused:
            names = ", ".join(n["op"] for n in nodes[first : first + count])
            text = f"one kernel: {names}"
            if first + count < len(nodes):
                after = nodes[first + count]
                if after["in_place"] or after["wrote"] or any(g >= 0 for g in after["given"]):
                    why = "writes to memory that is there"
                elif after["random"]:
                    why = "draws random numbers"
                elif shape(after) != shape(nodes[first]):
                    why = f"has the shape {shape(after)}"
                else:
                    why = "does not fit in"
                text += f"; then {after['op']}, which {why}"
            found.append(text)
        return found

    def optimize(self, passes: int = DEAD | COMMON | FOLD) -> None:
        _C._program_optimize(self._program, passes)
        self.__dict__.pop("data", None)

    def generalize(
        self, other: Program, inputs: Iterable[int], dim: int, low: int, high: int, name: str
    ) -> None:
        """Makes a size free: `other` is a recording in which only that size was another one."""
        mask = sum(1 << i for i in inputs)
        _C._program_generalize(self._program, other._program, mask, dim, low, high, name)
        self.__dict__.pop("data", None)

    def agrees(self, sizes: str, tries: Iterable[Callable[[], Program | None]]) -> None:
        """RuntimeError: the first of these recordings with other sizes that could be made is
        another than this program then, or none could be made."""
        failed = "there are none"
        for record in tries:
            try:
                other = record()
            except MemoryError:
                raise
            except Exception as err:  # the function does not take these sizes
                failed = str(err)  # the error's frames would hold what was recorded
                continue
            if other is not None:
                _C._program_agrees(self._program, other._program)
                return
        raise RuntimeError(
            f"{sizes}: no other sizes can be tried with those that are free: {failed}"
        )

    @property
    def mixes(self) -> bool:
        """Whether a number in it follows from several sizes."""
        return _has(self.data["nodes"], "steps")

    def to_bytes(self) -> bytes:
        """The bytes of a .tng file."""
        return _C._program_bytes(self._program)


def places_of(data: dict[str, Any], name: str) -> list[tuple[int, int, dict[str, int]]]:
    """Where a free size stands, or what follows from it: which input, which dimension, the rule."""
    found = []
    for i, value in enumerate(data["inputs"]):
        fact = data["values"][value]
        itself = {"num": 1, "den": 1, "add": 0}
        found += [(i, d, itself) for d, size in enumerate(fact["shape"]) if size == name]
        found += [(i, d, rule) for d, rule in fact.get("rules", ()) if rule["s"] == name]
    return found


def follow(rule: Mapping[str, int], size: int) -> int:
    """What follows from a size."""
    return size * rule["num"] // rule["den"] + rule["add"]


def input_shapes(data: dict[str, Any], sizes: Mapping[str, int]) -> list[list[int]]:
    """The shapes of the inputs at certain free sizes, the others as they were recorded."""
    shapes = [list(data["values"][i]["shape"]) for i in data["inputs"]]
    for symbol in data["symbols"]:
        size = sizes.get(symbol["name"], symbol["seen"])
        for i, d, rule in places_of(data, symbol["name"]):
            shapes[i][d] = follow(rule, size)
    return shapes


def _has(data: Any, key: str) -> bool:
    if isinstance(data, dict):
        return key in data or any(_has(v, key) for v in data.values())
    return isinstance(data, list) and any(_has(v, key) for v in data)


def number_of_sizes(
    data: dict[str, Any], symbol: Callable[[str], Any], apply: Callable[[str, Any, Any], Any]
) -> Any:
    """A number that follows from free sizes: `symbol` gives one by its name, `apply` what an
    operation ("Mul", "Div", "Add") makes of it with an int, or with what came out before."""
    made: Any = None
    for name, steps in _size_steps(data):
        size = symbol(name)
        for op, by in steps:
            size = apply(op, size, made if by is None else by)
        made = size
    return made


def _size_steps(data: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, int | None]]]]:
    """Each size, and what is done to it with which number. None: the number that came out of the
    sizes before it."""
    for step in data.get("steps", (data,)):
        kind, by = step["step"], step["den"]
        whole: list[tuple[str, int | None]] = [("Div", by)] if by != 1 else []
        made: list[tuple[str, int | None]] = [("Mul", step["num"])] if step["num"] != 1 else []
        made += whole if kind != "times" else []
        made += [("Add", step["add"])] if step["add"] else []
        if kind != "is":
            made.append(("Mul" if kind == "times" else "Add", None))
        yield step["s"], made + (whole if kind == "times" else [])


def load(source: str | os.PathLike[str] | bytes) -> Program:
    """A program from a .tng file, whose weights are mapped, or from the bytes of one."""
    read = _C._program_parse if isinstance(source, bytes) else _C._program_load
    return Program(read(source))


class NeedsParts(NotImplementedError):
    """A gradient that was computed in a recording reads what a composite has kept for it."""


def record(
    fn: Callable[[], Sequence[Any]],
    inputs: Mapping[str, Any],
    weights: Iterable[tuple[str, int, Any]] = (),
    around: Callable[[Callable[[int], None]], AbstractContextManager[Any]] | None = None,
    apart: Sequence[str] | None = (),
    scope: int = 0,
) -> tuple[Program, Sequence[Any]]:
    """Calls `fn`, whose results are tensors; the program that it ran, and its results.

    `around(set_scope)` is open meanwhile: set_scope gives the nodes that follow a number, at first
    `scope`. Composites that `apart` names become their parts, with None all do. NeedsParts: they
    have to, for a gradient that `fn` computes.
    """
    program = _C._program_begin()
    before, _recording.program = _recording.program, program
    places: list[tuple[Any, Any]] = []
    outer = _C._index_anew(places)
    try:
        for name, tensor in inputs.items():
            _C._program_input(program, tensor, name)
        for name, kind, tensor in weights:
            _C._program_weight(program, tensor, name, kind)
        _C._program_take_apart(program, apart)
        set_scope = partial(_C._program_set_scope, program)
        set_scope(scope)
        with around(set_scope) if around is not None else nullcontext():
            results = fn()
        taken = [[_C._program_value(program, t) for t in pair] for pair in places]
        _C._program_end(program, tuple(results))
    except NotImplementedError as err:
        if apart is not None and _C._program_needs_parts(program):
            raise NeedsParts(str(err)) from err
        raise
    finally:
        _C._index_anew(outer)
        _recording.program = before
        _C._program_cancel(program)
    made = Program(program)
    if taken:
        from tenon._program import parts

        parts.check_places(made.data, taken)
    return made, results


class _Recording(threading.local):
    program: Any = None


_recording = _Recording()


def looks() -> int:
    """How often values have been looked at in what the thread records now; 0: it does not."""
    return 0 if _recording.program is None else _C._program_reads(_recording.program)[0]
