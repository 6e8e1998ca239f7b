"""`save` and `load`: checkpoints in PyTorch's zip format, read and written as data.

Reading executes nothing: no class is imported, no function is called that the file names. What is
not plain data is refused by name, unless the program says weights_only=False, or named its classes
by add_safe_globals: `_tensor/pickled.py`.
"""

from __future__ import annotations

import io
import os
import sys
from typing import IO, Any, BinaryIO

from tenon._submodules import imported as _imported
from tenon.io import pt_old, pt_writer
from tenon.io._tensor import SkipData as skip_data
from tenon.io.atomic import open_to_read, replacing
from tenon.io.errors import FileFormatError, NotPlainError, UnsafeContentError
from tenon.io.pt_reader import MapLocation

__all__ = [
    "FileFormatError", "UnsafeContentError", "add_safe_globals", "clear_safe_globals",
    "default_restore_location", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load",
    "location_tag", "save", "skip_data",
]  # fmt: skip

_NAMING = "tenon._tensor.pickled"
DEFAULT_PROTOCOL = 2  # of pickled structures
MAP_LOCATION = MapLocation  # PyTorch's name
File = str | os.PathLike[str] | IO[bytes]


def normalize_storage_type(storage_type: Any) -> Any:
    """The kind of storage that has the name of a class."""
    return getattr(_imported("tenon"), storage_type.__name__)


def save(
    obj: Any, f: File, pickle_module: Any = None, pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:  # fmt: skip
    """Writes obj to a path or an open file.

    A path is replaced only when the new file is complete. Objects of importable classes are
    written by pickle. _use_new_zipfile_serialization=False writes what PyTorch before 1.6 reads.
    pickle_module and pickle_protocol are those of torch.save and have no effect.
    """
    del pickle_module, pickle_protocol
    old = not _use_new_zipfile_serialization
    if isinstance(f, str | os.PathLike):
        with replacing(f) as file:
            _write(obj, file, old)
        return
    if not hasattr(f, "write"):
        raise TypeError(f"save(): expected a path or a file to write, not {type(f).__name__}")
    _write(obj, f, old)
    if hasattr(f, "flush"):  # whoever opens its path finds all of it
        f.flush()


def _pickled() -> Any:
    return _imported(_NAMING)


def _write(obj: Any, file: Any, old: bool) -> None:
    try:
        (pt_writer.write_old if old else pt_writer.write)(obj, file)
    except NotPlainError:
        _pickled().write(obj, file, old)


def _seekable(f: Any) -> BinaryIO:
    """f itself where positions in it can be sought, else its contents. An archive begins where its
    file does; other checkpoints may follow each other in one file."""
    if not hasattr(f, "read"):
        raise TypeError(f"load(): expected a path or a file to read, not {type(f).__name__}")
    seekable = getattr(f, "seekable", None)
    if seekable is not None and seekable() and hasattr(f, "readinto"):
        start = f.tell()
        head = f.read(2) if start else b""
        f.seek(start)
        if head != b"PK":
            return f
    return io.BytesIO(f.read())


def load(
    f: File, map_location: MapLocation = None, pickle_module: Any = None, *,
    weights_only: bool | None = None, mmap: bool | None = None, **ignored: Any,
) -> Any:  # fmt: skip
    """The object in a checkpoint, or the tensors of a GGUF file.

    map_location says where storages go: a device, a dict from location to device, or a function of
    storage and location. mmap (paths only) leaves the storages in the file until they are used; the
    file must not change meanwhile. With weights_only=False a file that holds more than plain data
    is read by pickle, which runs what the file says: only for files that you trust.
    """
    del pickle_module, ignored
    if isinstance(f, str | os.PathLike):
        with open_to_read(f) as file:
            return _read(file, map_location, bool(mmap), weights_only is False)
    if mmap:
        raise ValueError("load(): mmap=True needs a path")
    return _read(_seekable(f), map_location, False, weights_only is False)


def _read(file: BinaryIO, map_location: MapLocation, mmap: bool, everything: bool) -> Any:
    start = file.tell()
    head = file.read(4)
    file.seek(start)
    if head == b"GGUF":
        return _imported("tenon.io.gguf").read(file, map_location)
    try:
        return pt_old.open_checkpoint(file, map_location, mmap).read()
    except UnsafeContentError:
        if not everything and not (_NAMING in sys.modules and _pickled().get_safe_globals()):
            raise
    file.seek(start)
    return _pickled().read(file, map_location, named_only=not everything)


def location_tag(storage: Any) -> str:
    """What files say of the place of a storage: "cpu", "cuda:0"."""
    device = storage.device
    return device.type if device.type in ("cpu", "meta") else f"{device.type}:{device.index or 0}"


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage where a file says that it was, for a `map_location` that is a function. A place
    that no device here has is a RuntimeError."""
    if location_tag(storage) == location:
        return storage
    device = _imported("tenon").device(location)
    return storage if device == storage.device else storage.to(device=device)


def get_unsafe_globals_in_checkpoint(f: File) -> list[str]:
    """The names in a checkpoint that `load` refuses, as long as the program does not name them."""
    if isinstance(f, str | os.PathLike):
        with open_to_read(f) as file:
            return _pickled().unsafe_globals(file)
    return _pickled().unsafe_globals(_seekable(f))


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Names classes and functions that files may use, and that `load` then makes by pickle; an
    entry (object, "module.name") says under which name files speak of it."""
    _pickled().add_safe_globals(safe_globals)


def get_safe_globals() -> list[Any]:
    """What was named."""
    return _pickled().get_safe_globals()


def clear_safe_globals() -> None:
    """Nothing is named from here on."""
    _pickled().clear_safe_globals()


def __getattr__(name: str) -> Any:
    if name == "safe_globals":
        return _pickled().safe_globals
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
