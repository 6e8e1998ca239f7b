"""CapabilityBasedPartitioner: the largest parts of a graph that a backend takes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node, full_name
from tenon.fx.passes.operator_support import OperatorSupportBase
from tenon.fx.passes.utils.fuser_utils import fuse_by_partitions

__all__ = ["CapabilityBasedPartitioner", "Partition"]


class Partition:
    """Nodes that go together."""

    def __init__(
        self,
        id: int | None = None,
        nodes: Iterable[Node] | None = None,
        node_orders: Iterable[int] | None = None,
    ) -> None:
        self.id = id
        given = list(nodes or ())
        orders = list(node_orders) if node_orders is not None else [None] * len(given)
        self.nodes: dict[Node, int | None] = dict(zip(given, orders, strict=True))

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        del self.nodes[node]

    def size(self) -> int:
        return len(self.nodes)


class _Parts:
    """Parts in the making: nodes join a part as long as no way leads out of it and back."""

    def __init__(self) -> None:
        self.of: dict[Node, Partition] = {}
        self.all: dict[int, Partition] = {}  # by number, in the order of their first node
        self.count = 0

    def begin(self, node: Node, order: int) -> Partition:
        part = Partition(self.count, [node], [order])
        self.count += 1
        self.all[part.id or 0] = self.of[node] = part
        return part

    def has(self, part: Partition) -> bool:
        """Whether it is a part, and did not go into another one."""
        return self.all.get(part.id or 0) is part

    def goes_back(self, nodes: set[Node]) -> bool:
        """Whether what these nodes give comes to one of them through others, where a part waits for
        all that it takes before it gives anything."""
        stack = [u for n in nodes for u in n.users if u not in nodes]
        seen = set(stack)
        while stack:
            node = stack.pop()
            part = self.of.get(node)
            for member in (node,) if part is None else tuple(part.nodes):
                for user in member.users:
                    if user in nodes:
                        return True
                    if user not in seen:
                        seen.add(user)
                        stack.append(user)
        return False

    def join(self, a: Partition, b: Partition) -> Partition:
        """The two as one, which keeps the larger one's number; the first one if they cannot be."""
        if self.goes_back({*a.nodes, *b.nodes}):
            return a
        kept, gone = (b, a) if a.size() < b.size() else (a, b)
        kept.nodes.update(gone.nodes)
        self.of.update(dict.fromkeys(gone.nodes, kept))
        del self.all[gone.id or 0]
        return kept

    def move(self, node: Node, to: Partition | None) -> None:
        if node in self.of:
            self.of.pop(node).remove_node(node)
        if to is not None:
            to.add_node(node)
            self.of[node] = to


def _is_item(node: Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem


class CapabilityBasedPartitioner:
    """Proposes parts of a graph whose nodes `operator_support` takes, and makes modules of them."""

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        self.graph_module, self.operator_support = graph_module, operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = non_compute_ops or []
        self.allowed_single_node_partition_ops = allowed_single_node_partition_ops or []
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def propose_partitions(self) -> list[Partition]:
        """Parts, from the end of the graph on; their nodes are in its order."""
        modules = dict(self.graph_module.named_modules())
        parts, order = _Parts(), {}
        first: dict[Partition, int] = {}  # when the first node of a part came
        for i, node in enumerate(reversed(self.graph_module.graph.nodes)):
            order[node] = i
            candidates: list[Partition] = []
            if self.operator_support.is_node_supported(modules, node):
                made = parts.begin(node, i)
                first[made] = i
                candidates.append(made)
                if self.skip_horizontal_fusion:
                    candidates += [parts.of[u] for u in node.users if u in parts.of]
            if not self.skip_horizontal_fusion:
                candidates += sorted(parts.all.values(), key=lambda p: first[p])
            candidates = list(dict.fromkeys(candidates))
            for other in candidates[1:]:
                if not parts.has(other):
                    continue
                one = candidates[0]
                least = min(first[one], first[other])
                joined = parts.join(one, other)
                if not (parts.has(one) and parts.has(other)):
                    first[joined] = least
                candidates[0] = joined
        for part in parts.all.values():
            part.nodes = dict(sorted(part.nodes.items(), key=lambda n: -order[n[0]]))
        self._move_items(parts)
        found = list(parts.all.values())
        if not self.allows_single_node_partition:
            found = [p for p in found if self._weight(p) > 1]
        return [p for p in found if p.size() > 0]

    def _move_items(self, parts: _Parts) -> None:
        """Items of what a node gives go where the node goes."""
        changed = True
        while changed:
            changed = False
            for node in self.graph_module.graph.nodes:
                if not all(map(_is_item, node.users)):
                    continue
                to = parts.of.get(node)
                for user in node.users:
                    if parts.of.get(user) is not to:
                        parts.move(user, to)
                        changed = True

    def _weight(self, part: Partition) -> int:
        """How many nodes compute something."""
        idle = {"torch.ops.aten.view", "_operator.getitem", *self.non_compute_ops}
        names = [full_name(n.target) for n in part.nodes if n.op == "call_function"]
        alone = set(self.allowed_single_node_partition_ops)
        return sum((n not in idle) + (n in alone) for n in names)

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """The graph module with these parts as modules."""
        return fuse_by_partitions(self.graph_module, [p.nodes for p in partitions], prefix=prefix)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Takes nodes that compute nothing off the ends of parts."""
        idle = set(self.non_compute_ops)
        for part in partitions:
            changed = True
            while changed:
                changed = False
                for node in list(part.nodes):
                    if node.op != "call_function" or full_name(node.target) not in idle:
                        continue
                    begins = not any(n in part.nodes for n in node.all_input_nodes)
                    if begins or not any(n in part.nodes for n in node.users):
                        part.remove_node(node)
                        changed = True

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        return self.fuse_partitions(self.propose_partitions(), prefix=prefix)
