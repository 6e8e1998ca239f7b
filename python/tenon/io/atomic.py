"""Opening files to read and to write, so that no path makes a program wait and no writer that dies
leaves half a file.

A file is written without a name (O_TMPFILE), and gets one when it is complete. Where something has
the name already, or the file system knows no files without names, it gets another name that nobody
else has, and is then renamed. Its writer holds a lock on it; a file of that kind without a lock is
what a killed writer has left, and the next writer of the same path removes it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

Path = str | os.PathLike[str]

# What a file system, or a kernel, says that knows no files without names.
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)


def _opened(path: Path, _: int) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def open_to_read(path: Path) -> BinaryIO:
    """An open regular file. A pipe or device, which may never end or never begin, is an OSError."""
    raw = io.FileIO(path, "r", opener=_opened)  # which owns the descriptor from the start
    try:
        if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raise OSError(errno.ESPIPE, "it is no regular file", os.fspath(path))
        return io.BufferedReader(raw)
    except BaseException:
        raw.close()
        raise


@contextmanager
def _special(path: str) -> Iterator[BinaryIO]:
    """A pipe or device to write: it is written itself. A pipe that nobody reads is an OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    os.set_blocking(fd, True)
    with os.fdopen(fd, "wb") as file:
        yield file


class _Fresh:
    """The file that is to take the place of another."""

    def __init__(self, folder: str, name: str, nameless: bool = True) -> None:
        try:
            self.folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:  # a folder that may be written and not listed
            self.folder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.name = name
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        self.prefix, self.suffix = f".tenon-{digest}-", ".tmp"
        self.temporary: str | None = None
        self.fd = -1
        try:
            self._open(nameless)
        except BaseException:
            self.close()
            raise

    def _other_name(self) -> str:
        return f"{self.prefix}{secrets.token_hex(16)}{self.suffix}"

    def _open(self, nameless: bool) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC
        if nameless and os.path.exists("/proc/self/fd"):  # by which it gets a name
            try:
                self.fd = os.open(".", flags | os.O_TMPFILE, 0o666, dir_fd=self.folder)
            except OSError as err:
                if err.errno not in _NO_NAMELESS:
                    raise
        while self.fd < 0:
            # Noted before it is there: whatever is raised in between, close() finds it.
            temporary = self.temporary = self._other_name()
            fd = os.open(temporary, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=self.folder)
            with suppress(OSError):  # a file system without locks: leftovers stay
                fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                self.fd = fd
            else:  # somebody took it for a leftover in the moment before it was locked
                os.close(fd)
        with suppress(OSError):
            fcntl.flock(self.fd, fcntl.LOCK_EX)

    def resemble(self, old: os.stat_result) -> None:
        """Takes over the mode and, where that is allowed, the owner of the file that was there."""
        with suppress(PermissionError):
            os.fchown(self.fd, old.st_uid, old.st_gid)
        os.fchmod(self.fd, stat.S_IMODE(old.st_mode) & 0o777)

    def _link(self, name: str) -> None:
        os.link(f"/proc/self/fd/{self.fd}", name, dst_dir_fd=self.folder, follow_symlinks=True)

    def put_in_place(self, exists: bool) -> None:
        """Gives the complete file its name."""
        os.fsync(self.fd)
        if self.temporary is None and not exists:
            with suppress(FileExistsError):  # since then there is one
                self._link(self.name)
                return self._settle()
        if self.temporary is None:
            self.temporary = self._other_name()
            self._link(self.temporary)
        os.rename(self.temporary, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        self.temporary = None
        return self._settle()

    def _settle(self) -> None:
        with suppress(
            OSError
        ):  # the file is there; some file systems have no such call for folders
            os.fsync(self.folder)

    def sweep(self) -> None:
        """Removes what killed writers of the same path have left."""
        try:
            names = os.listdir(self.folder)
        except OSError:
            return
        for name in names:
            if name.startswith(self.prefix) and name.endswith(self.suffix):
                with suppress(OSError):
                    self._sweep_one(name)

    def _sweep_one(self, name: str) -> None:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(name, flags, dir_fd=self.folder)
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=self.folder)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Removes what was not put in place."""
        if self.temporary is not None:
            with suppress(OSError):
                os.unlink(self.temporary, dir_fd=self.folder)
        for fd in (self.fd, self.folder):
            if fd >= 0:
                os.close(fd)


def replace(path: Path, data: bytes) -> None:
    """Makes these bytes the file's."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends without an exception.

    Whoever opens the path meanwhile sees the old file whole, or the new one. A link stays and what
    it leads to is replaced.
    """
    target = os.path.realpath(path)
    old: os.stat_result | None = None
    with suppress(FileNotFoundError):
        old = os.stat(target)
    if old is not None and stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if old is not None and not stat.S_ISREG(old.st_mode):
        with _special(target) as file:
            yield file
        return
    if old is not None and not os.access(target, os.W_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    folder, name = os.path.split(target)
    fresh = _Fresh(folder, name)
    try:
        if old is not None:
            fresh.resemble(old)
        with os.fdopen(fresh.fd, "wb", closefd=False) as file:
            yield file
        fresh.put_in_place(old is not None)
        fresh.sweep()
    finally:
        fresh.close()
