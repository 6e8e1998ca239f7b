"""`.metadata`: a pickle under PyTorch's names, behind which our writer puts a hash of it.

Reading runs nothing that the file names: the classes below are made from what it says, as `load`
makes tensors. A file without a hash is one of PyTorch's.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import fields
from pathlib import PurePath
from typing import Any

import tenon
from tenon._tensor import pickled
from tenon.distributed.checkpoint import filesystem, metadata
from tenon.io import pt_reader
from tenon.io.errors import FileFormatError, UnsafeContentError
from tenon.io.unpickle import Global, Reader

__all__: list[str] = []

_MARK = b"tenon.sha256:"
_HASH_BYTES = len(_MARK) + 64
_HERE = "torch.distributed.checkpoint"


# ---- Writing -------------------------------------------------------------------------------------


def _plain(told: metadata.Metadata) -> metadata.Metadata:
    """The same, where the checkpoint is named by text: a path is of a class of its system."""
    where = told.storage_meta
    if where is None or not isinstance(where.checkpoint_id, PurePath):
        return told
    named = metadata.StorageMeta(str(where.checkpoint_id), where.save_id, where.load_id,
                                 where.modules)  # fmt: skip
    return metadata.Metadata(
        told.state_dict_metadata, told.planner_data, told.storage_data, named, told.version
    )


def written(told: metadata.Metadata) -> bytes:
    """The file of a manifest."""
    room = io.BytesIO()
    pickled._Pickler(room, False).dump(_plain(told))
    text = room.getvalue()
    return text + _MARK + hashlib.sha256(text).hexdigest().encode()


# ---- Reading -------------------------------------------------------------------------------------

_CLASSES = {
    f"{_HERE}.{module.__name__.rpartition('.')[2]}.{cls.__name__}": cls
    for module, names in (
        (metadata, "BytesStorageMetadata ChunkStorageMetadata Metadata MetadataIndex StorageMeta "
                   "TensorProperties TensorStorageMetadata"),
        (filesystem, "_StorageInfo"),
    )
    for cls in (getattr(module, name) for name in names.split())
}  # fmt: skip


def _maker(cls: type) -> Callable[[], Any]:
    members = dict.fromkeys(f.name for f in fields(cls))

    def make() -> Any:
        made = cls.__new__(cls)
        made.__dict__.update(members)
        if cls is metadata.MetadataIndex:
            made.__dict__["fqn"] = ""  # what is used as a key before it is filled has a hash
        return made

    return make


def _path(*parts: Any) -> str:
    if not all(type(p) is str for p in parts):
        raise FileFormatError("a path of something that is no text")
    return str(PurePath(*parts))


_NAMES: dict[str, Any] = {
    **{name: Global(name, _maker(cls)) for name, cls in _CLASSES.items()},
    **{
        name: Global(name, _path)
        for module in ("pathlib", "pathlib._local")
        for name in (f"{module}.PosixPath", f"{module}.WindowsPath", f"{module}.PurePosixPath")
    },
    f"{_HERE}.metadata._MEM_FORMAT_ENCODING": Global(
        f"{_HERE}.metadata._MEM_FORMAT_ENCODING", metadata._MEM_FORMAT_ENCODING
    ),
}


def _find(module: str, name: str) -> Any:
    full = f"{module}.{name}"
    return _NAMES[full] if full in _NAMES else pt_reader.find(module, name)


def _takes_state(target: Any, state: Any) -> bool:
    if type(target) is metadata.TensorProperties:
        if type(state) is not tuple or len(state) != 5 or not isinstance(state[0], tenon.dtype):
            raise FileFormatError("a tensor's properties that are none")
        target.__setstate__(state)
        return True
    if type(target) not in _CLASSES.values():
        return pt_reader.takes_state(target, state)
    if type(state) is not dict or not {f.name for f in fields(target)} >= state.keys():
        raise FileFormatError(f"an entry of the class {type(target).__name__} that is none")
    target.__dict__.update(state)
    return True


def read(data: bytes, where: Any) -> metadata.Metadata:
    """What a manifest says."""
    text, mark = data[:-_HASH_BYTES], data[-_HASH_BYTES : len(data) - 64]
    if mark != _MARK:
        text = data
    elif hashlib.sha256(text).hexdigest().encode() != data[-64:]:
        raise FileFormatError(f"{where}: damaged: its hash differs from what was written")
    keys = (*pt_reader.KEY_TYPES, metadata.MetadataIndex)
    reader = Reader(text, _find, None, keys, _takes_state, tuple(_CLASSES.values()))
    try:
        told = reader.run()
        _check(told, reader.at == len(text))
    except UnsafeContentError:
        raise
    except (FileFormatError, RuntimeError) as err:
        raise FileFormatError(f"{where}: damaged, or no checkpoint: {err}") from err
    return told


def _check(told: Any, whole: bool) -> None:
    """FileFormatError: not a manifest, or one whose boxes are not what they must be."""
    if type(told) is not metadata.Metadata or not whole:
        raise FileFormatError("it holds something else than one manifest")
    entries, stored = told.state_dict_metadata, told.storage_data
    if type(entries) is not dict or type(stored) is not dict:
        raise FileFormatError("a manifest without entries")
    for entry in entries.values():
        if type(entry) is metadata.BytesStorageMetadata:
            continue
        if type(entry) is not metadata.TensorStorageMetadata or type(entry.chunks) is not list:
            raise FileFormatError("an entry that is neither tensor nor object")
        if not isinstance(getattr(entry.properties, "dtype", None), tenon.dtype):
            raise FileFormatError("a tensor without a dtype")
        if any(type(c) is not metadata.ChunkStorageMetadata for c in entry.chunks):
            raise FileFormatError("a box that is none")
        sizes = [entry.size, *(s for c in entry.chunks for s in (c.offsets, c.sizes))]
        if any(type(s) is not tenon.Size or len(s) != len(entry.size) for s in sizes):
            raise FileFormatError("a box of other dimensions than its tensor's")
    for info in stored.values():
        if type(info) is not filesystem._StorageInfo or not info.is_sound():
            raise FileFormatError("a box whose place in a file is none")
