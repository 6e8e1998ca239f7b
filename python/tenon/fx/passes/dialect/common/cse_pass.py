"""CSEPass: equal calls once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node, map_aggregate
from tenon.fx.passes.infra.pass_base import PassBase, PassResult
from tenon.utils import _pytree

__all__ = ["CSEPass"]


class CSEPass(PassBase):
    """Calls of one target with equal arguments become one. Those that act (they write, or draw
    random numbers) stay, and so do those of `banned_ops`. It is for graphs whose values nobody
    writes to."""

    def __init__(self, banned_ops: Collection[Any] | None = None) -> None:
        self.banned_ops = set(banned_ops or ())

    def call(self, graph_module: GraphModule) -> PassResult:
        made = Graph(tracer_cls=graph_module.graph._tracer_cls)
        made.set_codegen(graph_module.graph._codegen)
        new: dict[Node, Node] = {}
        known: dict[Any, Node] = {}
        modified = False
        for node in graph_module.graph.nodes:
            key = self._key(node, new)
            if key is not None and key in known:
                new[node], modified = known[key], True
                continue
            new[node] = made.node_copy(node, new.__getitem__)
            if key is not None:
                known[key] = new[node]
        if not modified:
            return PassResult(graph_module, False)
        return PassResult(GraphModule(graph_module, made), True)

    def _key(self, node: Node, new: dict[Node, Node]) -> Any:
        """Equal for calls that give the same; None: there is none like it."""
        packet = getattr(node.target, "overloadpacket", node.target)
        banned = not {packet, node.target}.isdisjoint(self.banned_ops)
        if node.op not in ("call_function", "call_method") or node.is_impure() or banned:
            return None
        parts = map_aggregate((node.args, node.kwargs), lambda a: new.get(a, a) if isinstance(
            a, Node) else a)  # fmt: skip
        leaves, spec = _pytree.tree_flatten(parts)
        told = tuple((type(v), repr(v) if isinstance(v, (float, slice)) else v) for v in leaves)
        try:
            hash(told)
        except TypeError:
            return None
        return node.op, node.target, told, str(spec)
