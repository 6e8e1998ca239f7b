"""What programs say to PyTorch's tracer of bytecode, which Tenon does not have and does not need:
marks on functions and tensors, which are taken and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.compiler import (
    OptimizedModule,
    disable,
    explain,
    is_compiling,
    list_backends,
    reset,
    set_stance,
)


def _same(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


# Functions that would be left out of a graph, or taken into it as they are: both run as ever.
allow_in_graph = disallow_in_graph = assume_constant_result = forbid_in_graph = _same
nonstrict_trace = substitute_in_graph = _same


def graph_break(msg: str = "") -> None:
    """Ends a graph: there is none that could end here."""


def _mark(t: Any, index: Any = None, **bounds: Any) -> None:
    pass


# Sizes and addresses that a compiler may or may not rely on.
mark_dynamic = maybe_mark_dynamic = mark_static = mark_static_address = mark_unbacked = _mark


__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "disable",
    "disallow_in_graph", "explain", "forbid_in_graph", "graph_break", "is_compiling",
    "list_backends", "mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked",
    "maybe_mark_dynamic", "nonstrict_trace", "reset", "set_stance", "substitute_in_graph",
]  # fmt: skip
