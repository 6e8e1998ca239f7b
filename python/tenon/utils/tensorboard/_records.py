"""Files of records as TensorBoard reads them: length, checksum of the length, data, checksum of the
data; and the few wire types of protocol buffers that events are made of."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache
from typing import BinaryIO


@cache
def _table() -> list[int]:
    """CRC-32C (Castagnoli, reversed polynomial 0x82F63B78) of each byte."""
    rows = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        rows.append(crc)
    return rows


def masked_crc(data: bytes) -> int:
    """The checksum of a record: CRC-32C, rotated and shifted by a constant."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def write_record(file: BinaryIO, data: bytes) -> None:
    """Appends a record."""
    length = struct.pack("<Q", len(data))
    head = length + struct.pack("<I", masked_crc(length))
    file.write(head + data + struct.pack("<I", masked_crc(data)))


# ---- Protocol buffers: a message is the concatenation of its fields ------------------------------


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def integer(field: int, value: int) -> bytes:
    """An integer, bool or enum."""
    return _varint(field << 3) + _varint(value)


def double(field: int, value: float) -> bytes:
    """A double."""
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    """A float."""
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def text(field: int, value: str | bytes) -> bytes:
    """A string, bytes, or an inner message."""
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def doubles(field: int, values: Iterable[float]) -> bytes:
    """A packed list of doubles."""
    listed = list(values)
    return text(field, struct.pack(f"<{len(listed)}d", *listed))


def floats(field: int, values: Iterable[float]) -> bytes:
    """A packed list of floats."""
    listed = list(values)
    return text(field, struct.pack(f"<{len(listed)}f", *listed))
