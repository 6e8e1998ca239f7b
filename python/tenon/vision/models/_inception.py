"""What GoogLeNet and Inception have in common."""

from __future__ import annotations

import warnings
from typing import Any

import tenon
from tenon import Tensor, nn


class BasicConv2d(nn.Module):
    """A convolution, a norm and an activation."""

    def __init__(self, in_channels: int, out_channels: int, **kwargs: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **kwargs)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.bn(self.conv(x)), inplace=True)


def colours_as_published(x: Tensor) -> Tensor:
    """Pictures that were normalized as most networks want them, as the first authors' want them."""
    scale = tenon.tensor([0.229, 0.224, 0.225], dtype=x.dtype, device=x.device) / 0.5
    mean = tenon.tensor([0.485, 0.456, 0.406], dtype=x.dtype, device=x.device)
    return x * scale.view(3, 1, 1) + ((mean - 0.5) / 0.5).view(3, 1, 1)


def start(model: nn.Module, name: str, init_weights: bool | None, std: float) -> None:
    """First weights: cut normal ones, of the spread that a layer names, or of this one."""
    if init_weights is None:
        warnings.warn(
            f"The default weight initialization of {name} will be changed in future releases of "
            "torchvision. If you wish to keep the old behavior (which leads to long "
            "initialization times due to scipy/scipy#11299), please set init_weights=True.",
            FutureWarning,
            stacklevel=3,
        )
        init_weights = True
    if not init_weights:
        return
    for m in model.modules():
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(m.weight, mean=0.0, std=getattr(m, "stddev", std), a=-2, b=2)
        elif isinstance(m, nn.BatchNorm2d):
            nn.init.constant_(m.weight, 1)
            nn.init.constant_(m.bias, 0)
