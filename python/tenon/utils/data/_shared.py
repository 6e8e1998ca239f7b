"""Large tensors from a worker process to its parent through memory that both map.

The worker writes a tensor into a file of the memory file system and sends the name; the parent maps
the file and removes the name at once, so that the memory goes with the tensor. What is small, or
does not fit there, is pickled as usual.
"""

from __future__ import annotations

import itertools
import mmap
import os
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import tenon
from tenon import Tensor

FOLDER = Path("/dev/shm")
LEAST = 1 << 16  # bytes; a pipe takes less than this at once

_numbers = itertools.count()


def _prefix(pid: int) -> str:
    return f"tenon-{pid}-"


def _attach(path: str, kind: tenon.dtype, shape: tuple[int, ...]) -> Tensor:
    """The tensor that a worker left there; its memory is this process's alone from now on."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.unlink(path)
        memory = mmap.mmap(fd, 0)
    finally:
        os.close(fd)
    return tenon.frombuffer(memory, dtype=kind).reshape(shape)


def _write(data: memoryview) -> str:
    """Puts bytes into a new file of the memory file system."""
    path = str(FOLDER / f"{_prefix(os.getpid())}{next(_numbers)}")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Now, because a full file system would end the process when the memory is written.
        os.posix_fallocate(fd, 0, len(data))
        done = 0
        while done < len(data):
            done += os.write(fd, data[done:])
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(fd)
    return path


def _reduce(t: Tensor) -> Any:
    """What a queue sends for a tensor."""
    plain = not t.requires_grad and not t.__dict__ and t.device.type == "cpu"
    if not plain or not t.is_contiguous() or t.numel() * t.element_size() < LEAST:
        return t.__reduce_ex__(2)
    try:
        path = _write(memoryview(t.reshape(-1).view(tenon.uint8)))
    except OSError:  # no such file system here, or it is full
        return t.__reduce_ex__(2)
    return _attach, (path, t.dtype, tuple(t.shape))


def share_tensors() -> None:
    """Queues of this process send large tensors through shared memory. For worker processes."""
    ForkingPickler.register(Tensor, _reduce)


def remove_leftovers(pid: int) -> None:
    """Removes what a process has sent and nobody has received."""
    for path in FOLDER.glob(_prefix(pid) + "*"):
        with suppress(OSError):
            path.unlink()
