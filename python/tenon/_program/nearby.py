"""Whole numbers in the code around a place: what a number that nobody watches may be held to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

_HERE = str(Path(__file__).parent)
_PACKAGE = str(Path(__file__).parent.parent)
_FRAMES, _OBJECTS, _ITEMS, _LONGEST = 12, 256, 256, 64
_MOST = 1 << 40


class _Search:
    """One look through code, and through what its names stand for."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.codes: set[CodeType] = set()
        self.seen: dict[int, Any] = {}

    def constants(self, values: Iterable[Any]) -> None:
        for value in values:
            if isinstance(value, (tuple, list, set, frozenset)):
                self.constants(list(value)[:_ITEMS])
            elif isinstance(value, dict):
                self.constants(list(value)[:_ITEMS])
                self.constants(list(value.values())[:_ITEMS])
            elif isinstance(value, str) and len(value) < _LONGEST:
                self.numbers.update(map(int, re.findall(r"\d{1,9}", value)))
            elif type(value) in (int, float) and abs(value) < _MOST:
                self.numbers.add(int(value))

    def code(
        self, code: CodeType, spaces: Iterable[dict[str, Any]], held: Iterable[Any] = ()
    ) -> None:
        """The constants of a function, what its names mean in these, and under these values."""
        if code in self.codes or code.co_filename.startswith(_PACKAGE):
            return
        self.codes.add(code)
        self.constants(c for c in code.co_consts if not isinstance(c, CodeType))
        names = [*code.co_names, *code.co_freevars]
        objects = list(held)
        for space in spaces:
            objects += [space[n] for n in names if n in space]
        for found in objects:  # grows
            objects += self.value(found, names)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self.code(inner, spaces)

    def value(self, value: Any, names: Iterable[str]) -> list[Any]:
        """What a value has under these names."""
        if isinstance(value, (int, float, str, tuple, list, set, frozenset, dict)):
            self.constants([value])
            return []
        if id(value) in self.seen or len(self.seen) == _OBJECTS:
            return []
        self.seen[id(value)] = value
        if isinstance(value, MethodType):
            value = value.__func__
        if isinstance(value, FunctionType):
            self.constants([value.__defaults__ or (), value.__kwdefaults__ or {}])
            self.code(value.__code__, (value.__globals__, _cells(value)))
            return []
        held = [getattr(value, "__dict__", None)]
        if not isinstance(value, ModuleType):
            held += [vars(c) for c in (*type(value).__mro__, value) if isinstance(c, type)]
            held.append((held[0] or {}).get("_modules"))
        return [of[n] for of in held if isinstance(of, dict | type(vars(int)))
                for n in names if n in of]  # fmt: skip


def _cells(fn: FunctionType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return found


def numbers(frame: FrameType | None) -> frozenset[int]:
    """The whole numbers that the functions running in and around a frame hold, and those that they
    call, as far as the recording reaches."""
    search = _Search()
    for _ in range(_FRAMES):
        if frame is None:
            break
        name = frame.f_code.co_filename
        if name.startswith(_HERE) and not name.endswith("watched.py"):
            break
        if not name.startswith(_PACKAGE):
            own = dict(frame.f_locals)
            search.code(frame.f_code, (frame.f_globals, own), own.values())
        frame = frame.f_back
    return frozenset(search.numbers)
