"""`tenon missing script.py`: the names of PyTorch that a program and its packages use and that are
not there, found by reading sources, before anything runs.

What is read: the program, the modules beside it that it imports, and those modules of installed
packages that it reaches and whose package asks for PyTorch. Names are those written out, such as
`torch.nn.functional.relu` or `from torch.nn import Linear`; methods of values are not looked at.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from tenon._command import run

_FIRST_WORD = re.compile(r"[\w.-]+")


@functools.cache
def _asks_for_theirs(distribution: str) -> bool:
    """Whether a distribution requires PyTorch, by itself or through what it requires."""
    try:
        needed = requires(distribution) or []
    except PackageNotFoundError:
        return False
    plain = [n for n in needed if "extra ==" not in n]
    names = [m[0].lower() for n in plain if (m := _FIRST_WORD.match(n.strip()))]
    return run.THEIRS in names or any(
        name != distribution.lower() and _asks_for_theirs(name) for name in names
    )


@dataclass
class _Source:
    """One file: what it imports, and the dotted names of PyTorch that it uses."""

    name: str  # of the module, "" for the program
    path: Path
    package: str
    imports: list[str] = field(default_factory=list)
    uses: dict[str, int] = field(default_factory=dict)  # name: line

    def read(self) -> None:
        tree = ast.parse(self.path.read_bytes(), str(self.path))
        skipped = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            for statement in node.body
            for inner in ast.walk(statement)
        }
        nodes = [node for node in ast.walk(tree) if id(node) not in skipped]
        known: dict[str, str] = {}  # a name in this file: the dotted name it stands for
        for node in nodes:
            if isinstance(node, ast.Import):
                self._import(node, known)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node, known)
        inner = {id(n.value) for n in nodes if isinstance(n, ast.Attribute)}
        for node in nodes:
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                self._attribute(node, known)

    def _import(self, node: ast.Import, known: dict[str, str]) -> None:
        for alias in node.names:
            self.imports.append(alias.name)
            top = alias.name.partition(".")[0]
            if _is_theirs(alias.name):
                known[alias.asname or top] = alias.name if alias.asname else top
                self.uses.setdefault(alias.name, node.lineno)

    def _import_from(self, node: ast.ImportFrom, known: dict[str, str]) -> None:
        base = node.module or ""
        if node.level:
            parts = self.package.split(".")
            parts = parts[: len(parts) - node.level + 1]
            base = ".".join([*parts, *([base] if base else [])])
        for alias in node.names:
            self.imports += [base, f"{base}.{alias.name}"]
            if not _is_theirs(base):
                continue
            full = base if alias.name == "*" else f"{base}.{alias.name}"
            self.uses.setdefault(full, node.lineno)
            if alias.name != "*":
                known[alias.asname or alias.name] = full

    def _attribute(self, node: ast.Attribute, known: dict[str, str]) -> None:
        words: list[str] = []
        at: ast.expr = node
        while isinstance(at, ast.Attribute):
            words.append(at.attr)
            at = at.value
        if isinstance(at, ast.Name) and at.id in known and isinstance(node.ctx, ast.Load):
            full = ".".join([known[at.id], *reversed(words)])
            self.uses.setdefault(full, node.lineno)


def _is_theirs(name: str) -> bool:
    return name.partition(".")[0] == run.THEIRS


def _find(name: str, folder: Path) -> ModuleSpec | None:
    """The spec of a module, without importing anything."""
    path, spec = [str(folder), *sys.path], None
    for word in name.split("."):
        spec = PathFinder.find_spec(word, path)  # a whole name would have to be imported so far
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return spec


def _reached(program: Path) -> Iterator[_Source]:
    """The program and what it reaches, each once; a file that cannot be parsed is left out."""
    owners = packages_distributions()
    followed: dict[str, bool] = {}

    def follow(name: str) -> bool:
        top = name.partition(".")[0]
        if top not in followed:
            theirs = [_asks_for_theirs(owner) for owner in owners.get(top, [])]
            followed[top] = (
                top not in sys.stdlib_module_names
                and top not in (run.THEIRS, run.OURS, *run.BESIDE)
                and (any(theirs) or not theirs)
            )
        return followed[top]

    waiting, seen = [_Source("", program, "")], {program}
    while waiting:
        source = waiting.pop()
        try:
            source.read()
        except (SyntaxError, OSError, ValueError):
            if not source.name:
                raise
            continue
        yield source
        for full in source.imports:
            words = full.split(".")
            for name in [".".join(words[: i + 1]) for i in range(len(words))]:
                if not name or not follow(name):
                    break
                spec = _find(name, program.parent)
                if spec is None:
                    break
                if spec.origin is None or not spec.origin.endswith(".py"):
                    continue
                path = Path(spec.origin)
                if path not in seen:
                    seen.add(path)
                    inside = spec.submodule_search_locations is not None
                    waiting.append(_Source(name, path, name if inside else name.rpartition(".")[0]))


@functools.cache
def _first_absent(name: str) -> str:
    """The shortest part of a dotted name that is not there, "" if all of it is."""
    words = name.split(".")
    value: object = importlib.import_module(words[0])
    module = words[0]
    for count, word in enumerate(words[1:], 2):
        full = ".".join(words[:count])
        try:
            value = getattr(value, word)
        except AttributeError:
            try:
                value = importlib.import_module(f"{module}.{word}")
            except ImportError:
                return full
        except ImportError:
            return full
        module = full
        if not isinstance(value, type(sys)) and not isinstance(value, type):
            return ""  # attributes of values are theirs to know
    return ""


def missing(program: Path) -> tuple[dict[str, list[str]], int, int]:
    """Names that are not there with the places that use them; how many names and files there are.

    Aliases are installed in this process to look names up.
    """
    run.install()
    absent: dict[str, list[str]] = {}
    names: set[str] = set()
    files = 0
    for source in _reached(program):
        files += bool(source.uses)
        names |= source.uses.keys()
        for name, line in source.uses.items():
            gone = _first_absent(name)
            if gone:
                absent.setdefault(gone, []).append(f"{source.path}:{line}")
    return absent, len(names), files


def command(script: str) -> int:
    """Prints what is missing; 1 if something is."""
    program = Path(script)
    if not program.is_file():
        print(f"tenon missing: there is no file {script}", file=sys.stderr)
        return 2
    try:
        absent, names, files = missing(program)
    except (SyntaxError, ValueError) as err:
        print(f"tenon missing: {script} is no Python program: {err}", file=sys.stderr)
        return 2
    width = max((len(name) for name in absent), default=0)
    for name, places in sorted(absent.items(), key=lambda item: str(program) not in item[1][0]):
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        print(f"{name:{width}}  {places[0]}{more}")
    verb = "is" if len(absent) == 1 else "are"
    print(f"{len(absent) or 'none'} of {names} names in {files} files {verb} missing")
    return bool(absent)
