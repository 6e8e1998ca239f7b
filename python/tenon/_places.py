"""Places of a queue that holds so many messages and no more: a killed process gives its own back.

A semaphore does not know who counted it down. Here each place is a byte of a file that all
processes share. While a message waits in a process, that process holds the system's lock of the
byte, which ends with it. A message that is sent stands in the file's table, and carries the number
under which it does, until it is read. Who is killed between two of these steps leaves a place free
too early, for the time of one message, and never one that stays taken.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing import context, reduction
from typing import Any

TICKET = struct.Struct("<II")  # a place and its number, in front of a message
_NUMBER = struct.Struct("<I")
_FREE = b"\0"
_LOOK_SECONDS = 0.05  # who is killed tells nobody that its places are free


class Places:
    """In the place of the semaphore that counts what a multiprocessing.Queue holds."""

    def __init__(self, count: int, ctx: context.BaseContext) -> None:
        file = os.memfd_create("tenon-places", os.MFD_CLOEXEC)
        os.truncate(file, count * (1 + _NUMBER.size))
        self._open(file, count, ctx.Semaphore(0))

    def _open(self, file: int, count: int, freed: Any) -> None:
        self._file, self._count, self._freed = file, count, freed
        self._table = mmap.mmap(file, count * (1 + _NUMBER.size))
        self.reset()

    def __reduce__(self) -> Any:
        context.assert_spawning(self)
        return _rebuild, (reduction.DupFd(self._file), self._count, self._freed)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def reset(self) -> None:
        """After a fork nothing is held, and no thread is inside."""
        self._threads = threading.Lock()
        self._waiting: deque[int] = deque()  # places of what this process has not sent yet
        self._mine: set[int] = set()

    # Locks of files are a process's, so that threads need one of their own beside it.
    def __enter__(self) -> None:
        self._threads.acquire()
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, self._count)

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._count)
        self._threads.release()

    def _lock(self, place: int) -> bool:
        """Whether the place was nobody's, and now is this process's."""
        if place in self._mine:
            return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):
            return False
        self._mine.add(place)
        return True

    def _unlock(self, place: int) -> None:
        self._mine.discard(place)
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)

    def _number(self, place: int) -> int:
        return int(_NUMBER.unpack_from(self._table, self._count + place * _NUMBER.size)[0])

    def _next_number(self, place: int) -> None:
        number = (self._number(place) + 1) & 0xFFFFFFFF
        _NUMBER.pack_into(self._table, self._count + place * _NUMBER.size, number)

    def _free(self) -> Iterator[int]:
        """Places that are free; each is this process's from here on."""
        place = self._table.find(_FREE, 0, self._count)
        while place >= 0:
            if self._lock(place):
                yield place
            place = self._table.find(_FREE, place + 1, self._count)

    def _wake(self) -> None:
        if self._freed._semlock._is_zero():
            self._freed.release()

    def _take(self) -> bool:
        with self:
            place = next(self._free(), None)
            if place is None:
                return False
            self._next_number(place)
            self._waiting.append(place)
            other = next(self._free(), None)  # several may wait, of which one was told
            if other is not None:
                self._unlock(other)
                self._wake()
            return True

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Waits for a place for a message, which it gets in `send`."""
        end = None if block and timeout is None else time.monotonic() + (timeout or 0) * block
        while not self._take():
            left = _LOOK_SECONDS if end is None else min(_LOOK_SECONDS, end - time.monotonic())
            if left <= 0:
                return False
            self._freed.acquire(True, left)
        return True

    def send(self, write: Any, data: Any) -> None:
        """Writes a message with its ticket."""
        with self:
            place = self._waiting.popleft()
            number = self._number(place)
        try:
            write(data, TICKET.pack(place, number))
        except BaseException:
            with self:
                self._waiting.appendleft(place)
            raise
        with self:
            if self._number(place) == number:
                self._table[place] = 1
            else:  # it is read already
                self._wake()
            self._unlock(place)

    def release(self) -> None:
        """A message that cannot be sent needs its place no longer."""
        with self:
            self._unlock(self._waiting.popleft())
            self._wake()

    def read(self, ticket: bytes) -> None:
        """Frees the place of a message, which the caller takes before anybody else enters."""
        place, number = TICKET.unpack(ticket)
        if self._number(place) == number:
            self._next_number(place)
            self._table[place] = 0
        self._wake()

    def taken(self) -> int:
        """How many places are not free."""
        with self:
            free = list(self._free())
            for place in free:
                self._unlock(place)
        return self._count - len(free)


def _rebuild(file: Any, count: int, freed: Any) -> Places:
    places = Places.__new__(Places)
    places._open(file.detach(), count, freed)
    return places
