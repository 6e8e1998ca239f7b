"""Normalisation over the features or channels of each sample."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor
from tenon.nn import functional as F
from tenon.nn import init
from tenon.nn.modules._options import options
from tenon.nn.modules.module import Module
from tenon.nn.parameter import Parameter


class LayerNorm(Module):
    """Normalises the last dimensions, those of normalized_shape.

    Shapes: (*, *normalized_shape); the result has the same.

    >>> nn.LayerNorm(4)(tn.rand(2, 3, 4)).shape
    tenon.Size([2, 3, 4])
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if isinstance(normalized_shape, int):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (("weight", True), ("bias", bias)):
            param = None
            if elementwise_affine and wanted:
                param = Parameter(tenon.empty(self.normalized_shape, device=device, dtype=dtype))
            self.register_parameter(name, param)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class GroupNorm(Module):
    """Normalises groups of channels of each sample.

    Shapes: (N, num_channels, *); the result has the same.

    >>> nn.GroupNorm(2, 6)(tn.rand(4, 6, 5)).shape
    tenon.Size([4, 6, 5])
    """

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups <= 0:
            raise ValueError("num_groups must be greater than zero")
        if num_channels % num_groups != 0:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            param = None
            if wanted:
                param = Parameter(tenon.empty(num_channels, device=device, dtype=dtype))
            self.register_parameter(name, param)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides the last dimensions by their root mean square.

    Shapes: (*, *normalized_shape); the result has the same.

    >>> nn.RMSNorm(4)(tn.rand(2, 3, 4)).shape
    tenon.Size([2, 3, 4])
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if isinstance(normalized_shape, int):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        param = None
        if elementwise_affine:
            param = Parameter(tenon.empty(self.normalized_shape, device=device, dtype=dtype))
        self.register_parameter("weight", param)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


@options
class LocalResponseNorm(Module):
    """Divides by a power of the mean square of neighbouring channels.

    Shapes: (N, C, *); the result has the same.

    >>> nn.LocalResponseNorm(2)(tn.rand(1, 4, 3)).shape
    tenon.Size([1, 4, 3])
    """

    size: int
    alpha: float = 0.0001
    beta: float = 0.75
    k: float = 1.0

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """Divides by a power of the mean square of the neighbouring channels of images.

    The sums are PyTorch's: (size - 1) // 2 channels count on both sides, and the first channel goes
    on counting for all that are farther away. The gradient is that of these sums; PyTorch's takes
    other channels.

    Shapes: (N, C, H, W) -> (N, C, H, W)

    >>> nn.CrossMapLRN2d(3)(tn.rand(1, 4, 2, 2)).shape
    tenon.Size([1, 4, 2, 2])
    """

    def __init__(self, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        side = (self.size - 1) // 2
        squares = F.pad(input * input, (0, 0, 0, 0, side, side))
        sums = squares.unfold(1, 2 * side + 1, 1).sum(-1)
        far = (tenon.arange(input.shape[1], device=input.device) > side).view(-1, 1, 1)
        sums = sums + input[:, :1] ** 2 * far
        return input * (sums * (self.alpha / self.size) + self.k) ** -self.beta

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
