"""Sizes of nodes, and other targets for them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node, Target
from tenon.fx.passes.shape_prop import ShapeProp, TensorMetadata

__all__ = [
    "get_size_of_all_nodes", "get_size_of_node", "get_tensor_meta", "replace_target_nodes_with",
    "size_bytes",
]  # fmt: skip


def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Target, new_op: str, new_target: Target
) -> None:
    """Makes other calls of those of a target, with the same arguments."""
    for node in fx_module.graph.find_nodes(op=old_op, target=old_target):
        node.op, node.target = new_op, new_target
    fx_module.recompile()


class size_bytes(NamedTuple):  # noqa: N801 - PyTorch's name
    """Bytes of a node's result, and with the parameters of the module that it calls."""

    output_size: int
    total_size: int


def get_size_of_all_nodes(fx_module: GraphModule, args: list[Any] | None = None) -> None:
    """Sets `size_bytes` of every node; with `args` shapes are found first."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op != "output":
            node.size_bytes = get_size_of_node(fx_module, node)


def get_tensor_meta(node: Node) -> TensorMetadata:
    """What ShapeProp has noted."""
    known = node.meta.get("tensor_meta")
    if not known:
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation "
            "has run."
        )
    return known


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """Bytes of one node, whose shape is known."""
    known = get_tensor_meta(node)
    size, held = math.prod(known.shape), 0
    if node.op == "call_module":
        module = fx_module.get_submodule(str(node.target))
        held = sum(p.numel() for p in module.parameters())
    return size_bytes(size * known.dtype.itemsize, (size + held) * known.dtype.itemsize)
