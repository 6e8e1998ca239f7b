"""Networks for phones: MobileNet, the second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.vision.models._weights import initialize, load_into, register
from tenon.vision.ops.misc import Conv2dNormActivation

__all__ = ["MobileNetV2", "mobilenet_v2"]

# How much wider inside, channels, blocks, stride of the first.
_PLAN = [
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
]  # fmt: skip


def _make_divisible(v: float, divisor: int, min_value: int | None = None) -> int:
    """The multiple of divisor that is nearest to v, never less than nine tenths of it."""
    result = max(min_value or divisor, int(v + divisor / 2) // divisor * divisor)
    return result + divisor if result < 0.9 * v else result


class InvertedResidual(nn.Module):
    """Wider inside than outside, with a shortcut where the sizes agree."""

    def __init__(
        self,
        inp: int,
        oup: int,
        stride: int,
        expand_ratio: int,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        if stride not in (1, 2):
            raise ValueError(f"stride should be 1 or 2 instead of {stride}")
        norm = norm_layer or nn.BatchNorm2d
        hidden = round(inp * expand_ratio)
        self.stride = stride
        self.use_res_connect = stride == 1 and inp == oup
        options = {"norm_layer": norm, "activation_layer": nn.ReLU6}
        layers: list[nn.Module] = []
        if expand_ratio != 1:
            layers.append(Conv2dNormActivation(inp, hidden, kernel_size=1, **options))
        layers += [
            Conv2dNormActivation(hidden, hidden, stride=stride, groups=hidden, **options),
            nn.Conv2d(hidden, oup, 1, 1, 0, bias=False),
            norm(oup),
        ]
        self.conv = nn.Sequential(*layers)
        self.out_channels = oup

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """Inverted residuals and a linear layer."""

    def __init__(
        self,
        num_classes: int = 1000,
        width_mult: float = 1.0,
        inverted_residual_setting: list[Any] | None = None,
        round_nearest: int = 8,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        block, norm = block or InvertedResidual, norm_layer or nn.BatchNorm2d
        size = _make_divisible(32 * width_mult, round_nearest)
        self.last_channel = _make_divisible(1280 * max(1.0, width_mult), round_nearest)
        options = {"norm_layer": norm, "activation_layer": nn.ReLU6}
        layers: list[nn.Module] = [Conv2dNormActivation(3, size, stride=2, **options)]
        for t, c, n, s in inverted_residual_setting or _PLAN:
            width = _make_divisible(c * width_mult, round_nearest)
            for i in range(n):
                layers.append(block(size, width, s if i == 0 else 1, t, norm_layer=norm))
                size = width
        layers.append(Conv2dNormActivation(size, self.last_channel, kernel_size=1, **options))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout), nn.Linear(self.last_channel, num_classes)
        )
        initialize(self, lambda weight: nn.init.normal_(weight, 0, 0.01))

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(tenon.flatten(x, 1))


@register
def mobilenet_v2(
    *, weights: Any = None, progress: bool = True, pretrained: Any = None, **kwargs: Any
) -> MobileNetV2:
    """MobileNet, the second."""
    del progress
    return load_into(MobileNetV2(**kwargs), "mobilenet_v2", weights, pretrained)
