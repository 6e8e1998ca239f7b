"""What programs say to PyTorch's tracer of bytecode, and what of it compiled functions heed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import tenon
from tenon._program import foreign
from tenon._program.as_fx import traced_module
from tenon._program.traced import Recording
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
from tenon.fx.experimental.proxy_tensor import for_its_sizes, of_any_size


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


class ExportResult(NamedTuple):
    """What `export` gives."""

    graph_module: Any
    guards: set[Any]


def export(
    f: Callable[..., Any], *extra_args: Any, aten_graph: bool = False, pre_dispatch: bool = False,
    decomposition_table: Any = None, tracing_mode: str = "symbolic", dynamic_shapes: Any = None,
    same_signature: bool = True, assume_static_by_default: bool = False, **extra_kwargs: Any,
) -> Any:  # fmt: skip
    """`export(f)(x)`: the call as one GraphModule that is called as f is, with `aten_graph` of
    `ops.aten`'s operators. Where the graph would end, and where values decide on its course, it is
    an error. Sizes are free where they can be, and with `assume_static_by_default`, or another
    tracing_mode, those of the arguments."""

    def inner(*args: Any, **kwargs: Any) -> ExportResult:
        target = f.forward if isinstance(f, tenon.nn.Module) else f
        bound = inspect.signature(target).bind(*args, **kwargs)
        called = functools.partial(f, **bound.kwargs) if bound.kwargs else f
        free = tracing_mode == "symbolic" and not assume_static_by_default
        record = of_any_size if free else lambda fn, given: Recording(fn, given, {})
        recording = record(called, bound.args)
        count, where = recording.program.reads
        if count:
            raise exc.Unsupported(f"_dynamo.export: a tensor's value was looked at: {where}")
        gm = traced_module(target, bound.args, lambda: recording, aten=aten_graph, suffix="")
        return ExportResult(for_its_sizes(gm, recording) if free else gm, set())

    if not extra_args and not extra_kwargs:
        return inner
    return inner(*extra_args, **extra_kwargs)


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
    "disallow_in_graph", "exc", "explain", "export", "forbid_in_graph", "graph_break",
    "is_compiling", "is_dynamo_supported", "list_backends", "lookup_backend", "mark_dynamic",
    "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic",
    "nonstrict_trace", "optimize",
    "optimize_assert", "register_backend", "reset", "reset_code_caches", "set_stance",
    "substitute_in_graph", "testing", "utils",
]  # fmt: skip
