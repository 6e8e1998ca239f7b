"""A build backend for plugins: `pip install .` compiles the sources and packs a wheel.

    [build-system]
    requires = ["tenon"]
    build-backend = "tenon.build_plugin"

    [tool.tenon]
    sources = ["acme.c"]             # C and C++, by their suffixes; compiled by $CC or $CXX
    manifest = "tenon_acme.json"     # may be left out where there is one tenon_*.json
    flags = ["-O3"]                  # of the compiler, after -O2 -fPIC -shared
    libraries = ["m"]                # to link with
    openmp = false                   # adds -fopenmp
    debug = false                    # keeps symbols and adds -g
    files = ["firmware.bin"]         # further files of the package

The manifest tenon_acme.json makes the package `tenon_acme`: a folder with the library, the
manifest, `files`, and what a folder of that name in the project holds. Nothing in the wheel depends
on a version of Python, and two builds of the same sources give the same bytes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sysconfig
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenon._plugin import compile, packaging
from tenon._plugin import elf as _elf
from tenon._plugin import manifest as _manifest

LISTS = ("sources", "flags", "libraries", "files")  # the settings, by what they are
SWITCHES = ("openmp", "debug")
TEXTS = ("manifest",)
GROUP = "tenon.plugins"
SKIPPED = {"build", "dist", "venv", "__pycache__"}  # in a source archive
# The libraries of glibc, and the oldest minor version that every processor's wheels may ask for.
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
GLIBC |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
OLDEST = 17
PRODUCTS = {".so", ".o", ".pyc", ".whl"}


class BuildError(SystemExit):
    """Ends the build with this text and without a traceback."""

    def __init__(self, text: str) -> None:
        super().__init__(f"tenon.build_plugin: {text}")


@dataclass(frozen=True)
class Plugin:
    """What pyproject.toml and the manifest say."""

    root: Path
    project: Mapping[str, Any]
    manifest: Path
    library: str
    sources: list[str]
    flags: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    openmp: bool = False
    debug: bool = False

    @property
    def package(self) -> str:
        return self.manifest.stem

    @property
    def stem(self) -> str:
        return packaging.stem(self.project)


# ---- Reading ------------------------------------------------------------------------------------


def _project(table: Any) -> Mapping[str, Any]:
    if not isinstance(table, dict):
        raise BuildError("pyproject.toml has no table [project]")
    if table.get("dynamic"):
        raise BuildError("[project] dynamic: write the values into pyproject.toml")
    for key, pattern in (("name", packaging.NAME), ("version", packaging.VERSION)):
        value = table.get(key)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise BuildError(f"[project] {key} must be a {key} as PyPI knows it, not {value!r}")
    return table


def _settings(table: Any) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise BuildError("pyproject.toml has no table [tool.tenon]")
    for key, value in table.items():
        if key in LISTS:
            right = isinstance(value, list) and all(isinstance(item, str) for item in value)
        elif key in SWITCHES:
            right = isinstance(value, bool)
        elif key in TEXTS:
            right = isinstance(value, str)
        else:
            known = ", ".join(sorted((*LISTS, *SWITCHES, *TEXTS)))
            raise BuildError(f"[tool.tenon] has no '{key}'; it has {known}")
        if not right:
            kind = (
                "a list of texts" if key in LISTS else "a text" if key in TEXTS else "true or false"
            )
            raise BuildError(f"[tool.tenon] {key} must be {kind}, not {value!r}")
    return dict(table)


def _manifest_path(root: Path, name: str | None) -> Path:
    if name is None:
        found = sorted(root.glob("tenon_*.json"))
        if len(found) != 1:
            names = ", ".join(path.name for path in found) or "none"
            raise BuildError(
                f"there must be one manifest tenon_*.json beside pyproject.toml, and there is "
                f"{names}; [tool.tenon] manifest names another"
            )
        return found[0]
    path = root / name
    if not path.is_file():
        raise BuildError(f"[tool.tenon] manifest: there is no file {name}")
    if not path.stem.isidentifier():
        raise BuildError(f"[tool.tenon] manifest: {name} names the package and is no identifier")
    return path


def read(root: Path) -> Plugin:
    """The plugin whose pyproject.toml lies in `root`."""
    try:
        text = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise BuildError(f"pyproject.toml: {err}") from None
    project = _project(text.get("project"))
    tools = text.get("tool")
    settings = _settings(tools.get("tenon") if isinstance(tools, dict) else None)
    path = _manifest_path(root, settings.pop("manifest", None))
    try:
        manifest = _manifest.read(path)
    except ValueError as err:
        raise BuildError(str(err)) from None
    if manifest.version != project["version"]:
        raise BuildError(
            f"{path.name} says version {manifest.version}, pyproject.toml {project['version']}"
        )
    if not settings.get("sources"):
        raise BuildError("[tool.tenon] sources: name the files to compile")
    for name in [*settings["sources"], *settings.get("files", [])]:
        outside = Path(name).is_absolute() or ".." in Path(name).parts
        if outside or not (root / name).is_file():
            raise BuildError(f"[tool.tenon]: there is no file {name} in the project")
    return Plugin(root, project, path, manifest.library, **settings)


# ---- Building -----------------------------------------------------------------------------------


def compile_plugin(plugin: Plugin, library: Path) -> None:
    """Makes the plugin's library. CFLAGS or CXXFLAGS and LDFLAGS have their usual place."""
    variable = "CXXFLAGS" if compile.language_of(plugin.sources) == "c++" else "CFLAGS"
    flags = [
        flag for name in (variable, "LDFLAGS") for flag in shlex.split(os.environ.get(name, ""))
    ]
    flags += ["-g"] if plugin.debug else ["-s"]
    flags += ["-fopenmp"] if plugin.openmp else []
    command = compile.command_line(plugin.sources, [*flags, *plugin.flags], plugin.libraries)
    compile.shared_library(command, library, plugin.root)


def _built(plugin: Plugin) -> bytes:
    with tempfile.TemporaryDirectory() as work:
        library = Path(work, plugin.library)
        try:
            compile_plugin(plugin, library)
        except compile.CompileError as err:
            raise BuildError(f"{plugin.project['name']} does not compile: {err}") from None
        return library.read_bytes()


def _beside(plugin: Plugin) -> dict[str, Path]:
    """The package's files but for the library, by their names in it."""
    files = {plugin.manifest.name: plugin.manifest}
    files |= {Path(name).name: plugin.root / name for name in plugin.files}
    folder = plugin.root / plugin.package
    for path in folder.rglob("*") if folder.is_dir() else ():
        if path.is_file() and "__pycache__" not in path.parts:
            files[str(path.relative_to(folder))] = path
    return files


def _metadata(plugin: Plugin) -> str:
    try:
        return packaging.metadata(plugin.project, plugin.root)
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as err:
        raise BuildError(f"[project] in pyproject.toml: {type(err).__name__}: {err}") from None


def _info(plugin: Plugin) -> dict[str, str]:
    """The texts of the .dist-info folder."""
    project = plugin.project
    groups = {group: dict(points) for group, points in project.get("entry-points", {}).items()}
    for key, group in (("scripts", "console_scripts"), ("gui-scripts", "gui_scripts")):
        if project.get(key):
            groups[group] = project[key]
    name = plugin.package.removeprefix("tenon_")
    groups.setdefault(GROUP, {name: f"{plugin.package}:{plugin.manifest.name}"})
    return {
        "METADATA": _metadata(plugin),
        "entry_points.txt": packaging.entry_points(groups),
    }


def tag(library: bytes) -> str:
    """For every Python. A library that needs nothing but glibc runs wherever that is new enough,
    which package indexes want to read from the tag; of others only the processor is known."""
    machine = sysconfig.get_platform().removeprefix("linux-").replace("-", "_").replace(".", "_")
    elf = _elf.parse(library)
    versions = [re.fullmatch(r"GLIBC_2\.(\d+)(\.\d+)?", name) for name in elf.versions]
    if GLIBC.issuperset(elf.needed) and all(versions):
        minor = max([OLDEST, *(int(version[1]) for version in versions if version)])
        return f"py3-none-manylinux_2_{minor}_{machine}"
    return f"py3-none-linux_{machine}"


def _wheel(plugin: Plugin, library: bytes, members: Mapping[str, bytes], folder: str) -> str:
    return packaging.write_wheel(Path(folder), plugin.stem, tag(library), members, _info(plugin))


# ---- The hooks that pip calls -------------------------------------------------------------------

Settings = dict[str, Any] | None  # what a caller may pass on; there is nothing to set that way


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    del config_settings
    return []


get_requires_for_build_sdist = get_requires_for_build_editable = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    del config_settings
    plugin = read(Path.cwd())
    folder = Path(metadata_directory, f"{plugin.stem}.dist-info")
    folder.mkdir()
    for name, text in _info(plugin).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder.name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    del config_settings, metadata_directory
    plugin = read(Path.cwd())
    library = _built(plugin)
    files = {plugin.library: library}
    files |= {name: path.read_bytes() for name, path in _beside(plugin).items()}
    members = {f"{plugin.package}/{name}": data for name, data in files.items()}
    return _wheel(plugin, library, members, wheel_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """A wheel that only points to build/editable in the project, where the library is made and
    everything else is a link. After a change of the sources the same command compiles again."""
    del config_settings, metadata_directory
    plugin = read(Path.cwd())
    library = _built(plugin)
    home = plugin.root / "build" / "editable"
    shutil.rmtree(home, ignore_errors=True)
    folder = home / plugin.package
    folder.mkdir(parents=True)
    (folder / plugin.library).write_bytes(library)
    for name, path in _beside(plugin).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(path)
    pointer = {f"{plugin.package}.pth": f"{home}\n".encode()}
    return _wheel(plugin, library, pointer, wheel_directory)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Everything in the project but hidden files and what builds leave behind."""
    del config_settings
    plugin = read(Path.cwd())
    members = {"PKG-INFO": _metadata(plugin).encode()}
    for folder, folders, names in os.walk(plugin.root):
        inner = Path(folder).relative_to(plugin.root)
        folders[:] = [n for n in folders if n not in SKIPPED and not n.startswith(".")]
        for name in names:
            if not name.startswith(".") and Path(name).suffix not in PRODUCTS:
                members.setdefault(str(inner / name), Path(folder, name).read_bytes())
    return packaging.write_sdist(Path(sdist_directory), plugin.stem, members)
