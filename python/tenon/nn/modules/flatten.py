"""Joining and splitting dimensions."""

from __future__ import annotations

from typing import Any

from tenon import Tensor
from tenon.nn.modules._options import options
from tenon.nn.modules.module import Module


@options
class Flatten(Module):
    """Joins the dimensions start_dim .. end_dim into one.

    Shapes: (N, *) to (N, product of the others).

    >>> nn.Flatten()(tn.rand(8, 3, 4)).shape
    tenon.Size([8, 12])
    """

    start_dim: int = 1
    end_dim: int = -1

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """Splits one dimension into several.

    Shapes: (*, product, *) to (*, *unflattened_size, *).

    >>> nn.Unflatten(1, (2, 3))(tn.rand(4, 6)).shape
    tenon.Size([4, 2, 3])
    """

    __constants__ = ["dim", "unflattened_size"]

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError("invalid argument type for dim parameter")
        sizes = unflattened_size
        if not isinstance(sizes, (tuple, list)):
            raise TypeError(
                "unflattened_size must be tuple of ints, but found type " + type(sizes).__name__
            )
        for place, size in enumerate(sizes):
            if not isinstance(size, int):
                raise TypeError(
                    "unflattened_size must be tuple of ints, but found element of type "
                    f"{type(size).__name__} at pos {place}"
                )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
