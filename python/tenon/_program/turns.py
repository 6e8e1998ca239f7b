"""Sizes at which a function turns: from there on it computes something else than its program.

What sizes were compared with, and rounded by, tells where that may be (watched.py). There the
function is called, too. A size is free up to the next turn. Where a number is no longer watched,
the function is called at sizes where it would be one of those in the code around, and at others
further and further off.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tenon._program.watched import Event

_MOST, _ROUNDS = 24, 6  # sizes that are tried at a time, and how many times
_FAR, _NUMBERS = 16, 32  # of what nobody watches: how many times the size, and how many numbers


class Turn(RuntimeError):
    """The program holds for sizes from `low` to `high` alone."""

    def __init__(self, name: str, low: int, high: int, where: str) -> None:
        to = f"to {high}" if high < (1 << 62) - 1 else "on"
        super().__init__(
            f"Constraints violated ({name})! The function does the same for {name} from {low} {to}"
            f", and something else beyond: a size is compared or rounded at\n{where}"
        )
        self.low, self.high = low, high

    def narrower(self, low: int, high: int) -> bool:
        """Whether there are two sizes left, and fewer than in these bounds."""
        return low <= self.low < self.high <= high and (self.low, self.high) != (low, high)


def guess(name: str, seen: int, bounds: tuple[int, int], first: Sequence[Event]) -> Turn | None:
    """Where the function turns if what was compared is a multiple of the size. Of two sizes that
    are compared one is kept where it was, so that any two within their bounds compare so."""
    low, high = bounds
    where = ""
    for e in first:
        if e.right is None or e.rounds:
            continue
        left, right = e.left, e.right
        if e.of_size and right == seen != left:
            left, right = right, left
        if not left or not math.isfinite(right / left):
            continue
        at = seen * right / left
        if seen < at and math.ceil(at) - 1 < high:
            high, where = math.ceil(at) - 1, e.where
        elif low <= at < seen:
            low, where = seen if e.of_size else math.floor(at) + 1, e.where
    return Turn(name, low, high, where) if where else None


class _Place(NamedTuple):
    size: int
    event: Event


def _gap(e: Event, f: Event) -> float | None:
    """How far what was compared is apart in one of the recordings; e: in the first of them."""
    if e.right is None or f.right is None or f.where != e.where:
        return None
    gap = f.left - (f.right if e.of_size else e.right)
    return gap if math.isfinite(gap) else None


def _places(recordings: dict[int, Sequence[Event]], first: Sequence[Event]) -> Iterator[_Place]:
    """Sizes around which what was compared is equal, if it goes on in a line from where it was in
    two recordings: those in which it was closest, or any and the first."""
    for i, e in enumerate(first):
        gaps = [
            (abs(gap), gap, size)
            for size, events in recordings.items()
            if i < len(events) and (gap := _gap(e, events[i])) is not None
        ]
        pairs = list(zip(gaps[:1] * len(gaps), gaps[1:], strict=False))
        if len(gaps) > 1:
            pairs.append(tuple(sorted(gaps)[:2]))
        for (_, here, a), (_, there, b) in pairs:
            at = a - here * (b - a) / (there - here) if here != there else math.inf
            yield from _around(at, e)


def _around(at: float, e: Event) -> Iterator[_Place]:
    if abs(at) < 1 << 62:
        whole = {math.ceil(at) - 1, math.ceil(at), math.floor(at) + 1}
        yield from (_Place(n, e) for n in whole)


def _pairs(
    recordings: dict[int, Sequence[Event]], seen: int
) -> Iterator[tuple[Event, Event, float]]:
    """The same event in the first recording and in another one, and how fast the number grows with
    the size; without those that do not."""
    for i, e in enumerate(recordings[seen]):
        for size, events in recordings.items():
            if i >= len(events) or events[i].where != e.where or size == seen:
                continue
            f = events[i]
            slope = (f.left - e.left) / (size - seen)
            if slope and math.isfinite(slope):
                yield e, f, slope


def _rounded(recordings: dict[int, Sequence[Event]], seen: int) -> Iterator[_Place]:
    """Sizes around which a number is rounded to the next one, seen from each recording."""
    for e, f, slope in _pairs(recordings, seen):
        if f.rounds and f.right is not None:
            yield from _around(seen + (f.right - e.left) / slope, e)


def _unwatched(recordings: dict[int, Sequence[Event]], seen: int) -> Iterator[_Place]:
    """Sizes at which a number that nobody watches would be one of those around it."""
    farthest = max(_FAR * seen, 1024)
    known: set[tuple[str, float]] = set()
    for e, _, slope in _pairs(recordings, seen):
        if not e.escapes or e.inside or (e.where, slope) in known:
            continue
        known.add((e.where, slope))
        near = sorted(e.numbers | {10, 100, 1000}, key=lambda n: abs(n - e.left))[:_NUMBERS]
        places = [p for n in near for p in _around(seen + (n - e.left) / slope, e)]
        sizes = [seen * 2**k for k in range(1, 5)] + [seen >> k for k in range(1, 5)]
        yield from (p for p in places if p.size <= farthest)
        yield from (_Place(n, e) for n in sizes)


def check(
    name: str,
    seen: int,
    bounds: tuple[int, int],
    recordings: dict[int, Sequence[Event]],
    fits: Callable[[int], bool],
    agrees: Callable[[int], bool],
    largest: int,
) -> None:
    """Raises Turn where the program does not hold within the bounds. `recordings`: what was seen
    at other sizes, the first one `seen`; `agrees` adds to them, says whether function and program
    give the same, and is asked up to `largest`. `fits`: whether a size is of the rule."""
    first = recordings[seen]
    asked = {size: True for size in recordings}
    for _ in range(_ROUNDS):
        places = (
            _places(recordings, first),
            _rounded(recordings, seen),
            _unwatched(recordings, seen),
        )
        found = {
            p.size: p.event for p in itertools.chain(*places)
            if bounds[0] <= p.size <= bounds[1] and fits(p.size) and p.size not in asked
            and (p.size <= largest or not p.event.inside)
        }  # fmt: skip
        below = sorted((s for s in found if s < seen), reverse=True)
        above = sorted(s for s in found if s > seen)
        (low, high), where = bounds, ""
        for sizes in (below[:_MOST], above[:_MOST]):
            for size in sizes:
                asked[size] = size <= largest and agrees(size)
                if asked[size]:
                    continue
                where = found[size].where
                good = [s for s, same in asked.items() if same and (s - seen) * (size - seen) >= 0]
                if size > largest:
                    high = max(s for s in good if s < size)
                elif size > seen:
                    high = _bisect(max(s for s in good if s < size), size, fits, agrees)
                elif found[size].of_size:
                    low = seen
                else:
                    low = _bisect(min(s for s in good if s > size), size, fits, agrees)
                break
        if where:
            raise Turn(name, low, high, where)
        if not found:
            break


def _bisect(good: int, bad: int, fits: Callable[[int], bool], agrees: Callable[[int], bool]) -> int:
    """The last size from `good` on towards `bad` that agrees."""
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        if not fits(middle):
            middle = next((n for n in range(min(good, bad) + 1, max(good, bad)) if fits(n)), good)
        if middle == good:
            break
        if agrees(middle):
            good = middle
        else:
            bad = middle
    return good
