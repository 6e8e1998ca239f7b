"""What packages ask about PyTorch's tracer of tensors; make_fx by a recording of operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import tenon
from tenon import _C, fx

__all__ = ["get_proxy_mode", "make_fx"]


def get_proxy_mode() -> None:
    """The tracer that is recording."""


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real",
    **_: Any,
) -> Callable[..., Any]:
    """What calls f with example arguments and returns its operators as a GraphModule.

    Operators of the table become what its functions do instead. "symbolic" frees the sizes of
    arguments that can be free.
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f"Unexpected tracing type: {tracing_mode}")

    table = dict(decomposition_table or {})
    if table and tracing_mode == "symbolic":
        raise NotImplementedError('make_fx: a decomposition_table with tracing_mode="symbolic"')

    def wrapped(*args: Any) -> Any:
        from tenon._program.as_fx import traced_module

        if table:
            return _taken_apart(f, args, table)
        if tracing_mode != "symbolic":
            return traced_module(f, args)
        recording = of_any_size(f, args)
        return for_its_sizes(traced_module(f, args, lambda: recording), recording)

    return wrapped


def of_any_size(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """A recording whose sizes are free where they can be."""
    from tenon._program.traced import Recording
    from tenon.export import free_hinted
    from tenon.utils import _pytree

    tensors = [t for t in _pytree.tree_leaves(args) if isinstance(t, tenon.Tensor)]
    return free_hinted(lambda: Recording(f, args, {}), f, tensors)


class _ForSizes:
    """A hook that refuses tensors of sizes which a graph has not: it would compute something
    else. Sizes 0 and 1 may become others, as they may in broadcasting."""

    of_the_graph = True  # copies have it, too

    def __init__(self, data: dict[str, Any]) -> None:
        values = {i: dict(data["values"][i]) for i in data["inputs"]}
        for value in values.values():
            value["shape"] = [-1 if n in (0, 1) else n for n in value["shape"]]
        self.data = {"symbols": data["symbols"], "inputs": data["inputs"], "values": values}

    def __call__(self, module: Any, args: tuple[Any, ...]) -> None:
        from tenon.export.exported_program import GuardError, failed_guard
        from tenon.utils import _pytree

        tensors = [t for t in _pytree.tree_leaves(args) if isinstance(t, tenon.Tensor)]
        if len(tensors) != len(self.data["inputs"]) or _C._program_is_recording():
            return
        failed = failed_guard(self.data, tensors)
        if failed is not None:
            raise GuardError(f"Guard failed: {failed}: the graph has no other sizes")


def for_its_sizes(gm: fx.GraphModule, recording: Any) -> fx.GraphModule:
    """The module of a recording, which refuses sizes that it is not for."""
    gm.register_forward_pre_hook(_ForSizes(recording.program.data))
    return gm


def _taken_apart(f: Any, args: tuple[Any, ...], table: dict[Any, Callable[..., Any]]) -> Any:
    """The graph with operators of the table as what its functions do, and so on with those.
    Those of the library's own table become their parts."""
    from tenon._program.as_fx import traced_module
    from tenon._program.traced import Recording
    from tenon.export.decompositions import names_of

    own = {op: by for op, by in table.items() if by is getattr(op, "op", None)}
    rest = {op: by for op, by in table.items() if op not in own}

    class Apart(fx.Interpreter):
        def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return super().call_function(rest.get(target, target), args, kwargs)

    def traced(fn: Any) -> fx.GraphModule:
        return traced_module(fn, args, lambda: Recording(fn, args, {}, apart=names_of(own)))

    gm, done = traced(f), set[Any]()
    while True:
        found = {n.target for n in gm.graph.nodes if n.op == "call_function"} & rest.keys() - done
        if not found:
            return gm
        done |= found

        @functools.wraps(f)
        def again(*given: Any, gm: Any = gm) -> Any:
            return Apart(gm).run(*given)

        gm = traced(again)
