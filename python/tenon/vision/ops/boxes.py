"""Boxes as rows of corners (x1, y1, x2, y2), unless something else is said."""

from __future__ import annotations

import math

import tenon
from tenon import Tensor


def _wide(t: Tensor) -> Tensor:
    """A type that sums and products do not overflow."""
    if t.is_floating_point():
        return t if t.dtype in (tenon.float32, tenon.float64) else t.float()
    return t if t.dtype in (tenon.int32, tenon.int64) else t.int()


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices of boxes to keep, the best first: each removes what overlaps it by more than the
    threshold."""
    if boxes.dim() != 2 or boxes.size(-1) != 4:
        raise RuntimeError(f"boxes should be a 2d tensor of 4 columns, got {tuple(boxes.shape)}")
    if scores.dim() != 1 or scores.size(0) != boxes.size(0):
        raise RuntimeError(
            "boxes and scores should have same number of elements in dimension 0, got "
            f"{boxes.size(0)} and {tuple(scores.shape)}"
        )
    order = scores.sort(descending=True, stable=True).indices
    ranked = boxes.detach()[order]
    overlaps = box_iou(ranked, ranked) > iou_threshold
    keep = tenon.ones(len(order), dtype=tenon.bool)
    rows = overlaps.cpu()
    for i in range(len(order)):
        if keep[i]:
            rows[i, : i + 1] = False
            keep &= ~rows[i]
    return order[keep.to(order.device)]


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """nms among the boxes of each class by itself."""
    if not boxes.numel():
        return tenon.empty((0,), dtype=tenon.int64, device=boxes.device)
    # Classes are moved apart, so that boxes of two of them never overlap.
    apart = idxs.to(boxes) * (boxes.max() + 1)
    return nms(boxes + apart[:, None], scores, iou_threshold)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """Indices of boxes whose sides are not shorter."""
    sides = boxes[:, 2:] - boxes[:, :2]
    return tenon.where((sides >= min_size).all(1))[0]


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """The parts of boxes inside a picture of (height, width)."""
    height, width = size
    x = boxes[..., 0::2].clamp(min=0, max=width)
    y = boxes[..., 1::2].clamp(min=0, max=height)
    return tenon.stack((x, y), dim=boxes.dim()).reshape(boxes.shape)


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """Between corners (xyxy), corner and size (xywh), centre and size (cxcywh)."""
    allowed = ("xyxy", "xywh", "cxcywh")
    if in_fmt not in allowed or out_fmt not in allowed:
        raise ValueError(
            f"Unsupported Bounding Box Conversions for given in_fmt {in_fmt} and out_fmt {out_fmt}"
        )
    if in_fmt == out_fmt:
        return boxes.clone()
    a, b, c, d = boxes.unbind(-1)
    if in_fmt == "xywh":
        a, b, c, d = a, b, a + c, b + d
    elif in_fmt == "cxcywh":
        a, b, c, d = a - 0.5 * c, b - 0.5 * d, a + 0.5 * c, b + 0.5 * d
    if out_fmt == "xywh":
        a, b, c, d = a, b, c - a, d - b
    elif out_fmt == "cxcywh":
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    return tenon.stack((a, b, c, d), dim=-1)


def box_area(boxes: Tensor, fmt: str = "xyxy") -> Tensor:
    """The areas of boxes."""
    boxes = _wide(boxes)
    if fmt == "xyxy":
        return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    return boxes[..., 2] * boxes[..., 3]


def _box_inter_union(boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> tuple[Tensor, Tensor]:
    """Areas that pairs share, and that they cover together."""
    if fmt != "xyxy":
        boxes1, boxes2 = box_convert(boxes1, fmt, "xyxy"), box_convert(boxes2, fmt, "xyxy")
    areas1, areas2 = box_area(boxes1), box_area(boxes2)
    low = tenon.maximum(boxes1[..., None, :2], boxes2[..., None, :, :2])
    high = tenon.minimum(boxes1[..., None, 2:], boxes2[..., None, :, 2:])
    inter = _wide(high - low).clamp(min=0).prod(-1)
    return inter, areas1[..., None] + areas2[..., None, :] - inter


def box_iou(boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> Tensor:
    """(n, m): shared area over covered area of pairs."""
    inter, union = _box_inter_union(boxes1, boxes2, fmt)
    return inter / union


def _hull(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Sides of the smallest boxes around pairs."""
    low = tenon.minimum(boxes1[:, None, :2], boxes2[:, :2])
    high = tenon.maximum(boxes1[:, None, 2:], boxes2[:, 2:])
    return _wide(high - low).clamp(min=0)


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """box_iou, less the share of the smallest box around a pair that the pair does not cover."""
    inter, union = _box_inter_union(boxes1, boxes2)
    area = _hull(boxes1, boxes2).prod(-1)
    return inter / union - (area - union) / area


def _distance(boxes1: Tensor, boxes2: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """box_iou, and how far centres are apart for the diagonal of the box around a pair."""
    diagonal = _hull(boxes1, boxes2).pow(2).sum(-1) + eps
    centers = [(b[:, :2] + b[:, 2:]) / 2 for b in (boxes1, boxes2)]
    apart = _wide(centers[0][:, None] - centers[1][None]).pow(2).sum(-1)
    return box_iou(boxes1, boxes2), apart / diagonal


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """box_iou, less how far centres are apart."""
    iou, apart = _distance(_wide(boxes1), _wide(boxes2), eps)
    return iou - apart


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """distance_box_iou, less how much aspects differ."""
    boxes1, boxes2 = _wide(boxes1), _wide(boxes2)
    iou, apart = _distance(boxes1, boxes2, eps)
    aspect = [tenon.atan((b[:, 2] - b[:, 0]) / (b[:, 3] - b[:, 1])) for b in (boxes1, boxes2)]
    v = 4 / math.pi**2 * (aspect[0][:, None] - aspect[1][None]).pow(2)
    with tenon.no_grad():
        alpha = v / (1 - iou + v + eps)
    return iou - apart - alpha * v


def masks_to_boxes(masks: Tensor) -> Tensor:
    """The smallest boxes around what is set in (n, height, width) masks."""
    if not masks.numel():
        return tenon.zeros((masks.shape[0], 4), dtype=tenon.float32, device=masks.device)
    boxes = tenon.zeros((masks.shape[0], 4), dtype=tenon.float32, device=masks.device)
    for i, mask in enumerate(masks):
        y, x = tenon.where(mask != 0)
        boxes[i] = tenon.stack([x.min(), y.min(), x.max(), y.max()]).float()
    return boxes
