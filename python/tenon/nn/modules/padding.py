"""Padding: the same class for one to three dimensions, in four kinds."""

from __future__ import annotations

from typing import Any

from tenon import Tensor
from tenon.nn import functional as F
from tenon.nn.modules.module import Module
from tenon.nn.modules.utils import _ntuple


class _Pad(Module):
    __constants__ = ["padding"]
    _dims: int
    _mode = "constant"

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._dims)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    __constants__ = ["padding", "value"]

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Pads the last dimension with `value`.

    Shapes: (N, C, L) to (N, C, L + left + right).

    >>> nn.ConstantPad1d((1, 2), 9.0)(tn.tensor([[[1.0, 2.0]]]))
    tensor([[[9., 1., 2., 9., 9.]]])
    """

    _dims = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last two dimensions with `value`.

    Shapes: (N, C, H, W); padding is (left, right, top, bottom).

    >>> nn.ConstantPad2d(1, 0.5)(tn.rand(1, 1, 3, 3)).shape
    tenon.Size([1, 1, 5, 5])
    """

    _dims = 2


class ConstantPad3d(_ConstantPad):
    """Pads the last three dimensions with `value`.

    Shapes: (N, C, D, H, W); padding is (left, right, top, bottom, front, back).

    >>> nn.ConstantPad3d(1, 0.5)(tn.rand(1, 1, 3, 3, 3)).shape
    tenon.Size([1, 1, 5, 5, 5])
    """

    _dims = 3


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad):
    """Pads the last dimension with zeros.

    Shapes: (N, C, L) to (N, C, L + left + right).

    >>> nn.ZeroPad1d(1)(tn.tensor([[[1.0, 2.0]]]))
    tensor([[[0., 1., 2., 0.]]])
    """

    _dims = 1


class ZeroPad2d(_ZeroPad):
    """Pads the last two dimensions with zeros.

    Shapes: (N, C, H, W); padding is (left, right, top, bottom).

    >>> nn.ZeroPad2d((1, 1, 0, 2))(tn.rand(1, 1, 3, 3)).shape
    tenon.Size([1, 1, 5, 5])
    """

    _dims = 2


class ZeroPad3d(_ZeroPad):
    """Pads the last three dimensions with zeros.

    Shapes: (N, C, D, H, W); padding is (left, right, top, bottom, front, back).

    >>> nn.ZeroPad3d(1)(tn.rand(1, 1, 3, 3, 3)).shape
    tenon.Size([1, 1, 5, 5, 5])
    """

    _dims = 3


class ReflectionPad1d(_Pad):
    """Pads the last dimension with its mirror image.

    Shapes: (N, C, L) to (N, C, L + left + right).

    >>> nn.ReflectionPad1d(1)(tn.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[2., 1., 2., 3., 2.]]])
    """

    _dims, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Pads the last two dimensions with their mirror images.

    Shapes: (N, C, H, W); padding is (left, right, top, bottom).

    >>> nn.ReflectionPad2d(1)(tn.rand(1, 1, 3, 3)).shape
    tenon.Size([1, 1, 5, 5])
    """

    _dims, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Pads the last three dimensions with their mirror images.

    Shapes: (N, C, D, H, W); padding is (left, right, top, bottom, front, back).

    >>> nn.ReflectionPad3d(1)(tn.rand(1, 1, 3, 3, 3)).shape
    tenon.Size([1, 1, 5, 5, 5])
    """

    _dims, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Pads the last dimension with its border.

    Shapes: (N, C, L) to (N, C, L + left + right).

    >>> nn.ReplicationPad1d(1)(tn.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[1., 1., 2., 3., 3.]]])
    """

    _dims, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Pads the last two dimensions with their borders.

    Shapes: (N, C, H, W); padding is (left, right, top, bottom).

    >>> nn.ReplicationPad2d(1)(tn.rand(1, 1, 3, 3)).shape
    tenon.Size([1, 1, 5, 5])
    """

    _dims, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Pads the last three dimensions with their borders.

    Shapes: (N, C, D, H, W); padding is (left, right, top, bottom, front, back).

    >>> nn.ReplicationPad3d(1)(tn.rand(1, 1, 3, 3, 3)).shape
    tenon.Size([1, 1, 5, 5, 5])
    """

    _dims, _mode = 3, "replicate"


class _CircularPad(_Pad):
    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (self._dims + 1, self._dims + 2):
            raise ValueError(
                f"expected {self._dims + 1}D or {self._dims + 2}D input (got {input.dim()}D input)"
            )
        return super().forward(input)


class CircularPad1d(_CircularPad):
    """Pads the last dimension with its other end.

    Shapes: (N, C, L) to (N, C, L + left + right).

    >>> nn.CircularPad1d(1)(tn.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[3., 1., 2., 3., 1.]]])
    """

    _dims, _mode = 1, "circular"


class CircularPad2d(_CircularPad):
    """Pads the last two dimensions with their other ends.

    Shapes: (N, C, H, W); padding is (left, right, top, bottom).

    >>> nn.CircularPad2d(1)(tn.rand(1, 1, 3, 3)).shape
    tenon.Size([1, 1, 5, 5])
    """

    _dims, _mode = 2, "circular"


class CircularPad3d(_CircularPad):
    """Pads the last three dimensions with their other ends.

    Shapes: (N, C, D, H, W); padding is (left, right, top, bottom, front, back).

    >>> nn.CircularPad3d(1)(tn.rand(1, 1, 3, 3, 3)).shape
    tenon.Size([1, 1, 5, 5, 5])
    """

    _dims, _mode = 3, "circular"
