"""Layers and what follows them, as one module: what `fuse_modules` makes."""

from __future__ import annotations

from typing import Any

from tenon import nn
from tenon._submodules import on_demand

__all__ = ["ConvBn1d", "ConvBn2d", "ConvBnReLU1d", "ConvBnReLU2d", "ConvReLU1d", "ConvReLU2d",
           "LinearBn1d", "LinearReLU"]  # fmt: skip


class _FusedModule(nn.Sequential):
    """Its parts, one after the other."""


class _Two(_FusedModule):
    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(first, second)


class _Three(_FusedModule):
    def __init__(self, conv: Any, bn: Any, relu: Any) -> None:
        super().__init__(conv, bn, relu)


class LinearReLU(_Two):
    """relu(linear)."""


class LinearBn1d(_Two):
    """norm(linear), for training."""


class ConvReLU1d(_Two):
    """relu(conv1d)."""


class ConvReLU2d(_Two):
    """relu(conv2d)."""


class ConvBn1d(_Two):
    """norm(conv1d), for training."""


class ConvBn2d(_Two):
    """norm(conv2d), for training."""


class ConvBnReLU1d(_Three):
    """relu(norm(conv1d)), for training."""


class ConvBnReLU2d(_Three):
    """relu(norm(conv2d)), for training."""


on_demand(globals())
