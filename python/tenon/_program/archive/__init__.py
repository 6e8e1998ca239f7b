"""TorchScript archives: the files of PyTorch's `jit.save`, read and run.

Such a file is a zip archive of code (`code/__torch__/….py`), a pickled structure of modules
(`data.pkl`), and the tensors of both. The code is a small language that looks like Python; it is
looked through and runs on Tenon's operators (code.py, words.py), and reaches nothing else: a file
from anywhere can be loaded. Classes of the code become modules with the parameters, buffers and
methods that they had (kinds.py).
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from tenon._program.archive.kinds import Builder, Library, Raw
from tenon.io import pt_reader
from tenon.io.atomic import open_to_read
from tenon.io.errors import FileFormatError
from tenon.io.unpickle import Global, Loose, Reader
from tenon.io.zip_reader import Member
from tenon.nn import Module

MAX_CODE = 32 << 20  # bytes of all code together
_BUILDERS = ("build_intlist", "build_doublelist", "build_boollist", "build_tensorlist")


class _Checkpoint(pt_reader.ZipCheckpoint):
    """An archive whose structure may hold objects of its own code."""

    holds_code = True

    def __init__(self, file: BinaryIO, map_location: Any) -> None:
        super().__init__(file, map_location, mmap=False)
        self.code_bytes = 0

    def texts(self) -> dict[str, bytes]:
        """The files of code."""
        begin = self.root + "code/"
        return {
            name[len(self.root) :]: self.small(member)
            for name, member in self.archive.members.items()
            if name.startswith(begin) and name.endswith(".py")
        }

    def small(self, member: Member) -> bytes:
        self.code_bytes += member.size
        if self.code_bytes > MAX_CODE:
            raise FileFormatError(f"the archive's code takes more than {MAX_CODE} bytes")
        return bytes(self.archive.read(member))

    def read_part(self, name: str) -> Any:
        """What data.pkl or constants.pkl holds; tensors of each lie in a folder of its own."""
        member = self._member(name + ".pkl")
        if member is None or member.size > pt_reader.MAX_STRUCTURE:
            raise FileFormatError(f"the archive has no {name}.pkl that could be read")
        self.folder = name + "/"
        data = bytes(self.archive.read(member))
        return Reader(data, _find, self._referred, pt_reader.KEY_TYPES, _takes_state, (Raw,)).run()

    def extra(self, name: str) -> bytes:
        member = self._member("extra/" + name)
        return b"" if member is None else self.small(member)


def _list_of(values: Any) -> list[Any]:
    if type(values) not in (list, tuple):
        raise FileFormatError("a list of the archive is made of something else")
    return list(values)


def _tagged(value: Any, tag: Any) -> Any:
    """A list or dict of which the file says what it holds."""
    if type(tag) is not str:
        raise FileFormatError("what a list of the archive holds is no text")
    return value


_NAMES = {f"torch.jit._pickle.{name}": _list_of for name in _BUILDERS}
_NAMES["torch.jit._pickle.restore_type_tag"] = _tagged


def _find(module: str, name: str) -> Any:
    full = f"{module}.{name}"
    if module == "__torch__" or module.startswith("__torch__."):
        return Loose(full, lambda *args: _raw(full, args))
    if full in _NAMES:
        return Global(full, _NAMES[full])
    return pt_reader.find(module, name)


def _raw(name: str, args: tuple[Any, ...]) -> Raw:
    """An object; a tuple with names or a member of an enumeration brings its values."""
    made = Raw(name)
    made.state = args[0] if len(args) == 1 and not isinstance(args[0], tuple) else args
    return made


def _takes_state(target: Any, state: Any) -> bool:
    if isinstance(target, Raw):
        target.state = state
        return True
    return pt_reader.takes_state(target, state)


def is_archive(f: Any) -> bool:
    """Whether a path or an open file begins like a zip archive; the file stays where it is."""
    if isinstance(f, (str, os.PathLike)):
        with open_to_read(f) as file:
            return file.read(4) == b"PK\3\4"
    if not (hasattr(f, "read") and hasattr(f, "seek")):
        return False
    at = f.tell()
    try:
        return f.read(4) == b"PK\3\4"
    finally:
        f.seek(at)


def load(f: Any, map_location: Any, extra_files: dict[str, Any] | None) -> Any:
    """The module of an archive at a path or in an open file."""
    from tenon._program.archive.modules import module_class

    if isinstance(f, (str, os.PathLike)):
        with open_to_read(f) as file:
            return load(file, map_location, extra_files)
    archive = _Checkpoint(f, map_location)
    constants = archive.read_part("constants")
    structure = archive.read_part("data")
    if type(constants) not in (tuple, list) or not isinstance(structure, Raw):
        raise FileFormatError("the archive's structure is no module")
    library = Library(archive.texts(), tuple(constants))
    made = Builder(library, module_class).value(structure)
    if not isinstance(made, Module):
        raise FileFormatError("the archive holds no module")
    if extra_files is not None:
        for name in extra_files:
            extra_files[name] = archive.extra(name)
    return made
