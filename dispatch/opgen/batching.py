"""How every operator goes through vmap: what its entry says, or what follows from its formula."""

from __future__ import annotations

import ast

from table import Op

# With a number behind it: the rank of one sample's input; with names: arguments, which
# _transform/vmap_rules.py says more of.
FAMILIES = (
    "pointwise", "reduce", "along", "last", "fold", "product", "linear", "loss", "total", "join",
    "reshape", "flatten", "permute", "transpose", "parts", "each", "dims", "strided",
    "spread", "samples", "outer", "classes", "as", "einsum",
    "channels", "squeeze", "repeat", "conv", "embedding", "norm",
)  # fmt: skip


def check(op: Op) -> None:
    word, _, rest = op.entry.get("vmap", "each").partition(" ")
    if word not in FAMILIES:
        raise op.fail(f"vmap '{word}' is none of {', '.join(FAMILIES)}")
    if word in ("fold", "conv") and not rest.isdigit():
        raise op.fail(f"vmap '{word}' has the rank of one sample behind it")
    for name in rest.split() if word not in ("fold", "conv", "as") else ():
        if name not in {a.name for a in op.args}:
            raise op.fail(f"vmap names '{name}', which is no argument")
    if word == "parts" and op.entry.get("forward", "custom") == "custom":
        raise op.fail("vmap 'parts' goes with a formula")


def is_formula(op: Op) -> bool:
    return op.kind == "composite" and op.entry.get("forward", "custom") != "custom"


def called(op: Op) -> set[str] | None:
    """The operators that a formula names; None where it also asks for sizes."""
    names = set()
    for node in ast.walk(ast.parse(op.entry["forward"].strip(), mode="eval")):
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "ndim", "numel"):
            return None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            names.add(node.func.id)
    return names


def families(ops: list[Op]) -> dict[str, str]:
    """The family of each operator by its C name."""
    known: dict[str, str] = {}
    by_name = {op.name: op for op in ops}

    def of(op: Op) -> str:
        if op.name not in known:
            check(op)
            known[op.name] = "each"  # what a formula that calls itself would find
            known[op.name] = op.entry.get("vmap") or derived(op)
        return known[op.name]

    def derived(op: Op) -> str:
        if op.kind == "pointwise":
            return "pointwise"
        if op.kind == "reduction" and any(a.type == "Dims" for a in op.args):
            return "reduce"
        if not is_formula(op) or op.inplace_only or not op.outs:
            return "each"
        parts = called(op)
        if parts is not None and all(of(by_name[p]) == "pointwise" for p in parts if p in by_name):
            return "pointwise"
        return "each" if "grad" in op.entry or op.list_out or len(op.outs) > 1 else "parts"

    for op in ops:
        of(op)
    return known
