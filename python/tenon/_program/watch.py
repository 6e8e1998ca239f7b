"""What a call of a function depended on and did beside its result, as far as Python can tell.

A recorded graph may stand for a call only if leaving Python out changes nothing. Here the functions
that run are seen (sys.setprofile): what they could read is what guards compare on later calls, and
whatever they do that is no operator, no pure function and no local variable is a reason to run the
function itself each time.
"""

from __future__ import annotations

import builtins
import dis
import math
import operator
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import tenon
from tenon.nn import Module

PACKAGE = str(Path(tenon.__file__).parent)
_PLAIN = (bool, int, float, complex, str, bytes, type(None))

# Functions of C that only compute.
_PURE = {
    getattr(builtins, n)
    for n in (
        "abs", "all", "any", "bin", "callable", "chr", "divmod", "getattr", "hasattr", "hash",
        "id", "isinstance", "issubclass", "iter", "len", "max", "min", "next", "ord", "pow", "repr",
        "round", "sorted", "sum",
    )
} | {f for m in (math, operator) for f in vars(m).values() if callable(f)}  # fmt: skip
_PURE_METHODS = (str, bytes, tuple, int, float, frozenset, range, type(None))

# What changes more than a local variable.
_WRITES = {
    "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR",
    "STORE_SLICE", "IMPORT_NAME", "YIELD_VALUE", "ASYNC_GEN_WRAP", "SETUP_WITH", "BEFORE_WITH",
}  # fmt: skip


def _line(code: CodeType, line: int | None) -> str:
    return f"{code.co_filename}:{line or code.co_firstlineno}, in {code.co_name}"


def _write_in(code: CodeType) -> str | None:
    """Why the code may change what outlives it; None: it does not."""
    line = code.co_firstlineno
    for step in dis.get_instructions(code):
        # From 3.13 on `starts_line` says whether, and `line_number` which.
        line = getattr(step, "line_number", None) or int(step.starts_line or 0) or line
        outer = step.opname == "STORE_DEREF" and step.argval in code.co_freevars
        if step.opname in _WRITES or outer:
            return f"{step.opname} at {_line(code, line)}"
    return None


class Watch:
    """Sees the functions that run while it is open."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.read: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self._codes: set[CodeType] = set()
        self._before: Any = None

    def __enter__(self) -> Watch:
        self._before = sys.getprofile()
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _event(self, frame: FrameType, event: str, arg: Any) -> None:
        if self.reason is not None or frame.f_code.co_filename.startswith(PACKAGE):
            return
        if event == "call":
            self._python(frame)
        elif event == "c_call" and not self._is_pure(arg):
            name = getattr(arg, "__qualname__", repr(arg))
            self.reason = f"a call of {name} at {_line(frame.f_code, frame.f_lineno)}"

    def _is_pure(self, fn: Any) -> bool:
        module = getattr(fn, "__module__", None) or ""
        owner = getattr(fn, "__self__", None)
        if isinstance(owner, (tenon.Tensor, tenon.Size)) or module.startswith(("tenon", "torch")):
            return True
        if type(owner).__module__.startswith("tenon._C"):
            return True
        return fn in _PURE or isinstance(owner, _PURE_METHODS) or owner is sys.setprofile

    def _python(self, frame: FrameType) -> None:
        code = frame.f_code
        if code not in self._codes:
            self._codes.add(code)
            self.reason = _write_in(code)
        for name in code.co_names:
            if name in frame.f_globals:
                self.read[id(frame.f_globals), name] = (frame.f_globals, name, None)

    def values(self) -> list[tuple[Any, str, Any]]:
        return list(self.read.values())


# ---- Values that guards compare ------------------------------------------------------------------


def token(value: Any, depth: int = 4) -> Any:
    """Something that is equal for values with which a call takes the same course."""
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, tenon.Tensor):
        return id(value), value.dtype, tuple(value.shape), value.requires_grad
    if isinstance(value, (ModuleType, type)) or depth == 0:
        return id(value)
    if isinstance(value, (tuple, list)):
        return type(value), tuple(token(v, depth - 1) for v in value)
    if isinstance(value, dict):
        return dict, tuple((token(k, 1), token(v, depth - 1)) for k, v in value.items())
    if isinstance(value, Module):
        return tuple(_module_token(m, depth - 1) for m in value.modules())
    if isinstance(value, FunctionType):
        cells = tuple(_cell(c, depth - 1) for c in value.__closure__ or ())
        return id(value.__code__), cells, token(value.__defaults__, depth - 1)
    fields = getattr(value, "__dict__", None)
    if isinstance(fields, dict) and not callable(value):
        return id(value), token(fields, depth - 1)
    return id(value)


def _cell(cell: Any, depth: int) -> Any:
    try:
        return token(cell.cell_contents, depth)
    except ValueError:  # not filled yet
        return None


_MEMBERS = ("_parameters", "_buffers", "_modules")


def _module_token(module: Module, depth: int) -> Any:
    own = {k: v for k, v in module.__dict__.items() if k not in _MEMBERS}
    held = [(k, token(v)) for kind in _MEMBERS[:2] for k, v in getattr(module, kind).items()]
    return id(module), token(own, depth), tuple(held)


def closure_token(fn: Callable[..., Any]) -> Any:
    """What a function or method holds by itself."""
    owner = getattr(fn, "__self__", None)
    inner = getattr(fn, "__func__", fn)
    return token(owner), token(inner)
