"""The memory of threads that the library asks for when it is loaded: there is little of it in a
process that runs already, and it is shared with every other library (glibc keeps some 1.6 kB)."""

from __future__ import annotations

import struct
from pathlib import Path

import tenon

MOST_BYTES = 800
PT_TLS = 7


def thread_bytes(path: Path) -> int:
    """The size of the TLS segment of a library for 64 bits, little endian."""
    data = path.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    heads = (struct.unpack_from("<IIQQQQQQ", data, table + i * size) for i in range(count))
    return sum(head[6] for head in heads if head[0] == PT_TLS)


def test_the_library_asks_for_little() -> None:
    library = Path(tenon.__file__).parent / "libtenon.so"
    assert 0 < thread_bytes(library) <= MOST_BYTES
