"""Calls that a recording takes whole: Python that is no operator of the table.

A custom operator and an autograd.Function become one node of the graph.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import tenon
from tenon import _C

_PACKAGE = str(Path(tenon.__file__).parent)


@dataclass
class Call:
    """A call between nodes. `takes` and `gives` are values; `fn` None: the graph ends here."""

    position: int
    fn: Callable[..., Any] | None
    whole: bool  # a node of the graph, and not a break
    arguments: Any
    takes: list[int]
    results: Any
    gives: list[int]
    where: str


class Calls:
    """The calls of one recording."""

    def __init__(self, program: Any, watch: Any) -> None:
        self.program, self.watch = program, watch
        self.made: list[Call] = []
        self.reason: str | None = None
        self._inputs = 0

    def position(self) -> int:
        return _C._program_position(self.program)

    def break_here(self) -> None:
        self.made.append(Call(self.position(), None, False, None, [], None, [], users_line()))

    def call(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        from tenon._program.traced import Layout

        where = users_line()
        takes: list[int] = []
        layout = None
        try:
            layout, tensors = Layout.of((args, kwargs), "arguments")
            takes = [_C._program_value(self.program, t) for t in tensors]
        except MemoryError:
            raise
        except RuntimeError as err:
            self.reason = self.reason or f"{_name(fn)} at {where}: {err}"
        position = self.position()
        _C._program_pause(self.program, True)
        try:
            result = fn(*args, **kwargs)
        finally:
            _C._program_pause(self.program, False)
        try:
            results, tensors = Layout.of(result, "results")
            gives = [self._declare(t) for t in tensors]
        except MemoryError:
            raise
        except RuntimeError as err:
            self.reason = self.reason or f"{_name(fn)} at {where}: {err}"
            return result
        if any(v is not None for v in results.fixed):
            self.reason = self.reason or f"{_name(fn)} at {where} returns more than tensors"
        self.made.append(Call(position, fn, True, layout, takes, results, gives, where))
        return result

    def _declare(self, tensor: Any) -> int:
        try:
            _C._program_input(self.program, tensor, f"_call{self._inputs}")
            self._inputs += 1
        except ValueError:  # known before: an argument that was returned
            pass
        return _C._program_value(self.program, tensor)


class _State(threading.local):
    calls: Calls | None = None
    gradients = 0  # calls of autograd.Functions that a trace has taken apart


state = _State()


def is_open() -> bool:
    """Whether a compiled function is being recorded, and not a trace."""
    return state.calls is not None and _C._program_is_recording()


def whole(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Calls fn, of which a graph sees the call alone."""
    assert state.calls is not None
    with state.calls.watch.paused():
        return state.calls.call(fn, args, kwargs)


def give_up(reason: str) -> None:
    """What is being recorded cannot be a graph."""
    if state.calls is not None and state.calls.reason is None:
        state.calls.reason = f"{reason} at {users_line()}"


def end_graph() -> None:
    """What is being recorded goes on in another graph."""
    if is_open() and state.calls is not None:
        with state.calls.watch.paused():
            state.calls.break_here()


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__name__


def users_line() -> str:
    """The place in the user's program that the caller was called from."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return "an unknown place"
    return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"
