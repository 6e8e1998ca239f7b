"""What programs say to PyTorch's tracer of bytecode, and what of it compiled functions heed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon._program import foreign
from tenon._torch._dynamo import config as config
from tenon._torch._dynamo import eval_frame as eval_frame
from tenon._torch._dynamo import exc, testing, utils
from tenon.compiler import (
    OptimizedModule,
    disable,
    explain,
    is_compiling,
    list_backends,
    lookup_backend,
    refuse_break,
    register_backend,
    reset,
    set_stance,
)


def _same(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


# Functions that would be left out of a graph, or taken into it as they are: both run as ever.
allow_in_graph = disallow_in_graph = assume_constant_result = forbid_in_graph = _same
nonstrict_trace = substitute_in_graph = _same


def optimize(
    backend: Any = "inductor", *, nopython: bool = False, disable: bool = False,
    dynamic: bool | None = None, **_: Any,
) -> Callable[..., Any]:  # fmt: skip
    """A decorator: tenon.compile by its former name."""

    def decorate(fn: Callable[..., Any]) -> Any:
        return tenon.compile(
            fn, backend=backend, fullgraph=nopython, disable=disable, dynamic=dynamic
        )

    return decorate


def optimize_assert(backend: Any, **settings: Any) -> Callable[..., Any]:
    """The same, which raises where the function is no graph."""
    return optimize(backend, nopython=True, **settings)


def reset_code_caches() -> None:
    """Forgets all graphs."""
    reset()


def is_dynamo_supported() -> bool:
    return True


def graph_break(msg: str = "") -> None:
    """Ends a graph: what follows is another one."""
    refuse_break()
    foreign.end_graph()


def mark_dynamic(
    t: Any, index: Any, *, hint_override: Any = None, min: Any = None, max: Any = None,
    specialize_on: Any = None,
) -> None:  # fmt: skip
    """A compiled function is recorded for any size in these dimensions (from 2 on)."""
    dims = index if isinstance(index, (tuple, list)) else (index,)
    for dim in dims:
        if not -t.ndim <= dim < t.ndim:
            raise IndexError(f"mark_dynamic: there is no dimension {dim} of {t.ndim}")
    found = getattr(t, "_dynamo_dynamic_indices", set())
    t._dynamo_dynamic_indices = found | {dim % t.ndim for dim in dims}


def mark_static(t: Any, index: Any = None) -> None:
    """Takes mark_dynamic back."""
    if isinstance(t, tenon.Tensor):
        found = getattr(t, "_dynamo_dynamic_indices", set())
        dims = index if isinstance(index, (tuple, list)) else [index]
        t._dynamo_dynamic_indices = set() if index is None else found - set(dims)


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Says that a tensor's memory stays where it is, which no graph needs to know."""


maybe_mark_dynamic = mark_unbacked = mark_dynamic


__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "disable",
    "disallow_in_graph", "exc", "explain", "forbid_in_graph", "graph_break", "is_compiling",
    "is_dynamo_supported", "list_backends", "lookup_backend", "mark_dynamic", "mark_static",
    "mark_static_address", "mark_unbacked", "maybe_mark_dynamic", "nonstrict_trace", "optimize",
    "optimize_assert", "register_backend", "reset", "reset_code_caches", "set_stance",
    "substitute_in_graph", "testing", "utils",
]  # fmt: skip
