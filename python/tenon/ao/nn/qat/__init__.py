"""Layers whose weights lie on a grid while they are trained."""

from __future__ import annotations

from typing import Any

from tenon import Tensor, nn
from tenon._submodules import on_demand
from tenon.nn import functional as F

__all__ = ["Conv1d", "Conv2d", "Linear"]


def _with_parameters(made: Any, mod: Any) -> Any:
    made.weight, made.bias = mod.weight, mod.bias
    made.qconfig = mod.qconfig
    made.weight_fake_quant = mod.qconfig.weight()
    return made.train(mod.training)


class Linear(nn.Linear):
    """A Linear that computes with weights on the grid."""

    @classmethod
    def from_float(cls, mod: Any, **options: Any) -> Any:
        made = cls(mod.in_features, mod.out_features, mod.bias is not None)
        return _with_parameters(made, mod)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight_fake_quant(self.weight), self.bias)


class _Conv:
    @classmethod
    def from_float(cls, mod: Any, **options: Any) -> Any:
        made = cls(
            mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding,
            mod.dilation, mod.groups, mod.bias is not None, mod.padding_mode,
        )  # fmt: skip
        return _with_parameters(made, mod)

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight_fake_quant(self.weight)  # type: ignore[attr-defined]
        return self._conv_forward(input, weight, self.bias)  # type: ignore[attr-defined]


class Conv1d(_Conv, nn.Conv1d):
    """The same of a convolution of rows."""


class Conv2d(_Conv, nn.Conv2d):
    """The same of a convolution of images."""


on_demand(globals())
