"""Plugins from a file or from a text: load_library and load_inline."""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tenon import _C
from tenon._plugin import compile, environment

# Libraries for PyTorch's C++ interface whose operators are written here, by package and file.
_WRITTEN_HERE = {
    ("torchvision", "_C"): "tenon.vision.ops._registered",
    ("torchvision", "image"): "tenon.vision.io._registered",
}
_loaded: dict[str, str] = {}  # name given to load_inline -> plugin


def load_plugin(path: str) -> None:
    """Loads and activates the plugin at this path."""
    from tenon import ops

    try:
        _C.load_plugin(path)
    finally:
        ops.forget()


def load_library(path: str | os.PathLike[str]) -> None:
    """Loads a plugin and everything that it registers. Of torchvision's libraries, which are made
    for PyTorch, Tenon has the operators itself."""
    real = Path(os.path.realpath(path))
    ours = _WRITTEN_HERE.get((real.parent.name, real.name.partition(".")[0]))
    if ours is None:
        load_plugin(str(real))
    else:
        importlib.import_module(ours)


def retire_plugin(name: str) -> None:
    """Withdraws a plugin's kernels, operators and devices; `load_plugin` brings them back."""
    from tenon import ops

    try:
        _C.retire_plugin(name)
    finally:
        ops.forget()


def cache_folder() -> Path:
    """Where compiled sources are kept: a folder of the user's own."""
    folder = environment.cache_folder() / "tenon" / "inline"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def _headers() -> str:
    """What the SDK looks like, so that a new Tenon compiles anew."""
    names = sorted((compile.INCLUDE / "tenon").glob("*.h"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in names)).hexdigest()


def compile_inline(source: str, name: str, flags: Sequence[str], language: str) -> Path:
    """The library that the source makes, from the cache where it has been made before."""
    file = f"{name}.{'c' if language == 'c' else 'cpp'}"
    try:
        command = compile.command_line([file], ["-O3", *flags], ["m"])
        key = "\0".join([*command, _headers(), source]).encode()
        folder = cache_folder()
        library = folder / f"{name}-{hashlib.sha256(key).hexdigest()[:16]}.so"
        if library.exists():
            return library
        with tempfile.TemporaryDirectory(dir=folder) as work:
            Path(work, file).write_text(source, encoding="utf-8")
            made = Path(work, "made.so")
            compile.shared_library(command, made, Path(work))
            made.replace(library)  # at once, for other processes may be doing the same
    except compile.CompileError as err:
        raise RuntimeError(f"load_inline: '{name}' does not compile:\n{err}") from None
    return library


def load_inline(source: str, name: str, *, flags: Sequence[str] = (), language: str = "c") -> None:
    """Compiles the source of a plugin with the C compiler ($CC, else cc) and loads it.

    The source is a whole plugin: it includes <tenon/plugin.h> and exports its entry function. The
    library is kept in the user's cache folder. Loading another source under the same name takes the
    place of the earlier one, which makes it fit for notebooks.
    """
    if not name.isidentifier():
        raise ValueError(f"load_inline: '{name}' is no identifier")
    if language not in ("c", "c++"):
        raise ValueError(f"load_inline: language is 'c' or 'c++', not {language!r}")
    library = os.path.realpath(compile_inline(source, name, flags, language))
    known = {p["path"]: p for p in _C.plugins()}
    if library in known and known[library]["active"]:
        return
    before = _loaded.pop(name, None)
    if before in {p["name"] for p in known.values() if p["active"]}:
        _C.retire_plugin(before)
    load_library(library)
    _loaded[name] = next(p["name"] for p in _C.plugins() if p["path"] == library)
