"""Queues between processes that outlive a process which is killed.

Python's queues are pipes with locks: whoever is killed in the middle of a message, or while it
waits for one with the lock held, leaves the others waiting for ever. Here a message is one packet
of a pair of sockets, which comes whole or not at all and goes to one reader, so that there is
nothing to lock. What is larger than a packet travels as a file without a name beside it.
"""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
import time
from functools import partial
from io import BytesIO
from multiprocessing import connection, context, queues, reduction
from queue import Empty
from typing import Any

from tenon._places import TICKET, Places

__all__ = ["JoinableQueue", "Queue", "SimpleQueue"]

_MOST = 1 << 15  # bytes of a packet
_HERE, _IN_FILE = b"\0", b"\1"
_SIZE = struct.Struct("<Q")
_RETRY_SECONDS = 0.005  # while the system holds too many files that nobody has received


def receive_files(
    end: socket.socket, size: int, most: int, flags: int = 0
) -> tuple[bytes, list[int], int]:
    """(bytes, open files, flags of the answer). Unlike socket.recv_fds, which leaves the flags out,
    it closes the files where another program takes this process's place."""
    files = array.array("i")
    data, parts, how, _ = end.recvmsg(
        size, socket.CMSG_LEN(most * files.itemsize), flags | socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, held in parts:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(held[: len(held) - len(held) % files.itemsize])
    return data, list(files), how


class Packets(connection.Connection):
    """One end of a pair of sockets, with the methods of Python's connections."""

    def __init__(self, handle: int, readable: bool = True, writable: bool = True) -> None:
        super().__init__(handle, readable, writable)
        self._socket = socket.socket(fileno=handle)
        self._socket.setblocking(True)

    def _close(self, _close: Any = os.close) -> None:
        self._socket.close()

    def _send_bytes(self, buf: Any) -> None:
        self.write(buf)

    def write(self, buf: Any, head: bytes = b"") -> None:
        """Sends a message with what `peek` sees of it."""
        data = memoryview(buf)
        if len(data) <= _MOST:
            self._socket.sendmsg([_HERE, head, data])
            return
        file = os.memfd_create("tenon-message", os.MFD_CLOEXEC)
        try:
            at = 0
            while at < len(data):
                at += os.write(file, data[at:])
            self._send_file(file, _IN_FILE + head + _SIZE.pack(len(data)))
        finally:
            os.close(file)

    def _send_file(self, file: int, head: bytes) -> None:
        while True:
            try:
                socket.send_fds(self._socket, [head], [file])
                return
            except OSError as err:
                if err.errno != errno.ETOOMANYREFS:
                    raise
                time.sleep(_RETRY_SECONDS)

    def _recv_bytes(self, maxsize: int | None = None) -> BytesIO | None:
        return _content(self.receive(), 0, maxsize)

    def receive(self, flags: int = 0) -> tuple[bytes, list[int], int]:
        """The next packet. BlockingIOError: there is none, and the flags say not to wait."""
        return receive_files(self._socket, 1 + TICKET.size + _MOST, 1, flags)

    def peek(self, size: int) -> bytes:
        """The head of the next message, which stays."""
        return self._socket.recv(1 + size, socket.MSG_PEEK | socket.MSG_DONTWAIT)[1:]


def _content(
    packet: tuple[bytes, list[int], int], head: int = 0, maxsize: int | None = None
) -> BytesIO | None:
    """A message without its head. None: it is larger."""
    data, files, how = packet
    try:
        if not data:
            raise EOFError
        if data[:1] == _HERE:
            data = data[1 + head :]
            return None if maxsize is not None and len(data) > maxsize else _held(data)
        if not files or how & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, "a message is lost, as this process may open no file")
        (size,) = _SIZE.unpack(data[1 + head :])
        return None if maxsize is not None and size > maxsize else _read(files[0], size)
    finally:
        for file in files:
            os.close(file)


def _held(data: bytes) -> BytesIO:
    held = BytesIO()
    held.write(data)
    return held


def _read(file: int, size: int) -> BytesIO:
    data, at = bytearray(size), 0
    while at < size:
        n = os.preadv(file, [memoryview(data)[at:]], at)
        if n == 0:
            raise OSError(errno.EIO, "a message is shorter than it was said to be")
        at += n
    return _held(data)


def _reduce(end: Packets) -> Any:
    return _rebuild, (reduction.DupFd(end.fileno()), end.readable, end.writable)


def _rebuild(handle: Any, readable: bool, writable: bool) -> Packets:
    return Packets(handle.detach(), readable, writable)


reduction.register(Packets, _reduce)


def pair() -> tuple[Packets, Packets]:
    """(where messages are read, where they are written)."""
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Packets(reader.detach(), writable=False), Packets(writer.detach(), readable=False)


class Free:
    """A lock that everybody holds."""

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        return True

    def release(self) -> None:
        pass

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *args: object) -> None:
        pass


class Queue(queues.Queue):  # type: ignore[type-arg]
    """multiprocessing.Queue."""

    def __init__(self, maxsize: int = 0, *, ctx: context.BaseContext) -> None:
        super().__init__(maxsize, ctx=ctx)
        self._reader.close()
        self._writer.close()
        self._reader, self._writer = pair()
        self._rlock = self._wlock = Free()
        if maxsize > 0:
            self._sem = Places(maxsize, ctx)
        self._reset()

    def _reset(self, after_fork: bool = False) -> None:
        super()._reset(after_fork)  # type: ignore[misc]
        if isinstance(self._sem, Places):
            self._sem.reset()
            self._send_bytes = partial(self._sem.send, self._writer.write)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if end is None else max(end - time.monotonic(), 0)
            if not self._reader.poll(left if block else 0):
                raise Empty
            try:
                data = self._take()
                break
            except BlockingIOError:  # another process has it
                continue
        return reduction.ForkingPickler.loads(data.getbuffer())

    def _take(self) -> BytesIO:
        if not isinstance(self._sem, Places):
            data = _content(self._reader.receive(socket.MSG_DONTWAIT))
            self._sem.release()
            return data
        with self._sem:
            if ticket := self._reader.peek(TICKET.size):
                self._sem.read(ticket)
            packet = self._reader.receive(socket.MSG_DONTWAIT)
        return _content(packet, TICKET.size)

    def qsize(self) -> int:
        if isinstance(self._sem, Places):
            return self._sem.taken()
        return super().qsize()

    def full(self) -> bool:
        return isinstance(self._sem, Places) and self.qsize() == self._maxsize


class JoinableQueue(Queue):
    """multiprocessing.JoinableQueue. What a killed process has taken or was about to put is never
    done."""

    def __init__(self, maxsize: int = 0, *, ctx: context.BaseContext) -> None:
        super().__init__(maxsize, ctx=ctx)
        self._unfinished_tasks = ctx.Semaphore(0)

    def __getstate__(self) -> Any:
        return super().__getstate__(), self._unfinished_tasks

    def __setstate__(self, state: Any) -> None:
        queue, self._unfinished_tasks = state
        super().__setstate__(queue)

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        self._unfinished_tasks.release()
        try:
            super().put(obj, block, timeout)
        except BaseException:
            self._unfinished_tasks.acquire(False)
            raise

    def task_done(self) -> None:
        if not self._unfinished_tasks.acquire(False):
            raise ValueError("task_done() called too many times")

    def join(self) -> None:
        pause = 0.0005
        while not self._unfinished_tasks._semlock._is_zero():
            time.sleep(pause)
            pause = min(2 * pause, 0.01)


class SimpleQueue(queues.SimpleQueue):  # type: ignore[type-arg]
    """multiprocessing.SimpleQueue."""

    def __init__(self, *, ctx: context.BaseContext) -> None:
        super().__init__(ctx=ctx)
        self.close()
        self._reader, self._writer = pair()
        self._rlock = self._wlock = Free()
        self._poll = self._reader.poll
