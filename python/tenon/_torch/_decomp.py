"""`torch._decomp`: which operators are taken apart into others (export/decompositions.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tenon.export.decompositions import default_decompositions

Table = dict[Any, Callable[..., Any]]


def core_aten_decompositions() -> Table:
    """All of them."""
    return default_decompositions()


def _wanted(aten_ops: Iterable[Any]) -> set[Any]:
    """The default forms of operators, which may be given with or without a form."""
    return {getattr(op, "overloadpacket", op).default for op in aten_ops}


def get_decompositions(aten_ops: Iterable[Any], type: str = "post_autograd") -> Table:
    """Those of these operators that are there."""
    wanted = _wanted(aten_ops)
    return {op: by for op, by in default_decompositions().items() if op in wanted}


def register_decomposition(
    aten_op: Any,
    registry: Table | None = None,
    *,
    type: str = "post_autograd",
    unsafe: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Puts a function into a table under operators; the package's own table takes none."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        if registry is not None:
            ops = aten_op if isinstance(aten_op, (list, tuple)) else [aten_op]
            registry.update(dict.fromkeys(_wanted(ops), fn))
        return fn

    return register


def remove_decompositions(decompositions: Table, aten_ops: Iterable[Any]) -> None:
    """Takes these operators out of a table."""
    for op in _wanted(aten_ops):
        decompositions.pop(op, None)


def __getattr__(name: str) -> Any:
    if name == "decomposition_table":
        return default_decompositions()
    raise AttributeError(f"module 'torch._decomp' has no attribute '{name}'")
