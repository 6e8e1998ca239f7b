"""Layers whose weights lie on a grid while they are trained."""

from __future__ import annotations

from typing import Any

from tenon import Tensor, nn
from tenon.nn import functional as F

__all__ = ["Conv2d", "Linear"]


def _with_parameters(made: Any, mod: Any) -> Any:
    made.weight, made.bias = mod.weight, mod.bias
    made.qconfig = mod.qconfig
    made.weight_fake_quant = mod.qconfig.weight()
    return made.train(mod.training)


class Linear(nn.Linear):
    """A Linear that computes with weights on the grid."""

    @classmethod
    def from_float(cls, mod: Any) -> Linear:
        return _with_parameters(cls(mod.in_features, mod.out_features, device="meta"), mod)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight_fake_quant(self.weight), self.bias)


class Conv2d(nn.Conv2d):
    """The same of a convolution."""

    @classmethod
    def from_float(cls, mod: Any) -> Conv2d:
        made = cls(
            mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding,
            mod.dilation, mod.groups, padding_mode=mod.padding_mode, device="meta",
        )  # fmt: skip
        return _with_parameters(made, mod)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)
