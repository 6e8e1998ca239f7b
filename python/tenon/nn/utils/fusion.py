"""Layers and the batch norm behind them, as one layer."""

from __future__ import annotations

import copy
from typing import Any

import tenon
from tenon import Tensor
from tenon.nn.parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
]  # fmt: skip


def _factors(var: Tensor, eps: float, weight: Tensor | None) -> Tensor:
    scale = (var + eps).rsqrt()
    return scale if weight is None else weight * scale


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
    bn_w: Tensor | None, bn_b: Tensor | None, transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Weight and bias of a convolution that does what the norm did too."""
    scale = _factors(bn_rv, bn_eps, bn_w)
    shape = [1, -1] if transpose else [-1, 1]
    weight = conv_w * scale.reshape(shape + [1] * (conv_w.dim() - 2)).to(conv_w.dtype)
    bias = ((0 if conv_b is None else conv_b) - bn_rm) * scale
    bias = bias if bn_b is None else bias + bn_b
    trained = conv_w.requires_grad, conv_b is not None and conv_b.requires_grad
    return (
        Parameter(weight.detach(), trained[0]),
        Parameter(bias.detach().to(conv_w.dtype), trained[1]),
    )


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
    bn_w: Tensor | None, bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Weight and bias of a linear layer that does what the norm did too."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(layer: Any, bn: Any, **options: Any) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError(
            f"fusing {type(layer).__name__} and {type(bn).__name__}: the batch norm has no running "
            "statistics"
        )
    new = copy.deepcopy(layer)
    statistics = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    with tenon.no_grad():
        new.weight, new.bias = fuse_conv_bn_weights(
            layer.weight, layer.bias, *statistics, **options
        )
    return new


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what the batch norm behind it did too, in evaluation."""
    return _fused(conv, bn, transpose=transpose)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does what the batch norm behind it did too, in evaluation."""
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1"
        )
    return _fused(linear, bn)
