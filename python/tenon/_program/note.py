"""What `jit` and `export` read in files: programs with a note that says what they take and give.

Whatever is wrong with a file raises FileFormatError, which is a RuntimeError: what a note says is
looked at here, before anything is made of it. Only what cannot be read at all is an OSError, and a
lack of memory is MemoryError.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

import tenon
from tenon import _program
from tenon._program import PARAMETER, Program
from tenon.io.atomic import open_to_read
from tenon.io.errors import FileFormatError
from tenon.nn import Module, Parameter

_FOREIGN = "the file holds a program that jit has not made"
_KINDS = ("module", "function", "script")
# Entries of a note that need not be there.
_LISTS = ("arguments", "constants", "grads", "transient")
_TABLES = ("extra", "ties")


@contextlib.contextmanager
def refused(what: str) -> Iterator[None]:
    """What goes wrong within is the file's fault."""
    try:
        yield
    except (FileFormatError, OSError, MemoryError, SystemError):
        raise  # the last is Python's own, where it has no memory for a call
    except Exception as err:
        raise FileFormatError(f"{what}: {type(err).__name__}: {err}") from None


def read(source: Any, what: str) -> Program:
    """The program of a path, a file object or bytes."""
    source = source.read() if hasattr(source, "read") else source
    if isinstance(source, (bytes, bytearray, memoryview)):
        source, name = bytes(source), "the file"
    else:
        name = os.fspath(source)
        open_to_read(name).close()  # what lies there may be no file's fault
    try:
        return _program.load(source)
    except tenon.OutOfMemoryError:
        raise
    except (ValueError, ImportError, RuntimeError) as err:  # the latter two: no such plugin, device
        raise FileFormatError(f"{what}: {name}: {err}") from None


def claim_parameters(program: Program, note: dict[str, Any]) -> None:
    """Makes parameters of the weights of a file that were such in the module: they require
    gradients where they did there."""
    for i, (name, kind, tensor) in enumerate(program.weights):
        if kind == PARAMETER and not isinstance(tensor, Parameter):
            program.set_weight(i, Parameter(tensor, name in note.get("grads", ())))


def of(program: Program) -> dict[str, Any]:
    """A program's note, whose entries are of the kinds that they should be."""
    try:
        note = json.loads(program.note)
    except (ValueError, RecursionError):
        raise FileFormatError(_FOREIGN) from None
    if not isinstance(note, dict) or note.get("kind") not in _KINDS:
        raise FileFormatError(_FOREIGN)
    if not isinstance(note.get("name", ""), str):
        raise FileFormatError("the note of a program: 'name' is no text")
    if note["kind"] == "script":  # which has its own entries
        _check(_is_table(note.get("extra", {})), "extra")
        return note
    for key in _LISTS:
        _check(_is_list(note.get(key, [])), key)
    for key in _TABLES:
        _check(_is_table(note.get(key, {})), key)
    _check(type(note.get("training", False)) is bool, "training")
    modules = note.get("modules", [])
    _check(isinstance(modules, list) and all(_is_list(m) and len(m) == 2 for m in modules),
           "modules")  # fmt: skip
    _check(_scopes_fit(note), "scopes")
    if "scope_of" in note:
        _check(len(note["scope_of"]) == len(program.data["nodes"]), "scope_of")
    _check_places(program, note)
    return note


def _check_places(program: Program, note: dict[str, Any]) -> None:
    """Weights and modules can be put where they are named, each at a place of its own."""
    weights = [*(n for n, _, _ in program.weights if n), *note.get("ties", {})]
    modules = {path for scope in note.get("scopes", []) for path, _ in scope}
    for path in (*weights, *modules):
        if not all(part and not hasattr(Module, part) for part in path.split(".")):
            raise FileFormatError(f"the note of a program: {path!r} is no place in a module")
    parts = (path.split(".") for path in weights)
    modules |= {".".join(p[:i]) for p in parts for i in range(1, len(p))}
    if len(set(weights)) < len(weights) or not modules.isdisjoint(weights):
        raise FileFormatError("the note of a program: two of its weights have one place")


def _check(good: bool, key: str) -> None:
    if not good:
        raise FileFormatError(f"the note of a program: '{key}' is not what it should be")


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


def _scopes_fit(note: dict[str, Any]) -> bool:
    """Lists of the modules that a node was called in, and which of them each node has."""
    scopes, used = note.get("scopes", []), note.get("scope_of", [])
    if not isinstance(scopes, list) or not isinstance(used, list):
        return False
    steps = [step for scope in scopes if isinstance(scope, list) for step in scope]
    return (
        all(isinstance(scope, list) for scope in scopes)
        and all(isinstance(s, list) and [type(v) for v in s] == [str, int] for s in steps)
        and all(isinstance(i, int) and 0 <= i < len(scopes) for i in used)
    )
