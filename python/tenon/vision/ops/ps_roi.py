"""Regions of feature maps whose channels belong to cells: each cell of a box reads its own."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.vision.ops.roi_align import _rows_of, repr_of, roi_align
from tenon.vision.ops.roi_pool import cells, corners_of


def channels_of_cells(input: Tensor, size: tuple[int, int]) -> Tensor:
    """(channels, *size): the channel that each cell of a result reads."""
    if input.size(1) % (size[0] * size[1]):
        raise RuntimeError(
            "input channels must be a multiple of pooling height * pooling width: "
            f"{input.size(1)} channels, cells {size[0]} x {size[1]}"
        )
    return tenon.arange(input.size(1), dtype=tenon.int32, device=input.device).view(-1, *size)


def _own(cell_of_all: Tensor, size: tuple[int, int]) -> Tensor:
    """Of (boxes, channels, *size) the channel of each cell."""
    t = cell_of_all.unflatten(1, (-1, *size))
    return t.diagonal(dim1=2, dim2=4).diagonal(dim1=2, dim2=3)


def ps_roi_align(
    input: Tensor, boxes: Any, output_size: Any, spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> Tensor:  # fmt: skip
    """roi_align, aligned, of channels / (height * width) results, each cell from its channel."""
    size = (output_size,) * 2 if isinstance(output_size, int) else tuple(output_size)
    channels_of_cells(input, size)
    means = roi_align(input, boxes, size, spatial_scale, sampling_ratio, aligned=True)
    return _own(means, size).contiguous()


def ps_roi_pool(input: Tensor, boxes: Any, output_size: Any, spatial_scale: float = 1.0) -> Tensor:
    """Means of the elements in the cells of each box, each cell from its channel."""
    size = (output_size,) * 2 if isinstance(output_size, int) else tuple(output_size)
    channel = channels_of_cells(input, size)
    high, wide = input.shape[2:]
    results = []
    for picture, x1, y1, x2, y2 in corners_of(_rows_of(boxes), spatial_scale):
        down = cells(y1, max(y2 - y1, 1), size[0], high - 1)
        along = cells(x1, max(x2 - x1, 1), size[1], wide - 1)
        for i, (top, bottom) in enumerate(down):
            for j, (left, right) in enumerate(along):
                part = input[picture, channel[:, i, j], top:bottom, left:right]
                # An empty cell has no elements, and 0 for their mean.
                results.append(part.sum((1, 2)) / max(part[0].numel(), 1))
    if not results:
        return input.new_zeros((0, len(channel), *size))
    return tenon.stack(results).view(-1, *size, len(channel)).permute(0, 3, 1, 2).contiguous()


class PSRoIAlign(nn.Module):
    """ps_roi_align with settings of its own."""

    def __init__(self, output_size: Any, spatial_scale: float, sampling_ratio: int) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale
        self.sampling_ratio = sampling_ratio

    def forward(self, input: Tensor, rois: Any) -> Tensor:
        return ps_roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio)

    def __repr__(self) -> str:
        return repr_of(self, "output_size", "spatial_scale", "sampling_ratio")


class PSRoIPool(nn.Module):
    """ps_roi_pool with settings of its own."""

    def __init__(self, output_size: Any, spatial_scale: float) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale

    def forward(self, input: Tensor, rois: Any) -> Tensor:
        return ps_roi_pool(input, rois, self.output_size, self.spatial_scale)

    def __repr__(self) -> str:
        return repr_of(self, "output_size", "spatial_scale")
