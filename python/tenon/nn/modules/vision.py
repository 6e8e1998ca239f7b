"""Resizing, pixel shuffling, windows, and distances between vectors."""

from __future__ import annotations

from typing import Any

from tenon import Tensor
from tenon.nn import functional as F
from tenon.nn.modules._options import options
from tenon.nn.modules.module import Module


@options
class PixelShuffle(Module):
    """(..., C r r, H, W) -> (..., C, H r, W r).

    Shapes: (*, C r r, H, W) to (*, C, H r, W r).

    >>> nn.PixelShuffle(2)(tn.rand(1, 12, 3, 3)).shape
    tenon.Size([1, 3, 6, 6])
    """

    upscale_factor: int

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)


@options
class PixelUnshuffle(Module):
    """(..., C, H r, W r) -> (..., C r r, H, W).

    Shapes: (*, C, H r, W r) to (*, C r r, H, W).

    >>> nn.PixelUnshuffle(2)(tn.rand(1, 3, 6, 6)).shape
    tenon.Size([1, 12, 3, 3])
    """

    downscale_factor: int

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)


class Upsample(Module):
    """Resizes images to `size` or by `scale_factor`.

    Shapes: (N, C, *), one to three sizes behind, to (N, C, *size).

    >>> nn.Upsample(scale_factor=2)(tn.tensor([[[1.0, 2.0]]]))
    tensor([[[1., 1., 2., 2.]]])
    """

    __constants__ = [
        "size",
        "scale_factor",
        "mode",
        "align_corners",
        "name",
        "recompute_scale_factor",
    ]

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample that repeats pixels.

    Shapes: (N, C, H, W) to (N, C, *size).

    >>> nn.UpsamplingNearest2d(scale_factor=2)(tn.rand(1, 3, 4, 4)).shape
    tenon.Size([1, 3, 8, 8])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample that interpolates, with aligned corners.

    Shapes: (N, C, H, W) to (N, C, *size).

    >>> nn.UpsamplingBilinear2d(scale_factor=2)(tn.rand(1, 3, 4, 4)).shape
    tenon.Size([1, 3, 8, 8])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


@options
class Unfold(Module):
    """Every window of an image as a column.

    Shapes: (N, C, H, W) to (N, C * kh * kw, windows).

    >>> nn.Unfold(2)(tn.rand(1, 3, 4, 4)).shape
    tenon.Size([1, 12, 9])
    """

    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class CosineSimilarity(Module):
    """The cosine of the angle between two tensors along dim.

    Shapes: two alike, to theirs without dim.

    >>> nn.CosineSimilarity(dim=0)(tn.tensor([1.0, 0.0]), tn.tensor([0.0, 2.0]))
    tensor(0.)
    """

    __constants__ = ["dim", "eps"]

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of the difference of two tensors along the last dimension.

    Shapes: two (N, D) to (N,).

    >>> nn.PairwiseDistance()(tn.zeros(1, 2), tn.ones(1, 2)).shape
    tenon.Size([1])
    """

    __constants__ = ["norm", "eps", "keepdim"]

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


@options
class ChannelShuffle(Module):
    """Takes channels from `groups` groups in turn.

    Shapes: (N, C, *); the result has the same.

    >>> nn.ChannelShuffle(2)(tn.arange(4.0).reshape(1, 4, 1, 1)).flatten()
    tensor([0., 2., 1., 3.])
    """

    groups: int

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)


@options
class Fold(Module):
    """Adds up the windows that Unfold took apart.

    Shapes: (N, C * kh * kw, windows) to (N, C, *output_size).

    >>> nn.Fold((4, 4), 2, stride=2)(tn.rand(1, 3 * 4, 4)).shape
    tenon.Size([1, 3, 4, 4])
    """

    output_size: Any
    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )
