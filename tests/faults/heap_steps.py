"""Faults of memory in every operator: in its first sample, and in the gradient of that, allocations
fail in turn. A call ends in MemoryError or in what it ends in with all memory, and keeps no block.

    heap_steps.py [NAME ...] [--most N] [--part K/N] [--trace]

is to be run with heap.c's library preloaded. NAME: operators, else all. Each try is a thread of its
own, whose lists of free blocks are empty, so that what it makes is allocated."""

from __future__ import annotations

import argparse
import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import heap

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "ops")]

import table  # noqa: E402 - the folder of the operators' tests
import test_nothing_leaks as leaks  # noqa: E402

AGAIN = 4  # how often a fault must leave blocks behind to be a leak: lists and caches grow once


class Tries:
    """A step, and what it ends in when allocation n fails."""

    def __init__(self, step: Callable[[], Any], memory: heap.Allocator) -> None:
        self.step, self.memory = step, memory
        self.seen, self.end, self.trace = 0, "", False

    def _run(self, n: int) -> None:
        self.memory.arm(n, n, self.trace)
        try:
            self.step()
            self.seen = self.memory.disarm()
            self.end = ""
        except BaseException as err:
            self.seen = self.memory.disarm()
            lack = isinstance(err, MemoryError) or heap.is_lack(err)
            self.end = "MemoryError" if lack else type(err).__name__

    def kept(self, n: int) -> int:
        """How many blocks there are more after a try."""
        thread = threading.Thread(target=self._run, args=(n,))
        gc.collect(0)
        before = self.memory.alive()
        thread.start()
        thread.join()
        del thread
        gc.collect(0)  # what refers to itself is no leak
        return self.memory.alive() - before

    def leak(self, n: int) -> int:
        """Blocks that each of several tries keeps."""
        least = self.kept(n)
        for _ in range(AGAIN):
            if least <= 0:
                return 0
            least = min(least, self.kept(n))
        return max(least, 0)


def points(count: int, most: int) -> list[int]:
    """The first ones, and others that lie evenly between them and the last."""
    if count <= most:
        return list(range(1, count + 1))
    first = most // 2
    return [*range(1, first + 1), *range(first + 1, count + 1, -(-(count - first) // first))]


def faults(
    row: dict[str, Any], memory: heap.Allocator, most: int, trace: bool
) -> tuple[int, list[str]]:
    """How many allocations failed, and what was wrong."""
    tries = Tries(leaks.bare_step(row, row["samples"][0]), memory)
    for _ in range(3):
        tries.kept(sys.maxsize)
    usual, wrong = tries.end, []
    chosen = points(tries.seen, most)
    for n in chosen:
        kept = tries.leak(n)
        if tries.end not in ("", "MemoryError", usual):
            wrong.append(f"{row['name']}, allocation {n}: {tries.end}")
        if kept and trace:
            tries.trace = True
            tries.kept(n)
            tries.trace = False
        if kept:
            wrong.append(f"{row['name']}, allocation {n}: it keeps {kept} blocks")
    tries.kept(sys.maxsize)
    if tries.end != usual:
        wrong.append(f"{row['name']}, afterwards: {tries.end or 'no error'}")
    return len(chosen), wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--most", type=int, default=1000, help="allocations of one operator")
    parser.add_argument("--part", default="0/1", help="every N-th operator from K on")
    parser.add_argument("--trace", action="store_true", help="where a leak's allocation is")
    o = parser.parse_args()
    memory = heap.Allocator()
    first, every = map(int, o.part.split("/"))
    rows = [r for r in table.rows() if leaks.reachable(r) and (r["name"] in o.names or not o.names)]
    sys.setswitchinterval(0.0005)
    gc.disable()
    failed, wrong = 0, []
    for row in rows[first::every]:
        count, found = faults(row, memory, o.most, o.trace)
        failed += count
        wrong += found
        for line in found:
            print(line, flush=True)
    print(f"{len(rows[first::every])} operators, {failed} allocations failed, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
