"""What programs say to PyTorch's tracer of bytecode, which Tenon does not have and does not need:
marks on functions and tensors, which are taken and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.compiler import disable, is_compiling, reset


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


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """Names that `compile(backend=...)` knows."""
    return ["eager", "inductor"]


__all__ = [
    "allow_in_graph", "assume_constant_result", "disable", "disallow_in_graph", "forbid_in_graph",
    "graph_break", "is_compiling", "list_backends", "mark_dynamic", "mark_static",
    "mark_static_address", "mark_unbacked", "maybe_mark_dynamic", "nonstrict_trace", "reset",
    "substitute_in_graph",
]  # fmt: skip
