"""split_by_tags: a graph module as one module for each tag of its nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node, map_arg
from tenon.fx.passes.utils.common import HolderModule, lift_subgraph_as_module
from tenon.fx.proxy import Proxy
from tenon.nn import Module, ModuleList

__all__ = ["Component", "getattr_recursive", "setattr_recursive", "split_by_tags"]


def getattr_recursive(obj: Any, name: str) -> Any:
    """What stands at a path; None: nothing does."""
    for part in name.split("."):
        if isinstance(obj, ModuleList):
            obj = obj._modules.get(part)
        else:
            obj = getattr(obj, part, None)
        if obj is None:
            return None
    return obj


def setattr_recursive(obj: Any, attr: str, value: Any) -> None:
    """Puts something at a path."""
    *path, name = attr.split(".")
    for part in path:
        obj = getattr(obj, part)
    setattr(obj, name, value)


@dataclass
class Component:
    """One part in the making."""

    graph: Graph
    order: int
    name: str
    input_placeholders: list[Node] = field(default_factory=list)
    orig_inputs: list[Node] = field(default_factory=list)
    orig_outputs: list[Node] = field(default_factory=list)
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None
    made: dict[Node, Node] = field(default_factory=dict)

    def take(self, used: Node, inside: bool) -> Node:
        """What stands in this part for a node that one of its own uses."""
        if used.op == "get_attr":
            if used not in self.getattr_maps:
                self.getattr_maps[used] = self.graph.get_attr(str(used.target), used.type)
                self.getattr_maps[used].meta = dict(used.meta)
            return self.getattr_maps[used]
        if inside:
            return self.made[used]
        if used not in self.orig_inputs:
            self.orig_inputs.append(used)
            self.input_placeholders.append(self.graph.placeholder(used.name, used.type))
            self.input_placeholders[-1].meta = dict(used.meta)
        return self.input_placeholders[self.orig_inputs.index(used)]


def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,  # noqa: N803 - PyTorch's name
) -> Any:
    """A module of the parts that the nodes' `tag` names, in the order of `tags`; with
    return_fqn_mapping also where what the parts name stood before."""
    parts = {tag: Component(Graph(), i, tag) for i, tag in enumerate(tags)}
    where: dict[Node, Component] = {}
    shown: dict[Node, None] = {}  # what the parts give
    main, outer = Graph(), {}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            outer[node] = main.placeholder(node.name, node.type)
            outer[node].meta = dict(node.meta)
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        if not hasattr(node, "tag"):
            raise AssertionError(f"Node does not have tag: {node.format_node()}")
        part = where[node] = parts[node.tag]
        least = max((where[u].order for u in node.all_input_nodes if u in where), default=0)
        if part.order < least:
            raise AssertionError(
                f"Component {part.name} order must be >= max of its upstream components, "
                f"order={part.order} and max={least}"
            )
        made = part.graph.node_copy(
            node,
            lambda used, part=part: part.take(used, where.get(used) is part),  # type: ignore[misc]
        )
        part.made[node] = made
        made.tag = node.tag
        shown.update((u, None) for u in node.all_input_nodes if where.get(u, part) is not part)
    result = gm.graph.output_node().args[0]

    def note(used: Node) -> Node:
        if used.op == "get_attr":
            outer[used] = main.get_attr(str(used.target), used.type)
        elif used.op != "placeholder":
            shown.setdefault(used)
        return used

    map_arg(result, note)
    for node in shown:
        where[node].orig_outputs.append(node)
    places: dict[str, str] = {}
    for part in parts.values():
        outs = tuple(part.made[n] for n in part.orig_outputs)
        single = len(outs) == 1 and not return_tuple
        part.graph.output(outs[0] if single else outs)
        part.gm, found = lift_subgraph_as_module(gm, part.graph, part.name)
        places.update(found)
        call = main.call_module(part.name, tuple(outer[n] for n in part.orig_inputs))
        for i, node in enumerate(part.orig_outputs):
            outer[node] = call if single else Proxy(call)[i].node
    main.output(map_arg(result, outer.__getitem__))
    root: Module = HolderModule({part.name: part.gm for part in parts.values()})
    for node in main.nodes:
        if node.op == "get_attr":
            name = str(node.target)
            setattr(root, name.split(".")[0], getattr(gm, name.split(".")[0]))
            places[name] = name
    split = GraphModuleCls(root, main)
    return (split, places) if return_fqn_mapping else split
