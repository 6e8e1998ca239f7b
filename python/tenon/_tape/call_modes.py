"""Modes that see calls: TorchFunctionMode, and TorchDispatchMode below it.

A mode sees what Python code calls while it is entered: functions and methods that are operators,
and what handle_torch_function is asked about. Inside its method the modes outside of it see the
calls. What the core does by itself, in a backward pass or in a composite operator, is no call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tenon import _C

_METHOD, _INPLACE = 1, 2


class _Stacks(threading.local):
    def __init__(self) -> None:
        self.functions: list[Any] = []
        self.dispatch: list[Any] = []


_stacks = _Stacks()


def functions() -> list[Any]:
    """The thread's function modes, the innermost last."""
    return _stacks.functions


def dispatch() -> list[Any]:
    """The thread's dispatch modes, the innermost last."""
    return _stacks.dispatch


def _push(stack: list[Any], mode: Any) -> None:
    stack.append(mode)
    _C._mode_depth(1)


def _pop(stack: list[Any]) -> Any:
    _C._mode_depth(-1)
    return stack.pop()


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
    """Sees operators that Python code calls as `__torch_dispatch__(func, types, args, kwargs)`,
    where func is one of `ops.aten`, after function modes and classes that override."""

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


# Methods of Python's operators, and those of the op table that they stand for.
_SPOKEN = {
    f"__{sign}__": f"bitwise_{name}"
    for sign, name in (("and", "and"), ("or", "or"), ("xor", "xor"), ("lshift", "left_shift"),
                       ("rshift", "right_shift"))
} | {f"__{name}__": name for name in ("lt", "le", "gt", "ge", "eq", "ne")}  # fmt: skip
# With a number in front; which side it stands on matters to the others, which no mode sees.
_REVERSED = {
    "__radd__": "add", "__rmul__": "mul", "__rsub__": "rsub", "__rand__": "bitwise_and",
    "__ror__": "bitwise_or", "__rxor__": "bitwise_xor",
}  # fmt: skip

# Operators whose sizes may be written out, `x.view(2, 3)`: how many arguments come before them.
_SPREAD = dict.fromkeys(
    ("view", "reshape", "permute", "expand", "repeat", "tile", "flip", "sum_to_size", "new_empty",
     "new_zeros", "new_ones", "permute_copy"), 1,
) | dict.fromkeys(("empty", "ones", "rand", "randn", "zeros"), 0)  # fmt: skip


def _gathered(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with sizes that are written out in a list, as `ops.aten` takes them."""
    before = _SPREAD.get(name, len(args))
    if before < len(args) and all(isinstance(a, int) for a in args[before:]):
        return (*args[:before], list(args[before:]))
    return args


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


def dispatched(
    name: str, form: int, public: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result of an operator: the innermost dispatch mode's, or the operator's own."""
    if not _stacks.dispatch:
        return public(*args, **kwargs)
    name = _REVERSED.get(name) or _SPOKEN.get(name, name)
    if form == _INPLACE:
        name += "_"
    from tenon._tensor.aten import overload_for

    args = _gathered(name, args)
    func = overload_for(name, args, kwargs)
    with outside(_stacks.dispatch) as mode:
        if func is None:  # what is no operator of the table, indexing for one
            return public(*args, **kwargs)
        return mode.__torch_dispatch__(func, (), args, kwargs)
