"""Pooling."""

from __future__ import annotations

from typing import Any

from tenon import Tensor
from tenon.nn import functional as F
from tenon.nn.modules._options import options
from tenon.nn.modules.module import Module
from tenon.nn.modules.utils import _ntuple, _pair, _single, _triple


class _MaxPoolNd(Module):
    __constants__ = [
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "return_indices",
        "ceil_mode",
    ]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )

    def _pool(self, pool: Any, input: Tensor) -> Any:
        return pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )


class MaxPool1d(_MaxPoolNd):
    """The largest value of each window of (N, C, L).

    Shapes: (N, C, L) to (N, C, (L + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1).

    >>> nn.MaxPool1d(2)(tn.tensor([[1.0, 3.0, 5.0, 9.0]]))
    tensor([[3., 9.]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(F.max_pool1d, input)


class MaxPool2d(_MaxPoolNd):
    """The largest value of each window of (N, C, H, W).

    Shapes: (N, C, H, W); sizes as those of MaxPool1d.

    >>> nn.MaxPool2d(2)(tn.rand(1, 3, 8, 8)).shape
    tenon.Size([1, 3, 4, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(F.max_pool2d, input)


class _AvgPoolNd(Module):
    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"]

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of each window of (N, C, L).

    Shapes: (N, C, L) to (N, C, (L + 2 padding - kernel_size) // stride + 1).

    >>> nn.AvgPool1d(2)(tn.tensor([[1.0, 3.0, 5.0, 9.0]]))
    tensor([[2., 7.]])
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()

        def one(x: Any) -> tuple[int, ...]:
            return tuple(x) if isinstance(x, (tuple, list)) else (x,)

        self.kernel_size = one(kernel_size)
        self.stride = one(stride if stride is not None else kernel_size)
        self.padding = one(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )


class AvgPool2d(_AvgPoolNd):
    """The mean of each window of (N, C, H, W).

    Shapes: (N, C, H, W); sizes as those of AvgPool1d.

    >>> nn.AvgPool2d(2)(tn.rand(1, 3, 8, 8)).shape
    tenon.Size([1, 3, 4, 4])
    """

    __constants__ = [*_AvgPoolNd.__constants__, "divisor_override"]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


@options
class _AdaptiveAvgPoolNd(Module):
    output_size: Any


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means of windows chosen so that the result has output_size elements.

    Shapes: (N, C, L) to (N, C, output_size).

    >>> nn.AdaptiveAvgPool1d(4)(tn.rand(2, 3, 10)).shape
    tenon.Size([2, 3, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means of windows chosen so that the result has output_size.

    Shapes: (N, C, H, W) to (N, C, *output_size); None keeps a size.

    >>> nn.AdaptiveAvgPool2d((4, None))(tn.rand(2, 3, 10, 7)).shape
    tenon.Size([2, 3, 4, 7])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


@options
class _AdaptiveMaxPoolNd(Module):
    output_size: Any
    return_indices: bool = False


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Largest values of windows chosen so that the result has output_size elements.

    Shapes: (N, C, L) to (N, C, output_size).

    >>> nn.AdaptiveMaxPool1d(4)(tn.rand(2, 3, 10)).shape
    tenon.Size([2, 3, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Largest values of windows chosen so that the result has output_size.

    Shapes: (N, C, H, W) to (N, C, *output_size); None keeps a size.

    >>> nn.AdaptiveMaxPool2d(4)(tn.rand(2, 3, 10, 7)).shape
    tenon.Size([2, 3, 4, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class MaxPool3d(_MaxPoolNd):
    """The largest value of each window of (N, C, D, H, W).

    Shapes: (N, C, D, H, W); sizes as those of MaxPool1d.

    >>> nn.MaxPool3d(2)(tn.rand(1, 3, 4, 8, 8)).shape
    tenon.Size([1, 3, 2, 4, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(F.max_pool3d, input)


class AvgPool3d(_AvgPoolNd):
    """The mean of each window of (N, C, D, H, W).

    Shapes: (N, C, D, H, W); sizes as those of AvgPool1d.

    >>> nn.AvgPool3d(2)(tn.rand(1, 3, 4, 8, 8)).shape
    tenon.Size([1, 3, 2, 4, 4])
    """

    __constants__ = [*_AvgPoolNd.__constants__, "divisor_override"]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool3d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means that make (N, C, D, H, W) the wanted size.

    Shapes: (N, C, D, H, W) to (N, C, *output_size); None keeps a size.

    >>> nn.AdaptiveAvgPool3d(2)(tn.rand(1, 3, 4, 6, 8)).shape
    tenon.Size([1, 3, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima that make (N, C, D, H, W) the wanted size.

    Shapes: (N, C, D, H, W) to (N, C, *output_size); None keeps a size.

    >>> nn.AdaptiveMaxPool3d(2)(tn.rand(1, 3, 4, 6, 8)).shape
    tenon.Size([1, 3, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


@options
class _LPPoolNd(Module):
    norm_type: float
    kernel_size: Any
    stride: Any = None
    ceil_mode: bool = False

    def _pool(self, pool: Any, input: Tensor) -> Tensor:
        return pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPoolNd):
    """The p-norm of each window of (N, C, L).

    Shapes: (N, C, L); sizes as those of AvgPool1d.

    >>> nn.LPPool1d(2, 2)(tn.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(F.lp_pool1d, input)


class LPPool2d(_LPPoolNd):
    """The p-norm of each window of (N, C, H, W).

    Shapes: (N, C, H, W); sizes as those of AvgPool1d.

    >>> nn.LPPool2d(2, 2)(tn.rand(1, 3, 8, 8)).shape
    tenon.Size([1, 3, 4, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(F.lp_pool2d, input)


class LPPool3d(_LPPoolNd):
    """The p-norm of each window of (N, C, D, H, W).

    Shapes: (N, C, D, H, W); sizes as those of AvgPool1d.

    >>> nn.LPPool3d(2, 2)(tn.rand(1, 3, 4, 8, 8)).shape
    tenon.Size([1, 3, 2, 4, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(F.lp_pool3d, input)


class _MaxUnpoolNd(Module):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = self._tuple(kernel_size)
        self.stride = self._tuple(kernel_size if stride is None else stride)
        self.padding = self._tuple(padding)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"

    def _put(self, unpool: Any, input: Tensor, indices: Tensor, output_size: Any) -> Tensor:
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts maxima back where MaxPool1d found them.

    Shapes: maxima and their places (N, C, L) to (N, C, output_size).

    >>> nn.MaxUnpool1d(2)(tn.tensor([[[5.0, 7.0]]]), tn.tensor([[[1, 2]]]))
    tensor([[[0., 5., 7., 0.]]])
    """

    _tuple = staticmethod(_single)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return self._put(F.max_unpool1d, input, indices, output_size)


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts maxima back where MaxPool2d found them.

    Shapes: maxima and their places (N, C, H, W) to (N, C, *output_size).

    >>> nn.MaxUnpool2d(2)(*nn.MaxPool2d(2, return_indices=True)(tn.rand(1, 3, 8, 8))).shape
    tenon.Size([1, 3, 8, 8])
    """

    _tuple = staticmethod(_pair)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return self._put(F.max_unpool2d, input, indices, output_size)


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts maxima back where MaxPool3d found them.

    Shapes: maxima and their places (N, C, D, H, W) to (N, C, *output_size).

    >>> nn.MaxUnpool3d(2)(*nn.MaxPool3d(2, return_indices=True)(tn.rand(1, 3, 4, 8, 8))).shape
    tenon.Size([1, 3, 4, 8, 8])
    """

    _tuple = staticmethod(_triple)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return self._put(F.max_unpool3d, input, indices, output_size)


class _FractionalMaxPool(Module):
    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        several = _ntuple(self._axes)
        self.kernel_size = several(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else several(output_size)
        self.output_ratio = None if output_ratio is None else several(output_ratio)
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{type(self).__name__} requires specifying either an output size, or a pooling "
                "ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Tensor:
        pool = F.fractional_max_pool2d if self._axes == 2 else F.fractional_max_pool3d
        return pool(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest value of each window; the places of windows are drawn at every call.

    Shapes: (N, C, H, W) to (N, C, *output_size).

    >>> nn.FractionalMaxPool2d(2, output_size=3)(tn.rand(1, 3, 8, 8)).shape
    tenon.Size([1, 3, 3, 3])
    """

    _axes = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """FractionalMaxPool2d of volumes.

    Shapes: (N, C, D, H, W) to (N, C, *output_size).

    >>> nn.FractionalMaxPool3d(2, output_size=3)(tn.rand(1, 3, 8, 8, 8)).shape
    tenon.Size([1, 3, 3, 3, 3])
    """

    _axes = 3
