"""Writes the functions of nn.functional whose signature is more than their operator's: in place on
request, and PyTorch's old flags of losses. They choose the operator's form and compute nothing."""

from __future__ import annotations

import emit_docs
from table import Arg, Op

HEAD = '''"""Functions of nn.functional that choose a form of their operator.

Generated from dispatch/ops by dispatch/opgen.
"""

from __future__ import annotations

from tenon import Tensor
from tenon._C import _nn
from tenon.nn._reduction import legacy_get_string, warn_sizes

# They are found, shown and pickled as what they are known by.
__name__ = "tenon.nn.functional"
'''
TYPES = {
    "Tensor": "Tensor", "Tensor?": "Tensor | None", "int": "int", "bool": "bool", "float": "float",
    "Scalar": "float", "str": "str",
}  # fmt: skip
OLD_FLAG = "{}: bool | None = None"


def is_form(op: Op) -> bool:
    """Whether nn.functional has a Python function around the operator."""
    return "def" in op.where or "inplace=" in op.where or "size_average" in op.entry


def param(a: Arg) -> str:
    default = "" if a.default is None else f" = {a.default}"
    return f"{a.name}: {TYPES[a.type]}{default}"


def given(args: list[Arg]) -> str:
    """The arguments, handed on."""
    return ", ".join(f"{a.name}={a.name}" if a.kwonly else a.name for a in args)


def function(op: Op) -> str:
    facts = emit_docs.text(op, []).splitlines()
    params, body = [], [f'"""{op.entry["doc"]}', "", *facts, '"""']
    if op.entry.get("warn") == "sizes":
        body.append(f"warn_sizes({op.args[0].name}, {op.args[1].name})")
    for a in op.args:
        if op.entry.get("size_average") == a.name:
            params.append(OLD_FLAG.format("size_average"))
        if "size_average" in op.entry and a.name == "reduction":
            params.append(OLD_FLAG.format("reduce"))
            body.append("if size_average is not None or reduce is not None:")
            body.append("    reduction = legacy_get_string(size_average, reduce)")
        params.append(param(a))
    call = f"_nn.{op.py_name}({given(op.args)})"
    if "inplace=" in op.where:
        params.append("inplace: bool = False")
        call = f"_nn.{op.py_name}_({given(op.args)}) if inplace else {call}"
    lines = [f"def {op.py_name}(", *(f"    {p}," for p in params), ") -> Tensor:"]
    return "\n".join([*lines, *(f"    {line}".rstrip() for line in body), f"    return {call}"])


def emit(ops: list[Op]) -> dict[str, str]:
    chosen = [op for op in ops if is_form(op)]
    names = "\n".join(f'    "{op.py_name}",' for op in chosen)
    parts = [HEAD, f"__all__ = [\n{names}\n]", *(f"\n\n{function(op)}" for op in chosen)]
    return {"_forms.py": "\n".join(parts) + "\n"}
