"""Operators of ONNX that are layers: convolutions, norms, softmax, losses, dropout."""

from __future__ import annotations

import math
from typing import Any

import tenon as tn
from tenon._tensor.dims import wrapped_dim
from tenon.nn import functional as F
from tenon.onnx._load.math import quantized
from tenon.onnx._load.registry import Context, number, op

# ---- Convolutions --------------------------------------------------------------------------------


def paddings(
    auto_pad: str, pads: Any, size: Any, kernel: Any, strides: Any, dilations: Any
) -> tuple[list[int], list[int]]:
    """Before and after each dimension."""
    rank = len(kernel)
    if auto_pad in ("NOTSET", ""):
        pads = pads or [0] * 2 * rank
        return list(pads[:rank]), list(pads[rank:])
    if auto_pad == "VALID":
        return [0] * rank, [0] * rank
    before, after = [], []
    for n, k, s, d in zip(size, kernel, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        small, large = total // 2, total - total // 2
        before.append(small if auto_pad == "SAME_UPPER" else large)
        after.append(large if auto_pad == "SAME_UPPER" else small)
    return before, after


def padded(x: Any, before: list[int], after: list[int], value: Any) -> Any:
    flat = [p for b, a in zip(before[::-1], after[::-1], strict=True) for p in (b, a)]
    return F.pad(x, flat, value=value) if any(flat) else x


_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CONV_BACK = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@op("Conv")
def conv(ctx: Context, x: Any, w: Any, bias: Any = None, auto_pad: str = "NOTSET",
         dilations: Any = None, group: int = 1, kernel_shape: Any = None, pads: Any = None,
         strides: Any = None) -> Any:  # fmt: skip
    rank = x.ndim - 2
    kernel = list(w.shape[2:])
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    before, after = paddings(auto_pad, pads, x.shape[2:], kernel, strides, dilations)
    if before == after:
        return _CONV[rank](x, w, bias, strides, before, dilations, group)
    return _CONV[rank](padded(x, before, after, 0), w, bias, strides, 0, dilations, group)


@op("ConvTranspose")
def conv_transpose(ctx: Context, x: Any, w: Any, bias: Any = None, auto_pad: str = "NOTSET",
                   dilations: Any = None, group: int = 1, kernel_shape: Any = None,
                   output_padding: Any = None, output_shape: Any = None, pads: Any = None,
                   strides: Any = None) -> Any:  # fmt: skip
    rank = x.ndim - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    extra = output_padding or [0] * rank
    y = _CONV_BACK[rank](x, w, None, strides, 0, 0, group, dilations)
    full = [n + e for n, e in zip(y.shape[2:], extra, strict=True)]
    if output_shape is not None or auto_pad.startswith("SAME"):
        wanted = output_shape or [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
        totals = [f - n for f, n in zip(full, wanted, strict=True)]
        upper = auto_pad == "SAME_UPPER"
        before = [t // 2 if upper else t - t // 2 for t in totals]
        after = [t - b for t, b in zip(totals, before, strict=True)]
    else:
        before, after = paddings(auto_pad, pads, [], [0] * rank, strides, dilations)
    y = padded(y, [-b for b in before], [e - a for e, a in zip(extra, after, strict=True)], 0)
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


@op("ConvInteger")
def conv_integer(ctx: Context, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None,
                 **attributes: Any) -> Any:  # fmt: skip
    x, w = x.double(), w.double()
    x = x if x_zero is None else x - x_zero.double()
    if w_zero is not None:
        shape = [-1] + [1] * (w.ndim - 1) if w_zero.ndim else []
        w = w - w_zero.double().reshape(shape)
    return conv(ctx, x, w, **attributes).to(tn.int32)


@op("QLinearConv")
def qlinear_conv(ctx: Context, x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any,
                 w_zero: Any, y_scale: Any, y_zero: Any, bias: Any = None,
                 **attributes: Any) -> Any:  # fmt: skip
    rows = [-1] + [1] * (x.ndim - 2)
    zero = w_zero.double()
    zero = zero.reshape(-1, *[1] * (w.ndim - 1)) if zero.numel() > 1 else zero.reshape(())
    given = None if bias is None else bias.double()
    y = conv(ctx, x.double() - x_zero.double(), w.double() - zero, given, **attributes)
    scale = x_scale.double() * w_scale.double() / y_scale.double()
    return quantized(y * (scale.reshape(rows) if scale.numel() > 1 else scale), y_zero)


@op("DeformConv")
def deform_conv(ctx: Context, x: Any, w: Any, offset: Any, bias: Any = None, mask: Any = None,
                dilations: Any = None, group: int = 1, kernel_shape: Any = None,
                offset_group: int = 1, pads: Any = None, strides: Any = None) -> Any:  # fmt: skip
    (n, c, _, _), (kh, kw), (oh, ow) = x.shape, w.shape[2:], offset.shape[2:]
    (dh, dw), (sh, sw), pads = dilations or (1, 1), strides or (1, 1), pads or [0] * 4
    x = padded(x, pads[:2], pads[2:], 0)
    height, width = x.shape[2:]
    offset = offset.reshape(n, offset_group, kh * kw, 2, oh, ow)
    columns = []
    for k in range(kh * kw):
        row = tn.arange(oh).reshape(-1, 1) * sh + k // kw * dh + offset[:, :, k, 0]
        column = tn.arange(ow) * sw + k % kw * dw + offset[:, :, k, 1]
        grid = tn.stack([column * 2 / max(width - 1, 1) - 1, row * 2 / max(height - 1, 1) - 1], -1)
        parts = x.reshape(n * offset_group, c // offset_group, height, width)
        seen = F.grid_sample(parts, grid.reshape(n * offset_group, oh, ow, 2).to(x.dtype),
                             align_corners=True).reshape(n, offset_group, -1, oh, ow)  # fmt: skip
        if mask is not None:
            seen = seen * mask.reshape(n, offset_group, kh * kw, oh, ow)[:, :, k].unsqueeze(2)
        columns.append(seen.reshape(n, c, oh, ow))
    cols = tn.stack(columns, 2).reshape(n, group, c // group * kh * kw, oh * ow)
    weights = w.reshape(group, w.shape[0] // group, -1)
    y = tn.matmul(weights, cols).reshape(n, w.shape[0], oh, ow)
    return y if bias is None else y + bias.reshape(-1, 1, 1)


# ---- Norms ---------------------------------------------------------------------------------------


@op("BatchNormalization")
def batch_norm(ctx: Context, x: Any, scale: Any, bias: Any, mean: Any, var: Any,
               epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
               spatial: int = 1, is_test: int = 0) -> Any:  # fmt: skip
    if not training_mode:
        return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon).to(x.dtype)
    dims = [d for d in range(x.ndim) if d != 1]
    now, spread = x.mean(dims), x.var(dims, correction=0)
    y = F.batch_norm(x, now, spread, scale, bias, False, 0.0, epsilon)
    return y, mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum)


@op("InstanceNormalization")
def instance_norm(ctx: Context, x: Any, scale: Any, bias: Any, epsilon: float = 1e-5) -> Any:
    return F.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


@op("LayerNormalization")
def layer_norm(ctx: Context, x: Any, scale: Any, bias: Any = None, axis: int = -1,
               epsilon: float = 1e-5, stash_type: int = 1) -> Any:  # fmt: skip
    shape = tuple(x.shape[wrapped_dim(axis, x.ndim) :])
    dims = list(range(x.ndim - len(shape), x.ndim))
    wide = x.float() if x.dtype in (tn.float16, tn.bfloat16) else x
    mean = wide.mean(dims, keepdim=True)
    spread = 1 / (wide.var(dims, correction=0, keepdim=True) + epsilon).sqrt()
    if ctx.outputs > 1:
        y = ((wide - mean) * spread).to(x.dtype) * scale
        return y if bias is None else y + bias, mean, spread
    gain = scale if scale.shape == shape else scale.expand(shape)
    shift = bias if bias is None or bias.shape == shape else bias.expand(shape)
    return F.layer_norm(x, shape, gain, shift, epsilon)


@op("RMSNormalization")
def rms_norm(ctx: Context, x: Any, scale: Any, axis: int = -1, epsilon: float = 1e-5,
             stash_type: int = 1) -> Any:  # fmt: skip
    dims = list(range(wrapped_dim(axis, x.ndim), x.ndim))
    wide = x.float() if x.dtype in (tn.float16, tn.bfloat16) else x
    return (wide / (wide.square().mean(dims, keepdim=True) + epsilon).sqrt()).to(x.dtype) * scale


@op("GroupNormalization")
def group_norm(ctx: Context, x: Any, scale: Any, bias: Any, num_groups: int, epsilon: float = 1e-5,
               stash_type: int = 1) -> Any:  # fmt: skip
    if scale.numel() != x.shape[1]:  # before opset 21: one for a group
        each = x.shape[1] // num_groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@op("LRN")
def lrn(ctx: Context, x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75,
        bias: float = 1.0) -> Any:  # fmt: skip
    return F.local_response_norm(x, size, alpha, beta, bias) if size % 2 else _lrn_even(
        x, size, alpha, beta, bias)  # fmt: skip


def _lrn_even(x: Any, size: int, alpha: float, beta: float, bias: float) -> Any:
    lower, upper = (size - 1) // 2, size - 1 - (size - 1) // 2
    wide = F.pad(x.square(), [0, 0] * (x.ndim - 2) + [lower, upper])
    total = sum(wide.narrow(1, k, x.shape[1]) for k in range(size))
    return x / (bias + alpha / size * total) ** beta


@op("LpNormalization")
def lp_norm(ctx: Context, x: Any, axis: int = -1, p: int = 2) -> Any:
    length = tn.linalg.vector_norm(x, p, axis, keepdim=True)
    return tn.where(length == 0, tn.zeros_like(x), x / length)


# ---- Softmax and its kin -------------------------------------------------------------------------


def _by_axis(fn: Any) -> Any:
    def run(ctx: Context, x: Any, axis: int | None = None) -> Any:
        if ctx.opset >= 13:
            return fn(x, -1 if axis is None else axis)
        axis = 1 if axis is None else wrapped_dim(axis, x.ndim)
        rows = x.reshape(math.prod(x.shape[:axis]), -1)
        return fn(rows, 1).reshape(x.shape)

    return run


def _hardmax(x: Any, dim: int) -> Any:
    at = x.argmax(dim, keepdim=True)
    return tn.zeros_like(x).scatter(dim, at, tn.ones_like(at, dtype=x.dtype))


op("Softmax")(_by_axis(tn.softmax))
op("LogSoftmax")(_by_axis(tn.log_softmax))
op("Hardmax")(_by_axis(_hardmax))


@op("Dropout")
def dropout(ctx: Context, x: Any, ratio: Any = None, training: Any = None, seed: Any = None,
            is_test: int = 0) -> Any:  # fmt: skip
    p = number(ratio, 0.5)
    if training is None or not number(training) or not p:
        return x, tn.ones_like(x, dtype=tn.bool)
    keep = tn.rand(x.shape) >= p
    return tn.where(keep, x / (1 - p), tn.zeros_like(x)), keep


# ---- Losses --------------------------------------------------------------------------------------


@op("NegativeLogLikelihoodLoss")
def nll_loss(ctx: Context, x: Any, target: Any, weight: Any = None, ignore_index: int = -(2**31),
             reduction: str = "mean") -> Any:  # fmt: skip
    target = target.long()
    dropped = target == ignore_index
    safe = tn.where(dropped, tn.zeros_like(target), target)
    gain = tn.ones(x.shape[1], dtype=x.dtype) if weight is None else weight
    gain = gain[safe] * dropped.logical_not().to(x.dtype)
    loss = -tn.gather(x, 1, safe.unsqueeze(1)).squeeze(1) * gain
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / gain.sum()


@op("SoftmaxCrossEntropyLoss")
def cross_entropy(ctx: Context, x: Any, target: Any, weight: Any = None,
                  ignore_index: int = -(2**31), reduction: str = "mean") -> Any:  # fmt: skip
    logs = tn.log_softmax(x, 1)
    return nll_loss(ctx, logs, target, weight, ignore_index, reduction), logs
