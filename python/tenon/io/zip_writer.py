"""Writes zip archives of stored members that start at multiples of 64 bytes.

Nothing is sought: a file that can only be written forward will do. Sizes and offsets beyond 4 GiB
go into zip64 fields.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from tenon import _C

ALIGN = 64
WIDE = 0xFFFFFFFF
UTF8_NAMES = 0x800
DATE = (1980 - 1980) << 9 | 1 << 5 | 1  # the same bytes for the same contents


class ArchiveWriter:
    """Collects members, then the directory."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.at = 0
        self.directory: list[bytes] = []

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while len(view):
            n = self.file.write(view)
            if n is None or n == len(view):
                break
            view = view[n:]
        self.at += len(data)

    def add(self, name: str, data: bytes | bytearray | memoryview) -> None:
        """Writes one member."""
        view = memoryview(data).cast("B")
        raw, size, crc, header = name.encode(), len(view), _C._crc32(view), self.at
        wide = struct.pack("<2H2Q", 1, 16, size, size) if size >= WIDE else b""
        shown = WIDE if wide else size
        gap = -(header + 30 + len(raw) + len(wide) + 4) % ALIGN
        extra = wide + struct.pack("<2H", 0x4246, gap) + b"Z" * gap
        version = 45 if wide else 20
        self._write(
            struct.pack(
                "<4s5H3L2H", b"PK\x03\x04", version, UTF8_NAMES, 0, 0, DATE, crc, shown, shown,
                len(raw), len(extra),
            )
            + raw + extra
        )  # fmt: skip
        self._write(view)
        numbers = [n for n in (size, size, header) if n >= WIDE]
        field = (
            struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""
        )
        self.directory.append(
            struct.pack(
                "<4s6H3L5H2L", b"PK\x01\x02", 45, 45 if field else 20, UTF8_NAMES, 0, 0, DATE, crc,
                min(size, WIDE), min(size, WIDE), len(raw), len(field), 0, 0, 0, 0,
                min(header, WIDE),
            )
            + raw + field
        )  # fmt: skip

    def finish(self) -> None:
        """Writes the directory."""
        start, count = self.at, len(self.directory)
        for entry in self.directory:
            self._write(entry)
        size, end = self.at - start, self.at
        if count >= 0xFFFF or start >= WIDE or size >= WIDE:
            self._write(
                struct.pack(
                    "<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start
                )
            )
            self._write(struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1))
        count = min(count, 0xFFFF)
        self._write(
            struct.pack(
                "<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, min(size, WIDE), min(start, WIDE), 0
            )
        )
