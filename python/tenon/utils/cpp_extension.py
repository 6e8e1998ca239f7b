"""Extensions in C and C++: modules for Python, and plugins against <tenon/plugin.h>.

Code against libtorch (`torch/extension.h`, `ATen`, `c10`) needs PyTorch's own library and is
refused with the line that asks for it: docs/plugins.md says how the same operator is written for
Tenon.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tenon._plugin import compile as compiling
from tenon._plugin import environment, inline

__all__ = [
    "CUDAExtension", "CppExtension", "include_paths", "library_paths", "load",
    "load_inline",
]  # fmt: skip

IS_WINDOWS = sys.platform == "win32"
IS_HIP_EXTENSION = False
ROCM_HOME = HIP_HOME = SYCL_HOME = None
COMMON_NVCC_FLAGS: list[str] = []

_THEIRS = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*[<"]((?:torch|ATen|c10)/[^>"]+)[>"]', re.MULTILINE
)
_ENTRY = "tn_plugin_entry_v1"


def _cuda_home() -> str | None:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if found := environment.variable(variable):
            return found
    compiler = shutil.which("nvcc")
    return str(Path(compiler).resolve().parent.parent) if compiler else None


CUDA_HOME = _cuda_home()


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
    """Where the headers of plugins are."""
    del device_type, torch_include_dirs
    return [str(compiling.INCLUDE)]


def library_paths(
    device_type: str = "cpu", torch_include_dirs: bool = True, cross_target_platform: Any = None
) -> list[str]:
    """Libraries to link with: none, a plugin gets all by a table."""
    del device_type, torch_include_dirs, cross_target_platform
    return []


def is_ninja_available() -> bool:
    """Whether the program ninja is there; it is not needed."""
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """Raises where ninja is not there."""
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions")


def get_default_build_root() -> str:
    """Where extensions are kept unless a folder is given."""
    return str(environment.cache_folder() / "tenon" / "extensions")


def _get_build_directory(name: str, verbose: bool) -> str:
    del verbose
    folder = Path(environment.variable("TORCH_EXTENSIONS_DIR") or get_default_build_root(), name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)


def _refuse_libtorch(name: str, source: str, text: str) -> None:
    found = _THEIRS.search(text)
    if found is None:
        return
    line = text.count("\n", 0, found.start()) + 1
    raise RuntimeError(
        f"extension '{name}': {source}:{line} includes <{found[1]}>, the C++ of libtorch, which "
        "Tenon has not. An operator is a C or C++ file that includes <tenon/plugin.h> alone; a "
        "function of numbers and pointers can be bound with tenon.ffi: docs/plugins.md"
    )


def _check(name: str, sources: Iterable[str], folder: str | Path = ".") -> None:
    """Refuses what cannot be compiled here, before a compiler says it in its own way."""
    for source in sources:
        path = Path(folder, source)
        if path.suffix == ".cu":
            raise RuntimeError(
                f"extension '{name}': {source} is CUDA; kernels for CUDA are plugins of their own, "
                "see docs/cuda.md"
            )
        if path.suffix in compiling.LANGUAGES and path.is_file():
            _refuse_libtorch(name, str(source), path.read_text(encoding="utf-8", errors="replace"))


def _flags(*groups: Any) -> list[str]:
    return [flag for group in groups for flag in (group or [])]


def load(
    name: str, sources: str | Sequence[str], extra_cflags: Any = None,
    extra_cuda_cflags: Any = None, extra_sycl_cflags: Any = None, extra_ldflags: Any = None,
    extra_include_paths: Any = None, build_directory: str | None = None, verbose: bool = False,
    with_cuda: bool | None = None, with_sycl: bool | None = None, is_python_module: bool = True,
    is_standalone: bool = False, keep_intermediates: bool = True,
) -> Any:  # fmt: skip
    """Compiles C and C++ and loads the result: a module for Python (it defines PyInit_NAME), which
    is returned, or a plugin, whose path is returned. What was compiled before from the same sources
    and flags is taken again."""
    del extra_cuda_cflags, extra_sycl_cflags, with_cuda, with_sycl, keep_intermediates
    if is_standalone:
        raise RuntimeError(
            "load(): standalone programs are not built here; give main to a compiler"
        )
    files = [os.path.abspath(s) for s in ([sources] if isinstance(sources, str) else sources)]
    _check(name, files)
    includes = [*include_paths(), sysconfig.get_path("include"), *(extra_include_paths or [])]
    flags = _flags(extra_cflags, [f"-I{os.path.abspath(path)}" for path in includes])
    try:
        command = compiling.command_line(files, flags, [])
    except compiling.CompileError as err:
        raise RuntimeError(f"extension '{name}': {err}") from None
    command.remove("-Wl,--no-undefined")  # names of Python are found where it is loaded
    command += _flags(extra_ldflags)
    if verbose:
        print(" ".join(command))
    folder = Path(build_directory or _get_build_directory(name, verbose))
    library = folder / f"{name}-{_key(command, files)}.so"
    if not library.exists():
        _build(name, command, library)
    return _loaded(name, library, is_python_module)


def _key(command: list[str], files: list[str]) -> str:
    """Stands for all that decides what comes out, but for headers beside the sources."""
    key = hashlib.sha256("\0".join(command).encode())
    for file in files:
        key.update(Path(file).read_bytes())
    return key.hexdigest()[:16]


def _build(name: str, command: list[str], library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        made = Path(work, "made.so")
        try:
            compiling.shared_library(command, made, Path(work))
        except compiling.CompileError as err:
            raise RuntimeError(f"Error building extension '{name}':\n{err}") from None
        made.replace(library)  # at once, for other processes may be doing the same


def _loaded(name: str, library: Path, is_python_module: bool) -> Any:
    text = library.read_bytes()
    if is_python_module and f"PyInit_{name}".encode() in text:
        loader = importlib.machinery.ExtensionFileLoader(name, str(library))
        spec = importlib.util.spec_from_file_location(name, library, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        return module
    if _ENTRY.encode() not in text:
        raise RuntimeError(
            f"extension '{name}' is neither a module, with PyInit_{name}, nor a plugin, with "
            f"{_ENTRY}: see docs/plugins.md"
        )
    inline.load_library(library)
    return str(library)


def load_inline(
    name: str, cpp_sources: str | Sequence[str], cuda_sources: Any = None,
    sycl_sources: Any = None, functions: Any = None, extra_cflags: Any = None, *args: Any,
    is_python_module: bool = True, build_directory: str | None = None, verbose: bool = False,
    extra_ldflags: Any = None, extra_include_paths: Any = None, **ignored: Any,
) -> Any:  # fmt: skip
    """`load` of sources that are texts: C++ of a module or a plugin. `functions` would be bound to
    Python through libtorch's C++ and are refused."""
    del args, ignored
    texts = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    for i, text in enumerate(texts):
        _refuse_libtorch(name, f"source {i}", text)
    if cuda_sources or sycl_sources:
        raise RuntimeError(f"extension '{name}': kernels for CUDA are plugins, see docs/cuda.md")
    if functions:
        raise RuntimeError(
            f"extension '{name}': functions are bound to Python by libtorch's C++, which Tenon has "
            "not; register operators in the source (docs/plugins.md), or bind C functions with "
            "tenon.ffi"
        )
    folder = Path(build_directory or _get_build_directory(name, verbose))
    files = []
    for text in texts:
        file = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.cpp"
        file.write_text(text, encoding="utf-8")
        files.append(str(file))
    return load(
        name, files, extra_cflags, extra_ldflags=extra_ldflags, build_directory=str(folder),
        extra_include_paths=extra_include_paths, verbose=verbose, is_python_module=is_python_module,
    )  # fmt: skip


def CppExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802
    """A setuptools.Extension in C++ that finds the headers of plugins."""
    from setuptools import Extension

    kwargs["include_dirs"] = [*kwargs.get("include_dirs", []), *include_paths()]
    kwargs.setdefault("language", "c++")
    return Extension(name, sources, *args, **kwargs)


def CUDAExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802
    """An extension with kernels for CUDA: such kernels are plugins here."""
    del args, kwargs, sources
    raise RuntimeError(f"extension '{name}': kernels for CUDA are plugins, see docs/cuda.md")


def _command() -> type:
    """The class BuildExtension: a command of setuptools, which is imported for it."""
    from setuptools.command.build_ext import build_ext

    class BuildExtension(build_ext):
        """build_ext that refuses code against libtorch before it is compiled."""

        @classmethod
        def with_options(cls, **options: Any) -> type:
            """The command with options of PyTorch's, which say how ninja is called; it is not."""
            del options
            return cls

        def build_extension(self, ext: Any) -> None:
            """Builds one extension."""
            _check(ext.name, ext.sources)
            super().build_extension(ext)

    BuildExtension.__module__, BuildExtension.__qualname__ = __name__, "BuildExtension"
    return BuildExtension


def __getattr__(name: str) -> Any:
    if name == "BuildExtension":
        globals()[name] = _command()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
