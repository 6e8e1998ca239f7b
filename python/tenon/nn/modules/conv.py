"""Convolutions."""

from __future__ import annotations

import math
import warnings
from typing import Any

import tenon
from tenon import Tensor
from tenon.nn import functional as F
from tenon.nn import init
from tenon.nn.modules.module import Module
from tenon.nn.modules.utils import _ntuple, _reverse_repeat_tuple
from tenon.nn.modules.utils import _pair as _pair
from tenon.nn.modules.utils import _single as _single
from tenon.nn.modules.utils import _triple as _triple
from tenon.nn.parameter import Parameter

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions share: weights, their initial values, and the text."""

    __constants__ = [
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
        "output_padding",
        "in_channels",
        "out_channels",
        "kernel_size",
    ]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: str | tuple[int, ...],
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(
                    f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}"
                )
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {set(_PADDING_MODES)}, "
                f"but got padding_mode='{padding_mode}'"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        # Padding per side, the last dimension first, for the modes that pad before they convolve.
        if isinstance(padding, str):
            sides = [0] * (2 * len(kernel_size))
            if padding == "same":
                for i, (d, k) in enumerate(zip(reversed(dilation), reversed(kernel_size))):
                    total = d * (k - 1)
                    sides[2 * i] = total // 2
                    sides[2 * i + 1] = total - total // 2
            self._reversed_padding_repeated_twice = sides
        else:
            self._reversed_padding_repeated_twice = _reverse_repeat_tuple(padding, 2)
        first, second = in_channels, out_channels
        if not transposed:
            first, second = out_channels, in_channels
        shape = (first, second // groups, *kernel_size)
        self.weight = Parameter(tenon.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(tenon.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias from uniform distributions of width 2 / sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        zeros, ones = (0,) * len(self.kernel_size), (1,) * len(self.kernel_size)
        if self.padding != zeros:
            parts.append(f"padding={self.padding}")
        if self.dilation != ones:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != zeros:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if not hasattr(self, "padding_mode"):
            self.padding_mode = "zeros"

    def _padded(self, input: Tensor) -> tuple[Tensor, Any]:
        """The input, padded where the operator cannot, and the padding left to the operator."""
        if self.padding_mode == "zeros":
            return input, self.padding
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return padded, 0


class _Convolution(_ConvNd):
    """Convolutions with a number of dimensions: one size for all, or one for each."""

    _n: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        each = _ntuple(self._n)
        super().__init__(
            in_channels,
            out_channels,
            each(kernel_size),
            each(stride),
            padding if isinstance(padding, str) else each(padding),
            each(dilation),
            False,
            each(0),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Convolution):
    """Convolution of (N, C, L).

    Shapes: (N, in_channels, L) to (N, out_channels, (L + 2 padding - dilation (kernel_size - 1) -
        1) // stride + 1).

    >>> nn.Conv1d(3, 8, 5, padding=2)(tn.rand(2, 3, 20)).shape
    tenon.Size([2, 8, 20])
    """

    _n = 1

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = self._padded(input)
        return F.conv1d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Convolution):
    """Convolution of (N, C, H, W).

    Shapes: (N, in_channels, H, W) to (N, out_channels, H', W'); sizes as those of Conv1d.

    >>> nn.Conv2d(3, 16, kernel_size=3, padding=1)(tn.rand(8, 3, 32, 32)).shape
    tenon.Size([8, 16, 32, 32])
    """

    _n = 2

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = self._padded(input)
        return F.conv2d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_Convolution):
    """Convolution of (N, C, D, H, W).

    Shapes: (N, in_channels, D, H, W) to (N, out_channels, D', H', W'); sizes as those of Conv1d.

    >>> nn.Conv3d(3, 4, 3, stride=2)(tn.rand(1, 3, 9, 9, 9)).shape
    tenon.Size([1, 4, 4, 4, 4])
    """

    _n = 3

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = self._padded(input)
        return F.conv3d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class _ConvTransposeNd(_ConvNd):
    """What transposed convolutions share: the output padding that reaches a wanted size."""

    _n: int
    _function: str

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        each = _ntuple(self._n)
        super().__init__(
            in_channels,
            out_channels,
            each(kernel_size),
            each(stride),
            each(padding),
            each(dilation),
            True,
            each(output_padding),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return getattr(F, self._function)(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self._output_padding(input, output_size),
            self.groups,
            self.dilation,
        )

    def _output_padding(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        if output_size is None:
            return self.output_padding
        n = len(self.kernel_size)
        output_size = list(output_size)
        if len(output_size) == input.dim():
            output_size = output_size[-n:]
        if len(output_size) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} "
                f"or {input.dim()} elements (got {len(output_size)})"
            )
        least = [
            (input.size(d - n) - 1) * self.stride[d]
            - 2 * self.padding[d]
            + self.dilation[d] * (self.kernel_size[d] - 1)
            + 1
            for d in range(n)
        ]
        most = [low + step - 1 for low, step in zip(least, self.stride)]
        if not all(low <= size <= high for low, size, high in zip(least, output_size, most)):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range "
                f"from {least} to {most} (for an input of {list(input.shape[2:])})"
            )
        return tuple(size - low for size, low in zip(output_size, least))


class ConvTranspose1d(_ConvTransposeNd):
    """The gradient of Conv1d with respect to its input, as a layer.

    Shapes: (N, in_channels, L) to (N, out_channels, (L - 1) stride - 2 padding + dilation
        (kernel_size - 1) + output_padding + 1).

    >>> nn.ConvTranspose1d(8, 3, 4, stride=2)(tn.rand(2, 8, 10)).shape
    tenon.Size([2, 3, 22])
    """

    _n = 1
    _function = "conv_transpose1d"


class ConvTranspose2d(_ConvTransposeNd):
    """The gradient of Conv2d with respect to its input, as a layer.

    Shapes: (N, in_channels, H, W) to (N, out_channels, H', W'); sizes as those of ConvTranspose1d.

    >>> nn.ConvTranspose2d(8, 3, 4, stride=2, padding=1)(tn.rand(2, 8, 16, 16)).shape
    tenon.Size([2, 3, 32, 32])
    """

    _n = 2
    _function = "conv_transpose2d"


class ConvTranspose3d(_ConvTransposeNd):
    """The gradient of Conv3d with respect to its input, as a layer.

    Shapes: (N, in_channels, D, H, W) to (N, out_channels, D', H', W'); sizes as those of
        ConvTranspose1d.

    >>> nn.ConvTranspose3d(4, 2, 2, stride=2)(tn.rand(1, 4, 3, 3, 3)).shape
    tenon.Size([1, 2, 6, 6, 6])
    """

    _n = 3
    _function = "conv_transpose3d"


class _ConvTransposeMixin(_ConvTransposeNd):
    """A name of former releases that packages still import."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            "`_ConvTransposeMixin` is a deprecated internal class. "
            "Please consider using public APIs.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)
