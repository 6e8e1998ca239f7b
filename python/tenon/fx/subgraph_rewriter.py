"""replace_pattern: finds one graph within another and puts a third in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tenon.fx._symbolic_trace import symbolic_trace
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule, _copy_attribute
from tenon.fx.node import Argument, Node
from tenon.nn import Module


class Match(NamedTuple):
    """Where a pattern was found: its last node, and each of its nodes in the graph."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class _Pattern:
    graph: Graph
    module: Any
    result: Node

    def __init__(self, given: Any) -> None:
        if isinstance(given, Graph):
            self.graph, self.module = given, None
        else:
            traced = given if isinstance(given, GraphModule) else symbolic_trace(given)
            self.graph, self.module = traced.graph, traced
        result = self.graph.output_node().args[0]
        if not isinstance(result, Node):
            raise RuntimeError("a pattern returns one value")
        self.result = result


class _Matcher:
    def __init__(self, pattern: _Pattern, module: GraphModule) -> None:
        self.pattern, self.module = pattern, module

    def match(self, anchor: Node) -> dict[Node, Node] | None:
        found: dict[Node, Node] = {}
        if not self._same(self.pattern.result, anchor, found):
            return None
        return found if self._closed(found) else None

    def _same(self, p: Node, n: Node, found: dict[Node, Node]) -> bool:
        if p in found:
            return found[p] is n
        if p.op != "placeholder":
            if p.op != n.op or not self._same_target(p, n):
                return False
            if len(p.args) != len(n.args) or set(p.kwargs) != set(n.kwargs):
                return False
        found[p] = n
        if p.op == "placeholder":
            return True
        pairs = [*zip(p.args, n.args, strict=True), *((p.kwargs[k], n.kwargs[k]) for k in p.kwargs)]
        return all(self._same_argument(a, b, found) for a, b in pairs)

    def _same_target(self, p: Node, n: Node) -> bool:
        if p.op == "call_module" and self.pattern.module is not None:
            ours = self.module.get_submodule(str(n.target))
            theirs = self.pattern.module.get_submodule(str(p.target))
            return type(ours) is type(theirs)
        return p.op == "get_attr" or p.target == n.target

    def _same_argument(self, a: Argument, b: Argument, found: dict[Node, Node]) -> bool:
        if isinstance(a, Node):
            return isinstance(b, Node) and self._same(a, b, found)
        if isinstance(a, (tuple, list)):
            return (
                isinstance(b, (tuple, list))
                and len(a) == len(b)
                and all(self._same_argument(x, y, found) for x, y in zip(a, b, strict=True))
            )
        return type(a) is type(b) and a == b

    def _closed(self, found: dict[Node, Node]) -> bool:
        """Nobody outside uses what lies inside."""
        inside = {n for p, n in found.items() if p.op != "placeholder"}
        result = found[self.pattern.result]
        for p, n in found.items():
            if p.op in ("placeholder", "get_attr") or n is result:
                continue
            if any(user not in inside for user in n.users):
                return False
        return True


def _take_attributes(gm: GraphModule, replacement: _Pattern) -> None:
    for node in replacement.graph.nodes:
        if node.op in ("call_module", "get_attr") and replacement.module is not None:
            try:
                gm.get_submodule(str(node.target)) if node.op == "call_module" else _find(
                    gm, str(node.target)
                )
            except AttributeError:
                _copy_attribute(replacement.module, gm, str(node.target))


def _find(gm: Module, path: str) -> Any:
    found: Any = gm
    for part in path.split("."):
        found = getattr(found, part)
    return found


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule | Graph,
    replacement: Callable[..., Any] | GraphModule | Graph,
) -> list[Match]:
    """Replaces what looks like `pattern`, without overlaps; arguments go by position."""
    wanted, new = _Pattern(pattern), _Pattern(replacement)
    holes = [n for n in wanted.graph.nodes if n.op == "placeholder"]
    places = [n for n in new.graph.nodes if n.op == "placeholder"]
    if len(holes) != len(places):
        raise RuntimeError(
            f"the pattern takes {len(holes)} arguments, and its replacement {len(places)}"
        )
    matcher, matches, taken = _Matcher(wanted, gm), [], set()
    for node in list(gm.graph.nodes):
        found = matcher.match(node) if node.op != "output" else None
        if found is None:
            continue
        inside = {n for p, n in found.items() if p.op not in ("placeholder", "get_attr")}
        if inside & taken or not inside:
            continue
        taken |= inside
        matches.append(Match(node, found))
    _take_attributes(gm, new)
    renamed: dict[Node, Node] = {}
    for match in matches:
        _replace(gm.graph, match, (wanted, new, holes, places), renamed)
    gm.recompile()
    return matches


def _replace(graph: Graph, match: Match, how: Any, renamed: dict[Node, Node]) -> None:
    wanted, new, holes, places = how

    def now(n: Node) -> Node:
        while n in renamed:
            n = renamed[n]
        return n

    values = {p: now(match.nodes_map[h]) for h, p in zip(holes, places, strict=True)
              if h in match.nodes_map}  # fmt: skip
    with graph.inserting_before(match.anchor):
        result = graph.graph_copy(new.graph, values)
    match.anchor.replace_all_uses_with(result)
    renamed[match.anchor] = result
    for p in reversed(wanted.graph.nodes):
        n = match.nodes_map.get(p)
        if n is not None and p.op not in ("placeholder", "output") and not n.users:
            graph.erase_node(n)
