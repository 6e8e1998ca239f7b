"""Graphs as modules of others, and whether two graphs are the same."""

from __future__ import annotations

from typing import Any

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.passes.utils.matcher_utils import SubgraphMatcher
from tenon.nn import Module

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(Module):
    """A module that has these others."""

    def __init__(self, d: dict[str, Any]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """A part of gm's graph as a module with what it names, and where that stood in gm."""
    submodule, places = HolderModule({}), {}
    for node in subgraph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        target = str(node.target)
        *prefix, name = target.split(".")
        owner: Any = submodule
        source: Any = gm
        for part in prefix:
            source = getattr(source, part)
            if not hasattr(owner, part):
                owner.add_module(part, HolderModule({}))
            owner = getattr(owner, part)
        setattr(owner, name, getattr(source, name))
        places[target] = f"{comp_name}.{target}" if comp_name else target
    return GraphModule(submodule, subgraph, class_name), places


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Whether two graphs do the same, by the same nodes."""
    found = SubgraphMatcher(left, match_output=True, match_placeholder=True).match(right)
    return len(found) > 0
