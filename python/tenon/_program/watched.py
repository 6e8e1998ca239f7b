"""Sizes that are read while a program is recorded: whole numbers that see what becomes of them.

A recording knows one course of a function. Whether another size would take another one shows in
what its sizes are compared with, rounded by, or used for: an Event each. What is made of a size by
`int`, a text, NumPy or `range` is a number that nobody watches: such an event knows what numbers
the code around it holds.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import operator
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import tenon
from tenon import _C
from tenon._program import nearby
from tenon.utils import _pytree

_PACKAGE = str(Path(__file__).parent.parent)


class Event:
    """A number that follows from sizes, and what it was held against (`of_size`: another one),
    or where it is rounded to something else. None: what else was done with it, beside `numbers`."""

    __slots__ = "inside", "left", "numbers", "of_size", "right", "rounds", "where"

    def __init__(self, left: Any, right: Any, rounds: bool, inside: bool, where: str) -> None:
        self.left, self.right = _plain(left), _plain(right)
        self.of_size = isinstance(right, (SizeInt, SizeFloat))
        self.rounds, self.where = rounds, where
        self.inside = inside  # in a function of the package
        self.numbers: frozenset[int] = frozenset()

    @property
    def escapes(self) -> bool:
        """Whether nobody knows what the number is held against from here on."""
        return self.right is None and not self.rounds


class _Log(threading.local):
    events: list[Event] | None = None
    numbers: dict[Any, frozenset[int]]  # by the place


_log = _Log()


@contextlib.contextmanager
def noted() -> Iterator[list[Event]]:
    """What happens to sizes that the thread reads meanwhile, and records."""
    before, _log.events, _log.numbers = _log.events, [], {}
    _watch_len(1)
    try:
        yield _log.events
    finally:
        _watch_len(-1)
        _log.events = before


def _note(left: Any, right: Any = None, rounds: bool = False) -> None:
    events = _log.events
    if events is None or len(events) >= 4096:
        return
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    name = frame.f_code.co_filename
    where = f'File "{name}", line {frame.f_lineno}, in {frame.f_code.co_name}'
    event = Event(left, right, rounds, name.startswith(_PACKAGE), where)
    events.append(event)
    if event.escapes and not event.inside:
        if where not in _log.numbers:
            _log.numbers[where] = nearby.numbers(frame)
        event.numbers = _log.numbers[where]


def _plain(x: Any) -> Any:
    if isinstance(x, SizeInt):
        return int.__int__(x)
    return float.__float__(x) if isinstance(x, SizeFloat) else x


def _made(x: Any) -> Any:
    return SizeInt(x) if type(x) is int else SizeFloat(x) if type(x) is float else x


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float))


def _binary(fn: Callable[[Any, Any], Any], swap: bool = False) -> Any:
    def method(self: Any, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        a, b = _plain(self), _plain(other)
        return _made(fn(b, a) if swap else fn(a, b))

    return method


def _rounded(fn: Callable[[Any, Any], Any], swap: bool = False) -> Any:
    """Division with a remainder, which goes another way at the next multiple."""

    def method(self: Any, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        a, b = (_plain(other), _plain(self)) if swap else (_plain(self), _plain(other))
        result = fn(a, b)
        if swap:
            parts = a // b
            _note(self, a // (parts + 1) if parts + 1 else None, True)
            _note(self, a // parts if parts else None, True)
        else:
            _note(self, a // b * b, True)
            _note(self, (a // b + 1) * b, True)
        return tuple(map(_made, result)) if isinstance(result, tuple) else _made(result)

    return method


def _compared(fn: Callable[[Any, Any], bool]) -> Any:
    def method(self: Any, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        _note(self, other)
        return fn(_plain(self), _plain(other))

    return method


def _unseen(name: str, kind: type) -> Any:
    plain = getattr(kind, name)

    def method(self: Any, *args: Any) -> Any:
        _note(self)
        return plain(self, *map(_plain, args))

    return method


def _unary(fn: Callable[[Any], Any]) -> Any:
    return lambda self: _made(fn(_plain(self)))


class _Number:
    """What both kinds do."""

    __slots__ = ()
    __add__, __radd__ = _binary(operator.add), _binary(operator.add, True)
    __sub__, __rsub__ = _binary(operator.sub), _binary(operator.sub, True)
    __mul__, __rmul__ = _binary(operator.mul), _binary(operator.mul, True)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _binary(operator.truediv, True)
    __floordiv__, __rfloordiv__ = _rounded(operator.floordiv), _rounded(operator.floordiv, True)
    __mod__, __rmod__ = _rounded(operator.mod), _rounded(operator.mod, True)
    __divmod__, __rdivmod__ = _rounded(divmod), _rounded(divmod, True)
    __lt__, __le__ = _compared(operator.lt), _compared(operator.le)
    __gt__, __ge__ = _compared(operator.gt), _compared(operator.ge)
    __eq__, __ne__ = _compared(operator.eq), _compared(operator.ne)
    __neg__, __pos__ = _unary(operator.neg), _unary(operator.pos)

    def __pow__(self, other: Any, mod: Any = None) -> Any:
        if mod is not None or not _is_number(other):
            return NotImplemented
        return _made(_plain(self) ** _plain(other))

    def __rpow__(self, other: Any, mod: Any = None) -> Any:
        return _made(other ** _plain(self)) if _is_number(other) else NotImplemented

    def __abs__(self) -> Any:
        _note(self, 0)
        return _made(abs(_plain(self)))

    def __bool__(self) -> bool:
        _note(self, 0)
        return bool(_plain(self))

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        _note(self)  # NumPy's rules for dtypes know int and float alone
        return getattr(ufunc, method)(*map(_plain, args), **kwargs)

    def __reduce__(self) -> Any:
        return type(_plain(self)), (_plain(self),)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


class SizeInt(_Number, int):
    """A whole number that follows from sizes."""

    __slots__ = ()

    __hash__ = _unseen("__hash__", int)
    __str__ = __repr__ = _unseen("__repr__", int)
    __format__ = _unseen("__format__", int)
    __int__ = _unseen("__int__", int)
    __float__ = _unseen("__float__", int)
    __and__, __rand__ = _unseen("__and__", int), _unseen("__rand__", int)
    __or__, __ror__ = _unseen("__or__", int), _unseen("__ror__", int)
    __xor__, __rxor__ = _unseen("__xor__", int), _unseen("__rxor__", int)
    __invert__, bit_length = _unseen("__invert__", int), _unseen("bit_length", int)
    __rrshift__, __rlshift__ = _unseen("__rrshift__", int), _unseen("__rlshift__", int)

    def __lshift__(self, by: int) -> Any:
        return self * 2**by

    def __rshift__(self, by: int) -> Any:
        return self // 2**by

    def __round__(self, digits: int | None = None) -> Any:
        return self if digits is None else _unseen("__round__", int)(self, digits)


def _to_whole(fn: Callable[[float], int], made: Callable[[int], Any] = SizeInt) -> Any:
    def method(self: Any, *args: Any) -> Any:
        x = _plain(self)
        half = 0.5 if fn is round else 0
        for bound in {math.floor(x - half) + half, math.ceil(x + half) - half,
                      math.floor(x - half) + half + 1}:  # fmt: skip
            _note(self, bound, True)
        if made is int:
            _note(self)
        return fn(x) if args else made(fn(x))

    return method


class SizeFloat(_Number, float):
    """A number that follows from sizes, by a quotient or a power."""

    __slots__ = ()
    __hash__ = _unseen("__hash__", float)
    __str__ = __repr__ = _unseen("__repr__", float)
    __format__ = _unseen("__format__", float)
    __floor__, __ceil__ = _to_whole(math.floor), _to_whole(math.ceil)
    __trunc__, __int__ = _to_whole(math.trunc), _to_whole(math.trunc, int)
    is_integer = _unseen("is_integer", float)

    def __float__(self) -> float:
        _note(self)
        return float.__float__(self)

    def __round__(self, digits: int | None = None) -> Any:
        return _unseen("__round__", float)(self, digits) if digits else _round(self)


_round = _to_whole(round)


# Functions that take a size without asking it for anything.
_TAKING = {"range", "bin", "hex", "oct", "np", "numpy"}
_LOGS = ("log", "log2", "log10")


def _is_taken(frame: FrameType) -> bool:
    names = frame.f_code.co_names
    if not _TAKING.isdisjoint(names):
        return True
    return any(
        n in names and ("math" in names or frame.f_globals.get(n) is getattr(math, n))
        for n in _LOGS
    )


def _of(size: int) -> int:
    if _log.events is None:
        return size
    frame = sys._getframe(1)
    if frame.f_code is _size_len.__code__:
        frame = sys._getframe(2)
    made = SizeInt(size)
    if _is_taken(frame):
        _note(made)
    return made


_len, _watching, _lock = builtins.len, [0], threading.Lock()


def _size_len(obj: Any, /) -> int:
    """`len` while something is recorded."""
    count = _len(obj)
    return _of(count) if _log.events is not None and isinstance(obj, tenon.Tensor) else count


def _watch_len(more: int) -> None:
    with _lock:
        _watching[0] += more
        builtins.len = _size_len if _watching[0] else _len  # type: ignore[assignment]


def plain(tree: Any) -> Any:
    """The same with numbers that nobody watches; without any, the very same object."""
    leaves, spec = _pytree.tree_flatten(tree, is_leaf=lambda x: isinstance(x, tenon.Size))
    if not any(_is_watched(x) for x in leaves):
        return tree
    return spec.unflatten(
        [tenon.Size(map(_plain, x)) if isinstance(x, tenon.Size) else _plain(x) for x in leaves]
    )


def _is_watched(x: Any) -> bool:
    if isinstance(x, tenon.Size):
        return any(map(_is_watched, x))
    return isinstance(x, (SizeInt, SizeFloat))


_C._program_size_maker(_of)
