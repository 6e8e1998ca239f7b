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
    return _C._quick(program, arguments, walk.checks(), build, entry.acts)


def _steps(step: Any) -> Any:
    while step is not None:
        yield step
        step = step.follow


def _arguments(call: Call, shapes: Sequence[Any]) -> Any:
    """A row (keyword, value, shape or None) for each argument; None: some is a container."""
    sizes: dict[str, int] = {}
    at = {id(t): i for i, t in enumerate(call.tensors)}
    if len(call.static[3]) != len(call.tensors):
        return None  # one tensor comes twice
    rows: list[Any] = []
    order: list[int] = []
    for key, value in [*((None, a) for a in call.args), *call.kwargs.items()]:
        if isinstance(value, tenon.Tensor):
            order.append(at[id(value)])
            if not guards.memory(value):
                return None
            shape = tuple(
                -1 - sizes.setdefault(s, len(sizes)) if isinstance(s, str) else s
                for s in shapes[order[-1]]
            )
            rows.append((key, value, shape))
        elif value is None or isinstance(value, (bool, int, float, str)):
            rows.append((key, value, None))
        else:
            return None
    fits = order == list(range(len(call.tensors))) and len(sizes) <= _SIZES
    return tuple(rows) if fits else None
