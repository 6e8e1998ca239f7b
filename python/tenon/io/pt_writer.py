"""Writes checkpoints that `torch.load(..., weights_only=True)` reads back.

Only data is written: tensors, parameters, numbers, text, bytes, None, lists, tuples, sets, dicts,
torch.Size, dtype and device. An object of any other class is refused with the path to it.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, OrderedDict, defaultdict
from typing import Any, BinaryIO

import tenon
from tenon._tensor import storage as storages
from tenon._tensor.print import components
from tenon.io import _tensor
from tenon.io.errors import NotPlainError
from tenon.io.pt_reader import STORAGES
from tenon.io.zip_writer import ArchiveWriter

STORAGE_OF = {kind: name for name, kind in STORAGES.items()}
MAGIC = 0x1950A86A20F9469CFC6C  # of files that are no archives
PROTOCOL = 1001
MAX_DEPTH = 200
ROOT = "archive/"


class StructureWriter:
    """Turns one object into pickle opcodes of protocol 2, and collects its storages."""

    def __init__(self, old: bool = False) -> None:
        self.out = bytearray(b"\x80\x02")
        self.old = old  # references end with the part of the storage that is meant: none
        self.memo: dict[Any, int] = {}
        self.keep: list[Any] = []  # keeps the ids in the memo valid
        self.storages: dict[Any, tuple[str, str, Any]] = {}

    # -- Opcodes -----------------------------------------------------------------------------------

    def remember(self, key: Any) -> None:
        index = len(self.memo)
        self.memo[key] = index
        self.out += b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<L", index)

    def recall(self, key: Any) -> bool:
        index = self.memo.get(key)
        if index is None:
            return False
        self.out += b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<L", index)
        return True

    def name(self, module: str, name: str) -> None:
        key = (module, name)
        if not self.recall(key):
            self.out += f"c{module}\n{name}\n".encode()
            self.remember(key)

    def text(self, value: str) -> None:
        raw = value.encode("utf-8", "surrogatepass")
        self.out += b"X" + struct.pack("<L", len(raw)) + raw

    def number(self, value: int) -> None:
        if 0 <= value < 256:
            self.out += b"K" + bytes([value])
        elif 0 <= value < 65536:
            self.out += b"M" + struct.pack("<H", value)
        elif -(1 << 31) <= value < 1 << 31:
            self.out += b"J" + struct.pack("<l", value)
        else:
            size = (value.bit_length() >> 3) + 1
            if size > 255:
                raise ValueError("save(): an integer of more than 255 bytes cannot be written")
            self.out += b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)

    def sizes(self, values: Any) -> None:
        self.out += b"("
        for value in values:
            self.number(value)
        self.out += b"t"

    def flag(self, value: bool) -> None:
        self.out += b"\x88" if value else b"\x89"

    def no_hooks(self) -> None:
        self.name("collections", "OrderedDict")
        self.out += b")R"

    # -- Tensors -----------------------------------------------------------------------------------

    def storage(self, t: tenon.Tensor, typed: bool = True) -> None:
        """The storage of a tensor; not `typed`: counted in bytes."""
        kind = _tensor.name_of(t.dtype)
        key: Any = _tensor.storage_key(t)
        if t._storage_bytes() == 0:
            key = ("empty", len(self.storages))
        entry = self.storages.get(key)
        if entry is None:
            entry = (str(len(self.storages)), kind, t)
            self.storages[key] = entry
            self.keep.append(t)
        elif entry[1] != kind:
            raise RuntimeError(
                "save(): tensors that look at the same memory with different dtypes "
                f"({entry[1]} and {kind}) cannot be written; save a clone of one of them"
            )
        self.out += b"("
        self.text("storage")
        typed = typed and kind in STORAGE_OF
        if typed:
            self.name("torch", STORAGE_OF[kind])
        else:
            self.name("torch.storage", "UntypedStorage")
        self.text(entry[0])
        self.text(str(t.device))
        self.number(t._storage_bytes() // (t.element_size() if typed else 1))
        self.out += b"NtQ" if self.old else b"tQ"

    def constructor(self, t: tenon.Tensor) -> tuple[str, str]:
        """The function that makes such a tensor."""
        if _tensor.plugin_of(t.dtype) is not None:
            return "tenon", "_plugin_tensor"
        if t.layout is not tenon.strided:
            return "torch._utils", "_rebuild_sparse_tensor"
        if t.is_meta:
            return "torch._utils", "_rebuild_meta_tensor_no_storage"
        typed = _tensor.name_of(t.dtype) in STORAGE_OF
        return "torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3"

    def tensor(self, t: tenon.Tensor, requires_grad: bool) -> None:
        self.name(*self.constructor(t))
        self.arguments(t, requires_grad)
        self.out += b"R"

    def arguments(self, t: tenon.Tensor, requires_grad: bool) -> None:
        """What its constructor gets."""
        self.out += b"("
        if _tensor.plugin_of(t.dtype) is not None:
            self.plugin_tensor(t, requires_grad)
        elif t.layout is not tenon.strided:
            self.sparse_tensor(t)
        elif t.is_meta:
            self.meta_tensor(t, requires_grad)
        else:
            self.strided_tensor(t, requires_grad)
        self.out += b"t"

    def strided_tensor(self, t: tenon.Tensor, requires_grad: bool) -> None:
        kind = _tensor.name_of(t.dtype)
        self.storage(t)
        self.number(t.storage_offset())
        self.sizes(t.shape)
        self.sizes(t.stride())
        self.flag(requires_grad)
        self.no_hooks()
        if kind not in STORAGE_OF:  # the storage is bytes, and the tensor says what they are
            self.name("torch", kind)

    def sparse_tensor(self, t: tenon.Tensor) -> None:
        """A sparse tensor: its layout, its components, and its size."""
        self.name("torch.serialization", "_get_layout")
        self.out += b"("
        self.text("torch." + str(t.layout).rpartition(".")[2])
        self.out += b"tR("
        for part in components(t.detach()).values():
            self.keep.append(part)
            self.tensor(part, False)
        self.name("torch", "Size")
        self.out += b"("
        self.sizes(t.shape)
        self.out += b"tR"
        if t.is_sparse:
            self.flag(t.is_coalesced())
        self.out += b"t"

    def plugin_tensor(self, t: tenon.Tensor, requires_grad: bool) -> None:
        """A tensor of a plugin's dtype: its bytes, and what they are."""
        row = _tensor.raw_row(t)
        self.keep.append(row)
        self.tensor(row, False)
        self.text(_tensor.name_of(t.dtype))
        self.text(_tensor.plugin_of(t.dtype) or "")
        self.sizes(t.shape)
        self.flag(requires_grad)

    def meta_tensor(self, t: tenon.Tensor, requires_grad: bool) -> None:
        """A tensor without elements: what there is to know of it."""
        self.name("torch", _tensor.name_of(t.dtype))
        self.sizes(t.shape)
        self.sizes(t.stride())
        self.flag(requires_grad)

    def any_tensor(self, t: tenon.Tensor, path: str, depth: int) -> None:
        if t.is_quantized:
            raise TypeError(
                f"save(): {path} is quantized, which is not written: save its int_repr(), scale "
                "and zero point"
            )
        if not _tensor.is_plain_class(t):
            raise NotPlainError(f"save(): {path} is a tensor of a class of its own")
        attributes = dict(t.__dict__)
        if _tensor.is_parameter(t):
            called = "_rebuild_parameter_with_state" if attributes else "_rebuild_parameter"
            self.name("torch._utils", called)
            self.out += b"("
            self.tensor(t.detach(), False)
            self.flag(t.requires_grad)
            self.no_hooks()
        else:
            learns = t.requires_grad and t.is_leaf
            if not attributes:
                self.tensor(t.detach(), learns)
                return
            self.name("torch._tensor", "_rebuild_from_type_v2")
            self.out += b"("
            self.name(*self.constructor(t))
            self.name("torch", "Tensor")
            self.arguments(t.detach(), learns)
        if attributes:
            self.write(attributes, f"{path}.__dict__", depth + 1)
        self.out += b"tR"

    # -- Everything --------------------------------------------------------------------------------

    def write(self, value: Any, path: str = "obj", depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise ValueError(f"save(): {path[:80]}... is nested more than {MAX_DEPTH} deep")
        if value is None:
            self.out += b"N"
        elif value is True or value is False:
            self.flag(value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, int) and not hasattr(value, "_member_map_"):
            self.number(int(value))
        elif type(value) is str:
            if not self.recall(("str", value)):
                self.text(value)
                self.remember(("str", value))
        elif not self.recall(id(value)):
            self.keep.append(value)
            self.compound(value, path, depth)

    def compound(self, value: Any, path: str, depth: int) -> None:
        kind = type(value)
        if isinstance(value, tenon.Tensor):
            self.any_tensor(value, path, depth)
        elif kind is list:
            self.out += b"]"
            self.remember(id(value))
            self.members(value, b"e", path, depth)
            return
        elif kind in (dict, OrderedDict, defaultdict, Counter):
            self.mapping(value, path, depth)
            return
        elif kind is tuple:
            self.members(value, b"t", path, depth)
        elif kind in (set, frozenset):
            self.name("__builtin__", kind.__name__)
            self.out += b"]"
            self.members(list(value), b"e", path, depth)
            self.out += b"\x85R"
        elif kind in (bytes, bytearray):
            self.octets(value)
        elif kind is complex:
            self.name("__builtin__", "complex")
            self.out += b"G" + struct.pack(">d", value.real)
            self.out += b"G" + struct.pack(">d", value.imag) + b"\x86R"
        elif isinstance(value, tenon.Size):
            self.name("torch", "Size")
            self.sizes(value)
            self.out += b"\x85R"
        elif isinstance(value, tenon.dtype):
            if _tensor.plugin_of(value) is not None:
                raise TypeError(f"save(): {path} is {value}, a dtype of a plugin; save its name")
            self.name("torch", _tensor.name_of(value))
            return
        elif isinstance(value, tenon.device):
            self.device(value)
        elif isinstance(value, storages.TypedStorage):
            self.storage(value._elements())
            return
        elif isinstance(value, storages.UntypedStorage):
            self.storage(value._row, typed=False)
            return
        else:
            raise NotPlainError(
                f"save(): {path} is a {kind.__module__}.{kind.__qualname__}. Checkpoints hold data "
                "only: tensors, numbers, text, lists, tuples, sets and dicts; save a state_dict "
                "instead of an object"
            )
        if id(value) not in self.memo:
            self.remember(id(value))

    def members(self, values: Any, opcode: bytes, path: str, depth: int) -> None:
        if opcode == b"e" and not values:
            return
        self.out += b"("
        for i, item in enumerate(values):
            self.write(item, f"{path}[{i}]", depth + 1)
        self.out += opcode

    def mapping(self, value: dict[Any, Any], path: str, depth: int) -> None:
        kind = type(value)
        if kind is dict:
            self.out += b"}"
        elif kind is defaultdict:
            factory = value.default_factory
            if factory not in (list, dict, int, float, set, str, None):
                raise TypeError(f"save(): {path} is a defaultdict whose factory is no plain type")
            self.name("collections", "defaultdict")
            if factory is None:
                self.out += b")R"
            else:
                self.name("__builtin__", factory.__name__)
                self.out += b"\x85R"
        else:
            self.name("collections", kind.__name__)
            self.out += b")R"
        self.remember(id(value))
        if value:
            self.out += b"("
            for key, item in value.items():
                self.write(key, f"a key of {path}", depth + 1)
                self.write(item, f"{path}[{key!r:.60}]", depth + 1)
            self.out += b"u"
        if kind is OrderedDict and value.__dict__:
            self.write(dict(value.__dict__), f"{path}.__dict__", depth + 1)
            self.out += b"b"

    def octets(self, value: bytes | bytearray) -> None:
        if type(value) is bytearray:
            self.name("__builtin__", "bytearray")
            self.out += b"("
        self.name("_codecs", "encode")
        self.out += b"("
        self.text(value.decode("latin-1"))
        self.text("latin1")
        self.out += b"tR"
        if type(value) is bytearray:
            self.out += b"tR"

    def device(self, value: tenon.device) -> None:
        self.name("torch", "device")
        self.text(value.type)
        if value.index is None:
            self.out += b"\x85R"
        else:
            self.number(value.index)
            self.out += b"\x86R"


def _structure_of(value: Any, old: bool = False) -> StructureWriter:
    structure = StructureWriter(old)
    try:
        structure.write(value)
    except RecursionError:
        raise ValueError("save(): the object is nested too deep for this stack") from None
    structure.out += b"."
    return structure


def write(value: Any, file: BinaryIO) -> None:
    """Writes one object to an open file."""
    structure = _structure_of(value)
    archive = ArchiveWriter(file)
    archive.add(ROOT + "data.pkl", structure.out)
    archive.add(ROOT + ".format_version", b"1")
    archive.add(ROOT + ".storage_alignment", b"64")
    archive.add(ROOT + "byteorder", _tensor.NATIVE.encode())
    digest = hashlib.sha256(structure.out)
    for key, _, t in structure.storages.values():
        row = _tensor.storage_row(t)
        archive.add(f"{ROOT}data/{key}", _tensor.bytes_of(row))
    archive.add(ROOT + "version", b"3\n")
    number = int.from_bytes(digest.digest()[:16], "little")
    archive.add(ROOT + ".data/serialization_id", f"{number:040d}".encode())
    archive.finish()


def write_old(value: Any, file: BinaryIO) -> None:
    """Writes one object as PyTorch did before 1.6."""
    structure = _structure_of(value, old=True)
    rows = []
    for key, kind, t in structure.storages.values():
        row = _tensor.storage_row(t)
        unit = row.element_size() if kind in STORAGE_OF else 1
        rows.append((key, unit, _tensor.bytes_of(row)))
    write_row(structure.out, rows, file)


def write_row(
    structure: bytes | bytearray, rows: list[tuple[str, int, memoryview]], file: BinaryIO
) -> None:
    """A mark, a version, the machine, the structure, the keys of the storages; then these. rows:
    key, bytes of an element, and bytes of every storage."""
    machine = {
        "protocol_version": PROTOCOL,
        "little_endian": _tensor.NATIVE == "little",
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    for value in (MAGIC, PROTOCOL, machine):
        file.write(_structure_of(value).out)
    file.write(structure)
    file.write(_structure_of([key for key, _, _ in rows]).out)
    for _, unit, data in rows:
        file.write((len(data) // unit).to_bytes(8, "little"))
        file.write(data if _tensor.NATIVE == "little" else _tensor.swapped(data, unit))
