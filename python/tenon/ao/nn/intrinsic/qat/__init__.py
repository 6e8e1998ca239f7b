"""Joined layers whose weights lie on a grid while they are trained. With a norm, it is the product
of the weight and the norm's running scale that lies there: what is left when the norm is folded."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.ao.nn import qat
from tenon.nn import functional as F
from tenon.nn import init
from tenon.nn.utils.fusion import fuse_conv_bn_weights

__all__ = ["ConvBn1d", "ConvBn2d", "ConvBnReLU1d", "ConvBnReLU2d", "ConvReLU1d", "ConvReLU2d",
           "LinearReLU", "freeze_bn_stats", "update_bn_stats"]  # fmt: skip


class _WithRelu:
    """A layer's results above zero."""

    relu = True

    @classmethod
    def from_float(cls, mod: Any, **options: Any) -> Any:
        layer = mod[0]
        layer.qconfig = mod.qconfig
        return super().from_float(layer)  # type: ignore[misc]

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(super().forward(input))  # type: ignore[misc]


class LinearReLU(_WithRelu, qat.Linear):
    """relu(linear)."""


class ConvReLU1d(_WithRelu, qat.Conv1d):
    """relu(conv1d)."""


class ConvReLU2d(_WithRelu, qat.Conv2d):
    """relu(conv2d)."""


class _WithNorm:
    """A convolution and its norm; the norm's statistics may be frozen."""

    relu = False
    _norm: Any = None
    _conv: Any = None

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: Any = None,
        padding_mode: str = "zeros", eps: float = 1e-05, momentum: float = 0.1,
        freeze_bn: bool = False, qconfig: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(  # type: ignore[call-arg]
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, False,
            padding_mode,
        )  # fmt: skip
        if not qconfig:
            raise AssertionError("qconfig must be provided for QAT module")
        self.qconfig, self.freeze_bn = qconfig, False
        self.bn = self._norm(out_channels, eps, momentum)
        self.weight_fake_quant = qconfig.weight()
        init.uniform_(self.bn.weight)
        if bias:
            bound = self.weight[0].numel() ** -0.5
            self.bias = nn.Parameter(tenon.empty(out_channels).uniform_(-bound, bound))
        if freeze_bn:
            self.freeze_bn_stats()

    @classmethod
    def from_float(cls, mod: Any, **options: Any) -> Any:
        conv, norm = mod[0], mod[1]
        made = cls(
            conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding,
            conv.dilation, conv.groups, conv.bias is not None, conv.padding_mode, norm.eps,
            norm.momentum, False, mod.qconfig,
        )  # fmt: skip
        made.weight, made.bias = conv.weight, conv.bias
        made.bn.load_state_dict(norm.state_dict())
        made.bn.weight, made.bn.bias = norm.weight, norm.bias
        return made

    def freeze_bn_stats(self) -> Any:
        self.freeze_bn, self.bn.training = True, False
        return self

    def update_bn_stats(self) -> Any:
        self.freeze_bn, self.bn.training = False, True
        return self

    def train(self, mode: bool = True) -> Any:
        """A norm that is frozen stays so."""
        self.training = mode
        for child in () if self.freeze_bn else self.children():  # type: ignore[attr-defined]
            child.train(mode)
        return self

    def forward(self, input: Tensor) -> Tensor:
        scale = self.bn.weight / tenon.sqrt(self.bn.running_var + self.bn.eps)
        rank = self.weight.dim()
        rows, columns = [-1] + [1] * (rank - 1), [1, -1] + [1] * (rank - 2)
        weight = self.weight_fake_quant(self.weight * scale.reshape(rows))
        y = self._conv_forward(input, weight, None)  # type: ignore[attr-defined]
        y = y / scale.reshape(columns)
        if self.bias is not None:
            y = y + self.bias.reshape(columns)
        y = self.bn(y)
        return F.relu(y) if self.relu else y

    def folded(self) -> Any:
        """The convolution that does what both do with the running statistics."""
        made = self._conv(
            self.in_channels, self.out_channels, self.kernel_size, self.stride, self.padding,
            self.dilation, self.groups, True, self.padding_mode, device="meta",
        )  # fmt: skip
        norm = self.bn
        made.weight, made.bias = fuse_conv_bn_weights(
            self.weight, self.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight,
            norm.bias,
        )  # fmt: skip
        return made


class ConvBn1d(_WithNorm, nn.Conv1d):
    """norm(conv1d)."""

    _norm, _conv = nn.BatchNorm1d, nn.Conv1d


class ConvBn2d(_WithNorm, nn.Conv2d):
    """norm(conv2d)."""

    _norm, _conv = nn.BatchNorm2d, nn.Conv2d


class ConvBnReLU1d(ConvBn1d):
    """relu(norm(conv1d))."""

    relu = True


class ConvBnReLU2d(ConvBn2d):
    """relu(norm(conv2d))."""

    relu = True


def freeze_bn_stats(mod: nn.Module) -> None:
    """For `model.apply`: norms that are joined to convolutions learn no more statistics."""
    if isinstance(mod, _WithNorm):
        mod.freeze_bn_stats()


def update_bn_stats(mod: nn.Module) -> None:
    """The opposite."""
    if isinstance(mod, _WithNorm):
        mod.update_bn_stats()
