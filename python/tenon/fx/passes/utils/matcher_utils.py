"""SubgraphMatcher: finds one graph within another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tenon.fx.graph import Graph
from tenon.fx.node import Argument, Node, map_arg


@dataclass
class InternalMatch:
    """Where a pattern was found: what each of its nodes is in the graph."""

    anchors: list[Node]  # what the pattern returns
    nodes_map: dict[Node, Argument] = field(default_factory=dict)
    placeholder_nodes: list[Argument] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Argument] = field(default_factory=dict)


class SubgraphMatcher:
    """`match(graph)` gives all places where a graph looks like `pattern`."""

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.pattern, self.alone = pattern, remove_overlapping_matches
        self.match_placeholder, self.ignore_literals = match_placeholder, ignore_literals
        self.anchors: list[Node] = []
        map_arg(pattern.output_node().args, self.anchors.append)
        if match_output:
            self.anchors = [pattern.output_node()]
        self.anchors = [n for n in dict.fromkeys(self.anchors) if n.op != "placeholder"]
        if not self.anchors:
            raise ValueError("SubgraphMatcher: the pattern returns nothing that it computes")

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """In the order of the graph; where two share a node, the first one."""
        found: list[InternalMatch] = []
        taken: set[Node] = set()
        for node in graph.nodes:
            if node_name_match and node_name_match not in node.name:
                continue
            for nodes in self._from(node, graph):
                inside = {n for p, n in nodes.items() if p.op not in ("placeholder", "get_attr")}
                if not self._closed(nodes, inside) or (self.alone and inside & taken):
                    continue
                taken |= inside
                found.append(self._found(nodes))
                break
        return found

    def _found(self, nodes: dict[Node, Argument]) -> InternalMatch:
        holes = [n for n in self.pattern.nodes if n.op == "placeholder"]
        return InternalMatch(
            self.anchors,
            nodes,
            [nodes[h] for h in holes if h in nodes],
            [nodes[a] for a in self.anchors],
            {p.name: n for p, n in nodes.items()},
        )

    def _from(self, first: Node, graph: Graph) -> Iterator[dict[Node, Argument]]:
        """Ways to match the pattern whose first result is `first`."""
        found: dict[Node, Argument] = {}
        if self._same(self.anchors[0], first, found):
            yield from self._others(1, graph, found)

    def _others(
        self, i: int, graph: Graph, found: dict[Node, Argument]
    ) -> Iterator[dict[Node, Argument]]:
        if i == len(self.anchors):
            yield found
            return
        anchor = self.anchors[i]
        candidates = [found[anchor]] if anchor in found else list(graph.nodes)
        for node in candidates:
            more = dict(found)
            if self._same(anchor, node, more):
                yield from self._others(i + 1, graph, more)

    def _same(self, p: Node, n: Node, found: dict[Node, Argument]) -> bool:
        if p in found:
            return found[p] is n
        if any(n is taken for taken in found.values()):  # two nodes of a pattern are two here
            return False
        if p.op != "placeholder" or self.match_placeholder:
            if p.op != n.op or not self._same_target(p, n):
                return False
        found[p] = n
        if p.op == "placeholder":
            return True
        if len(p.args) != len(n.args) or set(p.kwargs) != set(n.kwargs):
            return False
        pairs = [*zip(p.args, n.args, strict=True), *((p.kwargs[k], n.kwargs[k]) for k in p.kwargs)]
        return all(self._same_argument(a, b, found) for a, b in pairs)

    def _same_target(self, p: Node, n: Node) -> bool:
        if p.op == "call_module":
            theirs, ours = p.graph.owning_module, n.graph.owning_module
            if theirs is not None and ours is not None:
                return type(ours.get_submodule(n.target)) is type(theirs.get_submodule(p.target))
        return p.op in ("get_attr", "placeholder", "output") or p.target == n.target

    def _same_argument(self, a: Argument, b: Argument, found: dict[Node, Argument]) -> bool:
        if isinstance(a, Node) and isinstance(b, Node):
            return self._same(a, b, found)
        if isinstance(a, Node):
            if a.op != "placeholder":
                return False
            return found.setdefault(a, b) is b or found[a] == b
        if isinstance(a, (tuple, list)):
            return (
                isinstance(b, (tuple, list))
                and len(a) == len(b)
                and all(self._same_argument(x, y, found) for x, y in zip(a, b, strict=True))
            )
        if isinstance(b, Node):
            return self.ignore_literals
        return self.ignore_literals or (type(a) is type(b) and a == b)

    def _closed(self, nodes: dict[Node, Argument], inside: set[Argument]) -> bool:
        """Nobody outside uses what lies inside."""
        results = [nodes[a] for a in self.anchors]
        for p, n in nodes.items():
            if p.op in ("placeholder", "get_attr") or n in results:
                continue
            if any(user not in inside for user in n.users):
                return False
        return True
