"""Small tools of passes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any, Union

import tenon
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node, full_name
from tenon.nn import Module

__all__ = [
    "CALLABLE_NODE_OPS", "Names", "NodeList", "NodeSet", "TensorOrTensors", "Tensors",
    "get_acc_ops_name", "get_node_target", "in_order", "is_node_output_tensor", "legalize_graph",
    "stable_topological_sort",
]  # fmt: skip

Tensors = Union[tuple[tenon.Tensor], list[tenon.Tensor]]  # noqa: UP007 - a value, not a note
TensorOrTensors = Union[tenon.Tensor, Tensors]  # noqa: UP007
NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_acc_ops_name(k: Any) -> str:
    """A function's name with its module."""
    return k if isinstance(k, str) else full_name(k)


def get_node_target(submodules: Mapping[str, Module], node: Node) -> str:
    """What a node calls: the class of a module, the name of a function or method."""
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(f"Expect op types of {sorted(CALLABLE_NODE_OPS)}, but found {node.op}")
    if node.op != "call_module":
        return get_acc_ops_name(node.target)
    module = submodules[str(node.target)]
    return full_name(getattr(module, "_base_class_origin", type(module)))


def is_node_output_tensor(node: Node) -> bool:
    """Whether ShapeProp has seen a tensor come out."""
    kind = node.meta.get("type", None)
    return kind is not None and issubclass(kind, tenon.Tensor)


def in_order(nodes: Sequence[Node], stable: bool = True) -> NodeList:
    """The nodes, each behind those of them that it uses: of those that are ready the first, or the
    one that has been so for longest. Those that wait for each other are left out."""
    place = {node: i for i, node in enumerate(nodes)}
    waits = {n: sum(u in place for u in n.all_input_nodes) for n in nodes}
    ready = [(i, n) for n, i in place.items() if not waits[n]]
    done: NodeList = []
    count = len(nodes)
    while ready:
        _, node = heapq.heappop(ready)
        done.append(node)
        for user in node.users:
            if user in place:
                waits[user] -= 1
                if not waits[user]:
                    count += 1
                    heapq.heappush(ready, (place[user] if stable else count, user))
    return done


def _sorted(gm: GraphModule, stable: bool, failure: type[Exception]) -> GraphModule:
    nodes = list(gm.graph.nodes)
    found = in_order(nodes, stable)
    if len(found) != len(nodes):
        done = set(found)
        left = [n for n in nodes if n not in done]
        raise failure(f"Input graph has cycles, unable to add {left}")
    graph = Graph(tracer_cls=gm.graph._tracer_cls)
    graph.set_codegen(gm.graph._codegen)
    made: dict[Node, Node] = {}
    for node in found:
        made[node] = graph.node_copy(node, made.__getitem__)
    gm.graph = graph
    return gm


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Puts every node behind those that it uses, and leaves the order otherwise."""
    return _sorted(gm, True, AssertionError)


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Puts every node behind those that it uses, those first that use nothing."""
    return _sorted(gm, False, RuntimeError)
