"""Reads and writes NumPy's `.npy` files without NumPy.

Arrays of Python objects and of records are refused; other byte orders are converted.
"""

from __future__ import annotations

import os
import re
from typing import Any, BinaryIO

import tenon
from tenon.io import _tensor
from tenon.io.atomic import open_to_read, replacing
from tenon.io.errors import FileFormatError

MAGIC = b"\x93NUMPY"
MAX_HEADER = 1 << 16
MAX_DIMS = 64
CODES = {
    "b1": "bool", "u1": "uint8", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "u2": "uint16", "u4": "uint32", "u8": "uint64",
    "f2": "float16", "f4": "float32", "f8": "float64", "c8": "complex64", "c16": "complex128",
}  # fmt: skip
# One piece of a header; no piece can be taken in two ways, so reading takes one pass.
_TOKEN = re.compile(r"\s*(?:'([^'\\]*)'|(True|False)|([0-9]{1,19})L?|([{}():,])|$)", re.ASCII)
_VALUES = {"descr": "text", "fortran_order": "word", "shape": "("}

Path = str | os.PathLike[str]


class _Header:
    """The pieces of a header, which is a Python dict as text, one after the other."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.kind = self.piece = ""
        self.next()

    def next(self) -> None:
        m = _TOKEN.match(self.text, self.at)
        if not m:
            raise FileFormatError(f"npy: the header is not understood from character {self.at} on")
        self.at = m.end()
        text, word, number, mark = m.groups()
        kinds = ((text, "text"), (word, "word"), (number, "number"), (mark, mark), ("", "end"))
        self.piece, self.kind = next((p, k) for p, k in kinds if p is not None)

    def take(self, kind: str) -> str:
        """The piece that is there, which must be of that kind."""
        if self.kind != kind:
            raise FileFormatError(
                "npy: the header has something other than descr, fortran_order and shape of a "
                "plain array"
            )
        piece = self.piece
        self.next()
        return piece

    def more(self, end: str) -> bool:
        """Whether another member of a list follows: there is a comma, and then no end."""
        if self.kind == ",":
            self.next()
            return self.kind != end
        return False

    def shape(self) -> tuple[int, ...]:
        sizes: list[int] = []
        self.take("(")
        more = self.kind != ")"
        while more:
            if len(sizes) == MAX_DIMS:
                raise FileFormatError(f"npy: an array of more than {MAX_DIMS} dimensions")
            sizes.append(int(self.take("number")))
            more = self.more(")")
        self.take(")")
        return tuple(sizes)

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.take("{")
        more = self.kind != "}"
        while more:
            name = self.take("text")
            self.take(":")
            if name in found or name not in _VALUES:
                raise FileFormatError(f"npy: the header has {name[:40]!r} twice or without need")
            found[name] = self.shape() if name == "shape" else self.take(_VALUES[name])
            more = self.more("}")
        self.take("}")
        self.take("end")
        if len(found) != len(_VALUES):
            raise FileFormatError("npy: the header lacks descr, fortran_order or shape")
        return found


def _read(file: BinaryIO) -> tenon.Tensor:
    total = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(8)
    if head[:6] != MAGIC:
        raise FileFormatError("npy: the file does not begin with NumPy's mark")
    if len(head) < 8 or head[6] not in (1, 2, 3):
        raise FileFormatError("npy: a version that is not known")
    length = int.from_bytes(file.read(2 if head[6] == 1 else 4), "little")
    if length > MAX_HEADER or length > total - file.tell():
        raise FileFormatError(f"npy: a header of {length} bytes")
    fields = _Header(file.read(length).decode("latin-1")).fields()
    descr, fortran, shape = fields["descr"], fields["fortran_order"] == "True", fields["shape"]
    order, code = descr[:1], descr[1:]
    if order not in ("<", ">", "|", "=") or code not in CODES:
        raise FileFormatError(f"npy: elements of the type {descr[:40]!r} are not read")
    kind = CODES[code]
    size = _tensor.ITEMSIZE[kind]
    for n in shape:
        size *= n
    have = total - file.tell()
    if size != have:
        raise FileFormatError(f"npy: the array takes {size} bytes, the file holds {have}")
    data = _tensor.read_exactly(file, size, "npy: the array")
    native = "<" if _tensor.NATIVE == "little" else ">"
    if order in "<>" and order != native:
        data = _tensor.swapped(data, _tensor.SWAP_UNIT.get(kind, _tensor.ITEMSIZE[kind]))
    strides, step = [], 1
    for n in shape if fortran else reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    if not fortran:
        strides.reverse()
    return _tensor.Block(data).cut(kind, shape, tuple(strides), 0)


def load(filename: Path) -> tenon.Tensor:
    """The array in a file, as a tensor."""
    with open_to_read(filename) as file:
        return _read(file)


def save(filename: Path, t: tenon.Tensor) -> None:
    """Writes a tensor as an array in row-major order."""
    codes = {name: code for code, name in CODES.items()}
    kind = _tensor.name_of(t.dtype)
    if kind not in codes:
        raise TypeError(f"npy: NumPy has no {kind}; convert the tensor to float32 first")
    order = "|" if _tensor.ITEMSIZE[kind] == 1 else "<" if _tensor.NATIVE == "little" else ">"
    shape = ", ".join(map(str, t.shape)) + ("," if t.dim() == 1 else "")
    text = f"{{'descr': '{order}{codes[kind]}', 'fortran_order': False, 'shape': ({shape}), }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    with replacing(filename) as file:
        file.write(MAGIC + b"\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin-1"))
        row = _tensor.elements_of(t)
        file.write(_tensor.bytes_of(row))
