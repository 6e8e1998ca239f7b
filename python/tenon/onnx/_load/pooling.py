"""Operators of ONNX that look at windows, regions and grids of images."""

from __future__ import annotations

import itertools
import math
from typing import Any

import tenon as tn
from tenon.nn import functional as F
from tenon.onnx._load.layers import padded, paddings
from tenon.onnx._load.registry import Context, ints, number, op


def _windows(
    x: Any, kernel: list[int], strides: list[int], dilations: list[int], before: list[int],
    after: list[int], ceil_mode: int, fill: float,
) -> tuple[Any, list[int]]:  # fmt: skip
    """All windows' elements in a last dimension, and how many windows there are."""
    counts = []
    for n, k, s, d, b, a in zip(x.shape[2:], kernel, strides, dilations, before, after,
                                strict=True):  # fmt: skip
        room = n + b + a - (k - 1) * d - 1
        count = (-(-room // s) if ceil_mode else room // s) + 1
        if ceil_mode and (count - 1) * s >= n + b:  # no window begins in the padding behind
            count -= 1
        counts.append(count)
    return _cut(x, kernel, strides, dilations, before, counts, fill), counts


def _cut(
    x: Any, kernel: list[int], strides: list[int], dilations: list[int], before: list[int],
    counts: list[int], fill: float,
) -> Any:  # fmt: skip
    more = [
        max((c - 1) * s + (k - 1) * d + 1 - n - b, 0)
        for n, k, s, d, b, c in zip(x.shape[2:], kernel, strides, dilations, before, counts,
                                    strict=True)
    ]  # fmt: skip
    wide = padded(x, before, more, fill)
    parts = []
    for at in itertools.product(*(range(k) for k in kernel)):
        part = wide
        for i, (o, s, d, c) in enumerate(zip(at, strides, dilations, counts, strict=True)):
            part = part.narrow(i + 2, o * d, (c - 1) * s + 1)
            part = part if s == 1 else part.index_select(i + 2, tn.arange(0, part.shape[i + 2], s))
        parts.append(part)
    return tn.stack(parts, -1)


def _options(x: Any, kernel: Any, strides: Any, dilations: Any, auto_pad: str, pads: Any) -> Any:
    rank = len(kernel)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    before, after = paddings(auto_pad, pads, x.shape[2:], kernel, strides, dilations)
    return strides, dilations, before, after


@op("MaxPool")
def max_pool(ctx: Context, x: Any, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0,
             dilations: Any = None, pads: Any = None, storage_order: int = 0,
             strides: Any = None) -> Any:  # fmt: skip
    s, d, before, after = _options(x, kernel_shape, strides, dilations, auto_pad, pads)
    low = -math.inf if x.is_floating_point() else tn.iinfo(x.dtype).min
    windows, counts = _windows(x, kernel_shape, s, d, before, after, ceil_mode, low)
    y, best = windows.max(-1)
    if ctx.outputs == 1:
        return y
    size = list(x.shape[2:])
    order = list(range(len(size)))
    at = tn.zeros_like(best)
    step = 1
    for i in order if storage_order else reversed(order):
        inner = math.prod(kernel_shape[i + 1 :])
        inside = best // inner % kernel_shape[i] * d[i]
        shape = [-1 if k == i + 2 else 1 for k in range(x.ndim)]
        place = tn.arange(counts[i]).reshape(shape) * s[i] - before[i] + inside
        at = at + place * step
        step *= size[i]
    lead = tn.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(size))
    return y, at + lead * math.prod(size)


@op("AveragePool")
def average_pool(ctx: Context, x: Any, kernel_shape: Any, auto_pad: str = "NOTSET",
                 ceil_mode: int = 0, count_include_pad: int = 0, dilations: Any = None,
                 pads: Any = None, strides: Any = None) -> Any:  # fmt: skip
    s, d, before, after = _options(x, kernel_shape, strides, dilations, auto_pad, pads)
    windows, counts = _windows(x, kernel_shape, s, d, before, after, ceil_mode, 0.0)
    ones = tn.ones(1, 1, *x.shape[2:], dtype=x.dtype)
    if count_include_pad:
        ones = padded(ones, before, after, 1.0)
        before = [0] * len(before)
    held = _cut(ones, kernel_shape, s, d, before, counts, 0.0)
    return windows.sum(-1) / held.sum(-1)


@op("LpPool")
def lp_pool(ctx: Context, x: Any, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0,
            dilations: Any = None, p: int = 2, pads: Any = None,
            strides: Any = None) -> Any:  # fmt: skip
    s, d, before, after = _options(x, kernel_shape, strides, dilations, auto_pad, pads)
    windows, _ = _windows(x, kernel_shape, s, d, before, after, ceil_mode, 0.0)
    return (windows.abs() ** p).sum(-1) ** (1 / p)


def _all(x: Any) -> list[int]:
    return list(range(2, x.ndim))


@op("GlobalAveragePool")
def global_average_pool(ctx: Context, x: Any) -> Any:
    return x.mean(_all(x), keepdim=True)


@op("GlobalMaxPool")
def global_max_pool(ctx: Context, x: Any) -> Any:
    return x.amax(_all(x), keepdim=True)


@op("GlobalLpPool")
def global_lp_pool(ctx: Context, x: Any, p: int = 2) -> Any:
    return (x.abs() ** p).sum(_all(x), keepdim=True) ** (1 / p)


@op("MaxUnpool")
def max_unpool(ctx: Context, x: Any, at: Any, wanted: Any = None, kernel_shape: Any = None,
               pads: Any = None, strides: Any = None) -> Any:  # fmt: skip
    rank = x.ndim - 2
    strides, pads = strides or [1] * rank, pads or [0] * 2 * rank
    natural = [
        (n - 1) * s + k - pads[i] - pads[i + rank]
        for i, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel_shape, strict=True))
    ]
    made = tn.zeros(math.prod(x.shape[:2]) * math.prod(natural), dtype=x.dtype)
    made = made.index_copy(0, at.reshape(-1), x.reshape(-1)).reshape(*x.shape[:2], *natural)
    if wanted is None:
        return made
    grow = [w - n for w, n in zip((ints(wanted) or [])[2:], natural, strict=True)]
    return padded(made, [0] * rank, grow, 0)


@op("GridSample")
def grid_sample(ctx: Context, x: Any, grid: Any, align_corners: int = 0, mode: str = "linear",
                padding_mode: str = "zeros") -> Any:  # fmt: skip
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(x, grid, mode, padding_mode, bool(align_corners))


@op("AffineGrid")
def affine_grid(ctx: Context, theta: Any, size: Any, align_corners: int = 0) -> Any:
    return F.affine_grid(theta, ints(size), bool(align_corners))


@op("RoiAlign")
def roi_align(ctx: Context, x: Any, rois: Any, batch: Any,
              coordinate_transformation_mode: str | None = None, mode: str = "avg",
              output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
              spatial_scale: float = 1.0) -> Any:  # fmt: skip
    default = "half_pixel" if ctx.opset >= 16 else "output_half_pixel"
    half = 0.5 if (coordinate_transformation_mode or default) == "half_pixel" else 0.0
    found = []
    for roi, b in zip(rois.tolist(), batch.tolist(), strict=True):
        x0, y0, x1, y1 = (v * spatial_scale - half for v in roi)
        wide, high = x1 - x0, y1 - y0
        if not half:
            wide, high = max(wide, 1.0), max(high, 1.0)
        bins = (high / output_height, wide / output_width)
        counts = [sampling_ratio or math.ceil(s) for s in bins]
        rows = _samples(y0, bins[0], output_height, counts[0], x.shape[2], x.dtype)
        columns = _samples(x0, bins[1], output_width, counts[1], x.shape[3], x.dtype)
        image = x[int(b)]
        if mode == "avg":
            part = tn.einsum("oyh,chw,pxw->copyx", rows, image, columns)
            found.append(part.mean((-1, -2)))
            continue
        corners = []
        for i, j in itertools.product(range(2), range(2)):
            r, rw = _corner(rows, i)
            c, cw = _corner(columns, j)
            seen = image[:, r.reshape(-1)][:, :, c.reshape(-1)]
            seen = seen.reshape(image.shape[0], *r.shape, *c.shape)
            corners.append(seen * rw.reshape(*r.shape, 1, 1) * cw)
        part = tn.stack(corners).amax(0)
        found.append(part.amax((2, 4)))
    return tn.stack(found)


def _samples(start: float, size: float, bins: int, count: int, n: int, dtype: Any) -> Any:
    """For each bin and sample the weights of a line's elements."""
    at = start + size * (tn.arange(bins).reshape(-1, 1) + (tn.arange(count) + 0.5) / count).double()
    inside = (at >= -1) & (at <= n)
    at = at.clamp(0, n - 1)
    near = 1 - (at.unsqueeze(-1) - tn.arange(n).double()).abs()
    return (near.clamp(min=0) * inside.unsqueeze(-1)).to(dtype)


def _corner(weights: Any, which: int) -> tuple[Any, Any]:
    """The first or second element beside each sample, and its weight."""
    two = weights.topk(min(2, weights.shape[-1]), -1)
    k = min(which, two.indices.shape[-1] - 1)
    return two.indices[..., k], two.values[..., k]


@op("NonMaxSuppression")
def non_max_suppression(ctx: Context, boxes: Any, scores: Any, most: Any = None, iou: Any = None,
                        least: Any = None, center_point_box: int = 0) -> Any:  # fmt: skip
    limit, overlap = int(number(most, 0)), number(iou, 0.0)
    found: list[list[int]] = []
    for b, (rows, by_class) in enumerate(zip(boxes.tolist(), scores.tolist(), strict=True)):
        sides = [_sides(r, center_point_box) for r in rows]
        for c, values in enumerate(by_class):
            kept: list[int] = []
            for i in sorted(range(len(values)), key=lambda k, v=values: -v[k]):
                low = least is not None and values[i] <= number(least)
                if len(kept) >= limit or low:
                    break
                if all(_overlap(sides[i], sides[j]) <= overlap for j in kept):
                    kept.append(i)
            found += [[b, c, i] for i in kept]
    return tn.tensor(found, dtype=tn.int64).reshape(-1, 3)


def _sides(box: list[float], by_center: int) -> tuple[float, float, float, float]:
    a, b, c, d = box
    if by_center:
        return b - d / 2, a - c / 2, b + d / 2, a + c / 2
    return min(a, c), min(b, d), max(a, c), max(b, d)


def _overlap(p: Any, q: Any) -> float:
    high = max(min(p[2], q[2]) - max(p[0], q[0]), 0.0)
    wide = max(min(p[3], q[3]) - max(p[1], q[1]), 0.0)
    both = (p[2] - p[0]) * (p[3] - p[1]) + (q[2] - q[0]) * (q[3] - q[1]) - high * wide
    return high * wide / both if both > 0 else 0.0
