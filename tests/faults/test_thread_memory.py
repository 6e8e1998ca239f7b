"""The memory of threads that libraries ask for when they are loaded: there is little of it in a
process that runs already, and it is shared with every other library (glibc keeps some 1.6 kB)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import tenon

MOST_BYTES = {"libtenon.so": 800, "plugins/tenon_cpu.so": 200}
PT_TLS = 7


def thread_bytes(path: Path) -> int:
    """The size of the TLS segment of a library for 64 bits, little endian."""
    data = path.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    heads = (struct.unpack_from("<IIQQQQQQ", data, table + i * size) for i in range(count))
    return sum(head[6] for head in heads if head[0] == PT_TLS)


@pytest.mark.parametrize("name", MOST_BYTES)
def test_libraries_ask_for_little(name: str) -> None:
    library = Path(tenon.__file__).parent / name
    assert library.exists()
    assert thread_bytes(library) <= MOST_BYTES[name]
