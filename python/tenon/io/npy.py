"""Reads and writes NumPy's `.npy` files without NumPy.

Arrays of Python objects and of records are refused; other byte orders are converted.
"""

from __future__ import annotations

import os
import re
from typing import BinaryIO

import tenon
from tenon.io import _tensor
from tenon.io.atomic import replacing
from tenon.io.errors import FileFormatError

MAGIC = b"\x93NUMPY"
MAX_HEADER = 1 << 16
MAX_DIMS = 64
CODES = {
    "b1": "bool", "u1": "uint8", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "f2": "float16", "f4": "float32", "f8": "float64", "c8": "complex64", "c16": "complex128",
}  # fmt: skip
_FIELD = re.compile(
    r"\s*'(descr|fortran_order|shape)'\s*:\s*"
    r"(?:'([^'\\]*)'|(True|False)|\(((?:\s*\d{1,19}L?\s*,?)*)\s*\))\s*(,|(?=\s*\}))"
)

Path = str | os.PathLike[str]


def _fields(text: str) -> tuple[str, bool, tuple[int, ...]]:
    """descr, fortran_order and shape of a header, which is a Python dict as text."""
    body = text.strip()
    if not body.startswith("{") or not body.endswith("}"):
        raise FileFormatError("npy: the header is no dict")
    found: dict[str, tuple[str | None, ...]] = {}
    at = 1
    while body[at:-1].strip():
        m = _FIELD.match(body, at)
        if not m:
            raise FileFormatError(
                "npy: the header has something other than descr, fortran_order and shape of a "
                "plain array"
            )
        if m[1] in found:
            raise FileFormatError(f"npy: the header has {m[1]} twice")
        found[m[1]] = (m[2], m[3], m[4])
        at = m.end()
    if set(found) != {"descr", "fortran_order", "shape"}:
        raise FileFormatError("npy: the header lacks descr, fortran_order or shape")
    descr, order, shape = found["descr"][0], found["fortran_order"][1], found["shape"][2]
    if descr is None or order is None or shape is None:
        raise FileFormatError("npy: the header has a value of the wrong type")
    texts = [n.strip().removesuffix("L") for n in shape.split(",") if n.strip()]
    if not all(n.isascii() and n.isdigit() and len(n) < 20 for n in texts):
        raise FileFormatError(f"npy: the shape ({shape[:60]}) is not one")
    sizes = [int(n) for n in texts]
    if len(sizes) > MAX_DIMS:
        raise FileFormatError(f"npy: an array of {len(sizes)} dimensions")
    return descr, order == "True", tuple(sizes)


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
    descr, fortran, shape = _fields(file.read(length).decode("latin-1"))
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
    with open(filename, "rb") as file:
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
