"""Layers and the norms and activations behind them, as one module."""

from __future__ import annotations

import copy
from typing import Any

from tenon import nn
from tenon.ao.nn import intrinsic
from tenon.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_WITH_RELU = {
    nn.Linear: intrinsic.LinearReLU,
    nn.Conv1d: intrinsic.ConvReLU1d,
    nn.Conv2d: intrinsic.ConvReLU2d,
}


def _fused(mods: list[Any]) -> Any:
    layer, rest = mods[0], mods[1:]
    if rest and isinstance(rest[0], _NORMS):
        if layer.training:
            raise NotImplementedError("norms are folded in eval mode: call model.eval() first")
        fold = fuse_linear_bn_eval if isinstance(layer, nn.Linear) else fuse_conv_bn_eval
        layer, rest = fold(layer, rest.pop(0)), rest
    if rest and isinstance(rest[0], nn.ReLU) and type(layer) in _WITH_RELU:
        relu = rest.pop(0)
        layer = _WITH_RELU[type(layer)](layer, relu).train(relu.training)
    if rest or layer is mods[0]:
        kinds = [type(m).__name__ for m in mods]
        raise NotImplementedError(f"Cannot fuse modules: {kinds}")
    return layer


def fuse_modules(
    model: nn.Module, modules_to_fuse: Any, inplace: bool = False, fuser_func: Any = None,
    fuse_custom_config_dict: Any = None,
) -> nn.Module:  # fmt: skip
    """Each list of names becomes one module in the place of the first; the others do nothing."""
    model = model if inplace else copy.deepcopy(model)
    lists = modules_to_fuse
    lists = [lists] if lists and isinstance(lists[0], str) else lists
    for names in lists:
        mods = [model.get_submodule(name) for name in names]
        hooks = mods[0]._forward_pre_hooks, mods[-1]._forward_hooks
        new = [_fused(mods), *(nn.Identity() for _ in mods[1:])]
        if any(hooks):
            raise NotImplementedError("modules with hooks are not fused")
        for name, mod in zip(names, new, strict=True):
            model.set_submodule(name, mod.train(mods[0].training))
    return model
