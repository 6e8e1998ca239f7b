"""Batches as messages between processes. The memory of large tensors goes as an open file without a
name, which the receiver maps: it lives as long as somebody has it, however its processes end. What
is small, or finds no such memory, is pickled as usual.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any

import tenon
from tenon import Tensor
from tenon.utils.data._utils.channel import MAX_FILES, Message

LEAST = 1 << 16  # bytes; a socket takes less than this at once

_arriving = threading.local()


def _attach(place: int, kind: tenon.dtype, shape: tuple[int, ...]) -> Tensor:
    """A tensor on the memory that came with the message that is being read."""
    if place >= len(_arriving.files):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    memory = mmap.mmap(_arriving.files[place], 0)
    return tenon.frombuffer(memory, dtype=kind).reshape(shape)


def _filled(data: memoryview) -> int:
    """An open file without a name that holds some bytes."""
    fd = os.memfd_create("tenon-batch", os.MFD_CLOEXEC)
    try:
        # Now, because memory that runs out later would end the process that writes to it.
        os.posix_fallocate(fd, 0, len(data))
        done = 0
        while done < len(data):
            done += os.write(fd, data[done:])
    except BaseException:
        os.close(fd)
        raise
    return fd


class _Pickler(ForkingPickler):
    """Pickles a batch, and collects the memory of its large tensors."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.files: list[int] = []

    # In dispatch_table a method would hold the pickler, and that the batch, for too long.
    def reducer_override(self, value: Any) -> Any:
        return self._reduce_tensor(value) if type(value) is Tensor else NotImplemented

    def _reduce_tensor(self, t: Tensor) -> Any:
        plain = not t.requires_grad and not t.__dict__ and t.device.type == "cpu"
        small = t.numel() * t.element_size() < LEAST
        if not plain or small or not t.is_contiguous() or len(self.files) == MAX_FILES:
            return t.__reduce_ex__(2)
        try:
            self.files.append(_filled(memoryview(t.reshape(-1).view(tenon.uint8))))
        except OSError:
            return t.__reduce_ex__(2)
        return _attach, (len(self.files) - 1, t.dtype, tuple(t.shape))


def packed(value: Any) -> tuple[bytes, list[int]]:
    """A value as bytes and open files; raises what pickling it raises."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    try:
        pickler.dump(value)
    except BaseException:
        for fd in pickler.files:
            os.close(fd)
        raise
    return file.getvalue(), pickler.files


def unpacked(message: Message) -> Any:
    """The value of a message, whose files are closed."""
    _arriving.files = message.files
    try:
        return ForkingPickler.loads(message.data)
    finally:
        del _arriving.files
        message.close()
