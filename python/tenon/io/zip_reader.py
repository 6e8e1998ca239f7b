"""Reads zip archives whose members are stored, not compressed: what checkpoints are.

Only the directory at the end of the file is believed, and only as far as the file bears it out:
members must lie inside the file, before the directory, and must not overlap.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from tenon import _C
from tenon.io._tensor import read_exactly
from tenon.io.atomic import open_to_read
from tenon.io.errors import FileFormatError

END = b"PK\x05\x06"
END64 = b"PK\x06\x06"
LOCATOR64 = b"PK\x06\x07"
CENTRAL = b"PK\x01\x02"
LOCAL = b"PK\x03\x04"
# The records that begin with these: of the end of the directory, where that of zip64 lies, that one
# itself, an entry of the directory, what stands in front of a member.
_END, _LOCATOR64, _END64 = map(struct.Struct, ("<4s4H2LH", "<4sLQL", "<4sQ2H2L4Q"))
_ENTRY, _HEAD = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s22x2H")
MAX_COMMENT = 0xFFFF
MAX_MEMBERS = 1 << 20


@dataclass(frozen=True)
class Member:
    name: str
    start: int  # of the contents in the file
    size: int
    crc: int
    packed: int | None = None  # bytes in the file, where they are compressed


class Archive:
    """The members of an open file by name. `inflates`: which of them may be compressed."""

    def __init__(
        self, file: BinaryIO, inflates: Callable[[str], bool] = lambda name: False
    ) -> None:
        self.file = file
        self.inflates = inflates
        self.size = file.seek(0, io.SEEK_END)
        self.members: dict[str, Member] = {}
        offset, size, count = self._find_directory()
        self._read_directory(offset, size, count)

    def _at(self, offset: int, n: int) -> bytes:
        if offset < 0 or n < 0 or offset > self.size - n:
            raise FileFormatError("the zip archive is cut off")
        self.file.seek(offset)
        data = self.file.read(n)
        if len(data) != n:
            raise FileFormatError("the zip archive is cut off")
        return data

    def _find_directory(self) -> tuple[int, int, int]:
        """Offset, size and number of entries of the directory."""
        tail_size = min(self.size, _END.size + MAX_COMMENT)
        tail = self._at(self.size - tail_size, tail_size)
        found = tail.rfind(END)
        if found < 0 or found + _END.size > tail_size:
            raise FileFormatError("this is no zip archive, or its end is missing")
        end_at = self.size - tail_size + found
        fields = _END.unpack_from(tail, found)
        disk, first_disk, here, count, size, offset = fields[1:7]
        if 0xFFFF in (disk, here, count) or 0xFFFFFFFF in (size, offset):
            return self._find_directory64(end_at)
        if disk or first_disk or here != count or offset + size > end_at:
            raise FileFormatError("the zip archive's directory does not fit the file")
        return offset, size, count

    def _find_directory64(self, end_at: int) -> tuple[int, int, int]:
        locator_at = end_at - _LOCATOR64.size
        magic, _, at, disks = _LOCATOR64.unpack(self._at(locator_at, _LOCATOR64.size))
        if magic != LOCATOR64 or disks > 1:
            raise FileFormatError("the zip64 archive's end is damaged")
        fields = _END64.unpack(self._at(at, _END64.size))
        here, count, size, offset = fields[6:10]
        if fields[0] != END64 or here != count or offset + size > at or at > locator_at:
            raise FileFormatError("the zip64 archive's directory does not fit the file")
        return offset, size, count

    def _read_directory(self, offset: int, size: int, count: int) -> None:
        if count > MAX_MEMBERS or count * _ENTRY.size > size:
            raise FileFormatError(f"the zip archive claims {count} members")
        directory = self._at(offset, size)
        at = 0
        spans = []
        for _ in range(count):
            if at + _ENTRY.size > size:
                raise FileFormatError("the zip archive's directory is cut off")
            f = _ENTRY.unpack_from(directory, at)
            names, extras, comments = f[10:13]
            at += _ENTRY.size
            if f[0] != CENTRAL or at + names + extras + comments > size:
                raise FileFormatError("the zip archive's directory is damaged")
            raw, extra = directory[at : at + names], directory[at + names : at + names + extras]
            at += names + extras + comments
            member = self._member(raw, f, extra, offset)
            taken = member.size if member.packed is None else member.packed
            spans.append((member.start, member.start + taken))
        spans.sort()
        for (_, end), (start, _) in zip(spans, spans[1:], strict=False):
            if start < end:
                raise FileFormatError("members of the zip archive overlap")

    def _member(self, raw: bytes, f: tuple[Any, ...], extra: bytes, directory: int) -> Member:
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise FileFormatError(
                "a member of the zip archive has a name that is no UTF-8"
            ) from None
        flags, method, crc, packed, size, header = f[3], f[4], f[7], f[8], f[9], f[16]
        size, packed, header = self._wide(extra, size, packed, header)
        if flags & 1:
            raise FileFormatError(f"{name!r} in the zip archive is encrypted")
        deflated = method == 8 and self.inflates(name)
        if not deflated and (method != 0 or packed != size):
            raise FileFormatError(f"{name!r} in the zip archive is compressed; only stored is read")
        if name in self.members:
            raise FileFormatError(f"{name!r} is twice in the zip archive")
        if name.startswith("/") or ".." in name.split("/") or "\\" in name or "\0" in name:
            raise FileFormatError(f"{name!r} in the zip archive leads out of it")
        magic, names, extras = _HEAD.unpack(self._at(header, _HEAD.size))
        start = header + _HEAD.size + names + extras
        if magic != LOCAL or start + packed > directory:
            raise FileFormatError(f"{name!r} does not lie inside the zip archive")
        member = Member(name, start, size, crc, packed if deflated else None)
        self.members[name] = member
        return member

    @staticmethod
    def _wide(extra: bytes, size: int, packed: int, header: int) -> tuple[int, int, int]:
        """The three numbers, from the zip64 field where the directory only says "see there"."""
        values = [size, packed, header]
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack("<2H", extra[at : at + 4])
            field = extra[at + 4 : at + 4 + length]
            at += 4 + length
            if kind != 1:
                continue
            for i, value in enumerate(values):
                if value == 0xFFFFFFFF:
                    if len(field) < 8:
                        raise FileFormatError("a zip64 field is cut off")
                    values[i] = int.from_bytes(field[:8], "little")
                    field = field[8:]
        return values[0], values[1], values[2]

    def read(self, member: Member) -> memoryview:
        """The contents of a member, checked against its checksum."""
        self.file.seek(member.start)
        crc = 0

        def take(part: memoryview) -> None:
            nonlocal crc
            crc = _C._crc32(part, crc)

        if member.packed is None:
            data = read_exactly(self.file, member.size, repr(member.name), take)
        else:
            data = self._inflated(member)
            take(data)
        if crc != member.crc:
            raise FileFormatError(f"{member.name!r} does not match its checksum")
        return data

    def _inflated(self, member: Member) -> memoryview:
        """A compressed member, which grows to the size that the directory says and no more."""
        assert member.packed is not None
        packed = read_exactly(self.file, member.packed, repr(member.name), lambda part: None)
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = stream.decompress(packed, member.size + 1)
        except zlib.error as err:
            raise FileFormatError(f"{member.name!r} cannot be decompressed: {err}") from None
        if len(data) != member.size:
            raise FileFormatError(f"{member.name!r} has not the size that the archive says")
        return memoryview(data)


class PyTorchFileReader:
    """The records of a checkpoint by name, from a path or an open file."""

    def __init__(self, name_or_buffer: Any) -> None:
        opened = hasattr(name_or_buffer, "read")
        self._archive = Archive(name_or_buffer if opened else open_to_read(name_or_buffer))
        first = next(iter(self._archive.members), "")
        self._root = first.partition("/")[0] + "/"

    def has_record(self, name: str) -> bool:
        """Whether there is a record of that name."""
        return self._root + name in self._archive.members

    def get_all_records(self) -> list[str]:
        """All names."""
        return [name.removeprefix(self._root) for name in self._archive.members]

    def get_record(self, name: str) -> bytes:
        """The bytes of a record."""
        if not self.has_record(name):
            raise FileFormatError(f"the file has no record {name[:80]!r}")
        return bytes(self._archive.read(self._archive.members[self._root + name]))
