"""What the file formats need of tensors, and nothing more.

A storage travels as `Block`: its bytes, from which tensors are cut. All tensors cut from one block
share its memory.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

import tenon
from tenon import Tensor, device, dtype
from tenon.io.errors import FileFormatError

ITEMSIZE = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2,
    "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
    "uint16": 2, "uint32": 4, "uint64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "complex32": 4,
}  # fmt: skip
SWAP_UNIT = {"complex32": 2, "complex64": 4, "complex128": 8}  # the parts are swapped one by one
PART = 1 << 18  # bytes that are read and looked at in turn
ALIGN = 16  # of memory that any element may lie in


def dtype_of(name: str) -> dtype:
    return getattr(tenon, name)


def name_of(kind: dtype) -> str:
    """'float32' of tenon.float32."""
    return str(kind).rpartition(".")[2]


def plugin_of(kind: dtype) -> str | None:
    """The plugin that brought a dtype; None: it is built in."""
    return kind.plugin


def raw_row(t: Tensor) -> Tensor:
    """The elements as a row of bytes, which any program can read."""
    row = elements_of(t)
    return row.view(tenon.uint8) if row.numel() else tenon.empty(0, dtype=tenon.uint8, device="cpu")


def from_raw(row: Tensor, name: str, plugin: str, shape: tuple[int, ...]) -> Tensor:
    """Bytes as elements of a plugin's dtype, which is loaded for it."""
    try:
        kind = tenon._C._named(name)
    except ValueError:
        kind = None
    if not isinstance(kind, dtype) or plugin_of(kind) is None:
        raise FileFormatError(
            f"a tensor has the dtype {name[:40]!r}, which no plugin here offers: install the "
            f"plugin {plugin[:80]!r} that it was written with"
        )
    count = 1
    for n in shape:
        count *= n
    size = kind.itemsize
    if row.dim() != 1 or row.dtype != tenon.uint8 or row.numel() != count * size:
        raise FileFormatError(f"a tensor of size {shape} and dtype {name} has {row.numel()} bytes")
    if not row.is_contiguous():  # which might be one byte a million times
        raise FileFormatError(f"the bytes of a tensor of dtype {name} do not lie side by side")
    if not count:
        return tenon.empty(shape, dtype=kind, device=row.device)
    return row.clone().view(kind).reshape(shape)


def read_exactly(
    file: BinaryIO, size: int, what: str, seen: Callable[[memoryview], None] | None = None
) -> memoryview:
    """The next bytes of a file, in memory that tensors can be cut from. `seen` is called with each
    part while it is in the processor's caches.

    The memory is a tensor's, because it comes from an allocator that keeps pages at hand and does
    not fill them with zeros first: with a fresh bytearray, that takes longer than the reading.
    """
    data = bytes_of(tenon.empty(size, dtype=tenon.uint8, device="cpu"))
    done = 0
    part = PART if seen else size
    while done < size:
        n = file.readinto(data[done : done + part])  # type: ignore[attr-defined]
        if not n:
            raise FileFormatError(f"{what} is cut off")
        if seen:
            seen(data[done : done + n])
        done += n
    return data


def swapped(data: bytearray | memoryview, unit: int) -> bytearray | memoryview:
    """The bytes of every unit in reverse order."""
    if unit == 1:
        return data
    result = bytearray(len(data))
    for i in range(unit):
        result[i::unit] = data[unit - 1 - i :: unit]
    return result


class Block:
    """Memory that tensors are cut from. `data` must stay writable if the tensors are to be.

    `foreign` bytes have the other byte order. They are turned around for the first dtype that is
    cut from them; one with elements of another size would see nonsense, and is refused.
    """

    def __init__(self, data: Any, where: device | None = None, foreign: bool = False) -> None:
        self.data = data
        self.where = where
        self.foreign = foreign
        self.unit = 0  # the bytes of an element, once they were turned around
        self.flat: dict[tuple[str, tuple[str, ...]], Tensor] = {}

    def _turn(self, kind: str) -> None:
        unit = SWAP_UNIT.get(kind, ITEMSIZE[kind])
        if self.unit not in (0, unit):
            raise FileFormatError(
                "tensors with elements of different sizes share a storage of the other byte order"
            )
        if not self.unit:
            self.data = swapped(self.data, unit)
        self.unit = unit

    def flat_of(self, kind: str, bits: tuple[str, ...] = ()) -> Tensor:
        """The whole block as a row; `bits` are changes of every element, "conj" and "neg"."""
        t = self.flat.get((kind, bits))
        if t is not None:
            return t
        if bits:
            t = self.flat_of(kind, bits[:-1])
            t = t.conj().clone() if bits[-1] == "conj" else t.neg()
        else:
            if self.foreign:
                self._turn(kind)
            count = len(self.data) // ITEMSIZE[kind]
            if count == 0:
                t = tenon.empty(0, dtype=dtype_of(kind), device="cpu")
            else:
                t = tenon.frombuffer(self.data, dtype=dtype_of(kind), count=count)
            if self.where is not None and self.where.type != "cpu":
                t = t.to(self.where)
        self.flat[kind, bits] = t
        return t

    def cut(
        self, kind: str, shape: tuple[int, ...], strides: tuple[int, ...], at: int,
        bits: tuple[str, ...] = (),
    ) -> Tensor:  # fmt: skip
        """The tensor of that geometry, which the caller has checked against the block."""
        flat = self.flat_of(kind, bits)
        result = tenon.empty(0, dtype=flat.dtype, device=flat.device)
        result.set_(flat, at, shape, strides)
        return result


def storage_key(t: Tensor) -> tuple[str, int, int]:
    """Equal for tensors that share memory."""
    return str(t.device), t._storage_ptr(), t._storage_bytes()


def elements_of(t: Tensor) -> Tensor:
    """The elements as a packed row in the memory of the CPU."""
    return t.detach().cpu().contiguous().reshape(-1)


def bytes_of(flat: Tensor) -> memoryview:
    """The bytes of a packed row; valid while the tensor lives."""
    if flat.numel() == 0:
        return memoryview(b"")
    return memoryview(flat.view(tenon.uint8)).cast("B")


class SkipData:
    """Checkpoints that are written in such a block have zeros for their storages' bytes, and those
    that are read have storages of zeros: what a file holds, without its weight."""

    _state = threading.local()

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        SkipData._state.depth = getattr(SkipData._state, "depth", 0) + 1

    def __exit__(self, *exc: object) -> None:
        SkipData._state.depth -= 1

    @classmethod
    def on(cls) -> bool:
        """Whether the thread is in such a block."""
        return getattr(cls._state, "depth", 0) > 0


def written(row: Tensor) -> Tensor:
    """What a checkpoint holds of a storage that is a row."""
    if SkipData.on():
        return tenon.zeros(row.shape, dtype=row.dtype, device="cpu")
    return elements_of(row)


def storage_row(t: Tensor) -> Tensor:
    """The whole storage as a row of t's dtype, in the memory of the CPU."""
    count = t._storage_bytes() // t.element_size()
    if SkipData.on():
        return tenon.zeros(count, dtype=t.dtype, device="cpu")
    row = tenon.empty(0, dtype=t.dtype, device=t.device)
    row.set_(t.detach(), 0, (count,), (1,))
    return row.cpu()


def is_parameter(t: Tensor) -> bool:
    from tenon.nn.parameter import Parameter

    return isinstance(t, Parameter)


def is_plain_class(t: Tensor) -> bool:
    """Is it a tensor, parameter or buffer, and no subclass of a program's own?"""
    from tenon.nn.parameter import Buffer, Parameter

    return type(t) in (Tensor, Parameter) or isinstance(t, Buffer)


def make_parameter(t: Tensor, requires_grad: bool) -> Tensor:
    from tenon.nn.parameter import Parameter

    return Parameter(t, requires_grad)


NATIVE = sys.byteorder
