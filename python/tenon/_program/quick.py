"""The short way into a recorded call: checks that C makes (python/src/quick.c).

A check holds where objects are the very same ones. That is more than `guards` asks for, so where
all checks hold its tokens are equal; where one does not, the tokens decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tenon
from tenon import _C
from tenon._program import guards

if TYPE_CHECKING:
    from tenon._program.compiled import Call, Entry

_SIZES = 8  # free ones


def find(fn: Any, entry: Entry, call: Call) -> Any:
    """The short way for calls like this one; None: there is none."""
    walk = guards.Walk()
    guards.of_function(fn, walk)
    guards.of_names(entry.names, walk)
    arguments = _arguments(call, entry.shapes)
    if arguments is None or not walk.exact:
        return None
    layout = next(s.layout for s in _steps(entry.steps) if hasattr(s, "layout"))
    single = layout.tensors == [0] and len(layout.fixed) == 1 and layout.spec.is_leaf()
    build = None if single else layout.build
    program = entry.program._program
    counts = len(call.args), len(call.kwargs)
    return _C._quick(program, arguments, counts, walk.checks(), build, entry.acts)


def _steps(step: Any) -> Any:
    while step is not None:
        yield step
        step = step.follow


def _arguments(call: Call, shapes: Sequence[Any]) -> Any:
    """A row (key, value, shape or None, items or -1) for each argument, what a container holds
    behind it; None: the short way does not know what is there."""
    if len(call.static[3]) != len(call.tensors):
        return None  # one tensor comes twice
    found = _Rows(call.tensors, shapes)
    for value in call.args:
        found.add(None, value)
    for key, value in call.kwargs.items():
        found.add(key, value)
    in_order = found.order == list(range(len(call.tensors)))
    return tuple(found.rows) if found.fits and in_order and len(found.sizes) <= _SIZES else None


class _Rows:
    def __init__(self, tensors: Sequence[Any], shapes: Sequence[Any]) -> None:
        self.rows: list[Any] = []
        self.order: list[int] = []
        self.sizes: dict[str, int] = {}
        self.fits = True
        self.shapes = shapes
        self.at = {id(t): i for i, t in enumerate(tensors)}

    def add(self, key: Any, value: Any) -> None:
        if isinstance(value, tenon.Tensor):
            self.fits = self.fits and guards.memory(value) != 0 and not guards.attributes(value)
            self.order.append(self.at[id(value)])
            shape = tuple(
                -1 - self.sizes.setdefault(s, len(self.sizes)) if isinstance(s, str) else s
                for s in self.shapes[self.order[-1]]
            )
            self.rows.append((key, value, shape, -1))
        elif value is None or isinstance(value, (bool, int, float, str)):
            self.rows.append((key, value, None, -1))
        elif type(value) in (tuple, list, dict):
            self.rows.append((key, type(value), None, len(value)))
            named = value.items() if isinstance(value, dict) else ((None, v) for v in value)
            for k, v in named:
                self.fits = self.fits and (k is None or isinstance(k, str))
                self.add(k, v)
        else:
            self.fits = False
