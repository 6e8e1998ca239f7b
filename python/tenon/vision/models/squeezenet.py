"""Small networks: SqueezeNet."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.vision.models._weights import load_into, register

__all__ = ["SqueezeNet", "squeezenet1_0", "squeezenet1_1"]


class Fire(nn.Module):
    """Few channels, then many: by 1 x 1 and by 3 x 3 convolutions."""

    def __init__(
        self, inplanes: int, squeeze_planes: int, expand1x1_planes: int, expand3x3_planes: int
    ) -> None:
        super().__init__()
        self.inplanes = inplanes
        self.squeeze = nn.Conv2d(inplanes, squeeze_planes, 1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze_planes, expand1x1_planes, 1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze_planes, expand3x3_planes, 3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze_activation(self.squeeze(x))
        one = self.expand1x1_activation(self.expand1x1(x))
        return tenon.cat([one, self.expand3x3_activation(self.expand3x3(x))], 1)


def _pool() -> nn.Module:
    return nn.MaxPool2d(3, 2, ceil_mode=True)


class SqueezeNet(nn.Module):
    """Fire modules, then a convolution to the classes."""

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.num_classes = num_classes
        if version == "1_0":
            layers = [
                nn.Conv2d(3, 96, 7, 2), nn.ReLU(inplace=True), _pool(), Fire(96, 16, 64, 64),
                Fire(128, 16, 64, 64), Fire(128, 32, 128, 128), _pool(), Fire(256, 32, 128, 128),
                Fire(256, 48, 192, 192), Fire(384, 48, 192, 192), Fire(384, 64, 256, 256), _pool(),
                Fire(512, 64, 256, 256),
            ]  # fmt: skip
        elif version == "1_1":
            layers = [
                nn.Conv2d(3, 64, 3, 2), nn.ReLU(inplace=True), _pool(), Fire(64, 16, 64, 64),
                Fire(128, 16, 64, 64), _pool(), Fire(128, 32, 128, 128), Fire(256, 32, 128, 128),
                _pool(), Fire(256, 48, 192, 192), Fire(384, 48, 192, 192), Fire(384, 64, 256, 256),
                Fire(512, 64, 256, 256),
            ]  # fmt: skip
        else:
            raise ValueError(f"Unsupported SqueezeNet version {version}: 1_0 or 1_1 expected")
        self.features = nn.Sequential(*layers)
        last = nn.Conv2d(512, num_classes, 1)
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout), last, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1))
        )
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                if m is last:
                    nn.init.normal_(m.weight, mean=0.0, std=0.01)
                else:
                    nn.init.kaiming_uniform_(m.weight)
                nn.init.constant_(m.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        return tenon.flatten(self.classifier(self.features(x)), 1)


def _builder(version: str) -> Any:
    def build(
        *, weights: Any = None, progress: bool = True, pretrained: Any = None, **kwargs: Any
    ) -> SqueezeNet:
        del progress
        model = SqueezeNet(version, **kwargs)
        return load_into(model, f"squeezenet{version}", weights, pretrained)

    build.__name__ = build.__qualname__ = f"squeezenet{version}"
    build.__doc__ = f"SqueezeNet {version}."
    return register(build)


squeezenet1_0, squeezenet1_1 = _builder("1_0"), _builder("1_1")
