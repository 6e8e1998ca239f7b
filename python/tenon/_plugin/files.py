"""Files that somebody else has written: no pipe makes a reader wait, no device goes on for ever."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def contents(path: Path, most: int) -> bytes:
    """What a file holds; ValueError where it is no regular file, or has more bytes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError(f"{path.name} is no regular file")
        if os.fstat(fd).st_size > most:
            raise ValueError(f"{path.name} has more than {most} bytes")
        return file.read(most)
