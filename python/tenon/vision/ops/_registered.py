"""The operators of torchvision's own library, for a torchvision that is installed beside Tenon: its
Python code calls them by name, and registers gradients and shapes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor
from tenon.vision.ops import ps_roi
from tenon.vision.ops.boxes import nms
from tenon.vision.ops.deform_conv import deform_conv2d
from tenon.vision.ops.roi_align import roi_align
from tenon.vision.ops.roi_pool import pool

_ROI = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_BACK = (
    "Tensor grad, Tensor rois, {}float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "{}SymInt batch_size, SymInt channels, SymInt height, SymInt width"
)
_DEFORM = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)


def _slopes(f: Callable[..., Tensor], inputs: tuple[Tensor, ...], grad: Tensor) -> Any:
    """Gradients of f(*inputs), zeros of those that it does not read."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    with tenon.enable_grad():
        result = f(*leaves)
    if not result.requires_grad:  # of no boxes
        return [tenon.zeros_like(leaf) for leaf in leaves]
    return tenon.autograd.grad(result, leaves, grad, allow_unused=True, materialize_grads=True)


def _roi_align(
    input: Tensor, rois: Tensor, scale: float, high: int, wide: int, ratio: int, aligned: bool
) -> Tensor:
    return roi_align(input, rois, (high, wide), scale, ratio, aligned)


def _roi_align_backward(
    grad: Tensor, rois: Tensor, scale: float, high: int, wide: int, batch: int, channels: int,
    height: int, width: int, ratio: int, aligned: bool,
) -> Tensor:  # fmt: skip
    zero = grad.new_zeros((batch, channels, height, width))
    f = lambda t: roi_align(t, rois, (high, wide), scale, ratio, aligned)  # noqa: E731
    return _slopes(f, (zero,), grad)[0]


def _roi_pool(
    input: Tensor, rois: Tensor, scale: float, high: int, wide: int
) -> tuple[Tensor, Tensor]:
    return pool(input, rois, (high, wide), scale)


def _roi_pool_backward(
    grad: Tensor, rois: Tensor, argmax: Tensor, scale: float, high: int, wide: int, batch: int,
    channels: int, height: int, width: int,
) -> Tensor:  # fmt: skip
    result = grad.new_zeros((batch, channels, height * width))
    place = argmax.long().flatten(2)
    share = grad.flatten(2) * (place >= 0)
    for k, picture in enumerate(rois[:, 0].long().tolist()):
        result[picture].scatter_add_(1, place[k].clamp(min=0), share[k])
    return result.view(batch, channels, height, width)


def _mapped(input: Tensor, rois: Tensor, high: int, wide: int) -> Tensor:
    return ps_roi.channels_of_cells(input, (high, wide)).expand(len(rois), -1, -1, -1).contiguous()


def _ps_roi_align(
    input: Tensor, rois: Tensor, scale: float, high: int, wide: int, ratio: int
) -> tuple[Tensor, Tensor]:
    result = ps_roi.ps_roi_align(input, rois, (high, wide), scale, ratio)
    return result, _mapped(input, rois, high, wide)


def _ps_roi_align_backward(
    grad: Tensor, rois: Tensor, mapping: Tensor, scale: float, high: int, wide: int, ratio: int,
    batch: int, channels: int, height: int, width: int,
) -> Tensor:  # fmt: skip
    zero = grad.new_zeros((batch, channels, height, width))
    f = lambda t: ps_roi.ps_roi_align(t, rois, (high, wide), scale, ratio)  # noqa: E731
    return _slopes(f, (zero,), grad)[0]


def _ps_roi_pool(
    input: Tensor, rois: Tensor, scale: float, high: int, wide: int
) -> tuple[Tensor, Tensor]:
    result = ps_roi.ps_roi_pool(input, rois, (high, wide), scale)
    return result, _mapped(input, rois, high, wide)


def _ps_roi_pool_backward(
    grad: Tensor, rois: Tensor, mapping: Tensor, scale: float, high: int, wide: int, batch: int,
    channels: int, height: int, width: int,
) -> Tensor:  # fmt: skip
    zero = grad.new_zeros((batch, channels, height, width))
    return _slopes(lambda t: ps_roi.ps_roi_pool(t, rois, (high, wide), scale), (zero,), grad)[0]


def _deform(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, stride_h: int,
    stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, groups: int,
    offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    return deform_conv2d(
        input, offset, weight, bias, (stride_h, stride_w), (pad_h, pad_w),
        (dilation_h, dilation_w), mask if use_mask else None,
    )  # fmt: skip


def _deform_backward(
    grad: Tensor, input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor,
    *settings: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    tensors = (input, weight, offset, mask, bias)
    return tuple(_slopes(lambda *t: _deform(*t, *settings), tensors, grad))


def _quantized_nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    return nms(dets.float(), scores.float(), iou_threshold)


def _quantized_roi_align(
    input: Tensor, rois: Tensor, input_scale: float, input_zero: int, rois_scale: float,
    rois_zero: int, scale: float, high: int, wide: int, ratio: int, aligned: bool,
) -> Tensor:  # fmt: skip
    corners = (rois.float() - rois_zero) * rois_scale
    means = roi_align(input.float(), corners, (high, wide), scale, ratio, aligned)
    limits = tenon.iinfo(input.dtype)
    return means.round().clamp(limits.min, limits.max).to(input.dtype)


_PAIR = "-> (Tensor, Tensor)"
_SCHEMAS: dict[str, Callable[..., Any]] = {
    "_cuda_version() -> int": lambda: -1,
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": nms,
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": _quantized_nms,
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, "
    "float rois_scale, int rois_zero_point, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor": _quantized_roi_align,
    f"roi_align({_ROI}, int sampling_ratio, bool aligned) -> Tensor": _roi_align,
    f"_roi_align_backward({_BACK.format('', '')}, int sampling_ratio, bool aligned) -> Tensor":
        _roi_align_backward,
    f"roi_pool({_ROI}) {_PAIR}": _roi_pool,
    f"_roi_pool_backward({_BACK.format('Tensor argmax, ', '')}) -> Tensor": _roi_pool_backward,
    f"ps_roi_align({_ROI}, int sampling_ratio) {_PAIR}": _ps_roi_align,
    f"_ps_roi_align_backward({_BACK.format('Tensor channel_mapping, ', 'int sampling_ratio, ')})"
    " -> Tensor": _ps_roi_align_backward,
    f"ps_roi_pool({_ROI}) {_PAIR}": _ps_roi_pool,
    f"_ps_roi_pool_backward({_BACK.format('Tensor channel_mapping, ', '')}) -> Tensor":
        _ps_roi_pool_backward,
    f"deform_conv2d({_DEFORM}) -> Tensor": _deform,
    f"_deform_conv2d_backward(Tensor grad, {_DEFORM}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)": _deform_backward,
}  # fmt: skip

_library = tenon.library.Library("torchvision", "DEF")
for _schema, _function in _SCHEMAS.items():
    _library.impl(_library.define(_schema), _function)
