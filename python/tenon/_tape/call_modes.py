"""Modes that see calls: TorchFunctionMode, and TorchDispatchMode below it.

A function mode sees what Python code calls while it is entered: functions and methods that are
operators, and what handle_torch_function is asked about. A dispatch mode sees what these are made
of, below the tape, and what a backward pass computes: the core hands every call of the thread to
`_tape.wrapped`. Inside its method the modes outside of it see the calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from tenon import _C

entered = [0]  # how many function modes are, in all threads


class _Stacks(threading.local):
    def __init__(self) -> None:
        self.functions: list[Any] = []
        self.dispatch: list[Any] = []


_stacks = _Stacks()


def functions() -> list[Any]:
    """The thread's function modes, the innermost last."""
    return _stacks.functions


def sees_whole_functions() -> bool:
    """Whether the innermost function mode is a program's, which sees functions and not their
    parts."""
    return bool(_stacks.functions) and bool(_stacks.functions[-1].sees_members)


def dispatch() -> list[Any]:
    """The thread's dispatch modes, the innermost last."""
    return _stacks.dispatch


def _push(stack: list[Any], mode: Any) -> None:
    stack.append(mode)
    if stack is _stacks.functions:
        _C._mode_depth(1)
        entered[0] += 1
    else:
        _C._watch_calls(True)


def _pop(stack: list[Any]) -> Any:
    mode = stack.pop()
    if stack is _stacks.functions:
        _C._mode_depth(-1)
        entered[0] -= 1
    else:
        _C._watch_calls(bool(stack))
    return mode


def _lend(step: int) -> None:
    from tenon._tape import asking_members

    asking_members.lend(step)


@contextmanager
def outside(stack: list[Any]) -> Iterator[Any]:
    """The innermost mode, which does not see what is called meanwhile."""
    mode = _pop(stack)
    try:
        yield mode
    finally:
        _push(stack, mode)


class TorchFunctionMode:
    """Sees calls as `__torch_function__(func, types, args, kwargs)` while it is entered, and says
    what they give: `func(*args, **kwargs)`, or anything else."""

    sees_members = True  # also attributes of tensors and methods that are no operators
    some_members: Collection[str] = ()  # without that: these, for which it calls lend() itself

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        if self.sees_members:
            _lend(1)
        _push(_stacks.functions, self)
        return self

    def __exit__(self, *exc: object) -> None:
        _pop(_stacks.functions)
        if self.sees_members:
            _lend(-1)

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """A new instance."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


class TorchDispatchMode:
    """Sees operators as `__torch_dispatch__(func, types, args, kwargs)`, where func is one of
    `ops.aten`, after function modes and classes that override."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        _push(_stacks.dispatch, self)
        return self

    def __exit__(self, *exc: object) -> None:
        _pop(_stacks.dispatch)

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """A new instance."""
        return cls(*args, **kwargs)


def lifted(made: Any) -> Any:
    """A tensor that was made of Python's numbers, as the innermost dispatch mode wants it."""
    if not _stacks.dispatch:
        return made
    from tenon._tensor.aten import namespace

    wants = made.requires_grad
    with outside(_stacks.dispatch) as mode:
        func = namespace.lift_fresh.default
        result = mode.__torch_dispatch__(func, (), (made.detach(),), {})
    return result.requires_grad_() if wants else result
