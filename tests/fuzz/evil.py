"""Arguments that do something when they are read: raise, lie, empty themselves, have no end."""

from __future__ import annotations

import random
import sys
from typing import Any

import tenon as tn

FLOATS = (0.0, -0.0, 0.5, 1.0, -1.5, 3.7, 1e-45, 1e300, -1e300, float("inf"), float("-inf"),
          float("nan"))  # fmt: skip


class EvilError(Exception):
    """What arguments raise when they are read."""


class Raises:
    def _raise(self, *_: Any) -> Any:
        raise EvilError("read")

    __index__ = __float__ = __int__ = __iter__ = __len__ = __bool__ = __eq__ = __hash__ = _raise
    __complex__ = __getitem__ = __call__ = __array__ = __fspath__ = __str__ = _raise


class Closed:
    """Has no attribute that can be asked for, nor a type that says so."""

    def __getattribute__(self, name: str) -> Any:
        raise EvilError(name)


def circle(kind: type) -> Any:
    """A container that is its own member."""
    made: Any = kind()
    made.append(made) if kind is list else made.update(x=made)
    return made


def nested(depth: int) -> Any:
    """Lists within each other, deeper than calls may go."""
    made: Any = []
    for _ in range(depth):
        made = [made]
    return made


class Lies:
    """Says that it has a great many members, and is a number of its own each time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def __len__(self) -> int:
        return self.rng.choice((0, 1, 3, 2**31, sys.maxsize))

    def __getitem__(self, i: Any) -> int:
        if self.rng.randrange(4) == 0:
            raise IndexError("no more")
        return self.rng.choice((0, 1, 2, -1, 2**40))

    def __index__(self) -> int:
        return self.rng.choice((0, 1, 2, -1, 2**62, 10**30))

    def __float__(self) -> float:
        return self.rng.choice(FLOATS)


class Empties(list[Any]):
    """A list whose first member empties it, frees a tensor or makes it another one when read."""

    def __init__(self, rng: random.Random, tensor: Any) -> None:
        class Member:
            def __index__(member) -> int:
                self.clear()
                change = rng.randrange(4)
                if change == 0:
                    tensor.resize_(0)
                elif change == 1:
                    tensor.set_()
                elif change == 2:
                    tensor.data = tn.ones(2, 2, dtype=tn.float64)
                return rng.choice((0, 1, 2))

            __float__ = __index__

        super().__init__([Member(), Member(), 1])
