"""replace_pattern: finds one graph within another and puts a third in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenon.fx._symbolic_trace import symbolic_trace
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule, _copy_attribute
from tenon.fx.node import Argument, Node, map_arg
from tenon.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from tenon.nn import Module

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

Filter = Callable[[InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """Where a pattern was found: its result, and what each of its nodes is in the graph."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """The same, and the nodes that were put in its place."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node] = field(default_factory=list)


def _traced(given: Any) -> tuple[Graph, Any]:
    """A pattern's graph, and the module that it is of."""
    if isinstance(given, Graph):
        return given, given.owning_module
    traced = given if isinstance(given, GraphModule) else symbolic_trace(given)
    return traced.graph, traced


def _take_attributes(gm: GraphModule, graph: Graph, module: Any) -> None:
    """Gives gm what the replacement names."""
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr") and module is not None:
            if not _has(gm, str(node.target)):
                _copy_attribute(module, gm, str(node.target))


def _has(gm: Module, path: str) -> bool:
    found: Any = gm
    for part in path.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule | Graph,
    replacement: Callable[..., Any] | GraphModule | Graph,
) -> list[Match]:
    """Replaces what looks like `pattern`, without overlaps; arguments go by position."""
    found = replace_pattern_with_filters(gm, pattern, replacement)
    return [Match(m.anchor, m.nodes_map) for m in found]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule | Graph,
    replacement: Callable[..., Any] | GraphModule | Graph | None = None,
    match_filters: Sequence[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """The same where all filters hold; replacement_callback makes a replacement for each match."""
    wanted, _ = _traced(pattern)
    matches = [
        m for m in SubgraphMatcher(wanted, ignore_literals=ignore_literals).match(
            gm.graph, node_name_match
        )
        if all(f(m, gm.graph, wanted) for f in match_filters or ())
    ]  # fmt: skip
    if replacement is None and replacement_callback is None:
        raise AssertionError("Must provide either replacement GraphModule or callback")
    fixed = None if replacement is None else _traced(replacement)
    renamed: dict[Node, Node] = {}
    done = []
    for match in matches:
        graph, module = fixed or (replacement_callback(match, gm.graph, wanted), None)  # type: ignore
        _take_attributes(gm, graph, module)
        added = _replace(gm.graph, match, wanted, graph, renamed)
        done.append(ReplacedPatterns(match.anchors[0], match.nodes_map, added))
    gm.recompile()
    return done


def _replace(
    graph: Graph, match: InternalMatch, wanted: Graph, new: Graph, renamed: dict[Node, Node]
) -> list[Node]:
    places = [n for n in new.nodes if n.op == "placeholder"]
    holes = [n for n in wanted.nodes if n.op == "placeholder"]
    if len(holes) != len(places):
        raise AssertionError(
            f"the pattern takes {len(holes)} arguments, and its replacement {len(places)}"
        )

    def now(n: Argument) -> Argument:
        while isinstance(n, Node) and n in renamed:
            n = renamed[n]
        return n

    values = {
        p: now(match.nodes_map[h]) for h, p in zip(holes, places, strict=True)
        if h in match.nodes_map
    }  # fmt: skip
    given = set(values)
    with graph.inserting_before(_begin(graph, match, values)):
        made: list[Node] = []
        map_arg((graph.graph_copy(new, values),), made.append)
    if len(made) != len(match.returning_nodes):
        raise AssertionError(
            f"the pattern returns {len(match.returning_nodes)} values, and its replacement "
            f"{len(made)}"
        )
    for old, result in zip(match.returning_nodes, made, strict=True):
        old.replace_all_uses_with(result)
        renamed[old] = result
    for p in reversed(wanted.nodes):
        n = match.nodes_map.get(p)
        if n is not None and p.op not in ("placeholder", "output") and not n.users:
            graph.erase_node(n)
    return [n for p, n in values.items() if p not in given]


def _begin(graph: Graph, match: InternalMatch, values: dict[Node, Argument]) -> Node:
    """Where the replacement goes: before the results' first user, behind all that it needs."""
    order = {n: i for i, n in enumerate(graph.nodes)}
    users = [order[u] for n in match.returning_nodes for u in n.users]
    behind = [order[n] + 1 for n in match.returning_nodes]
    needed = [order[v] + 1 for v in values.values() if isinstance(v, Node)]
    return list(order)[max([min(users or behind), *needed])]
