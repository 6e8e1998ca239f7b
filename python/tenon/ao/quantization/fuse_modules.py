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


# What stays together in training: layer, norm and activation.
IN_TRAINING: dict[tuple[Any, ...], Any] = {
    (nn.Linear, nn.BatchNorm1d): intrinsic.LinearBn1d,
    (nn.Conv1d, nn.BatchNorm1d): intrinsic.ConvBn1d,
    (nn.Conv2d, nn.BatchNorm2d): intrinsic.ConvBn2d,
    (nn.Conv1d, nn.BatchNorm1d, nn.ReLU): intrinsic.ConvBnReLU1d,
    (nn.Conv2d, nn.BatchNorm2d, nn.ReLU): intrinsic.ConvBnReLU2d,
}


def fused(mods: list[Any], qat: bool = False) -> Any:
    """The one module for several that follow each other."""
    layer, rest = mods[0], mods[1:]
    kinds = tuple(type(m) for m in mods)
    if qat and kinds in IN_TRAINING:
        return IN_TRAINING[kinds](*mods).train(layer.training)
    if rest and isinstance(rest[0], _NORMS):
        if layer.training:
            raise NotImplementedError(
                "norms are folded in eval mode: call model.eval() first, or fuse_modules_qat"
            )
        fold = fuse_linear_bn_eval if isinstance(layer, nn.Linear) else fuse_conv_bn_eval
        layer, rest = fold(layer, rest.pop(0)), rest
    if rest and isinstance(rest[0], nn.ReLU) and type(layer) in _WITH_RELU:
        relu = rest.pop(0)
        layer = _WITH_RELU[type(layer)](layer, relu).train(relu.training)
    if rest or layer is mods[0]:
        names = [kind.__name__ for kind in kinds]
        raise AssertionError(f"Cannot fuse modules: {names}")
    return layer


def fuse_modules_qat(
    model: nn.Module, modules_to_fuse: Any, inplace: bool = False, fuser_func: Any = None,
    fuse_custom_config_dict: Any = None,
) -> nn.Module:  # fmt: skip
    """fuse_modules for training: norms stay beside their layers."""
    return _fuse(model, modules_to_fuse, inplace, qat=True)


def fuse_modules(
    model: nn.Module, modules_to_fuse: Any, inplace: bool = False, fuser_func: Any = None,
    fuse_custom_config_dict: Any = None,
) -> nn.Module:  # fmt: skip
    """Each list of names becomes one module in the place of the first; the others do nothing."""
    return _fuse(model, modules_to_fuse, inplace, qat=False)


def _fuse(model: nn.Module, modules_to_fuse: Any, inplace: bool, qat: bool) -> nn.Module:
    model = model if inplace else copy.deepcopy(model)
    lists = modules_to_fuse
    lists = [lists] if lists and isinstance(lists[0], str) else lists
    for names in lists:
        mods = [model.get_submodule(name) for name in names]
        hooks = mods[0]._forward_pre_hooks, mods[-1]._forward_hooks
        new = [fused(mods, qat), *(nn.Identity() for _ in mods[1:])]
        if any(hooks):
            raise NotImplementedError(
                f"fuse_modules: {', '.join(names)}: modules with hooks are not fused"
            )
        for name, mod in zip(names, new, strict=True):
            model.set_submodule(name, mod.train(mods[0].training))
    return model
