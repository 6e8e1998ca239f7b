"""Operators on boxes and regions of pictures, and layers that models of them share."""

from tenon.vision.ops.boxes import (
    batched_nms,
    box_area,
    box_convert,
    box_iou,
    clip_boxes_to_image,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    masks_to_boxes,
    nms,
    remove_small_boxes,
)
from tenon.vision.ops.deform_conv import DeformConv2d, deform_conv2d
from tenon.vision.ops.focal_loss import sigmoid_focal_loss
from tenon.vision.ops.misc import (
    MLP,
    Conv2dNormActivation,
    Conv3dNormActivation,
    FrozenBatchNorm2d,
    Permute,
    SqueezeExcitation,
)
from tenon.vision.ops.ps_roi import PSRoIAlign, PSRoIPool, ps_roi_align, ps_roi_pool
from tenon.vision.ops.roi_align import RoIAlign, roi_align
from tenon.vision.ops.roi_pool import RoIPool, roi_pool
from tenon.vision.ops.stochastic_depth import StochasticDepth, stochastic_depth

__all__ = [
    "MLP", "Conv2dNormActivation", "Conv3dNormActivation", "DeformConv2d", "FrozenBatchNorm2d",
    "PSRoIAlign", "PSRoIPool", "Permute", "RoIAlign", "RoIPool", "SqueezeExcitation",
    "StochasticDepth", "batched_nms", "box_area", "box_convert", "box_iou", "clip_boxes_to_image",
    "complete_box_iou", "deform_conv2d", "distance_box_iou", "generalized_box_iou",
    "masks_to_boxes", "nms", "ps_roi_align", "ps_roi_pool", "remove_small_boxes", "roi_align",
    "roi_pool", "sigmoid_focal_loss", "stochastic_depth",
]  # fmt: skip
