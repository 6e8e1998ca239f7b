"""`tenon plugin new`: a project to begin with. It is one of the examples, plugins/examples in the
repository, with another name; an example in C becomes one in C++ where that is asked for."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from tenon._plugin import native

EXAMPLES = native.PACKAGE / "examples"
KINDS = ("ops", "device", "dtype", "layer")
LONGEST = 32
TEXTS = {".c", ".cpp", ".json", ".toml", ".build", ".txt", ".md", ".py"}
# Where an example in C and one in C++ differ: the sources are in what both languages understand.
CPP = (
    ("'c'", "'cpp'"), ("c_std=c11", "cpp_std=c++20"), ("-std=c11", "-std=c++20"), ("cc -", "c++ -"),
    ("LANGUAGES C)", "LANGUAGES CXX)"), ("OpenMP_C)", "OpenMP_CXX)"),
    ("C_STANDARD 11", "CXX_STANDARD 20"), ("C_VISIBILITY", "CXX_VISIBILITY"),
    ("TN_PLUGIN_EXPORT tn_", 'extern "C" TN_PLUGIN_EXPORT tn_'),
)  # fmt: skip


def check_name(name: str, kind: str) -> None:
    """Raises ValueError when a plugin cannot have the name, and says why."""
    import tenon
    from tenon import ops

    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(
            f"'{name}' cannot be a plugin's name: small letters, digits and _, a letter first"
        )
    if len(name) > LONGEST:
        raise ValueError(f"'{name}' is longer than {LONGEST} characters")
    if keyword.iskeyword(name) or name in ("tn", "tenon"):
        raise ValueError(f"'{name}' cannot be a plugin's name: it means something else")
    taken = dir(tenon) if kind in ("device", "dtype") else vars(ops) if kind == "ops" else ()
    if name == "cpu" or name in taken:
        where = "tn.ops" if kind == "ops" else "tn"
        raise ValueError(f"there is a {where}.{name} already; choose another name")


def example_of(kind: str, language: str, openmp: bool) -> Path:
    if openmp and kind != "ops":
        raise ValueError(
            f"--openmp is for --kind ops; for a {kind} write openmp = true under [tool.tenon]"
        )
    special = "-openmp" if openmp else "-cpp" if kind == "ops" and language == "c++" else ""
    return EXAMPLES / f"{kind}{special}"


def renamed(text: str, old: str, new: str) -> str:
    """The old name in its three spellings, as a word; words are joined by _."""
    for before, after in (
        (old, new),
        (old.capitalize(), new.capitalize()),
        (old.upper(), new.upper()),
    ):
        text = re.sub(rf"(?<![A-Za-z0-9]){before}(?![A-Za-z0-9])", after, text)
    return text


def in_cpp(text: str, sources: list[str]) -> str:
    for before, after in CPP:
        text = text.replace(before, after)
    for source in sources:
        text = text.replace(source, f"{source}pp")
    return text


def project(name: str, kind: str, language: str, openmp: bool) -> dict[str, str]:
    """The files of a new project: names and texts."""
    check_name(name, kind)
    example = example_of(kind, language, openmp)
    files = {path.name: path for path in example.iterdir() if path.suffix in TEXTS}
    (manifest,) = (path for path in files.values() if path.suffix == ".json")
    old = manifest.stem.removeprefix("tenon_")
    to_cpp = [file for file in files if file.endswith(".c")] if language == "c++" else []
    made = {}
    for file, path in sorted(files.items()):
        text = path.read_text(encoding="utf-8")
        if to_cpp:
            file, text = in_cpp(file, to_cpp), in_cpp(text, to_cpp)
        made[renamed(file, old, name)] = renamed(text, old, name)
    return made


def create(name: str, kind: str, language: str, openmp: bool, folder: Path) -> list[str]:
    """Writes the project into a new folder; returns the files' names."""
    files = project(name, kind, language, openmp)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ValueError(f"{folder} is there already, and nothing in it was changed") from None
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    return list(files)
