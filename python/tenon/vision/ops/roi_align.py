"""Regions of feature maps, read between the elements."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, nn


def _rows_of(boxes: Any) -> Tensor:
    """Boxes of several pictures as rows (picture, x1, y1, x2, y2)."""
    if isinstance(boxes, Tensor):
        if boxes.size(1) != 5:
            raise AssertionError("The boxes tensor shape is not correct as Tensor[K, 5]")
        return boxes
    if not all(b.size(1) == 4 for b in boxes):
        raise AssertionError(
            "The shape of the tensor in the boxes list is not correct as Tensor[L, 4]"
        )
    numbers = [tenon.full_like(b[:, :1], i) for i, b in enumerate(boxes)]
    return tenon.cat([tenon.cat(numbers), tenon.cat(list(boxes))], dim=1)


def _weights(places: Tensor, size: int) -> Tensor:
    """(..., size): what each element of a dimension adds at places between them; beyond the border
    by up to 1 the border counts, farther out nothing."""
    inside = (places >= -1) & (places <= size)
    places = places.clamp(min=0, max=size - 1)
    index = tenon.arange(size, dtype=places.dtype, device=places.device)
    weights = (1 - (places.unsqueeze(-1) - index).abs()).clamp(min=0)
    return weights * inside.unsqueeze(-1)


def _samples(start: Tensor, step: Tensor, cells: int, count: int) -> Tensor:
    """(boxes, cells, count): where each cell of a box is read."""
    cell = tenon.arange(cells, dtype=start.dtype, device=start.device).view(1, -1, 1)
    part = (tenon.arange(count, dtype=start.dtype, device=start.device) + 0.5) / count
    return start.view(-1, 1, 1) + (cell + part) * step.view(-1, 1, 1)


def roi_align(
    input: Tensor,
    boxes: Any,
    output_size: Any,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """(boxes, channels, *output_size): means of bilinear samples in the cells of each box.

    boxes are rows (picture, x1, y1, x2, y2), or a list of (x1, y1, x2, y2) for each picture;
    spatial_scale takes them to the input's elements, which `aligned` counts from their middles.
    """
    rows = _rows_of(boxes).to(input.dtype)
    height, width = (output_size,) * 2 if isinstance(output_size, int) else output_size
    picture, corners = rows[:, 0].long(), rows[:, 1:] * spatial_scale - (0.5 if aligned else 0.0)
    sides = corners[:, 2:] - corners[:, :2]
    if not aligned:
        sides = sides.clamp(min=1.0)
    results = []
    for i in range(len(rows)):
        steps = sides[i] / tenon.tensor([width, height], dtype=input.dtype, device=input.device)
        if sampling_ratio > 0:
            across = down = sampling_ratio
        else:
            across, down = map(int, steps.ceil().tolist())
        if across < 1 or down < 1:  # a box without an inside is not read
            results.append(input.new_zeros((input.size(1), height, width)))
            continue
        x = _weights(_samples(corners[i : i + 1, 0], steps[:1], width, across), input.size(3))
        y = _weights(_samples(corners[i : i + 1, 1], steps[1:], height, down), input.size(2))
        # Samples of a grid: the means over a cell are products of means along its sides.
        results.append(y[0].mean(1) @ input[picture[i]] @ x[0].mean(1).t())
    if not results:
        return input.new_zeros((0, input.size(1), height, width))
    return tenon.stack(results)


def repr_of(layer: nn.Module, *names: str) -> str:
    """A layer's class with settings by name."""
    shown = ", ".join(f"{name}={getattr(layer, name)}" for name in names)
    return f"{type(layer).__name__}({shown})"


class RoIAlign(nn.Module):
    """roi_align with settings of its own."""

    def __init__(
        self, output_size: Any, spatial_scale: float, sampling_ratio: int, aligned: bool = False
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.spatial_scale = spatial_scale
        self.sampling_ratio = sampling_ratio
        self.aligned = aligned

    def forward(self, input: Tensor, rois: Any) -> Tensor:
        return roi_align(
            input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned
        )

    def __repr__(self) -> str:
        return repr_of(self, "output_size", "spatial_scale", "sampling_ratio", "aligned")
