"""Networks of 3 x 3 convolutions: VGG."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.vision.models._weights import load_into, register

_PLANS = {
    11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4),
}  # fmt: skip
_WIDTHS = (64, 128, 256, 512, 512)


class VGG(nn.Module):
    """Convolutions with pooling in between, then three linear layers."""

    def __init__(
        self,
        features: nn.Module,
        num_classes: int = 1000,
        init_weights: bool = True,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(True), nn.Dropout(p=dropout),
            nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(p=dropout),
            nn.Linear(4096, num_classes),
        )  # fmt: skip
        if not init_weights:
            return
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                if m.bias is not None:
                    nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0, 0.01)
                nn.init.constant_(m.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(tenon.flatten(self.avgpool(self.features(x)), 1))


cfgs: dict[str, list[Any]] = {
    letter: [w for n, width in zip(plan, _WIDTHS, strict=True) for w in [width] * n + ["M"]]
    for letter, plan in zip("ABDE", _PLANS.values(), strict=True)
}


def make_layers(cfg: list[Any], batch_norm: bool = False) -> nn.Sequential:
    """Convolutions of these widths; where it says "M", pooling."""
    layers: list[nn.Module] = []
    size = 3
    for width in cfg:
        if width == "M":
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers.append(nn.Conv2d(size, width, 3, padding=1))
        if batch_norm:
            layers.append(nn.BatchNorm2d(width))
        layers.append(nn.ReLU(inplace=True))
        size = width
    return nn.Sequential(*layers)


def _features(depth: int, norm: bool) -> nn.Sequential:
    return make_layers(cfgs["ABDE"[list(_PLANS).index(depth)]], norm)


def _builder(depth: int, norm: bool) -> Any:
    name = f"vgg{depth}" + "_bn" * norm

    def build(
        *, weights: Any = None, progress: bool = True, pretrained: Any = None, **kwargs: Any
    ) -> VGG:
        del progress
        if weights or pretrained:
            kwargs["init_weights"] = False
        return load_into(VGG(_features(depth, norm), **kwargs), name, weights, pretrained)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"VGG of {depth} layers" + ", with batch norm." * norm + "." * (not norm)
    return register(build)


vgg11, vgg13, vgg16, vgg19 = (_builder(n, False) for n in (11, 13, 16, 19))
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (_builder(n, True) for n in (11, 13, 16, 19))

__all__ = [
    "VGG",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
]
