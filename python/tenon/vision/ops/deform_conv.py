"""Convolutions that read where another network says."""

from __future__ import annotations

import math
from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.nn.modules.utils import _pair


def _corner(rows: Tensor, y: Tensor, x: Tensor, share: Tensor, size: tuple[int, int]) -> Tensor:
    """What pictures (as rows of pixels) hold at whole places, 0 outside, times a share."""
    high, wide = size
    inside = (y >= 0) & (y < high) & (x >= 0) & (x < wide)
    place = (y.clamp(0, high - 1) * wide + x.clamp(0, wide - 1)).to(tenon.int64)
    batch, groups, channels = rows.shape[:3]
    index = place.reshape(batch, groups, 1, -1).expand(-1, -1, channels, -1)
    return rows.gather(3, index) * (share * inside).reshape(batch, groups, 1, -1)


def _columns(input: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Pictures between pixels, at places (batch, offset groups, ...)."""
    batch, groups = y.shape[:2]
    size = input.shape[2], input.shape[3]
    rows = input.reshape(batch, groups, -1, size[0] * size[1])
    top, left = y.detach().floor(), x.detach().floor()
    down, right = y - top, x - left
    return (
        _corner(rows, top, left, (1 - down) * (1 - right), size)
        + _corner(rows, top, left + 1, (1 - down) * right, size)
        + _corner(rows, top + 1, left, down * (1 - right), size)
        + _corner(rows, top + 1, left + 1, down * right, size)
    )


def deform_conv2d(
    input: Tensor, offset: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = (1, 1),
    padding: Any = (0, 0), dilation: Any = (1, 1), mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """A convolution each of whose reads is moved by `offset` (for every group of channels and
    place of the kernel down and to the right), and scaled by `mask`."""
    (down, along), (pad_y, pad_x), (step_y, step_x) = map(_pair, (stride, padding, dilation))
    high, wide = weight.shape[-2:]
    places, (batch, channels) = high * wide, input.shape[:2]
    groups = offset.shape[1] // (2 * places)
    if groups == 0:
        raise RuntimeError(
            "the shape of the offset tensor at dimension 1 is not valid. It should be a multiple "
            f"of 2 * weight.size[2] * weight.size[3].\nGot offset.shape[1]={offset.shape[1]}, "
            f"while 2 * weight.size[2] * weight.size[3]={2 * places}"
        )
    out = offset.shape[2:]
    moved = offset.reshape(batch, groups, high, wide, 2, *out)
    options = {"dtype": offset.dtype, "device": offset.device}
    y = tenon.arange(high, **options).view(-1, 1, 1, 1) * step_y - pad_y
    y = y + tenon.arange(out[0], **options).view(-1, 1) * down + moved[:, :, :, :, 0]
    x = tenon.arange(wide, **options).view(-1, 1, 1) * step_x - pad_x
    x = x + tenon.arange(out[1], **options) * along + moved[:, :, :, :, 1]
    read = _columns(input, y, x).reshape(batch, groups, -1, places, out[0] * out[1])
    if mask is not None:
        read = read * mask.reshape(batch, groups, 1, places, -1)
    parts = channels // weight.shape[1]
    read = read.reshape(batch, parts, -1, out[0] * out[1])
    result = tenon.matmul(weight.reshape(parts, weight.shape[0] // parts, -1), read)
    result = result.reshape(batch, weight.shape[0], *out)
    return result if bias is None else result + bias.view(-1, 1, 1)


class DeformConv2d(nn.Module):
    """deform_conv2d with weights of its own."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = _pair(kernel_size), _pair(stride)
        self.padding, self.dilation = _pair(padding), _pair(dilation)
        self.weight = nn.Parameter(
            tenon.empty(out_channels, in_channels // groups, *self.kernel_size)
        )
        self.bias = nn.Parameter(tenon.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights as convolutions begin with."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            limit = 1 / math.sqrt(self.weight[0].numel())
            nn.init.uniform_(self.bias, -limit, limit)

    def forward(self, input: Tensor, offset: Tensor, mask: Tensor | None = None) -> Tensor:
        return deform_conv2d(
            input, offset, self.weight, self.bias, self.stride, self.padding, self.dilation, mask
        )

    def __repr__(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}", f"kernel_size={self.kernel_size}"]
        parts += [f"stride={self.stride}"]
        parts += [f"padding={self.padding}"] if self.padding != (0, 0) else []
        parts += [f"dilation={self.dilation}"] if self.dilation != (1, 1) else []
        parts += [f"groups={self.groups}"] if self.groups != 1 else []
        parts += ["bias=False"] if self.bias is None else []
        return f"{type(self).__name__}({', '.join(parts)})"
