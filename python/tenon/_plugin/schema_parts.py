"""What an operator takes and gives, in parts: `ops.aten.add.Tensor._schema`."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import Any

from tenon._plugin.schema import ARGUMENT, default_of, split
from tenon._tensor.op_rows import op_rows

_KINDS = {
    "Scalar": "number", "SymInt": "int", "ScalarType": "int", "MemoryFormat": "int",
    "Layout": "int",
}  # fmt: skip
_WORDS = {
    "Dims": "int[1]?", "Dim": "int", "Dim?": "int?", "DType": "ScalarType", "DType?": "ScalarType?",
    "Format": "MemoryFormat?", "Reduction": "int",
}  # fmt: skip


@dataclass(frozen=True)
class AliasInfo:
    """Which memory a tensor shares, and whether it is written."""

    before_set: frozenset[str]
    is_write: bool

    @property
    def after_set(self) -> frozenset[str]:
        """The same: no operator moves a tensor into other memory."""
        return self.before_set


@dataclass(frozen=True)
class Argument:
    """One argument, or one result."""

    name: str
    type: str
    default: tuple[Any, ...] = ()  # holds the default where there is one
    kwarg_only: bool = False
    is_out: bool = False
    alias_info: AliasInfo | None = None

    @property
    def default_value(self) -> Any:
        return self.default[0] if self.default else None

    def has_default_value(self) -> bool:
        return bool(self.default)


def _type(kind: str, rest: str) -> str:
    """A type of a schema under the name that Python's annotations have."""
    found = _KINDS.get(kind, kind)
    for mark in re.findall(r"\[\d*\]|\?", rest):
        found = f"Optional[{found}]" if mark == "?" else f"List[{found}]"
    return found


def _argument(text: str, keyword: bool) -> Argument:
    m = ARGUMENT.match(text)
    if m is None:
        raise ValueError(f"cannot read {text!r} of a schema")
    alias = AliasInfo(frozenset({m["alias"]}), bool(m["written"])) if m["alias"] else None
    default: tuple[Any, ...] = ()
    if m["default"] is not None:
        try:
            default = (default_of(m["default"]),)
        except ValueError:  # a word that the operator knows
            default = (m["default"],)
    written = keyword and alias is not None and alias.is_write
    return Argument(m["name"], _type(m["type"], m["rest"]), default, keyword, written, alias)


def _result(text: str) -> Argument:
    if " " in text:
        return _argument(text, False)
    return replace(_argument(f"{text} result", False), name="")


class FunctionSchema:
    """The parts of a text such as "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"."""

    def __init__(self, text: str) -> None:
        m = re.fullmatch(r"([\w:]+)\.?(\w*)\((.*)\) -> (.*)", text, re.S)
        if m is None:
            raise ValueError(f"{text!r} is no schema")
        self.name, self.overload_name = m[1], m[2]
        self.arguments: list[Argument] = []
        keyword = False
        for part in split(m[3]):
            if part == "*":
                keyword = True
            else:
                self.arguments.append(_argument(part, keyword))
        results = split(m[4][1:-1]) if m[4].startswith("(") else [m[4]]
        self.returns = [_result(r) for r in results]
        self._text = text

    @property
    def is_mutable(self) -> bool:
        """Whether it writes to an argument."""
        return any(a.alias_info is not None and a.alias_info.is_write for a in self.arguments)

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


@functools.cache
def _rows() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in op_rows():
        found.setdefault(row["py_name"], []).append(row)
    return found


def row_of(name: str) -> dict[str, Any] | None:
    """The op table's row for one of PyTorch's names: the method before the function."""
    rows = _rows().get(name) or _rows().get(name.removesuffix("_"), [])
    return next((r for r in rows if "method" in r["where"]), rows[0] if rows else None)


@functools.cache
def aten(name: str, form: str) -> FunctionSchema:
    """The schema of a form of one of the op table's operators, under PyTorch's names."""
    row = row_of(name)
    if row is None:
        raise AttributeError(f"Tenon keeps no schema of 'aten::{name}'", name="_schema")
    written, view = name.endswith("_"), row["kind"] == "view"
    out = form == "out" or form.endswith("_out")
    alias = "(a!)" if written or out else "(a)" if view else ""
    parts: list[str] = []
    for i, a in enumerate(row["args"]):
        kind = _WORDS.get(a["type"], a["type"])
        if kind.startswith("Operand"):
            kind = kind.replace("Operand", "Scalar" if form.endswith("Scalar") else "Tensor")
        first = i == 0 and kind == "Tensor"
        if a["kwonly"] and "*" not in parts:
            parts.append("*")
        label = "self" if first and "method" in row["where"] else a["name"]
        default = "" if a["default"] is None else f"={a['default']}"
        if a["type"] == "Format":
            default = default and "=None"
        parts.append(f"{kind}{alias if first and not out else ''} {label}{default}")
    if out:
        parts += [] if "*" in parts else ["*"]
        parts += [f"Tensor(a!) {o}" for o in row["outs"]]
    kind = "Tensor[]" if row["list_out"] else f"Tensor{alias}"
    many = len(row["outs"]) > 1
    result = f"({', '.join([kind] * len(row['outs']))})" if many else kind
    head = f"aten::{name}" if form == "default" else f"aten::{name}.{form}"
    return FunctionSchema(f"{head}({', '.join(parts)}) -> {result}")
