"""Gathers ahead of their use: while a unit computes, the one that came after it the last time is
gathered. Every process runs the same units in the same order, so that all begin the same exchange.

A pass is a call of the outermost unit, or a backward pass. What was begun in a pass and not used in
it is given up, as parameters may change between passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tenon import _C

if TYPE_CHECKING:
    from tenon.distributed.fsdp._unit import Unit

__all__: list[str] = []

FORWARD, BACKWARD = 0, 1


class _Pass:
    """The pass that runs, the unit that it has gathered last, and what it has begun to gather."""

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        self.last: Unit | None = None
        self.begun: list[Unit] = []


_now = _Pass((FORWARD, 0))
_depth = _calls = 0  # of calls of units inside each other; of outermost ones that have ended


@contextmanager
def calling() -> Iterator[None]:
    """A call of a unit."""
    global _depth, _calls
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        _calls += not _depth


def current() -> _Pass:
    """The pass that runs, at whose beginning that before it is over."""
    global _now
    number = int(_C._current_pass()[0])  # units may run again in backward, for checkpoints
    key = (BACKWARD, number) if number else (FORWARD, _calls)
    if key != _now.key:
        for unit in _now.begun:
            unit.give_up()
        _now = _Pass(key)
    return _now


def gathered(unit: Unit) -> None:
    """Begins what is to come after a unit that has been gathered."""
    now = current()
    if now.key[0] == FORWARD and not _depth:
        return  # by unshard() of a program
    way, last, now.last = now.key[0], now.last, unit
    if last is not None:
        last.follows[way] = unit
    guess = unit.follows[way] if unit.ahead[way] else None
    for other in unit.asked[way] or ([] if guess is None else [guess]):
        if other.begin():
            now.begun.append(other)
