"""fuse: layers and the batch norms behind them, as one layer each."""

from __future__ import annotations

import copy
from typing import Any

from tenon import fx, nn
from tenon.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = ["fuse", "remove_dropout", "replace_node_module"]

_PAIRS = (
    (nn.Conv1d, nn.BatchNorm1d, fuse_conv_bn_eval),
    (nn.Conv2d, nn.BatchNorm2d, fuse_conv_bn_eval),
    (nn.Conv3d, nn.BatchNorm3d, fuse_conv_bn_eval),
    (nn.Linear, nn.BatchNorm1d, fuse_linear_bn_eval),
)


def replace_node_module(node: fx.Node, modules: dict[str, Any], new_module: nn.Module) -> None:
    """Puts a module where a node's was, in `modules` and in the one that holds it."""
    *path, name = str(node.target).split(".")
    modules[str(node.target)] = new_module
    setattr(modules[".".join(path)], name, new_module)


def _fusion(node: fx.Node, modules: dict[str, Any]) -> Any:
    """How a norm and what stands before it become one, None: they do not."""
    before = node.args[0] if node.args else None
    if node.op != "call_module" or not isinstance(before, fx.Node) or before.op != "call_module":
        return None
    layer, norm = modules[str(before.target)], modules[str(node.target)]
    if len(before.users) > 1 or not getattr(norm, "track_running_stats", False):
        return None
    return next((f for a, b, f in _PAIRS if type(layer) is a and type(norm) is b), None)


def fuse(model: nn.Module, inplace: bool = False, no_trace: bool = False) -> fx.GraphModule:
    """The model in evaluation, with batch norms taken into the layers before them."""
    model = model if inplace else copy.deepcopy(model)
    traced: Any = model if no_trace else fx.symbolic_trace(model)
    modules = dict(traced.named_modules())
    graph = copy.deepcopy(traced.graph)
    for node in graph.nodes:
        how = _fusion(node, modules)
        if how is None:
            continue
        before = node.args[0]
        fused = how(modules[before.target], modules[node.target])
        replace_node_module(before, modules, fused)
        node.replace_all_uses_with(before)
        graph.erase_node(node)
    return fx.GraphModule(traced, graph)


def remove_dropout(model: nn.Module) -> nn.Module:
    """The model without its dropout layers."""

    class WithoutDropout(fx.Transformer):
        def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if isinstance(self.submodules[target], nn.Dropout):
                return args[0]
            return super().call_module(target, args, kwargs)

    return WithoutDropout(fx.symbolic_trace(model)).transform()
