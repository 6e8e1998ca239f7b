"""The second form of the transforms: those that draw nothing, and conversions of their own."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import nn
from tenon.vision.transforms._geometry import InterpolationMode
from tenon.vision.transforms.transforms import CenterCrop, Compose, Normalize, Pad, Resize
from tenon.vision.transforms.v2 import functional

__all__ = [
    "CenterCrop",
    "Compose",
    "InterpolationMode",
    "Normalize",
    "Pad",
    "Resize",
    "ToDtype",
    "ToImage",
    "functional",
]


class ToImage(nn.Module):
    """A tensor (channels, height, width) of a Pillow picture or an array; values stay."""

    def forward(self, inpt: Any) -> tenon.Tensor:
        return functional.to_image(inpt)


class ToDtype(nn.Module):
    """Another dtype; with `scale` the range of an integer one stands for [0, 1] of a float."""

    def __init__(self, dtype: tenon.dtype, scale: bool = False) -> None:
        super().__init__()
        self.dtype, self.scale = dtype, scale

    def forward(self, inpt: tenon.Tensor) -> tenon.Tensor:
        return functional.to_dtype(inpt, self.dtype, self.scale)

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, scale={self.scale}"
