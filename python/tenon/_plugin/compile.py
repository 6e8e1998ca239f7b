"""The one way to call a compiler: for tn.load_inline and for tenon.build_plugin."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tenon._plugin import environment, native

INCLUDE = native.PACKAGE / "include"
LANGUAGES = {".c": "c", ".cc": "c++", ".cpp": "c++", ".cxx": "c++"}  # by a source file's suffix


class CompileError(RuntimeError):
    """There is no compiler, or it refuses the source; the message is what it said."""


def compiler(language: str) -> list[str]:
    """The command of $CC or $CXX, else cc or c++."""
    variable, fallback = ("CC", "cc") if language == "c" else ("CXX", "c++")
    command = shlex.split(environment.variable(variable)) or [fallback]
    if not shutil.which(command[0]):
        raise CompileError(
            f"there is no compiler '{command[0]}': install one (Debian: g++, which brings gcc), "
            f"or name yours in {variable}"
        )
    return command


def language_of(sources: Sequence[str]) -> str:
    """C++ as soon as one source is."""
    suffixes = {Path(source).suffix for source in sources}
    if unknown := sorted(suffixes - set(LANGUAGES)):
        raise CompileError(f"a source ends in '{unknown[0]}', not in {', '.join(LANGUAGES)}")
    return "c++" if any(LANGUAGES[suffix] == "c++" for suffix in suffixes) else "c"


def command_line(
    sources: Sequence[str], flags: Sequence[str], libraries: Sequence[str]
) -> list[str]:
    """The command but for the output. All that a plugin needs comes from the host table, so that
    a symbol which nothing defines is an error here and not when somebody loads the library."""
    language = language_of(sources)
    files = []
    for source in sources:
        in_cpp = language == "c++" and Path(source).suffix == ".c"
        files += ["-x", "c", source, "-x", "none"] if in_cpp else [source]
    shape = ["-fPIC", "-shared", "-fvisibility=hidden", "-Wl,--no-undefined", f"-I{INCLUDE}"]
    named = [f"-l{name}" for name in libraries]
    return [*compiler(language), "-O2", *shape, *flags, *files, *named]


def shared_library(command: Sequence[str], output: Path, folder: Path) -> None:
    """Runs what `command_line` gave, with names relative to `folder`: messages and the library do
    not depend on where the sources lie."""
    done = subprocess.run(
        [*command, "-o", str(output)], cwd=folder, capture_output=True, text=True, errors="replace"
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise CompileError(f"{shlex.join(command)}\n{said}")
