"""Handles of shared memory that were damaged on their way: none is opened, whatever is at fault."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import tenon as tn

X = tn.arange(6, dtype=tn.int32)
KIND, INDEX, DEVICE, BYTES = 8, 12, 16, 48
WORD = 2**64


def fnv(data: bytes) -> int:
    """Fowler, Noll and Vo's sum, variant 1a, of 64 bits."""
    total = 14695981039346656037
    for byte in data:
        total = (total ^ byte) * 1099511628211 % WORD
    return total


def end_of(handle: bytes) -> int:
    """Where the sum of what stands before it stands."""
    [at] = [k for k in range(56, len(handle), 8)
            if struct.unpack_from("<Q", handle, k)[0] == fnv(handle[:k])]  # fmt: skip
    return at


def opened(handle: bytes, file: int, shape: Any = (6,), strides: Any = (1,)) -> tn.Tensor:
    return tn._C._open_shared(handle, file, tn.int32, shape, strides, 0)


@pytest.fixture
def shared() -> Iterator[tuple[bytes, int]]:
    """A handle and its file; it is opened in the end, so that nothing is kept for it."""
    handle, file = tn._C._share(X)
    yield handle, file
    assert opened(handle, file).tolist() == X.tolist()
    if file >= 0:
        os.close(file)


def test_each_byte_counts(shared: tuple[bytes, int]) -> None:
    handle, file = shared
    for at in range(end_of(handle) + 8):
        other = bytearray(handle)
        other[at] ^= 1 << at % 8
        with pytest.raises(ValueError, match="the handle cannot be opened: it is damaged"):
            opened(bytes(other), file)


@pytest.mark.parametrize(
    ("at", "field"),
    [
        (0, b"tnshard\0"),
        (KIND, struct.pack("<I", 3)),
        (INDEX, struct.pack("<i", -1)),
        (INDEX, struct.pack("<i", 256)),
        (DEVICE, b"c" * 32),
        (BYTES, struct.pack("<Q", 2**62 + 1)),
        (BYTES, struct.pack("<Q", 23)),
        (BYTES, struct.pack("<Q", 25)),
    ],
)
def test_what_means_nothing_is_refused(shared: tuple[bytes, int], at: int, field: bytes) -> None:
    """Also with the right sum, as somebody may write it."""
    handle, file = shared
    end = end_of(handle)
    other = handle[:at] + field + handle[at + len(field) : end]
    other += struct.pack("<Q", fnv(other)) + handle[end + 8 :]
    with pytest.raises(ValueError, match="the handle cannot be opened: it is damaged"):
        opened(other, file)


@pytest.mark.parametrize("index", [7, 42, 142, 255])
def test_an_index_that_is_not_there_is_named(shared: tuple[bytes, int], index: int) -> None:
    handle, file = shared
    end = end_of(handle)
    other = handle[:INDEX] + struct.pack("<i", index) + handle[DEVICE:end]
    other += struct.pack("<Q", fnv(other)) + handle[end + 8 :]
    with pytest.raises(RuntimeError, match=rf"device 'cpu' has no index {index} \("):
        opened(other, file)


def test_sizes_and_lengths_are_looked_at(shared: tuple[bytes, int]) -> None:
    handle, file = shared
    for wrong in (handle[:-1], handle + b"\0", b""):
        with pytest.raises(ValueError, match="the handle or the strides are damaged"):
            opened(wrong, file)
    with pytest.raises(ValueError, match="the handle or the strides are damaged"):
        opened(handle, file, (6,), (1, 1))
    with pytest.raises(ValueError, match="sizes and strides must be tuples"):
        opened(handle, file, [6])
