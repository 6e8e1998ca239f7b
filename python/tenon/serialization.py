"""`save` and `load`: checkpoints in PyTorch's zip format, read and written as data.

Reading executes nothing: no class is imported, no function is called that the file names. What is
not plain data is refused by name, in both directions.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import IO, Any, BinaryIO

from tenon.io import pt_reader, pt_writer
from tenon.io.atomic import open_to_read, replacing
from tenon.io.errors import FileFormatError, UnsafeContentError
from tenon.io.pt_reader import MapLocation

__all__ = [
    "FileFormatError", "UnsafeContentError", "add_safe_globals", "clear_safe_globals",
    "get_safe_globals", "load", "save",
]  # fmt: skip

MAP_LOCATION = MapLocation  # PyTorch's name
File = str | os.PathLike[str] | IO[bytes]


def save(
    obj: Any, f: File, pickle_module: Any = None, pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:  # fmt: skip
    """Writes obj to a path or an open file.

    A path is replaced only when the new file is complete. The last three arguments are those of
    torch.save and have no effect: there is one format.
    """
    del pickle_module, pickle_protocol, _use_new_zipfile_serialization
    if isinstance(f, str | os.PathLike):
        with replacing(f) as file:
            pt_writer.write(obj, file)
        return
    if not hasattr(f, "write"):
        raise TypeError(f"save(): expected a path or a file to write, not {type(f).__name__}")
    pt_writer.write(obj, f)  # type: ignore[arg-type]


def _seekable(f: Any) -> BinaryIO:
    """f itself where positions in it can be sought, else its contents."""
    if not hasattr(f, "read"):
        raise TypeError(f"load(): expected a path or a file to read, not {type(f).__name__}")
    seekable = getattr(f, "seekable", None)
    if seekable is not None and seekable() and hasattr(f, "readinto") and f.tell() == 0:
        return f
    return io.BytesIO(f.read())


def load(
    f: File, map_location: MapLocation = None, pickle_module: Any = None, *,
    weights_only: bool | None = None, mmap: bool | None = None, **ignored: Any,
) -> Any:  # fmt: skip
    """The object in a checkpoint.

    map_location says where storages go: a device, a dict from location to device, or a function of
    storage and location. mmap (paths only) leaves the storages in the file until they are used; the
    file must not change meanwhile. weights_only=False is accepted, but nothing more is read.
    """
    del pickle_module, weights_only, ignored
    if isinstance(f, str | os.PathLike):
        with open_to_read(f) as file:
            return pt_reader.read(file, map_location, bool(mmap))
    if mmap:
        raise ValueError("load(): mmap=True needs a path")
    return pt_reader.read(_seekable(f), map_location)


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Refused: the list of what is read is fixed."""
    names = ", ".join(getattr(g, "__name__", str(g)) for g in safe_globals)
    raise NotImplementedError(f"load() reads plain data only; {names} cannot be added to it")


def get_safe_globals() -> list[Any]:
    """Nothing can be added, so nothing is there."""
    return []


def clear_safe_globals() -> None:
    """Nothing can be added, so nothing is to be done."""
