"""Checkpoints with objects of importable classes: whole modules, and whatever else pickle takes.

They are written with `pickle`, in the archive that plain checkpoints have, under PyTorch's names.
To read one is to run it, so that `load` does it only where the program says weights_only=False, or
for classes that it named by `add_safe_globals`, and those alone.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType
from typing import Any, BinaryIO

import tenon
from tenon import Tensor
from tenon._tensor import reduce
from tenon._tensor import storage as storages
from tenon._torch import _utils
from tenon.io import _tensor, pt_old, pt_reader, pt_writer
from tenon.io.errors import FileFormatError, UnsafeContentError
from tenon.io.pt_writer import ROOT
from tenon.io.zip_writer import ArchiveWriter
from tenon.nn.parameter import _rebuild_parameter

OURS, THEIRS = "tenon", "torch"
_NAMED: dict[Any, str] = {
    _utils._rebuild_tensor_v2: "torch._utils\n_rebuild_tensor_v2",
    _rebuild_parameter: "torch._utils\n_rebuild_parameter",
    reduce._rebuild_from_type_v2: "torch._tensor\n_rebuild_from_type_v2",
}

# ---- Writing -------------------------------------------------------------------------------------


def _their_module(module: str) -> str:
    """The name of one of our modules in PyTorch; `tenon run` has given some classes theirs."""
    rest = module.removeprefix(OURS).removeprefix(THEIRS)
    return THEIRS + rest.removeprefix("._torch").removeprefix("._tensor.storage")


def _form(t: Tensor) -> tuple[Any, ...]:
    """What a checkpoint keeps of a tensor whose class does not say it otherwise."""
    own, state = type(t) is not Tensor, t.__dict__
    plain = t.detach().as_subclass(Tensor) if own else t
    memory = plain.storage(), t.storage_offset(), tuple(t.shape), tuple(t.stride())
    leaf = t.requires_grad and t.is_leaf
    parts = _utils._rebuild_tensor_v2, (*memory, leaf, OrderedDict())
    if not own and not state:
        return parts
    return reduce._rebuild_from_type_v2, (parts[0], type(t), parts[1], state)


class _Pickler(pickle._Pickler):  # the one in Python: names of classes are changed on their way
    def __init__(self, file: io.BytesIO, old: bool) -> None:
        super().__init__(file, protocol=2)
        self.old = old
        self.rows: dict[Any, tuple[str, int, Tensor]] = {}  # place, bytes of an element, bytes

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, storages.TypedStorage):
            return None
        row = obj._row
        key = _tensor.storage_key(row)
        place, _, _ = self.rows.setdefault(key, (str(len(self.rows)), obj.element_size(), row))
        kind = getattr(storages, storages._NAMES[obj.dtype])
        reference = "storage", kind, place, str(obj.device), obj.size()
        return (*reference, None) if self.old else reference

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, tenon.device):
            return tenon.device, (obj.type,) if obj.index is None else (obj.type, obj.index)
        return NotImplemented

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if isinstance(obj, FunctionType) and obj in _NAMED:
            self.write(b"c" + f"{_NAMED[obj]}\n".encode())
            self.memoize(obj)
            return
        found = name or getattr(obj, "__qualname__", None) or obj.__name__
        module = pickle.whichmodule(obj, found)
        if isinstance(obj, type) and issubclass(obj, storages.TypedStorage):
            module = OURS
        if module.partition(".")[0] not in (OURS, THEIRS) or "." in found:
            super().save_global(obj, name)
            return
        self.write(b"c" + f"{_their_module(module)}\n{found}\n".encode())
        self.memoize(obj)

    def save_dtype(self, obj: tenon.dtype) -> None:
        self.write(b"c" + f"{THEIRS}\n{_tensor.name_of(obj)}\n".encode())
        self.memoize(obj)

    def save_layout(self, obj: tenon.layout) -> None:
        self.write(b"c" + f"{THEIRS}.serialization\n_get_layout\n".encode())
        self.save((f"{THEIRS}.{str(obj).rpartition('.')[2]}",))
        self.write(pickle.REDUCE)
        self.memoize(obj)

    dispatch = {
        **pickle._Pickler.dispatch, tenon.dtype: save_dtype, tenon.layout: save_layout,
        FunctionType: save_global,
    }  # fmt: skip


def write(value: Any, file: BinaryIO, old: bool = False) -> None:
    """Writes any object that pickle takes."""
    text = io.BytesIO()
    pickler = _Pickler(text, old)
    with reduce.reducing(_form):
        pickler.dump(value)
    if old:
        rows = [
            (place, unit, _tensor.bytes_of(_tensor.written(row)))
            for place, unit, row in pickler.rows.values()
        ]
        pt_writer.write_row(text.getvalue(), rows, file)
        return
    archive = ArchiveWriter(file)
    archive.add(ROOT + "data.pkl", text.getvalue())
    archive.add(ROOT + "byteorder", _tensor.NATIVE.encode())
    for place, _, row in pickler.rows.values():
        archive.add(f"{ROOT}data/{place}", _tensor.bytes_of(_tensor.written(row)))
    archive.add(ROOT + "version", b"3\n")
    archive.add(ROOT + ".data/serialization_id", hashlib.sha1(text.getvalue()).hexdigest().encode())
    archive.finish()


# ---- Reading -------------------------------------------------------------------------------------

_safe: dict[str, Any] = {}


def full_name(obj: Any) -> str:
    """By which name files speak of a class or function."""
    module = pickle.whichmodule(obj, obj.__qualname__)
    ours = module.partition(".")[0] in (OURS, THEIRS)
    return f"{_their_module(module) if ours else module}.{obj.__qualname__}"


def _our_object(module: str, name: str) -> Any:
    """What a name means here: PyTorch's modules are ours."""
    rest = module.removeprefix(THEIRS)
    for candidate in (OURS + rest, f"{OURS}._torch{rest}"):
        try:
            found: Any = importlib.import_module(candidate)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            continue
        return found
    raise UnsafeContentError(f"the file refers to {module}.{name}, which Tenon does not have")


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, checkpoint: pt_reader.Checkpoint, named_only: bool) -> None:
        super().__init__(io.BytesIO(data))
        self.checkpoint = checkpoint
        self.named_only = named_only

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in _safe:
            return _safe[full]
        if self.named_only and not pt_reader.is_plain(full):
            raise UnsafeContentError(
                f"the file refers to {full[:200]!r}, which is neither plain data nor named by "
                "add_safe_globals"
            )
        if module == THEIRS or module.startswith(THEIRS + "."):
            return _our_object(module, name)
        return super().find_class(module, name)

    def persistent_load(self, reference: Any) -> Any:
        if type(reference) is tuple and reference[:1] == ("module",):
            return reference[1]
        if type(reference) is not tuple:
            found = self.checkpoint.storage(reference)
            return found if isinstance(found, Tensor) else storages.typed_of(found.row(found.kind))
        if len(reference) < 5:
            raise FileFormatError("the file refers to something that is no storage")
        kind = getattr(reference[1], "dtype", tenon.uint8)
        name = _tensor.name_of(kind)
        known = pt_reader.StorageType(getattr(reference[1], "__name__", "storage"), name)
        stored = self.checkpoint.storage((reference[0], known, *reference[2:]))
        return storages.typed_of(stored.row(name))


def read(file: BinaryIO, map_location: Any, named_only: bool) -> Any:
    """The object in a checkpoint, made by pickle. named_only: of plain data and named classes."""
    checkpoint = pt_old.open_checkpoint(file, map_location)
    unpickler = _Unpickler(checkpoint.structure(), checkpoint, named_only)
    try:
        return unpickler.load()
    except UnsafeContentError:
        raise
    except pickle.UnpicklingError as err:
        raise FileFormatError(str(err)) from err


def unsafe_globals(file: BinaryIO) -> list[str]:
    """What a checkpoint names that is neither plain data nor named here, which runs nothing."""
    found: set[str] = set()
    texts: list[str] = []
    kept: dict[int, str] = {}
    for code, arg, _ in pickletools.genops(pt_old.open_checkpoint(file, None).structure()):
        if code.name in ("GLOBAL", "INST"):
            found.add(arg.replace(" ", ".", 1))
        elif code.name == "STACK_GLOBAL":
            found.add(".".join(texts[-2:]))
        elif code.name == "MEMOIZE":
            kept[len(kept)] = texts[-1] if texts else ""
        elif code.name in ("BINPUT", "LONG_BINPUT"):
            kept[arg] = texts[-1] if texts else ""
        elif code.name in ("BINGET", "LONG_BINGET"):
            texts.append(kept.get(arg, ""))
        elif isinstance(arg, str):
            texts.append(arg)
    return sorted(name for name in found if name not in _safe and not pt_reader.is_plain(name))


def add_safe_globals(safe_globals: Any) -> None:
    """Names classes and functions that files may use: (object, "module.name") says under which
    name."""
    for entry in safe_globals:
        obj, name = entry if isinstance(entry, tuple) else (entry, full_name(entry))
        _safe[name] = obj


def get_safe_globals() -> list[Callable[..., Any]]:
    """What was named."""
    return list(_safe.values())


def clear_safe_globals() -> None:
    """Nothing is named from here on."""
    _safe.clear()


class safe_globals:  # noqa: N801 - PyTorch's name
    """add_safe_globals for the length of a `with` block."""

    def __init__(self, safe_globals: Any) -> None:
        self.named = safe_globals

    def __enter__(self) -> None:
        self.before = dict(_safe)
        add_safe_globals(self.named)

    def __exit__(self, *exc: object) -> None:
        _safe.clear()
        _safe.update(self.before)
