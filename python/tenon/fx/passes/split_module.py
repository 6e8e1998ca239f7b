"""split_module: a graph module as several, one for each part that its nodes belong to."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tenon
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Argument, Node, map_arg

__all__ = ["Partition", "split_module"]


@dataclass
class Partition:
    """One part: its graph, and what it takes from others and gives to them."""

    name: str
    submod_name: str = ""
    graph: Graph = field(default_factory=Graph)
    nodes: list[Node] = field(default_factory=list)
    inputs: dict[Node, None] = field(default_factory=dict)
    outputs: dict[Node, None] = field(default_factory=dict)
    before: set[str] = field(default_factory=set)
    targets: dict[str, Any] = field(default_factory=dict)
    environment: dict[Node, Node] = field(default_factory=dict)


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _in_order(parts: dict[str, Partition]) -> list[Partition]:
    """Parts behind all that they need."""
    left, done = dict(parts), []
    while left:
        ready = [p for p in left.values() if not p.before & left.keys()]
        if not ready:
            raise RuntimeError("cycle exists between partitions!")
        done.append(ready[0])
        del left[ready[0].name]
    return done


def split_module(
    m: GraphModule,
    root_m: tenon.nn.Module | None,
    split_callback: Callable[[Node], int],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """A module of `submod_N`, where split_callback(node) is N.

    qualname_map is filled: where a submodule of a part stood before.
    """
    affix = f"{partition_affix}_" if partition_affix else ""
    parts: dict[str, Partition] = {}
    where: dict[Node, Partition] = {}
    plain = ("placeholder", "get_attr", "output")
    for node in m.graph.nodes:
        if node.op in plain:
            continue
        name = str(split_callback(node))
        part = parts.setdefault(name, Partition(name, f"submod_{affix}{name}"))
        part.nodes.append(node)
        where[node] = part
    for node in m.graph.nodes:
        user = where.get(node)
        for used in node.all_input_nodes:
            maker = where.get(used)
            if maker is user or node.op in plain[:2]:
                continue
            if user is not None:
                user.inputs.setdefault(used)
            if maker is not None:
                maker.outputs.setdefault(used)
                if user is not None:
                    user.before.add(maker.name)
    order = _in_order(parts)
    for part in order:
        _fill(part, m, keep_original_node_name, keep_original_input_name, qualname_map)
    base = Graph()
    made: dict[Node, Node] = {}
    held: dict[str, Any] = {}
    for node in m.graph.nodes:
        if node.op in plain[:2]:
            made[node] = base.node_copy(node)
            if node.op == "get_attr":
                held[str(node.target)] = _attribute(m, str(node.target))
    for part in order:
        held[part.submod_name] = _close(part, tuple_return)
        call = base.call_module(part.submod_name, tuple(made[n] for n in part.inputs))
        outs = list(part.outputs)
        if len(outs) == 1 and not tuple_return:
            made[outs[0]] = call
        else:
            for i, out in enumerate(outs):
                made[out] = base.call_function(operator.getitem, (call, i))
    result = m.graph.output_node()
    base.output(map_arg(result.args[0], lambda n: made[n]), result.type)
    split = GraphModule(held, base)
    split.graph.set_codegen(m.graph._codegen)
    split.recompile()
    return split


def _fill(
    part: Partition,
    root: Any,
    keep_node_name: bool | None,
    keep_input_name: bool,
    qualname_map: dict[str, str] | None,
) -> None:
    """The part's own nodes."""
    for i, node in enumerate(part.inputs):
        name = node.name if keep_input_name else f"arg_{i}"
        made = part.graph.placeholder(name, node.type)
        made.meta = dict(node.meta)
        part.environment[node] = made
    for node in part.nodes:
        target: Any = node.target
        if node.op == "call_module":
            target = str(node.target).replace(".", "_")
            part.targets[target] = _attribute(root, str(node.target))
            if qualname_map is not None:
                qualname_map[f"{part.submod_name}.{target}"] = str(node.target)
        args: tuple[Argument, ...] = map_arg(node.args, part.environment.__getitem__)
        kwargs = map_arg(node.kwargs, part.environment.__getitem__)
        name = node.name if keep_node_name else None
        made = part.graph.create_node(node.op, target, args, kwargs, name, node.type)
        made.meta = dict(node.meta)
        part.environment[node] = made


def _close(part: Partition, tuple_return: bool) -> GraphModule:
    outs = tuple(part.environment[n] for n in part.outputs)
    part.graph.output(outs[0] if len(outs) == 1 and not tuple_return else outs)
    return GraphModule(part.targets, part.graph)
