"""Weights of convolutions in another memory format."""

from __future__ import annotations

from typing import Any, TypeVar

import tenon
from tenon.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from tenon.nn.modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

_M = TypeVar("_M", bound=Module)


def _convert(module: _M, kinds: tuple[type[Module], ...], memory_format: Any) -> _M:
    with tenon.no_grad():
        for part in module.modules():
            if isinstance(part, kinds):
                weight: Any = part.weight
                weight.data = weight.detach().clone().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: _M, memory_format: Any) -> _M:
    """Converts the weights of all Conv2d and ConvTranspose2d in a module, and nothing else."""
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: _M, memory_format: Any) -> _M:
    """Converts the weights of all Conv3d and ConvTranspose3d in a module, and nothing else."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
