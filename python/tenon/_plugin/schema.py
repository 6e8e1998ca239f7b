"""Signatures of operators that are written in Python: from a schema text, and as one."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable
from typing import Any

from tenon import _C
from tenon._C import device, dtype
from tenon._tensor.methods import Tensor

ARGUMENT = re.compile(
    r"(?P<type>[A-Za-z]+)(?:\((?P<alias>[a-z]\w*)(?P<written>!?)\)|(?P<own>!))?"
    r"(?P<rest>(?:\[\d*\]|\?)*)"
    r"\s+(?P<name>[A-Za-z_]\w*)(?:\s*=\s*(?P<default>.+))?$"
)
_TYPES = {
    "Any", "Tensor", "Scalar", "SymInt", "bool", "complex", "Device", "float", "int", "number",
    "str", "ScalarType", "MemoryFormat", "Layout", "Generator",
}  # fmt: skip
_CONSTANTS = {"True": True, "False": False, "None": None}
_TEXTS = {
    Tensor: "Tensor", int: "int", float: "float", bool: "bool", str: "str", complex: "Scalar",
    dtype: "ScalarType", device: "Device",
}  # fmt: skip


def split(text: str) -> list[str]:
    """Parts between commas that stand outside of brackets and quotes."""
    parts, depth, start, quote = [], 0, 0, ""
    for i, ch in enumerate(text):
        if quote or ch in "\"'":
            quote = ch if not quote else "" if ch == quote else quote
            continue
        depth += (ch in "([") - (ch in ")]")
        if ch == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [p.strip() for p in [*parts, text[start:]] if p.strip()]


def default_of(text: str) -> Any:
    """The value of a default in a schema."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] in "\"'" and text[-1] == text[0]:
        return text[1:-1]
    if text[0] in "[(":
        return [default_of(t) for t in split(text[1:-1])]
    named = getattr(_C, text, None) if text.isidentifier() else None
    if isinstance(named, dtype):
        return named
    try:
        return float(text) if re.search(r"[.einE]", text) else int(text)
    except ValueError:
        raise ValueError(f"there is no default {text!r}") from None


def parse(op: str, schema: str) -> tuple[inspect.Signature, set[str]]:
    """The arguments of "(Tensor x, *, float y=1.0) -> Tensor", and which of them are written."""
    m = re.fullmatch(r"\s*(?:[\w:.]+)?\((.*)\)\s*->\s*(\S.*)", schema, re.S)
    if not m:
        raise ValueError(f"{op}: a schema is of the form '(Tensor x) -> Tensor', not {schema!r}")
    parameters, written, kind = [], set(), inspect.Parameter.POSITIONAL_OR_KEYWORD
    for part in split(m[1]):
        if part == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        a = ARGUMENT.match(part)
        if not a or a["type"] not in _TYPES:
            raise ValueError(f"{op}: cannot read argument {part!r} of the schema")
        if a["written"] or a["own"]:
            written.add(a["name"])
        try:
            default = inspect.Parameter.empty if a["default"] is None else default_of(a["default"])
            parameters.append(inspect.Parameter(a["name"], kind, default=default))
        except ValueError as err:
            raise ValueError(f"{op}: {err} in the schema") from None
    try:
        return inspect.Signature(parameters), written
    except ValueError as err:
        raise ValueError(f"{op}: {err}") from None


def _annotations(fn: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn)
    except (NameError, TypeError):
        return {}


def signature_of(
    op: str, fn: Callable[..., Any], schema: str | None, mutates_args: str | Iterable[str]
) -> tuple[inspect.Signature, frozenset[str]]:
    """The arguments of an operator and the names of those that it writes."""
    unknown = mutates_args == "unknown"
    announced = set() if unknown else set(
        [mutates_args] if isinstance(mutates_args, str) else mutates_args
    )  # fmt: skip
    if schema is None:
        signature = inspect.signature(fn)
    else:
        signature, written = parse(op, schema)
        if not unknown and announced and announced != written:
            raise ValueError(
                f"{op}: mutates_args names {sorted(announced)}, the schema {sorted(written)}"
            )
        announced |= written
    missing = announced - set(signature.parameters)
    if missing:
        raise ValueError(f"{op}: mutates_args names {sorted(missing)}, which are no arguments")
    return signature, frozenset(signature.parameters if unknown else announced)


def _type_text(op: str, what: str, hint: Any) -> str:
    if hint in _TEXTS:
        return _TEXTS[hint]
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if type(None) in parts and len(parts) == 2:
        (inner,) = [p for p in parts if p is not type(None)]
        return _type_text(op, what, inner) + "?"
    if {int, float} < set(parts) <= {int, float, bool, complex, type(None)}:
        return "Scalar?" if type(None) in parts else "Scalar"
    if origin in (list, tuple) or getattr(origin, "__name__", "") == "Sequence":
        return _type_text(op, what, parts[0]) + "[]"
    raise ValueError(f"infer_schema(): {what} of {op} has the annotation {hint!r}, no known type")


def infer(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    op_name: str | None = None,
) -> str:
    """The schema that a function's annotations mean."""
    op = op_name or getattr(prototype_function, "__name__", "function")
    signature, written = signature_of(op, prototype_function, None, mutates_args)
    hints = _annotations(prototype_function)
    parts, starred = [], False
    for number, p in enumerate(signature.parameters.values()):
        if p.name not in hints:
            raise ValueError(f"infer_schema(): parameter {p.name} of {op} has no annotation")
        if p.kind == p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        text = _type_text(op, f"parameter {p.name}", hints[p.name])
        if p.name in written:
            text = text.replace("Tensor", f"Tensor(a{number}!)", 1)
        default = "" if p.default is p.empty else f"={p.default!r}".replace("'", '"')
        if isinstance(p.default, dtype):
            default = "=" + default.rpartition(".")[2]
        parts.append(f"{text} {p.name}{default}")
    result = hints.get("return", inspect.Signature.empty)
    if result is inspect.Signature.empty:
        raise ValueError(f"infer_schema(): the result of {op} has no annotation")
    if result is type(None):
        text = "()"
    elif typing.get_origin(result) is tuple:
        texts = [_type_text(op, "the result", t) for t in typing.get_args(result)]
        text = f"({', '.join(texts)})"
    else:
        text = _type_text(op, "the result", result)
    return f"{op_name or ''}({', '.join(parts)}) -> {text}"
