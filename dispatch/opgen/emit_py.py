"""Writes the Python side of the op table: binding rows, the test table, the reference."""

from __future__ import annotations

import ast
import json

import emit_docs
from batching import families
from emit_c import HEAD, c_string
from table import Op

FLAGS = {
    "torch": "TN_PY_TORCH", "method": "TN_PY_METHOD", "nn.functional": "TN_PY_NN",
    "inplace": "TN_PY_INPLACE", "out": "TN_PY_OUT",
}  # fmt: skip


def emit(ops: list[Op]) -> dict[str, str]:
    return {
        "py_rows.inc": rows_inc(ops),
        "py_calls.inc": calls_inc(ops),
        "ops.json": table_json(ops),
        "ops.md": reference(ops),
    }


def grouped(ops: list[Op]) -> dict[str, list[Op]]:
    """The overloads of each Python name, in file order."""
    groups: dict[str, list[Op]] = {}
    for op in [op for op in ops if not op.is_adapter]:
        for name in [op.py_name, *op.entry.get("alias", [])]:
            groups.setdefault(name, []).append(op)
    return groups


def rows_inc(ops: list[Op]) -> str:
    """TN_PY_ROW(python name, forms, numbers, C name, old orders): in file order, overloads of a
    name together.
    Bit i of numbers: argument i may be given as a number; bit 31: all of them in one call."""
    lines = []
    for name, overloads in grouped(ops).items():
        for op in overloads:
            flags = " | ".join(FLAGS[w] for w in op.where if w in FLAGS) or "0"
            numbers = sum(1 << i for i, a in enumerate(op.args) if a.name in op.numbers)
            numbers |= (op.entry.get("numbers") == "all") << 31
            old = c_string("|".join(op.entry.get("old", [])) or None)
            lines.append(f'TN_PY_ROW("{name}", {flags}, {numbers}u, "{op.name}", {old})')
    return HEAD + "\n".join(lines) + "\n"


PARAMS = "(PyObject *s, PyObject *const *a, Py_ssize_t n, PyObject *k)"
CALLS = {
    "function": "(void)s; return tnp_group_call({}, TNP_FORM_FUNCTION, NULL, a, n, k);",
    "method": "return tnp_group_call({}, TNP_FORM_METHOD, s, a, n, k);",
    "inplace": "return tnp_group_call({}, TNP_FORM_INPLACE, s, a, n, k);",
    "function_inplace": "(void)s; return tnp_group_call_inplace({}, a, n, k);",
}  # fmt: skip


SIGNATURES = ("function", "method", "inplace")


def call_forms(overloads: list[Op]) -> list[str]:
    where = {form for op in overloads for form in op.where}
    forms = []
    if not where or where & {"torch", "nn.functional"}:
        forms.append("function")
    if "method" in where:
        forms.append("method")
    if "inplace" in where:
        forms.append("inplace")
        if "function" in forms:
            forms.append("function_inplace")
    return forms


ANY_CALL = "*args, **kwargs"


def plain_default(text: str) -> str:
    """A default of the table where Python reads it as a literal, None for names of the table."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return "None"
    return text


def one_signature(overloads: list[Op], form: str) -> str:
    """The parameters of a Python name for inspect.signature: those of its longest overload, the
    ones that another lacks with a default; any parameters where no such list takes every call."""
    skip = form in ("method", "inplace")
    overloads = [op for op in overloads if not op.where or form_of(form, op)] or overloads
    longest = max(overloads, key=lambda op: len(op.args))
    every = [{a.name: a for a in op.args[skip:]} for op in overloads]
    names = {a.name for a in longest.args[skip:]}
    any_call = "$self, " * skip + ANY_CALL
    if any(set(args) - names for args in every):
        return any_call
    parts, starred, optional = ["$self"] if skip else [], False, False
    last = [a for a in longest.args[skip:] if not a.kwonly]
    for i, a in enumerate(longest.args[skip:]):
        default = next(
            (
                plain_default(o[a.name].default)
                for o in every
                if a.name in o and o[a.name].default is not None
            ),
            None,
        )
        if default is None and any(a.name not in o for o in every):
            default = "None"
        if a.kwonly and not starred:
            parts.append("*")
            starred = True
        if i == 0 and a.type == "int[]" and last == [a] and default is None:
            parts.append(f"*{a.name}")
            starred = True
        elif default is None and optional and not starred:
            return any_call
        else:
            parts.append(a.name if default is None else f"{a.name}={default}")
            optional |= default is not None
    if form == "function" and any("out" in op.where and not op.inplace_only for op in overloads):
        parts += ["out=None"] if starred else ["*", "out=None"]
    try:
        ast.parse(f"def f({', '.join(parts).replace('$', '')}): pass")
    except SyntaxError:
        return any_call
    return ", ".join(parts)


def form_of(form: str, op: Op) -> bool:
    wanted = {"function": {"torch", "nn.functional"}, "method": {"method"}}
    return bool(wanted.get(form, {"inplace"}) & set(op.where))


def calls_inc(ops: list[Op]) -> str:
    """One C function per Python name and form, which only says which group of rows it is, and what
    inspect.signature says of functions, of methods and of functions in place."""
    functions, table = [], []
    for i, overloads in enumerate(grouped(ops).values()):
        forms = call_forms(overloads)
        for form in forms:
            body = CALLS[form].format(i)
            functions.append(f"static PyObject *{form}_{i}{PARAMS} {{ {body} }}")
        cells = [f"{f}_{i}" if f in forms else "NULL" for f in CALLS]
        cells += [c_string(one_signature(overloads, f)) for f in SIGNATURES]
        cells.append(c_string(emit_docs.text(overloads[0], overloads[1:])))
        table.append("    {" + ", ".join(cells) + "},")
    return "\n".join([HEAD, *functions, "static const tnp_calls py_calls[] = {", *table, "};\n"])


def result_names(op: Op) -> list[str]:
    """The names of several results where the tuple that Python gets has them: see opdefaults.c."""
    if len(op.outs) < 2 or op.py_name.startswith("_") or op.outs[0] in ("y", "out"):
        return []
    ends = ("indices", "logabsdet", "info", "tau", "exponent")
    return op.outs if op.outs[0] == "min" or op.outs[1] in ends else []


def table_json(ops: list[Op]) -> str:
    rows, ways = [], families(ops)
    for op in [op for op in ops if not op.is_adapter]:
        e = op.entry
        random = "random" in e or any(a.type.startswith("Generator") for a in op.args)
        rows.append({
            "name": op.name, "py_name": op.py_name, "sig": e["sig"], "kind": op.kind,
            "where": op.where, "alias": e.get("alias", []), "dtypes": op.dtypes,
            "dtype": e.get("dtype"), "result": e.get("result", "compute"),
            "args": [{"name": a.name, "type": a.type, "default": a.default, "kwonly": a.kwonly}
                     for a in op.args],
            "outs": op.outs, "list_out": op.list_out, "inplace_only": op.inplace_only,
            "differentiable": [a.name for a in op.tensors
                               if op.grads == "custom"
                               or (isinstance(op.grads, dict)
                                   and op.grads.get(a.name, "none") not in ("none", "missing"))],
            "vmap": ways[op.name], "random": random, "autocast": op.autocast,
            "forward": e["forward"] if ways[op.name] == "parts" else None,
            "grad": e.get("grad"), "composite": "forward" in e, "inputs": e.get("inputs", {}),
            "out": e.get("out", ""), "history": e.get("history", "all"),
            "ref": e.get("ref"), "samples": e.get("samples", []), "domain": e.get("domain", {}),
            "grad_samples": e.get("grad_samples"), "tol": e.get("tol"), "tests": e.get("tests"),
            "doc": e.get("doc", ""), "file": op.file, "line": op.line,
        })  # fmt: skip
    return json.dumps(rows, indent=1) + "\n"


def reference(ops: list[Op]) -> str:
    out = ["# Operators\n", f"{len(ops)} entries, from `dispatch/ops/*.toml`.\n"]
    for op in ops:
        if not op.where:
            continue
        out.append(f"## {op.key}\n\n`{op.entry['sig']}`\n\n{op.entry.get('doc', '')}\n")
        forms = ", ".join(op.where)
        out.append(f"Forms: {forms}. Dtypes: {', '.join(op.dtypes)}.")
        if isinstance(op.grads, dict):
            out += [f"Gradient of `{k}`: `{v}`." for k, v in op.grads.items() if v != "none"]
        out.append(f"Entry: `{op.file}:{op.line}`.\n")
    return "\n".join(out) + "\n"


__all__ = ["c_string", "emit"]
