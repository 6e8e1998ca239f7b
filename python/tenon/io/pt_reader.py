"""Reads PyTorch's checkpoint files (`.pt`, `.pth`): a zip archive of one pickled structure and the
bytes of the storages it refers to. Files of before PyTorch 1.6 are `pt_old`'s.

The structure is read by tenon.io.unpickle, which runs nothing. Sizes, strides and offsets of every
tensor are checked against the bytes that are there before a tensor is made.
"""

from __future__ import annotations

import mmap as mmap_module
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, BinaryIO

import tenon
from tenon._tensor import sparse
from tenon._tensor import storage as storages
from tenon.io import _tensor
from tenon.io.errors import FileFormatError, UnsafeContentError
from tenon.io.unpickle import (
    Budget,
    Filled,
    Global,
    Reader,
    construct,
    plain_globals,
    shown,
)  # fmt: skip
from tenon.io.zip_reader import Archive, Member

STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
}  # fmt: skip
MAX_DIMS = 64
MAX_STRUCTURE = 1 << 30  # bytes of data.pkl

MapLocation = Callable[[Any, str], Any] | dict[Any, Any] | str | tenon.device | None


class StorageType(Global):
    """The class of a storage in the structure: it says the dtype; None: bytes."""

    __slots__ = ("kind",)

    def __init__(self, name: str, kind: str | None) -> None:
        super().__init__(name)
        self.kind = kind


class Stored:
    """A storage of the file, or a part of one, with the dtype its reference claims."""

    def __init__(
        self, block: _tensor.Block, kind: str | None, first: int = 0, size: int | None = None
    ) -> None:
        self.block = block
        self.kind = kind
        self.first = first  # bytes before the part
        self.size = len(block.data) if size is None else size

    def start(self, kind: str) -> int:
        """The elements before the part, counted in a dtype."""
        start, rest = divmod(self.first, _tensor.ITEMSIZE[kind])
        if rest:
            raise FileFormatError(f"a part of a storage does not begin at an element of {kind}")
        return start

    def row(self, kind: str) -> Any:
        """All elements, as a tensor."""
        count = self.size // _tensor.ITEMSIZE[kind]
        return self.block.cut(kind, (count,), (1,), self.start(kind))

    def __call__(self) -> Any:
        """All bytes, as a tensor."""
        return storages.UntypedStorage(self.row(self.kind or "uint8"))._row


def whole(value: Any, what: str) -> int:
    if type(value) is not int or value < 0 or value >= 1 << 62:
        raise FileFormatError(f"{what} is {shown(value)}, not a number from 0 to 2^62")
    return value


def _sizes(value: Any, what: str) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or len(value) > MAX_DIMS:
        raise FileFormatError(f"{what} is no list of at most {MAX_DIMS} numbers")
    return tuple(whole(v, f"a number in {what}") for v in value)


def _bits(metadata: Any) -> tuple[str, ...]:
    """What PyTorch says of a view whose elements are to be conjugated or negated when read."""
    if metadata is None:
        return ()
    if type(metadata) is not dict or not all(type(v) is bool for v in metadata.values()):
        raise FileFormatError("a tensor's metadata is no dict of flags")
    unknown = [name for name in metadata if name not in ("conj", "neg")]
    if unknown:
        raise FileFormatError(f"a tensor's metadata has the unknown flag {shown(unknown[0])}")
    return tuple(name for name in ("conj", "neg") if metadata.get(name))


def rebuild(
    stored: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, kind: str | None,
    metadata: Any,
) -> Any:  # fmt: skip
    """The tensor of that geometry in a storage, once all of it lies inside."""
    if isinstance(stored, storages.TypedStorage | storages.UntypedStorage):
        stored = stored._read
    if not isinstance(stored, Stored):
        raise FileFormatError("a tensor without a storage")
    kind = kind or stored.kind
    if kind is None:
        raise FileFormatError("a tensor without a dtype")
    at = whole(offset, "a storage offset")
    shape, strides = _sizes(size, "a size"), _sizes(stride, "a stride")
    if len(shape) != len(strides):
        raise FileFormatError(f"a tensor with {len(shape)} sizes and {len(strides)} strides")
    have = stored.size // _tensor.ITEMSIZE[kind]
    last = at + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if (0 not in shape and last >= have) or (0 in shape and at > have):
        raise FileFormatError(
            f"a tensor of size {shape}, stride {strides} and offset {at} does not fit its storage "
            f"of {have} elements"
        )
    numel = 1
    for n in shape:
        numel *= n
    if 0 not in shape and numel >= 1 << 60:
        raise FileFormatError(f"a tensor of size {shape} is too large")
    t = stored.block.cut(kind, shape, strides, stored.start(kind) + at, _bits(metadata))
    return t.requires_grad_() if requires_grad is True else t


def _meta_tensor(kind: Any, size: Any, stride: Any, requires_grad: Any) -> Any:
    """A tensor of the device meta, which takes no memory however large it is."""
    shape, strides = _sizes(size, "a size"), _sizes(stride, "a stride")
    if not isinstance(kind, tenon.dtype) or len(shape) != len(strides):
        raise FileFormatError("a tensor without elements that has no dtype or no strides")
    try:
        t = tenon.empty_strided(shape, strides, dtype=kind, device="meta")
    except MemoryError:
        raise
    except (RuntimeError, ValueError) as error:
        raise FileFormatError(f"a tensor without elements: {error}") from None
    return t.requires_grad_() if requires_grad is True else t


def _layout(name: Any) -> Any:
    found = [
        layout for layout in sparse.NUMBERS if f"torch.{str(layout).rpartition('.')[2]}" == name
    ]
    if not found:
        raise FileFormatError(f"there is no layout {shown(name)}")
    return found[0]


def _sparse_tensor(layout: Any, parts: Any) -> Any:
    """A sparse tensor of components that the file says belong together: all of it is checked."""
    coo = layout is tenon.sparse_coo
    if layout not in sparse.NUMBERS or layout is tenon.strided or type(parts) is not tuple:
        raise FileFormatError("a sparse tensor without layout or components")
    tensors, rest = parts[: 2 if coo else 3], parts[2 if coo else 3 :]
    if not all(isinstance(t, tenon.Tensor) for t in tensors) or not 1 <= len(rest) <= 2:
        raise FileFormatError("a sparse tensor whose components are no tensors")
    size = _sizes(rest[0], "a size")
    try:
        if not coo:
            return sparse.sparse_compressed_tensor(
                *tensors, size, layout=layout, check_invariants=True
            )
        coalesced = len(rest) == 2 and rest[1] is True
        return sparse.sparse_coo_tensor(
            *tensors, size, is_coalesced=coalesced, check_invariants=True
        )
    except MemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise FileFormatError(f"a sparse tensor: {error}") from None


def _plugin_tensor(row: Any, name: Any, plugin: Any, shape: Any, requires_grad: Any) -> Any:
    if not isinstance(row, tenon.Tensor) or type(name) is not str or type(plugin) is not str:
        raise FileFormatError("a tensor of a plugin's dtype without its bytes or names")
    t = _tensor.from_raw(row, name, plugin, _sizes(shape, "a size"))
    return t.requires_grad_() if requires_grad is True else t


def _no_hooks(hooks: Any) -> None:
    if hooks:
        raise UnsafeContentError("the file holds hooks, which are code")


def _tensor_v1(stored: Any, offset: Any, size: Any, stride: Any) -> Any:
    return rebuild(stored, offset, size, stride, False, None, None)


def _tensor_v2(
    stored: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False,
    hooks: Any = None, metadata: Any = None,
) -> Any:  # fmt: skip
    _no_hooks(hooks)
    return rebuild(stored, offset, size, stride, requires_grad, None, metadata)


def _tensor_v3(
    stored: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, kind: Any,
    metadata: Any = None,
) -> Any:  # fmt: skip
    _no_hooks(hooks)
    if not isinstance(kind, tenon.dtype):
        raise FileFormatError("a tensor whose dtype is no dtype")
    name = _tensor.name_of(kind)
    return rebuild(stored, offset, size, stride, requires_grad, name, metadata)


def _parameter(data: Any, requires_grad: Any = True, hooks: Any = None) -> Any:
    _no_hooks(hooks)
    if not isinstance(data, tenon.Tensor):
        raise FileFormatError("a parameter that is no tensor")
    return _tensor.make_parameter(data, bool(requires_grad))


def _parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Any:
    result = _parameter(data, requires_grad, hooks)
    _set_attributes(result, state)
    return result


def _set_attributes(target: Any, state: Any) -> None:
    if not isinstance(state, dict) or not all(type(k) is str for k in state):
        raise UnsafeContentError("the file gives an object a state that is no dict of attributes")
    target.__dict__.update(state)


def _from_type(budget: Budget, rebuild: Any, cls: Any, args: Any, state: Any) -> Any:
    """A tensor with attributes, or a Parameter with them."""
    if not isinstance(cls, Global) or cls.name not in (
        "torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter",
    ):  # fmt: skip
        raise UnsafeContentError("the file holds a tensor of a class of its own")
    if isinstance(rebuild, Global) and rebuild.make is _from_type:
        raise UnsafeContentError("the file rebuilds a tensor with something that is no constructor")
    t = construct(budget, rebuild, args)
    if not isinstance(t, tenon.Tensor):
        raise FileFormatError("a tensor that is rebuilt as something else")
    if state:
        _set_attributes(t, state)
    return t


def _dtensor(local: Any, plain: Any, requires_grad: Any, is_parameter: Any) -> Any:
    from tenon.distributed.tensor import _api

    return _api._rebuild(local, plain, requires_grad, is_parameter)


def _size(sizes: Any = ()) -> Any:
    return tenon.Size(_sizes(sizes, "a torch.Size"))


def _device(kind: Any = "cpu", index: Any = None) -> Any:
    if type(kind) is not str or (index is not None and type(index) is not int):
        raise FileFormatError("a device that is none")
    return tenon.device(kind) if index is None else tenon.device(kind, index)


KEY_TYPES = (tenon.dtype, tenon.device)
FACTORIES = {"list": list, "dict": dict, "int": int, "float": float, "set": set, "str": str}


def _defaultdict(budget: Budget, factory: Any = None, items: Any = None) -> Any:
    name = factory.name.rpartition(".")[2] if isinstance(factory, Global) else ""
    if factory is not None and name not in FACTORIES:
        raise UnsafeContentError("a defaultdict whose factory is no plain type")
    return _copied(budget, defaultdict(FACTORIES.get(name)), items)


def _counter(budget: Budget, counts: Any = None) -> Counter[Any]:
    return _copied(budget, Counter(), counts)


def _copied(budget: Budget, result: Any, items: Any) -> Any:
    if items is not None and type(items) is not dict:
        raise FileFormatError(f"a {type(result).__name__} of something that is no dict")
    for key, value in (items or {}).items():
        budget.key(result, key, KEY_TYPES)
        result[key] = value
    return result


def _globals() -> dict[str, Any]:
    """Every name that a checkpoint may use, with what it becomes."""
    names: dict[str, Any] = dict(plain_globals(KEY_TYPES))
    constructors = [
        Global("torch._utils._rebuild_tensor", _tensor_v1),
        Global("torch._utils._rebuild_tensor_v2", _tensor_v2),
        Global("torch._utils._rebuild_tensor_v3", _tensor_v3),
        Global("torch._utils._rebuild_meta_tensor_no_storage", _meta_tensor),
        Global("torch._utils._rebuild_sparse_tensor", _sparse_tensor),
        Global("torch.serialization._get_layout", _layout),
        Global("torch._utils._rebuild_parameter", _parameter),
        Global("torch._utils._rebuild_parameter_with_state", _parameter_with_state),
        Filled("torch._tensor._rebuild_from_type_v2", _from_type),
        Global("tenon._plugin_tensor", _plugin_tensor),
        *(Global(f"{m}.distributed.tensor._api._rebuild", _dtensor) for m in ("tenon", "torch")),
        Global("torch.Size", _size),
        Global("torch.device", _device),
        Filled("collections.defaultdict", _defaultdict),
        Filled("collections.Counter", _counter),
    ]
    names.update({entry.name: entry for entry in constructors})
    for name in ("torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter"):
        names[name] = Global(name)
    for module in ("builtins", "__builtin__"):
        for kind in ("list", "dict", "int", "float", "str"):
            names[f"{module}.{kind}"] = Global(f"{module}.{kind}")
    for name in _tensor.ITEMSIZE:
        names[f"torch.{name}"] = _tensor.dtype_of(name)
    for name, kind in STORAGES.items():
        for module in ("torch", "torch.cuda"):  # the latter until PyTorch 1.6
            names[f"{module}.{name}"] = StorageType(f"{module}.{name}", kind)
    for name in ("torch.storage.UntypedStorage", "torch.UntypedStorage"):
        names[name] = StorageType(name, None)
    return names


_NAMES: dict[str, Any] = {}


def is_plain(full: str) -> bool:
    """Whether a name is among those that every file may use."""
    if not _NAMES:
        _NAMES.update(_globals())
    return full in _NAMES


def find(module: str, name: str) -> Any:
    full = f"{module}.{name}"
    if is_plain(full):
        return _NAMES[full]
    raise UnsafeContentError(
        f"the file refers to {full[:200]!r}, which is not plain data. Only tensors, numbers, text, "
        "lists, tuples, sets and dicts are read; save a state_dict instead of an object, or, where "
        "the file is to be trusted, say weights_only=False."
    )


def takes_state(target: Any, state: Any) -> bool:
    """An OrderedDict may carry attributes (a state_dict's `_metadata`)."""
    if type(target) is not OrderedDict or type(state) is not dict:
        return False
    if not all(type(k) is str and not k.startswith("__") for k in state):
        return False
    target.__dict__.update(state)
    return True


class Checkpoint:
    """An open file with a structure and the storages that it refers to."""

    byteorder = "little"

    def __init__(self, map_location: MapLocation) -> None:
        self.map_location = map_location
        self.blocks: dict[Any, _tensor.Block] = {}

    def place(self, data: Any, location: str) -> tenon.device:
        """Where a storage goes."""
        rule = self.map_location
        if callable(rule) and not isinstance(rule, tenon.device):
            storage = tenon.UntypedStorage(_tensor.Block(data).flat_of("uint8"))
            result = rule(storage, location)
            if result is not None:
                return result.device
            rule = None
        if isinstance(rule, dict):
            rule = rule.get(location)
        if rule is not None:
            return rule if isinstance(rule, tenon.device) else tenon.device(rule)
        if location == "cpu" or location == "":
            return tenon.device("cpu")
        try:
            where = tenon.device(location)
        except MemoryError:
            raise
        except (RuntimeError, ValueError):
            raise FileFormatError(f"the device {shown(location)} is not known here") from None
        if not tenon._C._device_count(where.type):
            raise RuntimeError(
                f"Attempting to deserialize object on the device {location!r}, which is not "
                "available here. Use load(..., map_location='cpu') to put the storages into the "
                "memory of the CPU."
            )
        return where

    def block(self, data: Any, location: str) -> _tensor.Block:
        """The bytes of a storage, on the device where they go."""
        return _tensor.Block(data, self.place(data, location), self.byteorder != _tensor.NATIVE)

    def storage(self, reference: Any) -> Any:
        """What a reference of the structure stands for."""
        raise NotImplementedError

    def structure(self) -> bytes:
        """What says how the storages belong together."""
        raise NotImplementedError

    def read(self) -> Any:
        """The object, if it is plain data."""
        return Reader(self.structure(), find, self._referred, KEY_TYPES, takes_state).run()

    def _referred(self, reference: Any) -> Any:
        """A storage as the program sees it; tensors are cut from what is behind."""
        found = self.storage(reference)
        if not isinstance(found, Stored):
            return found
        return storages.later(found, _tensor.dtype_of(found.kind) if found.kind else None)


def _is_text(name: str) -> bool:
    """Whether a member is one that TorchScript compresses."""
    return "/code/" in name or "/extra/" in name


class ZipCheckpoint(Checkpoint):
    """One open archive."""

    holds_code = False  # whether it may be one of TorchScript
    folder = "data/"  # of the storages

    def __init__(self, file: BinaryIO, map_location: MapLocation, mmap: bool) -> None:
        super().__init__(map_location)
        self.archive = Archive(file, inflates=_is_text)
        self.mapped = None
        if mmap:
            self.mapped = mmap_module.mmap(file.fileno(), 0, access=mmap_module.ACCESS_COPY)
        roots = [n[: -len("data.pkl")] for n in self.archive.members if n.endswith("/data.pkl")]
        if len(roots) != 1:
            raise FileFormatError("this zip archive is no checkpoint: it has no single data.pkl")
        self.root = roots[0]
        if self._member("constants.pkl") and not self.holds_code:
            raise UnsafeContentError(
                "this is a TorchScript archive, which holds code: jit.load reads it"
            )
        order = self._member("byteorder")
        self.byteorder = str(self.archive.read(order), "latin-1") if order else "little"
        if self.byteorder not in ("little", "big"):
            raise FileFormatError(f"the byte order {self.byteorder[:40]!r} is not known")

    def _member(self, name: str) -> Member | None:
        return self.archive.members.get(self.root + name)

    def _bytes(self, member: Member) -> Any:
        if _tensor.SkipData.on():
            return memoryview(bytearray(member.size))
        if self.mapped is not None and member.start % _tensor.ALIGN == 0:
            return memoryview(self.mapped)[member.start : member.start + member.size]
        return self.archive.read(member)

    def storage(self, reference: Any) -> Stored:
        """What a reference of the structure stands for."""
        kind, key, location, count = parts_of(reference)
        member = self._member(self.folder + key)
        if member is None:
            raise FileFormatError(f"the storage {key[:80]!r} is not in the file")
        check_bytes(key, kind, count, member.size)
        place = self.folder + key
        if place not in self.blocks:
            self.blocks[place] = self.block(self._bytes(member), location)
        return Stored(self.blocks[place], kind)

    def structure(self) -> bytes:
        """What says how the storages belong together."""
        member = self._member("data.pkl")
        assert member is not None
        if member.size > MAX_STRUCTURE:
            raise FileFormatError(f"the file's structure takes {member.size} bytes")
        return bytes(self.archive.read(member))


def parts_of(reference: Any) -> tuple[str | None, str, str, int]:
    """Dtype, key, location and number of elements of a storage that the structure refers to."""
    if type(reference) is not tuple or len(reference) < 5 or reference[0] != "storage":
        raise FileFormatError("the file refers to something that is no storage")
    _, kind, key, location, count = reference[:5]
    if not isinstance(kind, StorageType) or type(key) is not str or type(location) is not str:
        raise FileFormatError("the file refers to a storage in a way that is not known")
    return kind.kind, key, location, whole(count, "a storage's size")


def check_bytes(key: str, kind: str | None, count: int, have: int) -> None:
    """Whether a storage has the size that the structure claims."""
    itemsize = _tensor.ITEMSIZE[kind] if kind else 1
    if count * itemsize != have:
        raise FileFormatError(
            f"the storage {key[:80]!r} should have {shown(count)} elements of {itemsize} "
            f"bytes, but has {have} bytes"
        )
