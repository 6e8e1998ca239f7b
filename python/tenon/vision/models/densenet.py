"""Networks whose layers see all layers before them: DenseNet."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.nn import functional as F
from tenon.vision.models._weights import load_into, register

__all__ = ["DenseNet", "densenet121", "densenet161", "densenet169", "densenet201"]


class _DenseLayer(nn.Module):
    """New features out of all features so far."""

    def __init__(self, size: int, growth_rate: int, bn_size: int, drop_rate: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(size)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(size, bn_size * growth_rate, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(bn_size * growth_rate)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(bn_size * growth_rate, growth_rate, 3, padding=1, bias=False)
        self.drop_rate = float(drop_rate)

    def forward(self, input: Any) -> Tensor:
        features = [input] if isinstance(input, Tensor) else input
        inner = self.conv1(self.relu1(self.norm1(tenon.cat(features, 1))))
        new = self.conv2(self.relu2(self.norm2(inner)))
        return F.dropout(new, self.drop_rate, self.training) if self.drop_rate > 0 else new


class _DenseBlock(nn.ModuleDict):
    """Several such layers."""

    def __init__(
        self, count: int, size: int, bn_size: int, growth_rate: int, drop_rate: float
    ) -> None:
        super().__init__()
        for i in range(count):
            layer = _DenseLayer(size + i * growth_rate, growth_rate, bn_size, drop_rate)
            self.add_module(f"denselayer{i + 1}", layer)

    def forward(self, first: Tensor) -> Tensor:
        features = [first]
        for layer in self.values():
            features.append(layer(features))
        return tenon.cat(features, 1)


class _Transition(nn.Sequential):
    """Fewer channels, half the size."""

    def __init__(self, size: int, new: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(size)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(size, new, 1, bias=False)
        self.pool = nn.AvgPool2d(2, 2)


class DenseNet(nn.Module):
    """Dense blocks with transitions between them."""

    def __init__(
        self,
        growth_rate: int = 32,
        block_config: tuple[int, ...] = (6, 12, 24, 16),
        num_init_features: int = 64,
        bn_size: int = 4,
        drop_rate: float = 0,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict([
                ("conv0", nn.Conv2d(3, num_init_features, 7, 2, 3, bias=False)),
                ("norm0", nn.BatchNorm2d(num_init_features)),
                ("relu0", nn.ReLU(inplace=True)),
                ("pool0", nn.MaxPool2d(3, 2, 1)),
            ])
        )  # fmt: skip
        size = num_init_features
        for i, count in enumerate(block_config):
            block = _DenseBlock(count, size, bn_size, growth_rate, drop_rate)
            self.features.add_module(f"denseblock{i + 1}", block)
            size += count * growth_rate
            if i != len(block_config) - 1:
                self.features.add_module(f"transition{i + 1}", _Transition(size, size // 2))
                size //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(size))
        self.classifier = nn.Linear(size, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.Linear):
                nn.init.constant_(m.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.features(x), inplace=True)
        return self.classifier(tenon.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


def _builder(name: str, growth: int, blocks: tuple[int, ...], start: int) -> Any:
    def build(
        *, weights: Any = None, progress: bool = True, pretrained: Any = None, **kwargs: Any
    ) -> DenseNet:
        del progress
        return load_into(DenseNet(growth, blocks, start, **kwargs), name, weights, pretrained)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"DenseNet with blocks of {blocks} layers."
    return register(build)


densenet121 = _builder("densenet121", 32, (6, 12, 24, 16), 64)
densenet161 = _builder("densenet161", 48, (6, 12, 36, 24), 96)
densenet169 = _builder("densenet169", 32, (6, 12, 32, 32), 64)
densenet201 = _builder("densenet201", 32, (6, 12, 48, 32), 64)
