"""Parts of a graph as modules that it calls in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node
from tenon.fx.passes.tools_common import NodeList, in_order, stable_topological_sort
from tenon.fx.passes.utils.common import lift_subgraph_as_module
from tenon.fx.proxy import Proxy

__all__ = [
    "erase_nodes", "fuse_as_graphmodule", "fuse_by_partitions", "insert_subgm", "topo_sort",
    "validate_partition",
]  # fmt: skip


def topo_sort(nodes: NodeList) -> NodeList:
    """The nodes, each behind those of them that it uses."""
    done = in_order(nodes)
    if len(done) != len(nodes):
        raise AssertionError("topological sorted nodes doesn't have same length as input nodes")
    return done


def validate_partition(partition: NodeList) -> bool:
    """Whether no way leads out of these nodes and back."""
    inside = set(partition)
    stack = [u for n in partition for u in n.users if u not in inside]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node in inside:
            return False
        more = [u for u in node.users if u not in seen]
        seen.update(more)
        stack += more
    return True


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: NodeList,
    module_name: str,
    partition_lookup_table: Mapping[Node, Any] | Iterable[Node] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """Sorted nodes of gm as a module; what it takes, and which of the nodes others use."""
    for node in nodes:
        if node.graph.owning_module is not gm:
            raise AssertionError(
                f"{node} doesn't belong to passed in graph module {gm._get_name()}"
            )
    if not validate_partition(nodes):
        raise AssertionError("Invalid partition, found dependency cycles")
    inside = set(nodes if partition_lookup_table is None else partition_lookup_table)
    graph, made = Graph(), {}
    takes: dict[Node, Node] = {}

    def inner(used: Node) -> Node:
        if used in inside:
            return made[used]
        if used not in takes:
            takes[used] = graph.placeholder(used.name, type_expr=used.type)
            takes[used].meta = dict(used.meta)
        return takes[used]

    for node in nodes:
        made[node] = graph.node_copy(node, inner)
    gives = [n for n in nodes if any(u not in inside for u in n.users)]
    outs = tuple(made[n] for n in gives)
    graph.output(outs[0] if len(outs) == 1 and not always_return_tuple else outs)
    graph.lint()
    fused, _ = lift_subgraph_as_module(gm, graph, comp_name="", class_name=module_name)
    return fused, tuple(takes), tuple(gives)


def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: tuple[Node, ...],
    orig_outputs: tuple[Node, ...],
    insertion_point: Node | None = None,
) -> GraphModule:
    """Calls the module behind a node, and uses what it gives in place of the nodes' results."""
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    if insertion_point is None:
        last = [n for n in gm.graph.nodes if n in orig_outputs]
        if not last:
            raise AssertionError("Cannot determine insertion point: orig_outputs is empty")
        insertion_point = last[-1]
    with gm.graph.inserting_after(insertion_point):
        call = gm.graph.call_module(name, args=orig_inputs, kwargs=None)
    result = sub_gm.graph.output_node().args[0]
    if len(orig_outputs) == 1 and not isinstance(result, tuple):
        orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
        return gm
    with gm.graph.inserting_before(call.next):
        for i, node in enumerate(orig_outputs):
            item = Proxy(call)[i].node
            node.replace_all_uses_with(item, propagate_meta=True)
    if orig_outputs:
        call.meta["val"] = tuple(n.meta.get("val", None) for n in orig_outputs)
    return gm


def erase_nodes(gm: GraphModule, nodes: NodeList) -> None:
    """Removes sorted nodes that nobody uses any more."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(
    gm: GraphModule,
    partitions: list[dict[Node, int | None]],
    prefix: str = "fused_",
    always_return_tuple: bool = False,
) -> GraphModule:
    """gm, whose parts are modules `fused_0`, `fused_1` and so on."""
    for i, part in enumerate(partitions):
        nodes = topo_sort(list(part))
        fused, takes, gives = fuse_as_graphmodule(
            gm, nodes, f"{prefix}{i}", part, always_return_tuple=always_return_tuple
        )
        insert_subgm(gm, fused, takes, gives, nodes[-1])
        erase_nodes(gm, nodes)
    stable_topological_sort(gm)
    gm.graph.lint()
    return gm
