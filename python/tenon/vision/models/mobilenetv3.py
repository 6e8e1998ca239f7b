"""Networks for phones: MobileNet, the third."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.vision.models._weights import initialize, load_into, register
from tenon.vision.models.mobilenetv2 import _make_divisible
from tenon.vision.ops.misc import Conv2dNormActivation, SqueezeExcitation

__all__ = ["MobileNetV3", "mobilenet_v3_large", "mobilenet_v3_small"]

# Kernel, channels inside and outside, squeezed, activation, stride. A stride of -2 is where a
# dilated network widens its kernels instead; channels from there on are halved for a short tail.
_LARGE = [
    (3, 16, 16, 0, "RE", 1), (3, 64, 24, 0, "RE", 2), (3, 72, 24, 0, "RE", 1),
    (5, 72, 40, 1, "RE", 2), (5, 120, 40, 1, "RE", 1), (5, 120, 40, 1, "RE", 1),
    (3, 240, 80, 0, "HS", 2), (3, 200, 80, 0, "HS", 1), (3, 184, 80, 0, "HS", 1),
    (3, 184, 80, 0, "HS", 1), (3, 480, 112, 1, "HS", 1), (3, 672, 112, 1, "HS", 1),
    (5, 672, 160, 1, "HS", -2), (5, 960, 160, 1, "HS", 1), (5, 960, 160, 1, "HS", 1),
]  # fmt: skip
_SMALL = [
    (3, 16, 16, 1, "RE", 2), (3, 72, 24, 0, "RE", 2), (3, 88, 24, 0, "RE", 1),
    (5, 96, 40, 1, "HS", 2), (5, 240, 40, 1, "HS", 1), (5, 240, 40, 1, "HS", 1),
    (5, 120, 48, 1, "HS", 1), (5, 144, 48, 1, "HS", 1), (5, 288, 96, 1, "HS", -2),
    (5, 576, 96, 1, "HS", 1), (5, 576, 96, 1, "HS", 1),
]  # fmt: skip


_SQUEEZED = partial(SqueezeExcitation, scale_activation=nn.Hardsigmoid)


class InvertedResidualConfig:
    """What a block is like."""

    def __init__(
        self, input_channels: int, kernel: int, expanded_channels: int, out_channels: int,
        use_se: bool, activation: str, stride: int, dilation: int, width_mult: float,
    ) -> None:  # fmt: skip
        self.input_channels = self.adjust_channels(input_channels, width_mult)
        self.kernel, self.use_se, self.use_hs = kernel, use_se, activation == "HS"
        self.expanded_channels = self.adjust_channels(expanded_channels, width_mult)
        self.out_channels = self.adjust_channels(out_channels, width_mult)
        self.stride, self.dilation = stride, dilation

    @staticmethod
    def adjust_channels(channels: int, width_mult: float) -> int:
        """A number of channels times the width, a multiple of eight."""
        return _make_divisible(channels * width_mult, 8)


class InvertedResidual(nn.Module):
    """Wider inside than outside, squeezed where the plan says so."""

    def __init__(
        self,
        cnf: InvertedResidualConfig,
        norm_layer: Callable[..., nn.Module],
        se_layer: Callable[..., nn.Module] = _SQUEEZED,
    ) -> None:
        super().__init__()
        if cnf.stride not in (1, 2):
            raise ValueError("illegal stride value")
        inside, narrow = cnf.expanded_channels, cnf.input_channels
        self.use_res_connect = cnf.stride == 1 and narrow == cnf.out_channels
        acts: Any = nn.Hardswish if cnf.use_hs else nn.ReLU
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=acts)
        layers: list[nn.Module] = []
        if inside != narrow:
            layers.append(layer(narrow, inside, kernel_size=1))
        stride = 1 if cnf.dilation > 1 else cnf.stride
        layers.append(
            layer(inside, inside, cnf.kernel, stride, groups=inside, dilation=cnf.dilation)
        )
        if cnf.use_se:
            layers.append(se_layer(inside, _make_divisible(inside // 4, 8)))
        layers.append(layer(inside, cnf.out_channels, kernel_size=1, activation_layer=None))
        self.block = nn.Sequential(*layers)
        self.out_channels = cnf.out_channels
        self._is_cn = cnf.stride > 1

    def forward(self, input: Tensor) -> Tensor:
        result = self.block(input)
        return result + input if self.use_res_connect else result


class MobileNetV3(nn.Module):
    """Inverted residuals and two linear layers."""

    def __init__(
        self,
        inverted_residual_setting: Sequence[InvertedResidualConfig],
        last_channel: int,
        num_classes: int = 1000,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
        dropout: float = 0.2,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if not inverted_residual_setting:
            raise ValueError("The inverted_residual_setting should not be empty")
        if not all(isinstance(s, InvertedResidualConfig) for s in inverted_residual_setting):
            raise TypeError("The inverted_residual_setting should be List[InvertedResidualConfig]")
        block = block or InvertedResidual
        norm = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        layer = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.Hardswish)
        last = inverted_residual_setting[-1].out_channels
        self.features = nn.Sequential(
            layer(3, inverted_residual_setting[0].input_channels, kernel_size=3, stride=2),
            *(block(cnf, norm) for cnf in inverted_residual_setting),
            layer(last, 6 * last, kernel_size=1),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * last, last_channel), nn.Hardswish(inplace=True),
            nn.Dropout(p=dropout, inplace=True), nn.Linear(last_channel, num_classes),
        )  # fmt: skip
        initialize(self, lambda weight: nn.init.normal_(weight, 0, 0.01))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(tenon.flatten(self.avgpool(self.features(x)), 1))


def _plan(
    rows: list[Any], last: int, width_mult: float, reduced_tail: bool, dilated: bool
) -> tuple[list[InvertedResidualConfig], int]:
    """The blocks of a table, and the channels of the last layer."""
    tail, before, found = False, 16, []
    short = 2 if reduced_tail else 1
    for kernel, inside, outside, squeezed, kind, stride in rows:
        narrow = inside if not tail else inside // short
        tail = tail or stride < 0
        wide = 2 if dilated and tail else 1
        after = outside // short if tail else outside
        found.append(
            InvertedResidualConfig(
                before, kernel, narrow, after, bool(squeezed), kind, abs(stride), wide, width_mult
            )
        )
        before = after
    return found, InvertedResidualConfig.adjust_channels(last // short, width_mult)


def _builder(name: str, rows: list[Any], last: int) -> Any:
    def build(
        *, weights: Any = None, progress: bool = True, pretrained: Any = None,
        width_mult: float = 1.0, reduced_tail: bool = False, dilated: bool = False, **kwargs: Any,
    ) -> MobileNetV3:  # fmt: skip
        del progress
        plan = _plan(rows, last, width_mult, reduced_tail, dilated)
        return load_into(MobileNetV3(*plan, **kwargs), name, weights, pretrained)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"MobileNet, the third: {name.rpartition('_')[2]}."
    return register(build)


mobilenet_v3_large = _builder("mobilenet_v3_large", _LARGE, 1280)
mobilenet_v3_small = _builder("mobilenet_v3_small", _SMALL, 1024)
