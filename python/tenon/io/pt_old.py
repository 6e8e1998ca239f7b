"""Checkpoints of before PyTorch 1.6, as data.

Until then a file was a row of pickles, with the storages behind the structure; PyTorch still writes
it for `_use_new_zipfile_serialization=False`. The first releases wrote a tar archive of three
members. Numbers in both are little-endian.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

from tenon.io import _tensor
from tenon.io.errors import FileFormatError, UnsafeContentError
from tenon.io.outline import Outline
from tenon.io.pt_reader import (
    KEY_TYPES,
    Checkpoint,
    MapLocation,
    StorageType,
    Stored,
    ZipCheckpoint,
    check_bytes,
    find,
    is_plain,
    parts_of,
    rebuild,
    whole,
)
from tenon.io.pt_writer import MAGIC, PROTOCOL
from tenon.io.unpickle import Global, Reader, shown

BLOCK = 512  # of a tar archive


class Span:
    """A part of a file, as a file that can be read and sought."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size = file, size
        self.first = file.tell()

    def tell(self) -> int:
        return self.file.tell() - self.first

    def seek(self, to: int, whence: int = io.SEEK_SET) -> int:
        """Goes to a place, from the beginning or the end."""
        return self.file.seek(self.first + to + (self.size if whence else 0)) - self.first

    def read(self, n: int) -> bytes:
        """At most n bytes."""
        return self.file.read(max(0, min(n, self.size - self.tell())))

    def readinto(self, data: memoryview) -> int:
        """Fills `data` as far as there are bytes."""
        return self.file.readinto(data[: max(0, self.size - self.tell())])  # type: ignore[attr-defined]


def _next(file: Any, names: Callable[[str, str], Any] = find) -> Any:
    """The plain object that is pickled at the file's position."""
    return Reader(Outline(file).text, names, None, KEY_TYPES).run()


def _left(file: Any) -> int:
    at = file.tell()
    end = file.seek(0, io.SEEK_END)
    file.seek(at)
    return end - at


def _number(file: Any) -> int:
    raw = file.read(8)
    if len(raw) < 8:
        raise FileFormatError("the file is cut off before a storage")
    return int.from_bytes(raw, "little", signed=True)


def _row(file: Any, kind: str | None) -> memoryview:
    """The bytes of the storage at the file's position: a number of elements, and these."""
    size = whole(_number(file), "a storage's size") * (_tensor.ITEMSIZE[kind] if kind else 1)
    if size > _left(file):
        raise FileFormatError(f"a storage of {size} bytes does not lie in the file")
    return _tensor.read_exactly(file, size, "a storage")


def _type_of(name: Any) -> StorageType:
    """The type of storage that a reference names."""
    known = find(*str(name).rsplit(".", 1)) if is_plain(str(name)) else None
    if not isinstance(known, StorageType):
        raise UnsafeContentError(f"the file refers to a storage as {shown(str(name))}")
    return known


class RowCheckpoint(Checkpoint):
    """Pickles in a row: a mark, a version, the writer's machine, the structure, the keys of the
    storages; then these in that order."""

    def __init__(self, file: BinaryIO, map_location: MapLocation) -> None:
        super().__init__(map_location)
        mark = _next(file)
        if type(mark) is not int or mark != MAGIC:
            raise FileFormatError("this file is a pickle, but no checkpoint")
        version = _next(file)
        if type(version) is not int or version != PROTOCOL:
            raise FileFormatError(f"the version {shown(version)} of checkpoints is not known")
        _next(file)  # byte order and sizes of C's types where it was written
        outline = Outline(file)
        self.text = outline.text
        self.stored: dict[str, Stored] = {}
        known = self._known(outline.references)
        keys = _next(file)
        if type(keys) is not list or not all(type(key) is str for key in keys):
            raise FileFormatError("the keys of the storages are no list of texts")
        for key in keys:
            if key not in known or key in self.stored:
                raise FileFormatError(f"nothing refers to the storage {shown(key)}, or it is twice")
            kind, location, count = known[key]
            data = _row(file, kind)
            check_bytes(key, kind, count, len(data))
            self.stored[key] = Stored(self.block(data, location), kind)

    @staticmethod
    def _known(references: list[Any]) -> dict[str, tuple[str | None, str, int]]:
        """Dtype, location and size of each storage, as its first reference says."""
        known: dict[str, tuple[str | None, str, int]] = {}
        for reference in references:
            if type(reference) is not tuple or reference[:1] == ("module",):
                continue
            named = tuple(_type_of(v) if i == 1 else v for i, v in enumerate(reference))
            kind, key, location, count = parts_of(named)
            known.setdefault(key, (kind, location, count))
        return known

    def structure(self) -> bytes:
        """What says how the storages belong together."""
        return self.text

    def storage(self, reference: Any) -> Any:
        """What a reference of the structure stands for."""
        if type(reference) is tuple and reference[:1] == ("module",):
            raise UnsafeContentError("the file holds a module, which is code")
        kind, key, _, count = parts_of(reference)
        stored = self.stored.get(key)
        if stored is None:
            raise FileFormatError(f"the storage {key[:80]!r} is not in the file")
        check_bytes(key, kind, count, len(stored.block.data))
        view = reference[5] if len(reference) > 5 else None
        if view is None:
            return Stored(stored.block, kind)
        if type(view) is not tuple or len(view) != 3:
            raise FileFormatError("a part of a storage that is no name, offset and size")
        return part_of(stored, kind, view[1], view[2])


def part_of(stored: Stored, kind: str | None, offset: Any, count: Any) -> Stored:
    """Some elements of a storage, as a storage over the same memory."""
    size = _tensor.ITEMSIZE[kind] if kind else 1
    first = whole(offset, "the offset of a part of a storage") * size
    length = whole(count, "the size of a part of a storage") * size
    if first + length > stored.size:
        raise FileFormatError("a part of a storage that does not lie in it")
    return Stored(stored.block, kind, stored.first + first, length)


# ---- Tar archives --------------------------------------------------------------------------------


def _members(file: BinaryIO) -> dict[str, tuple[int, int]]:
    """Start and size of each plain member."""
    members: dict[str, tuple[int, int]] = {}
    total = _left(file)
    at = 0
    while at + BLOCK <= total:
        file.seek(at)
        head = file.read(BLOCK)
        if not head.strip(b"\0"):
            break
        digits = head[124:136].strip(b" \0")
        if not digits.isdigit() or head[124] & 0x80 or b"8" in digits or b"9" in digits:
            raise FileFormatError("a member of the tar archive whose size is no octal number")
        size = int(digits, 8)
        if size > total - at - BLOCK:
            raise FileFormatError("a member of the tar archive does not lie in it")
        name = head[:100].partition(b"\0")[0].decode("utf-8", "replace")
        if head[156:157] in (b"0", b"\0"):
            members.setdefault(name, (at + BLOCK, size))
        at += BLOCK + -(-size // BLOCK) * BLOCK
    return members


def _any_name(module: str, name: str) -> Any:
    """Names of storages and of classes of tensors, which are not called."""
    full = f"{module}.{name}"
    return find(module, name) if is_plain(full) else Global(full)


class TarCheckpoint(Checkpoint):
    """Three members: storages, tensors that lie in them, and the structure, which refers to both by
    number."""

    def __init__(self, file: BinaryIO, map_location: MapLocation) -> None:
        super().__init__(map_location)
        self.file, self.members = file, _members(file)
        self.objects: dict[int, Any] = {}
        self._storages(self._member("storages"))
        self._tensors(self._member("tensors"))

    def _member(self, name: str) -> Span:
        if name not in self.members:
            raise FileFormatError(f"this tar archive is no checkpoint: it has no {name}")
        start, size = self.members[name]
        self.file.seek(start)
        return Span(self.file, size)

    def _storages(self, file: Span) -> None:
        for _ in range(whole(_next(file), "the number of storages")):
            entry = _next(file, _any_name)
            if type(entry) is not tuple or len(entry) != 3:
                raise FileFormatError("a storage without key, location and type")
            key, location, kind = entry
            if not isinstance(kind, StorageType) or type(location) is not str:
                raise FileFormatError("a storage whose location or type is not known")
            block = self.block(_row(file, kind.kind), location)
            self.objects[whole(key, "a key")] = Stored(block, kind.kind)
        views = _next(file)
        if type(views) is not list:
            raise FileFormatError("the parts of storages are no list")
        for view in views:
            if type(view) is not tuple or len(view) != 4:
                raise FileFormatError("a part of a storage that is no key, root, offset and size")
            root = self._object(view[1])
            if not isinstance(root, Stored):
                raise FileFormatError("a part of something that is no storage")
            self.objects[whole(view[0], "a key")] = part_of(root, root.kind, view[2], view[3])

    def _tensors(self, file: Span) -> None:
        for _ in range(whole(_next(file), "the number of tensors")):
            entry = _next(file, _any_name)
            if type(entry) is not tuple or len(entry) != 3:
                raise FileFormatError("a tensor without key, storage and type")
            dims = int.from_bytes(file.read(8)[:4], "little")
            numbers = file.read(16 * dims + 8) if dims <= 64 else b""
            if len(numbers) < 16 * dims + 8:
                raise FileFormatError("the file is cut off in a tensor, or it has too many sizes")
            values = struct.unpack(f"<{2 * dims + 1}q", numbers)
            sizes, strides, offset = values[:dims], values[dims : 2 * dims], values[-1]
            t = rebuild(self._object(entry[1]), offset, sizes, strides, False, None, None)
            self.objects[whole(entry[0], "a key")] = t

    def _object(self, key: Any) -> Any:
        number = int(key) if type(key) is str and key.isdecimal() and len(key) < 20 else key
        if type(number) is not int or number not in self.objects:
            raise FileFormatError(f"the file refers to {shown(key)}, which is not in it")
        return self.objects[number]

    def structure(self) -> bytes:
        """What says how the tensors belong together."""
        return Outline(self._member("pickle")).text

    def storage(self, reference: Any) -> Any:
        """What a reference of the structure stands for."""
        if type(reference) is tuple:
            raise UnsafeContentError("the file holds a module, which is code")
        return self._object(reference)


# ---- Any checkpoint ------------------------------------------------------------------------------


def open_checkpoint(
    file: BinaryIO, map_location: MapLocation = None, mmap: bool = False
) -> Checkpoint:
    """The checkpoint at the position of an open file, whatever its format."""
    start = file.tell()
    head = file.read(BLOCK)
    file.seek(start)
    if head[:2] == b"PK":
        return ZipCheckpoint(file, map_location, mmap)
    tar = head[257:262] == b"ustar"
    if not tar and head[:1] != b"\x80":
        raise FileFormatError("this file is no checkpoint")
    if mmap:
        raise FileFormatError("mmap=True needs a file in the format of PyTorch 1.6 and later")
    return (TarCheckpoint if tar else RowCheckpoint)(file, map_location)
