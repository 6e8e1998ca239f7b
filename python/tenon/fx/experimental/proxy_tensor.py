"""What packages ask about PyTorch's tracer of tensors; make_fx by a recording of operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import tenon
from tenon import fx

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
        return traced_module(f, args, _of_any_size(f, args) if tracing_mode == "symbolic" else None)

    return wrapped


def _of_any_size(f: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
    from tenon._program.traced import Recording
    from tenon.export import free_hinted
    from tenon.utils import _pytree

    tensors = [t for t in _pytree.tree_leaves(args) if isinstance(t, tenon.Tensor)]
    return lambda: free_hinted(lambda: Recording(f, args, {}), f, tensors)


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
