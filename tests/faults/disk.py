"""Faults of disks: full, limited, read only, broken. Each is a context manager."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def file_size_limit(bytes_: int) -> Iterator[None]:
    """A file of this process may not get longer: EFBIG, in the middle of a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@contextmanager
def no_more_files() -> Iterator[None]:
    """EMFILE for whatever opens a file."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def failing_calls(monkeypatch: pytest.MonkeyPatch, name: str, code: int) -> Iterator[None]:
    """os.NAME fails as it does on a disk with that trouble."""

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        yield


# Which calls of a writer fail in which way: a quota, a broken disk, one that is mounted read-only.
TROUBLES = [
    ("fsync", errno.EDQUOT), ("fsync", errno.EIO), ("fsync", errno.ENOSPC), ("rename", errno.EROFS),
    ("link", errno.ENOSPC), ("open", errno.EROFS), ("open", errno.EACCES), ("open", errno.EMFILE),
]  # fmt: skip


@contextmanager
def small_file_system(folder: Path, bytes_: int) -> Iterator[Path]:
    """A file system of that size; skips the test where this user may not make one."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={bytes_}", "tmpfs", str(folder)], capture_output=True
    )
    if made.returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
