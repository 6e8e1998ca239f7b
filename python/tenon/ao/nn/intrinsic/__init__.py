"""Layers and what follows them, as one module: what `fuse_modules` makes."""

from __future__ import annotations

from typing import Any

from tenon import nn

__all__ = ["ConvReLU1d", "ConvReLU2d", "LinearReLU"]


class _Fused(nn.Sequential):
    def __init__(self, layer: Any, relu: Any) -> None:
        super().__init__(layer, relu)


class LinearReLU(_Fused):
    """relu(linear)."""


class ConvReLU1d(_Fused):
    """relu(conv1d)."""


class ConvReLU2d(_Fused):
    """relu(conv2d)."""
