"""Pooling of volumes, power means, and the way back from a maximum to its place.

A window of a volume is a window of the plane over a window of the depth, for maxima, means and the
divisors of means alike, so volumes are pooled in two steps by the operators for planes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor
from tenon._C import _nn
from tenon._tape import overridable
from tenon.nn import _results
from tenon.nn._vision import (
    _check_adaptive,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    avg_pool1d,
    avg_pool2d,
    max_pool1d,
    max_pool2d,
)
from tenon.nn.modules.utils import _list_with_default, _pair, _single, _triple


def _volume(input: Tensor, name: str) -> Tensor:
    """(N, D, H, W) out of (N, C, D, H, W) or (C, D, H, W)."""
    if input.dim() not in (4, 5):
        raise RuntimeError(f"{name}: Expected 4D or 5D input tensor, but got: {list(input.size())}")
    if 0 in input.shape[-4:]:
        raise RuntimeError(
            f"{name}: Expected input's non-batch dimensions to have positive length, but input has "
            f"a shape of {list(input.shape)}"
        )
    return input.reshape(-1, *input.shape[-3:])


def _three(value: Any, name: str, what: str) -> tuple[int, ...]:
    """A size for each dimension of a volume; a single one is for all of them."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(given) not in (1, 3):
        raise RuntimeError(
            f"{name}: {what} must either be a single int, or a tuple of three ints, not {given}"
        )
    return given * 3 if len(given) == 1 else given


def _windows(kernel: Any, stride: Any, padding: Any, name: str) -> tuple[tuple[int, ...], ...]:
    """Sizes, steps and paddings of the windows of a volume; no steps are the sizes."""
    sizes = _three(kernel, name, "kernel_size")
    same = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    steps = sizes if same else _three(stride, name, "stride")
    return sizes, steps, _three(padding, name, "padding")


def _in_two_steps(
    input: Tensor, plane: Callable[[Tensor], Tensor], depth: Callable[[Tensor], Tensor]
) -> Tensor:
    """`plane` on (n, d, h, w), then `depth` on (n, 1, d, h * w)."""
    x = plane(_volume(input, "pool3d"))
    rows, cols = x.shape[-2:]
    x = depth(x.flatten(-2).unsqueeze(1))
    return x.reshape(*input.shape[:-3], x.size(-2), rows, cols)


def _with_places(
    input: Tensor,
    plane: Callable[[Tensor], tuple[Tensor, Tensor]],
    depth: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """Two steps of a maximum; places are counted through the whole volume."""
    x = _volume(input, "max_pool3d")
    area = x.size(-2) * x.size(-1)
    values, inner = plane(x)
    rows, cols = values.shape[-2:]
    values, outer = (t.squeeze(1) for t in depth(values.flatten(-2).unsqueeze(1)))
    inner = inner.flatten(1).gather(-1, outer.flatten(1))
    places = (outer // (rows * cols)) * area + inner.view_as(outer)
    shape = (*input.shape[:-3], values.size(-2), rows, cols)
    return values.reshape(shape), places.reshape(shape)


def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The largest value of each window of a volume.

    Shapes: (N, C, D, H, W); sizes as those of max_pool1d; return_indices adds the places.

    >>> F.max_pool3d(tn.rand(1, 3, 4, 8, 8), 2).shape
    tenon.Size([1, 3, 2, 4, 4])
    """
    k, s, p = _windows(kernel_size, stride, padding, "max_pool3d")
    d = _three(dilation, "max_pool3d", "dilation")
    flat = ((k[0], 1), (s[0], 1), (p[0], 0), (d[0], 1), ceil_mode)
    face = (k[1:], s[1:], p[1:], d[1:], ceil_mode)
    if return_indices:
        values, places = _with_places(
            input,
            lambda x: _nn.max_pool2d_with_indices(x, *face),
            lambda x: _nn.max_pool2d_with_indices(x, *flat),
        )
        return _results.image(values, input, "MaxPool3DWithIndicesBackward0"), _results.laid_as(
            places, input
        )
    values = _in_two_steps(
        input, lambda x: _nn.max_pool2d(x, *face), lambda x: _nn.max_pool2d(x, *flat)
    )
    return _results.image(values, input, "MaxPool3DWithIndicesBackward0")


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """max_pool3d with the places of the values in their volumes.

    Shapes: (N, C, D, H, W); sizes as those of max_pool1d.

    >>> F.max_pool3d_with_indices(tn.rand(1, 3, 4, 8, 8), 2)[1].shape
    tenon.Size([1, 3, 2, 4, 4])
    """
    return max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The mean of each window of a volume.

    Shapes: (N, C, D, H, W); sizes as those of avg_pool1d.

    >>> F.avg_pool3d(tn.rand(1, 3, 4, 8, 8), 2).shape
    tenon.Size([1, 3, 2, 4, 4])
    """
    k, s, p = _windows(kernel_size, stride, padding, "avg_pool3d")
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")

    def means(volume: Tensor, divisor: int | None = None) -> Tensor:
        rest = (ceil_mode, count_include_pad, divisor)
        return _in_two_steps(
            volume,
            lambda x: _nn.avg_pool2d(x, k[1:], s[1:], p[1:], *rest),
            lambda x: _nn.avg_pool2d(x, (k[0], 1), (s[0], 1), (p[0], 0), *rest),
        )

    # Divided by 1 both steps are plain sums.
    whole = not input.is_floating_point()
    result = means(input, 1) if whole or divisor_override is not None else means(input)
    if whole:
        ones = tenon.ones_like(input, dtype=tenon.float64)
        counts = divisor_override or (means(ones, 1) / means(ones)).round().long()
        result = tenon.div(result, counts, rounding_mode="trunc")
    elif divisor_override is not None:
        result = result / divisor_override
    result = _results.known_as(result, "AvgPool3DBackward0")
    return result if out is None else tenon._C._ops._given(result, out=out)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means of windows chosen so that the result has `output_size`; None keeps a size.

    Shapes: (N, C, D, H, W) to (N, C, *output_size).

    >>> F.adaptive_avg_pool3d(tn.rand(1, 3, 4, 6, 8), 2).shape
    tenon.Size([1, 3, 2, 2, 2])
    """
    _check_adaptive(input, output_size, 3, "adaptive_avg_pool3d")
    size = _triple(_list_with_default(output_size, input.shape))
    if 0 in size:
        return input.sum((-3, -2, -1), True).expand(*input.shape[:-3], *size)
    result = _in_two_steps(
        input,
        lambda x: _nn.adaptive_avg_pool2d(x, size[1:]),
        lambda x: _nn.adaptive_avg_pool2d(x, (size[0], x.size(-1))),
    )
    return _results.known_as(result, "AdaptiveAvgPool3DBackward0")


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Largest values of windows chosen so that the result has `output_size`.

    Shapes: (N, C, D, H, W) to (N, C, *output_size); return_indices adds the places.

    >>> F.adaptive_max_pool3d(tn.rand(1, 3, 4, 6, 8), 2).shape
    tenon.Size([1, 3, 2, 2, 2])
    """
    _check_adaptive(input, output_size, 3, "adaptive_max_pool3d")
    _results.floats_alone("adaptive_max_pool3d", input)
    size = _triple(_list_with_default(output_size, input.shape))
    if 0 in size:
        values = input.sum((-3, -2, -1), True).expand(*input.shape[:-3], *size)
        return (values, values.long()) if return_indices else values
    values, places = _with_places(
        input,
        lambda x: adaptive_max_pool2d(x, size[1:], True),
        lambda x: adaptive_max_pool2d(x, (size[0], x.size(-1)), True),
    )
    values = _results.known_as(values, "AdaptiveMaxPool3DBackward0")
    return (values, places) if return_indices else values


# ---- Power means ---------------------------------------------------------------------------------


def _largest(input: Tensor, norm_type: float, pool: Any, *options: Any) -> Tensor | None:
    """The norm of order inf or -inf of each window; None of other orders."""
    if norm_type not in (math.inf, -math.inf):
        return None
    kernel_size, stride, ceil_mode = options
    size = input.abs()
    if norm_type > 0:
        return pool(size, kernel_size, stride, 0, 1, ceil_mode)
    return pool(size.neg(), kernel_size, stride, 0, 1, ceil_mode).neg()


def _root(mean: Tensor, count: int, norm_type: float) -> Tensor:
    """(mean * count) ** (1 / norm_type), with its sign kept out of the power."""
    return (mean.sign() * mean.abs().relu()).mul(count).pow(1.0 / norm_type)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window.

    Shapes: (N, C, L); sizes as those of avg_pool1d.

    >>> F.lp_pool1d(tn.tensor([[3.0, 4.0]]), 2, 2)
    tensor([[5.]])
    """
    extreme = _largest(input, norm_type, max_pool1d, kernel_size, stride, ceil_mode)
    if extreme is not None:
        return extreme
    (count,) = _single(kernel_size)
    mean = avg_pool1d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return _root(mean, count, norm_type)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of a plane.

    Shapes: (N, C, H, W); sizes as those of avg_pool1d.

    >>> F.lp_pool2d(tn.rand(1, 3, 8, 8), 2, 2).shape
    tenon.Size([1, 3, 4, 4])
    """
    extreme = _largest(input, norm_type, max_pool2d, kernel_size, stride, ceil_mode)
    if extreme is not None:
        return extreme
    rows, cols = _pair(kernel_size)
    mean = avg_pool2d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return _root(mean, rows * cols, norm_type)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of a volume.

    Shapes: (N, C, D, H, W); sizes as those of avg_pool1d.

    >>> F.lp_pool3d(tn.rand(1, 3, 4, 8, 8), 2, 2).shape
    tenon.Size([1, 3, 2, 4, 4])
    """
    extreme = _largest(input, norm_type, max_pool3d, kernel_size, stride, ceil_mode)
    if extreme is not None:
        return extreme
    depth, rows, cols = _triple(kernel_size)
    mean = avg_pool3d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return _root(mean, depth * rows * cols, norm_type)


# ---- The way back --------------------------------------------------------------------------------


def _unpool(
    n: int,
    input: Tensor,
    indices: Tensor,
    kernel: tuple[int, ...],
    stride: Any,
    padding: tuple[int, ...],
    output_size: Any,
) -> Tensor:
    if len(kernel) != n:
        raise RuntimeError(
            f"max_unpool{n}d: kernel_size must be an int or {n} of them, not {kernel}"
        )
    if indices.dtype is not tenon.int64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype}")
    _results.floats_alone(f"max_unpool{n}d", input)
    steps = kernel if stride is None else stride
    sizes = input.shape[-n:]
    default = [(x - 1) * s - 2 * p + k for x, s, p, k in zip(sizes, steps, padding, kernel)]
    wanted = default if output_size is None else list(output_size)[-n:]
    if output_size is not None:
        low = [d - s for d, s in zip(default, steps)]
        high = [d + s for d, s in zip(default, steps)]
        if any(not a < w < b for a, w, b in zip(low, wanted, high)):
            raise ValueError(
                f'invalid output_size "{wanted}" (dim 0 must be between {low[0]} and {high[0]})'
            )
    lead = input.shape[:-n]
    total = 1
    for size in wanted:
        total *= size
    if indices.shape != input.shape:
        raise RuntimeError(
            "Expected shape of indices to be same as that of the input tensor "
            f"({list(input.shape)}) but got indices tensor with shape: {list(indices.shape)}"
        )
    places = indices.flatten(-n)
    if places.numel() and not (0 <= int(places.min()) and int(places.max()) < total):
        raise RuntimeError(
            f"Found an invalid max index: {int(places.max())} (output volumes are of size {wanted})"
        )
    result = input.new_zeros((*lead, total)).scatter(-1, places, input.flatten(-n))
    return result.view(*lead, *wanted)


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Puts maxima back where max_pool1d found them, zeros elsewhere.

    Shapes: maxima and their places (N, C, L) to (N, C, output_size).

    >>> F.max_unpool1d(tn.tensor([[[5.0, 7.0]]]), tn.tensor([[[1, 2]]]), 2)
    tensor([[[0., 5., 7., 0.]]])
    """
    step = None if stride is None else _single(stride)
    return _unpool(1, input, indices, _single(kernel_size), step, _single(padding), output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Puts maxima back where max_pool2d found them, zeros elsewhere.

    Shapes: maxima and their places (N, C, H, W) to (N, C, *output_size).

    >>> F.max_unpool2d(*F.max_pool2d(tn.rand(1, 3, 8, 8), 2, return_indices=True), 2).shape
    tenon.Size([1, 3, 8, 8])
    """
    step = None if stride is None else _pair(stride)
    return _unpool(2, input, indices, _pair(kernel_size), step, _pair(padding), output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Puts maxima back where max_pool3d found them, zeros elsewhere.

    Shapes: maxima and their places (N, C, D, H, W) to (N, C, *output_size).

    >>> F.max_unpool3d(*F.max_pool3d(tn.rand(1, 3, 4, 8, 8), 2, return_indices=True), 2).shape
    tenon.Size([1, 3, 4, 8, 8])
    """
    step = None if stride is None else _triple(stride)
    return _unpool(3, input, indices, _triple(kernel_size), step, _triple(padding), output_size)


def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Adds up the windows that unfold took apart: (N, C * kernel, L) to (N, C, H, W).

    >>> F.fold(tn.rand(1, 3 * 4, 4), (4, 4), 2, stride=2).shape
    tenon.Size([1, 3, 4, 4])
    """
    sizes = _pair(output_size), _pair(kernel_size), _pair(dilation), _pair(padding), _pair(stride)
    return _nn.col2im(input, *sizes)


def _fractional(
    pool: Callable[..., tuple[Tensor, Tensor]],
    each: Callable[[Any], tuple[Any, ...]],
    input: Tensor,
    kernel_size: Any,
    output_size: Any,
    output_ratio: Any,
    samples: Tensor | None,
) -> tuple[Tensor, Tensor]:
    windows, name = each(kernel_size), pool.__name__
    axes = len(windows)
    if output_size is not None:
        sizes = each(output_size)
    elif output_ratio is not None:
        ratios = each(output_ratio)
        if len(ratios) != axes:
            raise ValueError(
                f"{name} requires output_ratio to either be a single Int or tuple of Ints, {axes} "
                f"of them, but got {output_ratio}"
            )
        sizes = tuple(int(n * r) for n, r in zip(input.shape[-axes:], ratios, strict=True))
    else:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if samples is None:
        batch = 1 if input.dim() == axes + 1 else input.size(0)
        samples = tenon.rand(
            batch, input.size(-axes - 1), axes, dtype=input.dtype, device=input.device
        )
    return pool(input, windows, sizes, samples)


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The largest values of windows whose places are drawn, and their own places in the planes.

    Shapes: (N, C, H, W) to twice (N, C, *output_size).

    >>> F.fractional_max_pool2d_with_indices(tn.rand(1, 3, 8, 8), 2, output_size=3)[1].shape
    tenon.Size([1, 3, 3, 3])
    """
    pool = tenon.fractional_max_pool2d
    return _fractional(pool, _pair, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor:
    """The largest values of windows whose places are drawn, so that sizes shrink by any factor.

    Shapes: (N, C, H, W) to (N, C, *output_size); return_indices adds the places.

    >>> F.fractional_max_pool2d(tn.rand(1, 3, 8, 8), 2, output_size=3).shape
    tenon.Size([1, 3, 3, 3])
    """
    both = fractional_max_pool2d_with_indices(
        input, kernel_size, output_size, output_ratio, return_indices, _random_samples
    )
    return both if return_indices else both[0]


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """fractional_max_pool2d_with_indices of volumes.

    Shapes: (N, C, D, H, W) to twice (N, C, *output_size).

    >>> F.fractional_max_pool3d_with_indices(tn.rand(1, 3, 8, 8, 8), 2, output_size=3)[1].shape
    tenon.Size([1, 3, 3, 3, 3])
    """
    pool = tenon.fractional_max_pool3d
    return _fractional(
        pool, _triple, input, kernel_size, output_size, output_ratio, _random_samples
    )


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor:
    """fractional_max_pool2d of volumes.

    Shapes: (N, C, D, H, W) to (N, C, *output_size); return_indices adds the places.

    >>> F.fractional_max_pool3d(tn.rand(1, 3, 8, 8, 8), 2, output_size=3).shape
    tenon.Size([1, 3, 3, 3, 3])
    """
    both = fractional_max_pool3d_with_indices(
        input, kernel_size, output_size, output_ratio, return_indices, _random_samples
    )
    return both if return_indices else both[0]


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """adaptive_max_pool1d and the places of its values.

    >>> F.adaptive_max_pool1d_with_indices(tn.rand(2, 3, 10), 2)[1].dtype
    tenon.int64
    """
    return adaptive_max_pool1d(input, output_size, True)


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """adaptive_max_pool2d and the places of its values.

    >>> F.adaptive_max_pool2d_with_indices(tn.rand(2, 3, 10, 7), 2)[1].dtype
    tenon.int64
    """
    return adaptive_max_pool2d(input, output_size, True)


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """adaptive_max_pool3d and the places of its values.

    >>> F.adaptive_max_pool3d_with_indices(tn.rand(1, 3, 4, 6, 8), 2)[1].dtype
    tenon.int64
    """
    return adaptive_max_pool3d(input, output_size, True)


overridable.make_overridable(globals())
