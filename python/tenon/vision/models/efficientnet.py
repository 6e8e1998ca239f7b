"""EfficientNet, both generations: blocks whose number, width and picture grow together."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.vision.models._weights import initialize, load_into, register
from tenon.vision.models.mobilenetv2 import _make_divisible
from tenon.vision.ops.misc import Conv2dNormActivation, SqueezeExcitation
from tenon.vision.ops.stochastic_depth import StochasticDepth

# How much wider inside, kernel, stride, channels before and after, blocks.
_FIRST = [
    (1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3), (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1),
]  # fmt: skip
# The second generation: blocks that are fused, and others.
_SECOND = {
    "s": ([(1, 3, 1, 24, 24, 2), (4, 3, 2, 24, 48, 4), (4, 3, 2, 48, 64, 4)],
          [(4, 3, 2, 64, 128, 6), (6, 3, 1, 128, 160, 9), (6, 3, 2, 160, 256, 15)]),
    "m": ([(1, 3, 1, 24, 24, 3), (4, 3, 2, 24, 48, 5), (4, 3, 2, 48, 80, 5)],
          [(4, 3, 2, 80, 160, 7), (6, 3, 1, 160, 176, 14), (6, 3, 2, 176, 304, 18),
           (6, 3, 1, 304, 512, 5)]),
    "l": ([(1, 3, 1, 32, 32, 4), (4, 3, 2, 32, 64, 7), (4, 3, 2, 64, 96, 7)],
          [(4, 3, 2, 96, 192, 10), (6, 3, 1, 192, 224, 19), (6, 3, 2, 224, 384, 25),
           (6, 3, 1, 384, 640, 7)]),
}  # fmt: skip
# Width, depth, dropout.
_GROWTH = [
    (1.0, 1.0, 0.2), (1.0, 1.1, 0.2), (1.1, 1.2, 0.3), (1.2, 1.4, 0.3), (1.4, 1.8, 0.4),
    (1.6, 2.2, 0.4), (1.8, 2.6, 0.5), (2.0, 3.1, 0.5),
]  # fmt: skip


@dataclass
class _MBConvConfig:
    """What a stage is like."""

    expand_ratio: float
    kernel: int
    stride: int
    input_channels: int
    out_channels: int
    num_layers: int
    block: Callable[..., nn.Module]

    @staticmethod
    def adjust_channels(channels: int, width_mult: float, min_value: int | None = None) -> int:
        """A number of channels times the width, a multiple of eight."""
        return _make_divisible(channels * width_mult, 8, min_value)


class MBConvConfig(_MBConvConfig):
    """A stage of MBConv, of a width and a depth."""

    def __init__(
        self, expand_ratio: float, kernel: int, stride: int, input_channels: int,
        out_channels: int, num_layers: int, width_mult: float = 1.0, depth_mult: float = 1.0,
        block: Callable[..., nn.Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            expand_ratio, kernel, stride, self.adjust_channels(input_channels, width_mult),
            self.adjust_channels(out_channels, width_mult),
            self.adjust_depth(num_layers, depth_mult), block or MBConv,
        )  # fmt: skip

    @staticmethod
    def adjust_depth(num_layers: int, depth_mult: float) -> int:
        """A number of blocks times the depth."""
        return math.ceil(num_layers * depth_mult)


class FusedMBConvConfig(_MBConvConfig):
    """A stage of FusedMBConv."""

    def __init__(
        self, expand_ratio: float, kernel: int, stride: int, input_channels: int,
        out_channels: int, num_layers: int, block: Callable[..., nn.Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            expand_ratio, kernel, stride, input_channels, out_channels, num_layers,
            block or FusedMBConv,
        )  # fmt: skip


class _Block(nn.Module):
    """Layers with a shortcut, where the sizes agree, that is left out now and then."""

    def __init__(self, cnf: _MBConvConfig, p: float, layers: list[nn.Module]) -> None:
        super().__init__()
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(p, "row")
        self.out_channels = cnf.out_channels

    def forward(self, input: Tensor) -> Tensor:
        result = self.block(input)
        return self.stochastic_depth(result) + input if self.use_res_connect else result


def _check(cnf: _MBConvConfig) -> int:
    """The channels inside of a block."""
    if cnf.stride not in (1, 2):
        raise ValueError("illegal stride value")
    return cnf.adjust_channels(cnf.input_channels, cnf.expand_ratio)


class MBConv(_Block):
    """Wider inside than outside, one filter for each channel, squeezed."""

    def __init__(
        self, cnf: MBConvConfig, stochastic_depth_prob: float, norm_layer: Callable[..., nn.Module],
        se_layer: Callable[..., nn.Module] = SqueezeExcitation,
    ) -> None:  # fmt: skip
        inside, narrow = _check(cnf), cnf.input_channels
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        first = [layer(narrow, inside, kernel_size=1)] if inside != narrow else []
        super().__init__(cnf, stochastic_depth_prob, [
            *first, layer(inside, inside, cnf.kernel, cnf.stride, groups=inside),
            se_layer(inside, max(1, narrow // 4), activation=partial(nn.SiLU, inplace=True)),
            layer(inside, cnf.out_channels, kernel_size=1, activation_layer=None),
        ])  # fmt: skip


class FusedMBConv(_Block):
    """The same with one convolution for the first two."""

    def __init__(
        self, cnf: FusedMBConvConfig, stochastic_depth_prob: float,
        norm_layer: Callable[..., nn.Module],
    ) -> None:  # fmt: skip
        inside, narrow = _check(cnf), cnf.input_channels
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        if inside == narrow:
            layers = [layer(narrow, cnf.out_channels, cnf.kernel, cnf.stride)]
        else:
            layers = [
                layer(narrow, inside, cnf.kernel, cnf.stride),
                layer(inside, cnf.out_channels, kernel_size=1, activation_layer=None),
            ]
        super().__init__(cnf, stochastic_depth_prob, layers)


def _by_outputs(weight: Tensor) -> None:
    limit = 1.0 / math.sqrt(weight.shape[0])
    nn.init.uniform_(weight, -limit, limit)


class EfficientNet(nn.Module):
    """Stages of blocks, and a linear layer."""

    def __init__(
        self,
        inverted_residual_setting: Sequence[_MBConvConfig],
        dropout: float,
        stochastic_depth_prob: float = 0.2,
        num_classes: int = 1000,
        norm_layer: Callable[..., nn.Module] | None = None,
        last_channel: int | None = None,
    ) -> None:
        super().__init__()
        if not inverted_residual_setting:
            raise ValueError("The inverted_residual_setting should not be empty")
        if not all(isinstance(s, _MBConvConfig) for s in inverted_residual_setting):
            raise TypeError("The inverted_residual_setting should be List[MBConvConfig]")
        norm = norm_layer or nn.BatchNorm2d
        layer = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        first = inverted_residual_setting[0].input_channels
        layers: list[nn.Module] = [layer(3, first, kernel_size=3, stride=2)]
        total, count = sum(cnf.num_layers for cnf in inverted_residual_setting), 0
        for cnf in inverted_residual_setting:
            stage: list[nn.Module] = []
            for _ in range(cnf.num_layers):
                own = copy.copy(cnf)
                if stage:
                    own.input_channels, own.stride = own.out_channels, 1
                stage.append(own.block(own, stochastic_depth_prob * count / total, norm))
                count += 1
            layers.append(nn.Sequential(*stage))
        last = inverted_residual_setting[-1].out_channels
        wide = 4 * last if last_channel is None else last_channel
        self.features = nn.Sequential(*layers, layer(last, wide, kernel_size=1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout, inplace=True), nn.Linear(wide, num_classes)
        )
        initialize(self, _by_outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(tenon.flatten(self.avgpool(self.features(x)), 1))


def _builder(name: str, plan: Any, dropout: float, last: int | None, norm: Any) -> Any:
    def build(
        *, weights: Any = None, progress: bool = True, pretrained: Any = None, **kwargs: Any
    ) -> EfficientNet:
        del progress
        given = kwargs.pop("dropout", dropout)
        options = {"last_channel": last, **({"norm_layer": norm} if norm else {}), **kwargs}
        return load_into(EfficientNet(plan(), given, **options), name, weights, pretrained)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"EfficientNet {name.removeprefix('efficientnet_')}."
    return register(build)


def _first(width: float, depth: float) -> list[_MBConvConfig]:
    return [MBConvConfig(*row, width_mult=width, depth_mult=depth) for row in _FIRST]


def _second(fused: list[Any], others: list[Any]) -> list[_MBConvConfig]:
    return [*(FusedMBConvConfig(*row) for row in fused), *(MBConvConfig(*row) for row in others)]


_made = {
    f"efficientnet_b{i}": _builder(
        f"efficientnet_b{i}", partial(_first, width, depth), dropout, None,
        partial(nn.BatchNorm2d, eps=0.001, momentum=0.01) if i > 4 else None,
    )
    for i, (width, depth, dropout) in enumerate(_GROWTH)
} | {
    f"efficientnet_v2_{kind}": _builder(
        f"efficientnet_v2_{kind}", partial(_second, *plan), dropout, 1280,
        partial(nn.BatchNorm2d, eps=1e-03),
    )
    for (kind, plan), dropout in zip(_SECOND.items(), (0.2, 0.3, 0.4), strict=True)
}  # fmt: skip
globals().update(_made)
__all__ = ["EfficientNet", *_made]
