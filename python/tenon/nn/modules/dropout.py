"""Dropout."""

from __future__ import annotations

from tenon import Tensor
from tenon.nn import functional as F
from tenon.nn.modules.module import Module


class _DropoutNd(Module):
    __constants__ = ["p", "inplace"]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zeroes elements with probability p while training.

    Shapes: any.

    >>> nn.Dropout(0.2).eval()(tn.ones(3))
    tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Zeroes whole rows of (N, C, L).

    Shapes: (N, C, L) or (C, L).

    >>> nn.Dropout1d(0.2)(tn.ones(2, 3, 4)).shape
    tenon.Size([2, 3, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Zeroes whole channels of (N, C, H, W).

    Shapes: (N, C, H, W) or (C, H, W).

    >>> nn.Dropout2d(0.2)(tn.ones(2, 3, 4, 4)).shape
    tenon.Size([2, 3, 4, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Zeroes whole channels of (N, C, D, H, W).

    Shapes: (N, C, D, H, W) or (C, D, H, W).

    >>> nn.Dropout3d(0.2)(tn.ones(2, 3, 2, 4, 4)).shape
    tenon.Size([2, 3, 2, 4, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance after SELU.

    Shapes: any.

    >>> nn.AlphaDropout(0.5).eval()(tn.ones(2))
    tensor([1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels.

    Shapes: (N, C, *).

    >>> nn.FeatureAlphaDropout(0.5).eval()(tn.ones(2, 3)).shape
    tenon.Size([2, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
