"""A graph of both passes in two: what the forward pass gives, and what the backward pass takes."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any

import tenon
from tenon._tensor import aten
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node

__all__ = ["default_partition", "min_cut_rematerialization_partition"]

Parts = tuple[GraphModule, GraphModule]

# What costs more to compute again than to keep.
_DEAR = {
    "addbmm", "addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "convolution", "linear", "matmul", "mm", "sort",
    "scaled_dot_product_attention", "topk",
}  # fmt: skip


def _is_tangent(node: Node) -> bool:
    return node.op == "placeholder" and str(node.target).startswith("tangents")


def _packet(node: Node) -> str:
    target = node.target
    return target.overloadpacket.__name__ if isinstance(target, aten.OpOverload) else str(target)


def _acts(node: Node) -> bool:
    """Whether it draws random numbers or writes: it runs once."""
    return "acts" in node.meta or (node.op == "call_function" and node.is_impure())


def _behind(nodes: Iterable[Node]) -> set[Node]:
    """The nodes and all that follows from them."""
    found, todo = set[Node](), list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += node.users
    return found


def _results(joint: GraphModule, count: int) -> tuple[list[Any], list[Any]]:
    given = list(joint.graph.output_node().args[0])  # type: ignore[arg-type]
    return given[:count], given[count:]


def _extract(joint: GraphModule, takes: Sequence[Node], gives: Sequence[Any]) -> GraphModule:
    """What the graph computes of these nodes to give those, with all that acts on the way."""
    graph, made = Graph(), dict[Node, Node]()
    for node in takes:
        made[node] = graph.placeholder(node.name)
        made[node].meta = dict(node.meta)
    needed, todo = set[Node](), [g for g in gives if isinstance(g, Node)]
    while todo:
        node = todo.pop()
        if node not in needed and node not in made:
            needed.add(node)
            todo += node.all_input_nodes
    for node in joint.graph.nodes:
        if node in needed:
            if node.op == "placeholder":
                raise AssertionError(f"{node} is computed by the other pass")
            made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[g] if isinstance(g, Node) else g for g in gives))
    return GraphModule(joint, graph)


def _split(joint: GraphModule, saved: Sequence[Node], count: int) -> Parts:
    inputs = joint.graph.find_nodes(op="placeholder")
    outputs, gradients = _results(joint, count)
    acting = [n for n in joint.graph.nodes if _acts(n)]
    later = _behind(n for n in inputs if _is_tangent(n))
    primals = [n for n in inputs if not _is_tangent(n)]
    forward = _extract(joint, primals, [*outputs, *saved, *(n for n in acting if n not in later)])
    forward.graph.output_node().args = (forward.graph.output_node().args[0][: count + len(saved)],)
    tangents = [n for n in inputs if _is_tangent(n)]
    backward = _extract(joint, [*saved, *tangents], gradients)
    for part in (forward, backward):
        part.graph.lint()
        part.recompile()
    return forward, backward


def _needed_later(joint: GraphModule) -> tuple[set[Node], set[Node]]:
    """What follows from tangents; and nodes that follow from no input, which either pass makes."""
    inputs = joint.graph.find_nodes(op="placeholder")
    later = _behind(n for n in inputs if _is_tangent(n))
    free = set(joint.graph.nodes) - _behind(inputs)
    return later, {n for n in free if not _acts(n)}


def default_partition(
    joint_module: GraphModule, _joint_inputs: Any, *, num_fwd_outputs: int, **_: Any
) -> Parts:
    """The forward pass keeps whatever the backward pass reads of it."""
    later, free = _needed_later(joint_module)
    gradients = [g for g in _results(joint_module, num_fwd_outputs)[1] if isinstance(g, Node)]
    kept = [
        n
        for n in joint_module.graph.nodes
        if n not in later
        and n not in free
        and (any(u in later and u.op != "output" for u in n.users) or n in gradients)
    ]
    return _split(joint_module, kept, num_fwd_outputs)


def _bytes(node: Node) -> int:
    fact = node.meta.get("tensor")
    if fact is None:
        return 1 << 40  # a list: its parts are kept
    return math.prod(fact["shape"]) * getattr(tenon, fact["dtype"]).itemsize + 1


def min_cut_rematerialization_partition(
    joint_module: GraphModule, _joint_inputs: Any, compiler: str = "inductor", *,
    num_fwd_outputs: int, **_: Any,
) -> Parts:  # fmt: skip
    """The forward pass keeps as few bytes as it can; what is cheap is computed again of them."""
    later, free = _needed_later(joint_module)
    gradients = [g for g in _results(joint_module, num_fwd_outputs)[1] if isinstance(g, Node)]
    room: dict[Any, dict[Any, float]] = defaultdict(lambda: defaultdict(float))
    for node in joint_module.graph.nodes:
        if node in later or node in free or node.op == "output":
            continue
        room[node, 0][node, 1] = _bytes(node)
        if node.op == "placeholder" or _packet(node) in _DEAR or _acts(node):
            room["source"][node, 0] = math.inf
        for user in node.users:
            if user in later:
                if user.op != "output" or node in gradients:
                    room[node, 1]["sink"] = math.inf
            else:
                room[node, 1][user, 0] = math.inf
        if node in gradients:
            room[node, 1]["sink"] = math.inf
    cut = _cut(room)
    kept = [n for n in joint_module.graph.nodes if (n, 0) in cut and (n, 1) not in cut]
    return _split(joint_module, kept, num_fwd_outputs)


def _cut(room: dict[Any, dict[Any, float]]) -> set[Any]:
    """What is reached from "source" once no more flows to "sink": the smallest cut lies behind it.
    Flow goes along shortest ways, as long as there is one."""
    while True:
        before: dict[Any, Any] = {"source": None}
        todo = deque(["source"])
        while todo and "sink" not in before:
            at = todo.popleft()
            for to, left in room[at].items():
                if left > 0 and to not in before:
                    before[to] = at
                    todo.append(to)
        if "sink" not in before:
            return set(before)
        way, at = list[tuple[Any, Any]](), "sink"
        while before[at] is not None:
            way.append((before[at], at))
            at = before[at]
        flow = min(room[a][b] for a, b in way)
        for a, b in way:
            room[a][b] -= flow
            room[b][a] += flow
