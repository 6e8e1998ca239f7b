"""Small tools of passes."""

from __future__ import annotations

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node

__all__ = ["legalize_graph", "stable_topological_sort"]


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Puts every node behind those that it uses, and leaves the order otherwise."""
    left = dict.fromkeys(gm.graph.nodes)
    graph = Graph(tracer_cls=gm.graph._tracer_cls)
    graph.set_codegen(gm.graph._codegen)
    made: dict[Node, Node] = {}

    def place(node: Node) -> None:
        stack = [node]
        while stack:
            top = stack[-1]
            waits = [n for n in top.all_input_nodes if n not in made]
            if any(n in stack for n in waits):
                raise RuntimeError(f"Input graph has cycles at {top}")
            if waits:
                stack.append(waits[0])
                continue
            made[top] = graph.node_copy(top, made.__getitem__)
            stack.pop()

    for node in left:
        if node not in made:
            place(node)
    gm.graph = graph
    return gm


legalize_graph = stable_topological_sort
