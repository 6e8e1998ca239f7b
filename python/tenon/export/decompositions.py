"""Which operators an exported program is taken apart to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import tenon
from tenon._tensor.op_rows import op_rows

__all__ = ["composites", "default_decompositions", "names_of"]


@cache
def composites() -> dict[str, list[str]]:
    """The composite operators by their name in Python, of which there may be several forms."""
    found: dict[str, list[str]] = {}
    for row in op_rows():
        if row["kind"] == "composite":
            found.setdefault(row["py_name"], []).append(row["name"])
    return found


def default_decompositions() -> dict[Any, Callable[..., Any]]:
    """A table for `ExportedProgram.run_decompositions`: every operator that consists of others.

    What is taken out of the table stays as it is.
    """
    public = [n for n in composites() if not n.startswith("_") and hasattr(tenon.ops.aten, n)]
    forms = [getattr(tenon.ops.aten, name).default for name in public]
    return {form: form.op for form in forms}


def names_of(table: Mapping[Any, Any]) -> list[str]:
    """The operators that a table names. NotImplementedError: it has its own function for one."""
    found: list[str] = []
    for op, by in table.items():
        packet = getattr(op, "overloadpacket", op)
        names = composites().get(getattr(packet, "__name__", str(op)), [])
        if by is not getattr(packet, "op", None):
            raise NotImplementedError(
                f"run_decompositions: {op} is taken apart as the operator table says, by no "
                "function of the caller's; leave it out, and replace its nodes by fx"
            )
        found += names
    return found
