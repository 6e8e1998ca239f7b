"""Reads GGUF files, in which language models travel with their settings.

Blocks of quantized numbers become float32, the rest keeps its dtype. What a file may hold besides:
`metadata`.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

import tenon
from tenon import Tensor
from tenon.io import _tensor
from tenon.io.atomic import open_to_read
from tenon.io.errors import FileFormatError
from tenon.io.pt_reader import Checkpoint, MapLocation

MAGIC = b"GGUF"
MAX_DIMS = 8
MAX_NESTED = 4
MAX_HEADER = 1 << 30
PART = 1 << 16
PLAIN = {
    0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64",
    30: "bfloat16",
}  # fmt: skip
NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
TEXT, ARRAY = 8, 9

Path = str | os.PathLike[str]

# ---- Blocks --------------------------------------------------------------------------------------
# A row of bytes for each block; the results are the numbers in it.


def _half(blocks: Tensor, at: int) -> Tensor:
    """The number in float16 that begins at a byte of each block."""
    return blocks[:, at : at + 2].contiguous().view(tenon.float16).float()


def _nibbles(data: Tensor) -> Tensor:
    """The lower halves of a row of bytes, then the upper ones."""
    return tenon.cat([data & 15, data >> 4], -1)


def _fifth_bits(data: Tensor) -> Tensor:
    """The bits of four bytes, each where the fifth bit of a number is."""
    steps = tenon.arange(8, dtype=tenon.uint8, device="cpu")
    return ((data.unsqueeze(-1) >> steps & 1) << 4).flatten(1)


def _q8_0(b: Tensor) -> Tensor:
    return b[:, 2:].contiguous().view(tenon.int8).float() * _half(b, 0)


def _q4_0(b: Tensor) -> Tensor:
    return (_nibbles(b[:, 2:]).float() - 8) * _half(b, 0)


def _q4_1(b: Tensor) -> Tensor:
    return _nibbles(b[:, 4:]).float() * _half(b, 0) + _half(b, 2)


def _q5_0(b: Tensor) -> Tensor:
    return ((_nibbles(b[:, 6:]) | _fifth_bits(b[:, 2:6])).float() - 16) * _half(b, 0)


def _q5_1(b: Tensor) -> Tensor:
    return (_nibbles(b[:, 8:]) | _fifth_bits(b[:, 4:8])).float() * _half(b, 0) + _half(b, 2)


def _scales(b: Tensor) -> tuple[Tensor, Tensor]:
    """Factors and offsets of the eight parts of a block: twice eight numbers of 6 bits."""
    low, middle, high = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    factors = tenon.cat([low & 63, (high & 15) | (low >> 6 << 4)], 1)
    offsets = tenon.cat([middle & 63, (high >> 4) | (middle >> 6 << 4)], 1)
    return factors.float() * _half(b, 0), offsets.float() * _half(b, 2)


def _q4_k(b: Tensor) -> Tensor:
    factors, offsets = _scales(b)
    numbers = _nibbles(b[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32).float()
    return factors.unsqueeze(-1) * numbers - offsets.unsqueeze(-1)


def _q5_k(b: Tensor) -> Tensor:
    factors, offsets = _scales(b)
    parts = tenon.arange(8, dtype=tenon.uint8, device="cpu").unsqueeze(-1)
    fifth = (b[:, 16:48].unsqueeze(1) >> parts & 1) << 4
    numbers = (_nibbles(b[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | fifth).float()
    return factors.unsqueeze(-1) * numbers - offsets.unsqueeze(-1)


def _q6_k(b: Tensor) -> Tensor:
    low = _nibbles(b[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    steps = tenon.tensor([0, 2, 4, 6], dtype=tenon.uint8, device="cpu").unsqueeze(-1)
    high = (b[:, 128:192].reshape(-1, 2, 1, 32) >> steps & 3) << 4
    numbers = ((low | high).float() - 32).reshape(-1, 16, 16)
    factors = _half(b, 208) * b[:, 192:208].contiguous().view(tenon.int8).float()
    return factors.unsqueeze(-1) * numbers


# By the number of the type: its name, numbers and bytes of a block, and what makes numbers of it.
BLOCKS: dict[int, tuple[str, int, int, Callable[[Tensor], Tensor]]] = {
    2: ("Q4_0", 32, 18, _q4_0), 3: ("Q4_1", 32, 20, _q4_1), 6: ("Q5_0", 32, 22, _q5_0),
    7: ("Q5_1", 32, 24, _q5_1), 8: ("Q8_0", 32, 34, _q8_0), 12: ("Q4_K", 256, 144, _q4_k),
    13: ("Q5_K", 256, 176, _q5_k), 14: ("Q6_K", 256, 210, _q6_k),
}  # fmt: skip

# ---- The file ------------------------------------------------------------------------------------


class _Header:
    """Settings, and where each tensor lies."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.start = file.tell()
        self.total = file.seek(0, io.SEEK_END) - self.start
        file.seek(self.start)
        self.data = b""
        self.at = self.base = 0  # the place in `data`, and that of `data` in the file
        if self._take(4) != MAGIC:
            raise FileFormatError("gguf: the file does not begin with GGUF")
        version = self._number("I")
        if version not in (2, 3):
            raise FileFormatError(f"gguf: the version {version} is not known")
        tensors, settings = self._count(24), self._count(13)
        self.metadata: dict[str, Any] = {}
        for _ in range(settings):
            name = self._text()
            if name in self.metadata:
                raise FileFormatError(f"gguf: {name[:80]!r} is there twice")
            self.metadata[name] = self._value(self._number("I"), 0)
        self.tensors: dict[str, tuple[int, tuple[int, ...], int]] = {}
        for _ in range(tensors):
            self._tensor()
        self._lay_out()

    def _take(self, n: int) -> bytes:
        here = self.base + self.at
        if n > self.total - here or here + n > MAX_HEADER:
            raise FileFormatError(f"gguf: the header ends inside an item, at byte {here}")
        if self.at + n > len(self.data):
            self.data = self.data[self.at :] + self.file.read(max(n, PART))
            self.base, self.at = here, 0
            if n > len(self.data):
                raise FileFormatError("gguf: the file is cut off")
        piece = self.data[self.at : self.at + n]
        self.at += n
        return piece

    def _number(self, code: str) -> Any:
        return struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))[0]

    def _count(self, least: int) -> int:
        """A number of things that take so many bytes at least."""
        n = self._number("Q")
        if n * least > self.total - self.base - self.at:
            raise FileFormatError(f"gguf: {n} items do not lie in the file")
        return n

    def _text(self) -> str:
        try:
            return self._take(self._count(1)).decode("utf-8")
        except UnicodeDecodeError as err:
            raise FileFormatError(f"gguf: text that is no UTF-8: {err}") from None

    def _value(self, kind: int, depth: int) -> Any:
        if kind in NUMBERS:
            return self._number(NUMBERS[kind])
        if kind == TEXT:
            return self._text()
        if kind != ARRAY or depth == MAX_NESTED:
            raise FileFormatError(f"gguf: a setting of the type {kind}, or nested too deep")
        of = self._number("I")
        if of in NUMBERS:
            size = struct.calcsize("<" + NUMBERS[of])
            n = self._count(size)
            return list(struct.unpack(f"<{n}{NUMBERS[of]}", self._take(n * size)))
        return [self._value(of, depth + 1) for _ in range(self._count(8))]

    def _tensor(self) -> None:
        name, dims = self._text(), self._number("I")
        if dims > MAX_DIMS or name in self.tensors:
            raise FileFormatError(f"gguf: {name[:80]!r} is there twice, or has {dims} dimensions")
        shape = tuple(reversed([self._number("Q") for _ in range(dims)]))
        kind, offset = self._number("I"), self._number("Q")
        self.tensors[name] = (kind, shape, offset)

    def _lay_out(self) -> None:
        """Checks that the tensors lie in the file, side by side."""
        unit = self.metadata.get("general.alignment", 32)
        if type(unit) is not int or not 1 <= unit <= 1 << 20:
            raise FileFormatError("gguf: an alignment that is none")
        self.first = -(-(self.base + self.at) // unit) * unit
        self.places = {
            name: (offset, size_of(name, kind, shape))
            for name, (kind, shape, offset) in self.tensors.items()
        }
        end = 0
        for offset, size in sorted(place for place in self.places.values() if place[1]):
            if offset < end or offset + size > self.total - self.first:
                raise FileFormatError("gguf: tensors overlap, or do not lie in the file")
            end = offset + size


def size_of(name: str, kind: int, shape: tuple[int, ...]) -> int:
    """The bytes of a tensor."""
    count = 1
    for n in shape:
        count *= n
        if count >= 1 << 60:
            raise FileFormatError(f"gguf: {name[:80]!r} is too large")
    if kind in PLAIN:
        return count * _tensor.ITEMSIZE[PLAIN[kind]]
    if kind not in BLOCKS:
        raise FileFormatError(f"gguf: {name[:80]!r} has the type {kind}, which is not read")
    called, numbers, size, _ = BLOCKS[kind]
    if not shape or shape[-1] % numbers:
        raise FileFormatError(f"gguf: {name[:80]!r} has rows that are no blocks of {called}")
    return count // numbers * size


def _numbers(data: memoryview, kind: int, shape: tuple[int, ...]) -> Tensor:
    foreign = _tensor.NATIVE != "little"
    if kind in PLAIN:
        t = _tensor.Block(data, foreign=foreign).flat_of(PLAIN[kind])
    elif foreign:
        raise FileFormatError(
            "gguf: blocks of quantized numbers are read on little-endian machines"
        )
    else:
        _, _, size, numbers = BLOCKS[kind]
        t = numbers(_tensor.Block(data).flat_of("uint8").reshape(-1, size))
    return t.reshape(shape)


def read(file: BinaryIO, map_location: MapLocation = None) -> dict[str, Tensor]:
    """The tensors of an open file by name, on the device that map_location says."""
    header, places = _Header(file), Checkpoint(map_location)
    tensors = {}
    for name, (kind, shape, _) in header.tensors.items():
        offset, size = header.places[name]
        file.seek(header.start + header.first + offset)
        data = _tensor.read_exactly(file, size, f"gguf: {name[:80]!r}")
        tensors[name] = _numbers(data, kind, shape).to(places.place(data, "cpu"))
    return tensors


def load(filename: Path, map_location: MapLocation = None) -> dict[str, Tensor]:
    """The tensors of a file by name."""
    with open_to_read(filename) as file:
        return read(file, map_location)


def metadata(filename: Path) -> dict[str, Any]:
    """The settings of a file: numbers, texts, and lists of them."""
    with open_to_read(filename) as file:
        return _Header(file).metadata
