"""Messages between two processes: bytes, and open files that go with them.

Neither side ever waits for the other inside of a message: what has arrived is taken, what fits is
sent, and a process that dies in the middle leaves a message that is never complete, nothing worse.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from tenon._queues import receive_files

MAX_FILES = 200  # of one message; the system takes 253
_HEAD = struct.Struct("<QqL")  # bytes, number, open files


class Closed(Exception):  # noqa: N818 - it is no error
    """The other side is gone."""


class Message(NamedTuple):
    """What was sent: a number, bytes, and open files that are now the receiver's to close."""

    number: int
    data: bytearray
    files: list[int]

    def close(self) -> None:
        """Closes the files."""
        while self.files:
            os.close(self.files.pop())


class Channel:
    """One end of a pair of connected sockets."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end = end
        self.outgoing: deque[tuple[memoryview, list[int]]] = deque()
        self.head = bytearray()
        self.coming: Message | None = None
        self.have = 0

    def fileno(self) -> int:
        return self.end.fileno()

    def add(self, number: int, data: bytes, files: list[int] | None = None) -> None:
        """Appends a message to those that are to be sent; the files are closed afterwards."""
        files = files or []
        head = _HEAD.pack(len(data), number, len(files))
        self.outgoing.append((memoryview(head), files))
        if data:
            self.outgoing.append((memoryview(data), []))

    def push(self) -> bool:
        """Sends what the system takes now; True: that was all."""
        while self.outgoing:
            data, files = self.outgoing[0]
            try:
                n = socket.send_fds(self.end, [data], files) if files else self.end.send(data)
            except BlockingIOError:
                return False
            except (BrokenPipeError, ConnectionResetError):
                raise Closed from None
            while files:
                os.close(files.pop())
            if n == len(data):
                self.outgoing.popleft()
            else:
                self.outgoing[0] = (data[n:], [])
        return True

    def pull(self) -> Message | None:
        """The next message that has arrived whole."""
        try:
            while self.coming is None:
                self._pull_head()
            while self.have < len(self.coming.data):
                n = self.end.recv_into(memoryview(self.coming.data)[self.have :])
                if n == 0:
                    raise Closed
                self.have += n
        except BlockingIOError:
            return None
        except ConnectionResetError:
            raise Closed from None
        message, self.coming, self.have = self.coming, None, 0
        return message

    def _pull_head(self) -> None:
        missing = _HEAD.size - len(self.head)
        data, files, flags = receive_files(self.end, missing, MAX_FILES)
        if not data:
            raise Closed
        self.head += data
        if flags & socket.MSG_CTRUNC:  # this process may open no more: the message lacks files
            while files:
                os.close(files.pop())
        if len(self.head) == _HEAD.size:
            size, number, _ = _HEAD.unpack(self.head)
            self.head.clear()
            self.coming = Message(number, bytearray(size), files)

    def shut(self) -> None:
        """Lets the other side find Closed where it next sends or waits. No message says so: half of
        another may stand before it, where an exception came out of the middle of push.
        """
        with suppress(OSError):  # it is gone itself
            self.end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes this end, and the files of messages that nobody gets."""
        for _, files in self.outgoing:
            while files:
                os.close(files.pop())
        self.outgoing.clear()
        if self.coming is not None:
            self.coming.close()
        self.end.close()
