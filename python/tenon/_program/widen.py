"""Sizes of a traced program that become free: the first at once, others when a call or a file needs
them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tenon
from tenon import _C
from tenon._program import DEAD, Program
from tenon._program.traced import Layout, Recording, free_size, unchanged
from tenon._program.turns import Turn

ANY_SIZE = (1 << 62) - 1
_MOST_OTHERS = 32

# A size in several inputs: (input, dimension) each.
Places = tuple[tuple[int, int], ...]


def take_weights(program: Program, other: Program) -> None:
    """Parameters and buffers become those that have their names in another program."""
    own = {name: t for name, _, t in other.weights if name}
    for i, (name, _, _) in enumerate(program.weights):
        if name in own:
            program.set_weight(i, own[name])


def _in_another_thread(make: Callable[[], Program | None]) -> Program | None:
    """What `make` gives while this thread records: a thread records one program at a time."""
    found: list[Program | None] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(make())
        except BaseException as err:  # noqa: BLE001 - raised again below
            failed.append(err)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


class Origin:
    """What a program was traced from, to record it again with other sizes."""

    def __init__(self, fn: Callable[..., Any], layout: Layout, tensors: Sequence[Any]) -> None:
        self.fn, self.layout = fn, layout
        # Copies, so that what the caller goes on with is held by nobody else.
        self.tensors = [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
        self.free: list[Places] = []
        self.refused: set[Places] = set()
        self.bounds: dict[Places, tuple[int, int]] = {}
        # Programs for calls that no program for many sizes takes; None: there is none.
        self.others: dict[Any, Program | None] = {}
        self.module = fn if isinstance(fn, tenon.nn.Module) else getattr(fn, "__self__", None)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """A copy's weights are its own, and a recording would have those of the original."""

    def record(self) -> Recording:
        """The call once more, with the sizes free that are free."""
        args, kwargs = self.layout.build(self.tensors)
        with unchanged(self.module):
            recording = Recording(self.fn, args, kwargs)
        for places in self.free:
            self._free_in(recording, places, find_turns=False)
        return recording

    def record_of(self, tensors: Sequence[Any]) -> Recording | None:
        """The call with other tensors; None: the function does not take them, or looks at their
        values."""
        args, kwargs = self.layout.build([t.detach().clone() for t in tensors])
        try:
            with unchanged(self.module):
                recording = Recording(self.fn, args, kwargs)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever the function raises for these
            return None
        return None if recording.program.reads[0] else recording

    def run(self, tensors: Sequence[Any], made: Program, outputs: Layout) -> Any:
        """The results by a program for such tensors alone, where `made` is what the function is
        still and results are as `outputs` says; None: there is none."""
        key = tuple((t.shape, t.dtype, t.device) for t in tensors)
        if key in self.others:
            program = self.others[key]
            with contextlib.suppress(RuntimeError):  # sizes that follow from values are others now
                return None if program is None else program(*tensors)
        make = partial(self._program_for, tensors, key, made, outputs)
        program = _in_another_thread(make) if _C._program_is_recording() else make()
        return None if program is None else program(*tensors)

    def _program_for(
        self, tensors: Sequence[Any], key: Any, made: Program, outputs: Layout
    ) -> Program | None:
        if not self.made(made):
            return None
        recording = self.record_of(tensors)
        if recording is None or not recording.outputs.matches(outputs):
            self.keep(key, None)
            return None
        program = recording.program
        self.keep(key, program)
        program.optimize(DEAD)
        take_weights(program, made)
        return program

    def keep(self, key: Any, program: Program | None) -> None:
        """Keeps one of `others`, of which the oldest go."""
        while len(self.others) >= _MOST_OTHERS:
            self.others.pop(next(iter(self.others)))
        self.others[key] = program

    def made(self, program: Program) -> bool:
        """Whether the function is still what `program` was recorded from."""
        again = self.record().program
        again.optimize(DEAD)
        constants = [[t for name, _, t in p.weights if not name] for p in (program, again)]
        return str(program) == str(again) and all(
            a.shape == b.shape and a.dtype == b.dtype and tenon.equal(a, b)
            for a, b in zip(*constants, strict=True)
        )

    def free_sizes(self, wanted: Sequence[Places], recording: Recording) -> Recording:
        """Frees those that can be free; `self.free` names them. A failed attempt leaves a recording
        as it was, or costs another."""
        recording = self._free_each(list(wanted), recording)
        # What is refused alone may be free together with its equals in other dimensions.
        free = {place for places in self.free for place in places}
        equal: dict[int, set[tuple[int, int]]] = {}
        for i, d in {place for places in self.refused for place in places} - free:
            equal.setdefault(self.tensors[i].shape[d], set()).add((i, d))
        groups = [tuple(sorted(found)) for found in equal.values() if len(found) > 1]
        return self._free_each([g for g in groups if g not in self.refused], recording)

    def _free_each(self, left: list[Places], recording: Recording) -> Recording:
        while left:
            places, before = left[0], str(recording.program)
            try:
                self._free_in(recording, places)
            except MemoryError:
                raise
            except Turn as err:
                if err.narrower(*self._bounds(places)):
                    self.bounds[places] = err.low, err.high
                else:
                    self.refused.add(left.pop(0))
                recording = self.record()
            except Exception:  # noqa: BLE001 - whatever the function raises at another size
                self.refused.add(left.pop(0))
                if str(recording.program) != before:
                    recording = self.record()
            else:
                self.free.append(left.pop(0))
        return recording

    def fixed(self, shapes: Sequence[Sequence[Any]] | None = None) -> list[Places]:
        """Sizes that are not free: those in which `shapes` are others, or all from 2 on."""
        found: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        free = {place for places in self.free for place in places}
        for i, t in enumerate(self.tensors):
            for d, size in enumerate(t.shape):
                other = shapes[i][d] if shapes else 0
                if (i, d) not in free and size != other and (shapes or size > 1):
                    found.setdefault((d, size, other), []).append((i, d))
        return [p for p in map(tuple, found.values()) if p not in self.refused]

    def _free_in(self, recording: Recording, places: Places, find_turns: bool = True) -> None:
        i, d = next((p for p in places if p[1]), places[0])
        taken = {s["name"] for s in recording.program.data["symbols"]}
        name = "batch" if d == 0 and "batch" not in taken else f"{recording.names[i]}_{d}"
        low, high = self._bounds(places)
        free_size(recording, self.fn, self.tensors, places, name, low, high, find_turns=find_turns)

    def _bounds(self, places: Places) -> tuple[int, int]:
        return self.bounds.get(places, (1, ANY_SIZE))
