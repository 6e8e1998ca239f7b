"""Writes what help() says of an operator beside its signature and its sentence: what the arguments
may be, dtypes, shapes, errors, the formula, and an example that runs.

All of it follows from the entry. The example is the entry's first sample.
"""

from __future__ import annotations

import keyword
import textwrap
from typing import Any

from table import DTYPE_SETS, Arg, Op

WIDTH = 88
PHRASES = {
    "Tensor": "a tensor", "Operand": "a tensor", "Tensor[]": "a tuple or list of tensors",
    "int": "an int", "int[]": "ints", "Dim": "a dimension, negative from the end",
    "Dims": "a dimension or several", "bool": "a bool", "float": "a number",
    "Scalar": "a number", "DType": "a dtype", "Device": "a device", "Format": "a memory format",
    "str": "a text", "Generator": "a generator of random numbers",
}  # fmt: skip
WORDS = {"bool": "bool", "int": "integers", "float": "floating", "complex": "complex"}
HOMES = {"fft_": "tn.fft.", "special_": "tn.special."}


def paragraph(head: str, text: str) -> str:
    return textwrap.fill(f"{head}: {text}", WIDTH, subsequent_indent="    ")


# ---- Facts ---------------------------------------------------------------------------------------


def argument(a: Arg, numbers: list[str]) -> str:
    text = PHRASES[a.type.replace("!", "").replace("?", "")]
    if a.type in ("Tensor", "Operand") and a.name in numbers:
        text += " or a number"
    if a.fixed:
        text = "an int" if a.fixed == 1 else f"an int or {a.fixed} ints"
    if a.mutated:
        text += ", which is written"
    if "?" in a.type:
        text += ", or None"
    if a.type == "Dims":
        text += "; None for all"
    return f"    {a.name}: {text}" + ("" if a.default is None else f"; {a.default} unless given")


def dtypes(op: Op) -> str:
    left = list(op.dtypes)
    words = []
    for kind, names in DTYPE_SETS.items():
        if set(names) <= set(left):
            words.append(WORDS[kind])
            left = [name for name in left if name not in names]
    return ", ".join(words + left)


def shapes(op: Op) -> str:
    rule = op.entry.get("shape", "")
    if op.kind == "pointwise":
        several = len([a for a in op.tensors if not a.is_list]) > 1
        return "any; operands are broadcast" if several else "any; the result has input's"
    if op.kind == "reduction":
        return "any; the result lacks the dimensions that are reduced, or has them with size 1"
    if op.kind == "view":
        return "the result looks at the same memory, so that it changes with its source"
    if rule.startswith(("same(", "packed(")):
        return f"any; the result has that of {rule.partition('(')[2][:-1]}"
    return ""


def errors(op: Op) -> str:
    found = ["TypeError of arguments of other types"]
    if op.kind == "pointwise" and len(op.tensors) > 1:
        found.append("RuntimeError of shapes that do not broadcast")
    if any(a.type.startswith("Dim") for a in op.args):
        found.append("IndexError of a dimension that is not there")
    if op.kind in ("pointwise", "reduction") and len(op.dtypes) < 12:
        found.append("NotImplementedError of a dtype that is not listed")
    return ", ".join(found)


def formula(op: Op) -> str:
    ref, forward = op.entry.get("ref", ""), op.entry.get("forward", "custom")
    if ref and "refs." not in ref:
        return ref
    return "" if forward == "custom" or ";" in forward else " ".join(forward.split())


# ---- The example ---------------------------------------------------------------------------------


def listed(values: Any) -> str:
    return str(tuple(values)) if isinstance(values, list) else repr(values)


def filled(shape: list[int], kind: str, bounds: list[float] | None) -> str:
    """An expression for a tensor of drawn numbers."""
    sizes = ", ".join(map(str, shape)) or "()"
    if kind == "bool":
        return f"tn.rand({sizes}) > 0.5"
    if kind.startswith(("int", "uint")):
        low, high = bounds or (0, 3)
        return f"tn.randint({int(low)}, {int(high) + 1}, {tuple(shape)}, dtype=tn.{kind})"
    if bounds and not kind.startswith("complex"):
        return f"tn.empty({sizes}).uniform_({bounds[0]}, {bounds[1]})"
    return f"tn.randn({sizes}" + (")" if kind == "float32" else f", dtype=tn.{kind})")


def tensor(op: Op, name: str, value: Any, usual: str) -> str:
    if isinstance(value, dict):
        kind = value.get("dtype", usual)
        if "shape" in value:
            bounds = [value["low"], value["high"]] if "low" in value else None
            return filled(value["shape"], kind, bounds)
        return f"tn.tensor({value['data']}, dtype=tn.{kind})"
    if isinstance(value, list):
        kind = op.entry.get("inputs", {}).get(name, usual)
        return filled(value, kind, op.entry.get("domain", {}).get(name))
    return "None" if value == "none" else repr(value)


def example(op: Op) -> list[str]:
    if not op.entry.get("samples") or not set(op.where) & {"torch", "method", "nn.functional"}:
        return []
    sample = op.entry["samples"][0]
    usual = next((k for k in ("float32", "int64", "complex64") if k in op.dtypes), op.dtypes[0])
    lines, given, named = [], [], False
    for place, a in enumerate(op.args):
        value = sample.get(a.name)
        if a.name not in sample or (value == "none" and a.default is not None):
            continue
        word = a.name + "_" * (keyword.iskeyword(a.name) or a.name == "self")
        if a.is_list:
            parts = [tensor(op, a.name, v, usual) for v in value]
            lines.append(f"{word} = [{', '.join(parts)}]")
            text = word
        elif a.is_tensor and isinstance(value, list | dict):
            lines.append(f"{word} = {tensor(op, a.name, value, usual)}")
            text = word
        elif a.type.startswith("DType"):
            text = f"tn.{value}"
        else:
            text = "None" if value == "none" else listed(value)
        named |= len(given) < place or a.kwonly or not a.is_tensor
        given.append(f"{a.name}={text}" if named and not keyword.iskeyword(a.name) else text)
    if "torch" in op.where or "nn.functional" in op.where:
        start = next((s for s in HOMES if op.py_name.startswith(s)), "")
        home = "tn." if "torch" in op.where else "tn.nn.functional."
        call = f"{HOMES.get(start, home)}{op.py_name.removeprefix(start)}({', '.join(given)})"
    else:
        call = f"{given[0]}.{op.py_name}({', '.join(given[1:])})"
    return [f">>> {line}" for line in (*lines, f"result = {call}")]


def text(op: Op, others: list[Op]) -> str:
    """Behind the first sentence of a name."""
    parts = [o.entry["doc"] for o in others if o.entry.get("doc", "") != op.entry.get("doc")]
    lines = list(dict.fromkeys(" ".join(p.split()) for p in parts))
    arguments = [argument(a, op.numbers) for a in op.args]
    facts = ["\n".join(["Arguments:", *arguments])] if arguments else []
    facts.append(paragraph("Dtypes", dtypes(op)))
    facts += [paragraph("Shapes", shapes(op))] if shapes(op) else []
    facts.append(paragraph("Errors", errors(op)))
    facts += [paragraph("Formula", formula(op))] if formula(op) else []
    sections = ["\n".join(textwrap.wrap(line, WIDTH)) for line in lines]
    sections += ["\n".join(facts), "\n".join(example(op))]
    return "\n\n".join(section for section in sections if section)
