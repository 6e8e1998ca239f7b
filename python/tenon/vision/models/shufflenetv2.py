"""Small networks whose channels are shuffled: ShuffleNet, the second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.vision.models._weights import load_into, register

_WIDTHS = {
    "x0_5": (24, 48, 96, 192, 1024), "x1_0": (24, 116, 232, 464, 1024),
    "x1_5": (24, 176, 352, 704, 1024), "x2_0": (24, 244, 488, 976, 2048),
}  # fmt: skip


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """The channels of the groups in turn."""
    batch, channels, height, width = x.shape
    grouped = x.view(batch, groups, channels // groups, height, width)
    return grouped.transpose(1, 2).contiguous().view(batch, channels, height, width)


def _conv(before: int, after: int, kernel: int, stride: int = 1, each: bool = False) -> nn.Conv2d:
    """A convolution without a bias; each: one filter for each channel."""
    groups = before if each else 1
    return nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)


class InvertedResidual(nn.Module):
    """Two branches, one of which is the input where the size stays."""

    def __init__(self, inp: int, oup: int, stride: int) -> None:
        super().__init__()
        if stride not in (1, 2, 3):
            raise ValueError("illegal stride value")
        self.stride, half = stride, oup // 2
        if stride == 1 and inp != half * 2:
            raise ValueError(
                f"Invalid combination of stride {stride}, inp {inp} and oup {oup} values. If "
                "stride == 1 then inp should be equal to oup // 2 << 1."
            )
        self.branch1 = nn.Sequential()
        if stride > 1:
            self.branch1 = nn.Sequential(
                _conv(inp, inp, 3, stride, each=True), nn.BatchNorm2d(inp), _conv(inp, half, 1),
                nn.BatchNorm2d(half), nn.ReLU(inplace=True),
            )  # fmt: skip
        self.branch2 = nn.Sequential(
            _conv(inp if stride > 1 else half, half, 1), nn.BatchNorm2d(half),
            nn.ReLU(inplace=True), _conv(half, half, 3, stride, each=True), nn.BatchNorm2d(half),
            _conv(half, half, 1), nn.BatchNorm2d(half), nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, dim=1) if self.stride == 1 else (self.branch1(x), x)
        return channel_shuffle(tenon.cat((kept, self.branch2(changed)), dim=1), 2)


class ShuffleNetV2(nn.Module):
    """Three stages, and a linear layer."""

    def __init__(
        self,
        stages_repeats: Sequence[int],
        stages_out_channels: Sequence[int],
        num_classes: int = 1000,
        inverted_residual: Callable[..., nn.Module] = InvertedResidual,
    ) -> None:
        super().__init__()
        if len(stages_repeats) != 3:
            raise ValueError("expected stages_repeats as list of 3 positive ints")
        if len(stages_out_channels) != 5:
            raise ValueError("expected stages_out_channels as list of 5 positive ints")
        self._stage_out_channels = stages_out_channels
        first, *middle, last = stages_out_channels
        self.conv1 = nn.Sequential(
            _conv(3, first, 3, 2), nn.BatchNorm2d(first), nn.ReLU(inplace=True)
        )
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        for i, (repeats, width) in enumerate(zip(stages_repeats, middle, strict=True)):
            blocks = [inverted_residual(first, width, 2)]
            blocks += [inverted_residual(width, width, 1) for _ in range(repeats - 1)]
            setattr(self, f"stage{i + 2}", nn.Sequential(*blocks))
            first = width
        self.conv5 = nn.Sequential(
            _conv(first, last, 1), nn.BatchNorm2d(last), nn.ReLU(inplace=True)
        )
        self.fc = nn.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.conv1(x))
        x = self.conv5(self.stage4(self.stage3(self.stage2(x))))
        return self.fc(x.mean([2, 3]))


def _builder(size: str) -> Any:
    name = f"shufflenet_v2_{size}"

    def build(
        *, weights: Any = None, progress: bool = True, pretrained: Any = None, **kwargs: Any
    ) -> ShuffleNetV2:
        del progress
        model = ShuffleNetV2([4, 8, 4], list(_WIDTHS[size]), **kwargs)
        return load_into(model, f"shufflenetv2_{size}", weights, pretrained)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"ShuffleNet, the second, {size[1:].replace('_', '.')} times as wide."
    return register(build)


_made = {f"shufflenet_v2_{size}": _builder(size) for size in _WIDTHS}
globals().update(_made)
__all__ = ["ShuffleNetV2", *_made]
