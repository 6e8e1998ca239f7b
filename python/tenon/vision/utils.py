"""Pictures side by side, and in files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, BinaryIO

import tenon
from tenon import Tensor

__all__ = ["make_grid", "save_image"]


def _scaled(t: Tensor, low: float, high: float) -> None:
    t.clamp_(min=low, max=high)
    t.sub_(low).div_(max(high - low, 1e-5))


@tenon.no_grad()
def make_grid(
    tensor: Any,
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Pictures (n, channels, height, width), or a list of them, as one picture with nrow in a row.

    normalize brings values to 0..1 from value_range, or from the least and the largest one, of each
    picture by itself with scale_each.
    """
    if not isinstance(tensor, Tensor) and not (
        isinstance(tensor, list) and all(isinstance(t, Tensor) for t in tensor)
    ):
        raise TypeError(f"tensor or list of tensors expected, got {type(tensor)}")
    if isinstance(tensor, list):
        tensor = tenon.stack(tensor, dim=0)
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 3:
        if tensor.size(0) == 1:
            tensor = tenon.cat((tensor, tensor, tensor), 0)
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 4 and tensor.size(1) == 1:
        tensor = tenon.cat((tensor, tensor, tensor), 1)
    if normalize:
        tensor = tensor.clone()
        if value_range is not None and not isinstance(value_range, tuple):
            raise TypeError("value_range has to be a tuple (min, max) if specified")
        for t in tensor if scale_each else [tensor]:
            low, high = value_range or (float(t.min()), float(t.max()))
            _scaled(t, low, high)
    if tensor.size(0) == 1:
        return tensor.squeeze(0)
    count = tensor.size(0)
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    height, width = tensor.size(2) + padding, tensor.size(3) + padding
    shape = (tensor.size(1), height * rows + padding, width * columns + padding)
    grid = tensor.new_full(shape, pad_value)
    for k in range(count):
        y, x = k // columns * height + padding, k % columns * width + padding
        grid[:, y : y + height - padding, x : x + width - padding] = tensor[k]
    return grid


@tenon.no_grad()
def save_image(
    tensor: Any, fp: str | Path | BinaryIO, format: str | None = None, **kwargs: Any
) -> None:
    """Writes pictures with values in 0..1 as one picture, laid out by make_grid."""
    from PIL import Image

    grid = make_grid(tensor, **kwargs)
    values = grid.mul(255).add_(0.5).clamp_(0, 255).permute(1, 2, 0).to("cpu", tenon.uint8)
    Image.fromarray(values.numpy()).save(fp, format=format)
