"""Regions of feature maps, by their largest elements."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.vision.ops.roi_align import _rows_of, repr_of


def _whole(places: Tensor) -> list[int]:
    """The next whole numbers, halves away from zero."""
    return (places.sign() * (places.abs() + 0.5).floor()).long().tolist()


def cells(start: int, length: int, count: int, last: int) -> list[tuple[int, int]]:
    """The elements [from, to) of each of `count` cells of a side, inside [0, last]."""
    step = tenon.tensor(length, dtype=tenon.float32) / count
    number = tenon.arange(count + 1, dtype=tenon.float32) * step
    first = (number[:-1].floor().long() + start).clamp(0, last).tolist()
    end = (number[1:].ceil().long() + start).clamp(0, last).tolist()
    return list(zip(first, end, strict=True))


def corners_of(rows: Tensor, spatial_scale: float) -> list[list[int]]:
    """(picture, x1, y1, x2, y2) of each row, in whole elements of the feature map."""
    corners = _whole(rows.detach()[:, 1:].cpu() * spatial_scale)
    return [[p, *c] for p, c in zip(rows[:, 0].long().tolist(), corners, strict=True)]


def pool(
    input: Tensor, rows: Tensor, size: tuple[int, int], spatial_scale: float
) -> tuple[Tensor, Tensor]:
    """The largest element of each cell, and its place in the picture; 0 and -1 of empty ones."""
    high, wide = input.shape[2:]
    places = tenon.arange(high * wide, device=input.device).view(high, wide)
    shape = (len(rows), input.size(1), *size)
    result = input.new_zeros(shape)
    where = tenon.full(shape, -1, dtype=tenon.int32, device=input.device)
    for k, (picture, x1, y1, x2, y2) in enumerate(corners_of(rows, spatial_scale)):
        down = cells(y1, max(y2 - y1 + 1, 1), size[0], high)
        along = cells(x1, max(x2 - x1 + 1, 1), size[1], wide)
        for i, (top, bottom) in enumerate(down):
            for j, (left, right) in enumerate(along):
                if bottom > top and right > left:
                    part = input[picture, :, top:bottom, left:right].flatten(1)
                    result[k, :, i, j], index = part.max(1)
                    where[k, :, i, j] = places[top:bottom, left:right].flatten()[index].int()
    return result, where


def roi_pool(input: Tensor, boxes: Any, output_size: Any, spatial_scale: float = 1.0) -> Tensor:
    """(boxes, channels, *output_size): the largest elements in the cells of each box, whose corners
    are rounded to elements. Boxes are those of roi_align."""
    size = (output_size,) * 2 if isinstance(output_size, int) else tuple(output_size)
    return pool(input, _rows_of(boxes), size, spatial_scale)[0]


class RoIPool(nn.Module):
    """roi_pool with settings of its own."""

    def __init__(self, output_size: Any, spatial_scale: float) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale

    def forward(self, input: Tensor, rois: Any) -> Tensor:
        return roi_pool(input, rois, self.output_size, self.spatial_scale)

    def __repr__(self) -> str:
        return repr_of(self, "output_size", "spatial_scale")
