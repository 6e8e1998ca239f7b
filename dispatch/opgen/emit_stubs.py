"""Writes what type checkers and editors read of the op table: functions, methods and named results.

An overload of a name is one signature, and a second one where sizes may be given one by one. The
binding's own keywords (out=, requires_grad=) stand where it takes them.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Iterable

from emit_py import grouped, result_names
from table import Arg, Op

HEAD = """# Generated from dispatch/ops by dispatch/opgen.
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from tenon._tensor.types import (
    DeviceLike, DTypeLike, Generator, Number, Tensor, dtype, layout, memory_format,
)
"""
TYPES = {
    "int": "int", "int[]": "Sequence[int]", "Dim": "int", "Dims": "int | Sequence[int]",
    "bool": "bool", "float": "float", "Scalar": "Number", "DType": "DTypeLike",
    "Device": "DeviceLike", "Format": "memory_format", "str": "str", "Generator": "Generator",
    "Tensor[]": "Sequence[Tensor]", "Tensor": "Tensor",
}  # fmt: skip
# Functions whose tensors may be listed without a tuple, as in opdefaults.c.
LISTING = {"einsum", "broadcast_tensors", "meshgrid", "cartesian_prod", "block_diag",
           "atleast_1d", "atleast_2d", "atleast_3d"}  # fmt: skip
CREATED = ["layout: layout | None = None", "pin_memory: bool = False",
           "requires_grad: bool = False"]  # fmt: skip


def type_of(a: Arg, numbers: list[str]) -> str:
    if a.type in ("Tensor", "Operand") and a.name in numbers:
        return "Tensor | Number"
    if a.type == "Operand":
        return "Tensor"
    if a.type == "Tensor?[]":
        return "Sequence[Tensor | None]"
    plain = TYPES[a.type.replace("!", "").replace("?", "")]
    if a.fixed:
        plain = "int | " + plain
    return plain + " | None" if "?" in a.type or a.type == "Dims" else plain


def default_of(a: Arg) -> str:
    """Behind the type: the default where Python can read it as a literal."""
    if a.default is None:
        return ""
    try:
        ast.literal_eval(a.default)
    except (ValueError, SyntaxError):
        return " = ..."
    return f" = {a.default}"


def spreads(op: Op, args: list[Arg]) -> Arg | None:
    """The argument that may be given as many, as in view(2, 3)."""
    placed = [a for a in args if not a.kwonly]
    last = placed[-1] if placed else None
    if last is not None and last.type == "Tensor[]" and op.py_name in LISTING:
        return last
    if len(placed) == 1 and not placed[0].fixed and placed[0].type in ("int[]", "Dims"):
        return placed[0]
    return None


def extras(op: Op, form: str) -> list[str]:
    """Keywords that belong to the binding."""
    out = []
    if form == "function" and "out" in op.where and not op.inplace_only and not op.list_out:
        out.append(f"out: {'Tensor' if len(op.outs) == 1 else 'Sequence[Tensor]'} | None = None")
    if any(a.type.startswith("Device") for a in op.args):
        out += [e for e in CREATED if e.split(":")[0] not in {a.name for a in op.args}]
    return out


def params(op: Op, args: Iterable[Arg], form: str, spread: Arg | None) -> str:
    out, starred = [], False
    for a in args:
        if a is spread:
            out.append(f"*{a.name}: {'Tensor' if a.type == 'Tensor[]' else 'int'}")
            starred = True
            continue
        if a.kwonly and not starred:
            out.append("*")
            starred = True
        word = keyword.iskeyword(a.name)  # uniform_(from=0): by its place, in a stub
        out.append(f"{a.name}{'_' * word}: {type_of(a, op.numbers)}{default_of(a)}")
        out += ["/"] * word
    more = extras(op, form)
    if more and not starred:
        out.append("*")
    return ", ".join([*out, *more])


def result_of(op: Op, form: str) -> str:
    if form in ("inplace", "function_inplace"):
        return "Tensor"
    if op.list_out:
        return "tuple[Tensor, ...]"
    if len(op.outs) == 1:
        return "Tensor"
    if result_names(op):
        return f"_{op.py_name}_result"
    return f"tuple[{', '.join(['Tensor'] * len(op.outs))}]" if op.outs else "None"


def doc_of(op: Op, indent: str) -> list[str]:
    text = op.entry.get("doc", "").replace("\\", "\\\\").replace('"""', "'''")
    return [f'{indent}    """{text}"""'] if text else []


def declarations(name: str, overloads: list[Op], form: str, indent: str = "") -> list[str]:
    """All signatures of a name in one form, one that takes no more than one before it left out."""
    found: dict[str, tuple[str, Op]] = {}
    for op in overloads:
        own = form in ("method", "inplace")
        args = op.args[1:] if own else op.args
        head = "self, " if own else ""
        many = spreads(op, args)
        for spread in [None, many] if many else [None]:
            text = (head + params(op, args, form, spread)).removesuffix(", ")
            found.setdefault(text, (result_of(op, form), op))
    lines = []
    for text, (result, op) in found.items():
        lines += [f"{indent}@overload"] if len(found) > 1 else []
        doc = doc_of(op, indent)
        lines += [f"{indent}def {name}({text}) -> {result}:{'' if doc else ' ...'}", *doc]
    return lines


def forms_of(groups: dict[str, list[Op]], form: str, has: Callable[[Op], bool]) -> list[str]:
    """Functions of a module."""
    lines = []
    for name, overloads in groups.items():
        chosen = [op for op in overloads if has(op)]
        if chosen:
            lines += declarations(name + "_" * (form == "function_inplace"), chosen, form)
    return lines


def named_results(groups: dict[str, list[Op]]) -> list[str]:
    lines = []
    for op in {
        op.py_name: op for ops in groups.values() for op in ops if result_names(op)
    }.values():
        lines += [f"class _{op.py_name}_result(NamedTuple):"]
        lines += [f"    {out}: Tensor" for out in result_names(op)] + [""]
    return lines


def methods(groups: dict[str, list[Op]]) -> list[str]:
    lines = ["class _Methods:"]
    for name, overloads in groups.items():
        for form, ending in (("method", ""), ("inplace", "_")):
            chosen = [op for op in overloads if form in op.where]
            lines += declarations(name + ending, chosen, form, "    ")
    return lines


def is_function(op: Op) -> bool:
    return "torch" in op.where or not op.where


def is_nn(op: Op) -> bool:
    return "nn.functional" in op.where


def emit(ops: list[Op]) -> dict[str, str]:
    groups = grouped(ops)
    special = [name for name in groups if name.startswith("special_")]
    ops_lines = [
        HEAD,
        *named_results(groups),
        *forms_of(groups, "function", is_function),
        *forms_of(groups, "function_inplace",
                  lambda op: "inplace" in op.where and is_function(op) and not is_nn(op)),
        "",
        *methods(groups),
    ]  # fmt: skip
    nn_lines = [
        HEAD,
        *forms_of(groups, "function", is_nn),
        *forms_of(groups, "function_inplace", lambda op: "inplace" in op.where and is_nn(op)),
    ]
    results = sorted({f"_{op.py_name}_result" for ops in groups.values() for op in ops
                      if is_nn(op) and result_names(op)})  # fmt: skip
    nn_lines[1:1] = [f"from tenon._ops import {name}" for name in results]
    special_lines = [HEAD]
    for name in special:
        special_lines += declarations(name.removeprefix("special_"), groups[name], "function")
    return {
        name: "\n".join(lines) + "\n"
        for name, lines in (
            ("_ops.pyi", ops_lines), ("_nn.pyi", nn_lines), ("_special.pyi", special_lines),
        )
    }  # fmt: skip
