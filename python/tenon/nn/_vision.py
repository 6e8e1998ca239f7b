"""Pooling, resizing, padding and pixel shuffling: PyTorch's arguments over the operators."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import tenon
from tenon import Tensor
from tenon._C import _nn
from tenon._tape import overridable
from tenon.nn import _results
from tenon.nn.modules.utils import _list_with_default, _pair, _single


def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The largest value of each window.

    Shapes: (N, C, L) to (N, C, (L + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1);
        return_indices adds the places.

    >>> F.max_pool1d(tn.tensor([[1.0, 3.0, 5.0, 9.0]]), 2)
    tensor([[3., 9.]])
    """
    places = max_pool1d_with_indices if return_indices else _nn.max_pool1d
    return places(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """max_pool1d with the places of the values, by way of a second dimension of size 1.

    Shapes: (N, C, L); sizes as those of max_pool1d.

    >>> F.max_pool1d_with_indices(tn.tensor([[1.0, 3.0, 5.0, 9.0]]), 2)[1]
    tensor([[1, 3]])
    """
    if input.dim() not in (2, 3):
        raise RuntimeError(
            "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for "
            f"input, but got:{list(input.shape)}"
        )
    (kernel,) = _single(kernel_size)
    (step,) = _single(kernel if stride is None or stride == [] else stride)
    values, indices = _nn.max_pool2d_with_indices(
        input.unsqueeze(-2),
        (1, kernel),
        (1, step),
        (0, *_single(padding)),
        (1, *_single(dilation)),
        ceil_mode,
    )
    return values.squeeze(-2), indices.squeeze(-2)


def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The largest value of each window.

    Shapes: (N, C, H, W); sizes as those of max_pool1d; return_indices adds the places.

    >>> F.max_pool2d(tn.rand(1, 3, 8, 8), 2).shape
    tenon.Size([1, 3, 4, 4])
    """
    stride = kernel_size if stride is None else stride
    if return_indices:
        return _nn.max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return _nn.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """max_pool2d with the places of the values in their planes.

    Shapes: (N, C, H, W); sizes as those of max_pool1d.

    >>> F.max_pool2d_with_indices(tn.rand(1, 3, 8, 8), 2)[1].shape
    tenon.Size([1, 3, 4, 4])
    """
    return max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window.

    Shapes: (N, C, L) to (N, C, (L + 2 padding - kernel_size) // stride + 1).

    >>> F.avg_pool1d(tn.tensor([[1.0, 3.0, 5.0, 9.0]]), 2)
    tensor([[2., 7.]])
    """
    return _nn.avg_pool1d(input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
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
    """The mean of each window.

    Shapes: (N, C, H, W); sizes as those of avg_pool1d.

    >>> F.avg_pool2d(tn.rand(1, 3, 8, 8), 2).shape
    tenon.Size([1, 3, 4, 4])
    """
    stride = kernel_size if stride is None else stride
    rest = (padding, ceil_mode, count_include_pad, divisor_override)
    return _nn.avg_pool2d(input, kernel_size, stride, *rest, out=out)


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means of windows chosen so that the result has `output_size` elements.

    Shapes: (N, C, L) to (N, C, output_size).

    >>> F.adaptive_avg_pool1d(tn.rand(2, 3, 10), 4).shape
    tenon.Size([2, 3, 4])
    """
    return _nn.adaptive_avg_pool1d(input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means of windows chosen so that the result has `output_size`; None keeps a size.

    Shapes: (N, C, H, W) to (N, C, *output_size).

    >>> F.adaptive_avg_pool2d(tn.rand(2, 3, 10, 7), (4, None)).shape
    tenon.Size([2, 3, 4, 7])
    """
    _check_adaptive(input, output_size, 2, "adaptive_avg_pool2d")
    return _nn.adaptive_avg_pool2d(input, _pair(_list_with_default(output_size, input.shape)))


def _taps(input: Tensor, size: int, count: int) -> Tensor:
    """Places of `count` windows over an axis, a row each; short ones repeat their last place."""
    at = tenon.arange(count, device=input.device).unsqueeze(-1)
    begin, end = at * size // max(count, 1), ((at + 1) * size + count - 1) // max(count, 1)
    most = -(-size // max(count, 1)) + (size % max(count, 1) != 0)
    return (begin + tenon.arange(most, device=input.device)).minimum(end - 1)


def _check_adaptive(input: Tensor, output_size: Any, count: int, name: str) -> None:
    """Refuses shapes, and sizes of the result, that are not of `count` dimensions."""
    size = (output_size,) if isinstance(output_size, int) else output_size
    if not isinstance(output_size, int) and len(size) != count:
        raise RuntimeError(f"{name}(): output_size must hold {count} ints, not {len(size)}")
    _list_with_default(output_size, input.shape)
    if input.dim() not in (count + 1, count + 2):
        raise RuntimeError(
            f"{name}(): Expected {count + 1}D or {count + 2}D tensor, but got: {list(input.shape)}"
        )
    if any(n is not None and n < 0 for n in size):
        raise RuntimeError(
            f"{name}(): elements of output_size must be greater than or equal to 0 but received "
            f"{list(size)}"
        )


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Largest values of windows chosen so that the result has `output_size`.

    Shapes: (N, C, H, W) to (N, C, *output_size); return_indices adds the places.

    >>> F.adaptive_max_pool2d(tn.rand(2, 3, 10, 7), 4).shape
    tenon.Size([2, 3, 4, 4])
    """
    _check_adaptive(input, output_size, 2, "adaptive_max_pool2d")
    _results.floats_alone("adaptive_max_pool2d", input)
    rows, cols = _pair(_list_with_default(output_size, input.shape))
    height, width = input.shape[-2:]
    input.new_empty((*input.shape[:-2], rows, cols))  # refuses what no memory holds
    if 0 not in (rows, cols, *input.shape) and not (height % rows or width % cols):
        size = (height // rows, width // cols)  # all windows alike, side by side
        if rows == cols == 1:
            shape = (*input.shape[:-2], 1, 1)
            values, places = (t.reshape(shape) for t in input.flatten(-2).max(-1))
        else:
            values, places = _nn.max_pool2d_with_indices(input, size, size)
        values = _results.image(values, input, "AdaptiveMaxPool2DBackward0")
        return (values, _results.laid_as(places, input)) if return_indices else values
    down, across = _taps(input, height, rows), _taps(input, width, cols)
    down, across = down[:, None, :, None], across[None, :, None, :]
    values, place = input[..., down, across].flatten(-2).max(-1)
    values = _results.image(values, input, "AdaptiveMaxPool2DBackward0")
    if not return_indices:
        return values
    places = (down * width + across).flatten(-2).expand(*values.shape, -1)
    return values, _results.laid_as(places.gather(-1, place.unsqueeze(-1)).squeeze(-1), input)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Largest values of windows chosen so that the result has `output_size` elements.

    Shapes: (N, C, L) to (N, C, output_size); return_indices adds the places.

    >>> F.adaptive_max_pool1d(tn.rand(2, 3, 10), 4).shape
    tenon.Size([2, 3, 4])
    """
    _check_adaptive(input, output_size, 1, "adaptive_max_pool1d")
    size = (1, *_single(output_size))
    values, indices = adaptive_max_pool2d(input.unsqueeze(-2), size, True)
    values, indices = values.squeeze(-2), indices.squeeze(-2)
    return (values, indices) if return_indices else values


def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """Grows the last dimensions; `pad` holds (before, after) pairs, the last dimension first.

    Shapes: (..., W) to (..., W + left + right), and so on for the dimensions in front.

    >>> F.pad(tn.tensor([1.0, 2.0]), (1, 2), value=9.0)
    tensor([9., 1., 2., 9., 9.])
    """
    if mode == "constant":
        return _nn.pad(input, pad, mode, 0.0 if value is None else float(value))
    return _nn.pad(input, pad, mode, value)


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resizes the dimensions behind the second to `size`, or by `scale_factor`.

    Shapes: (N, C, *), one to three sizes behind, to (N, C, *size).

    >>> F.interpolate(tn.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the "
                "interpolating modes: linear | bilinear | bicubic | trilinear"
            )
    elif align_corners is None:
        align_corners = False
    spatial = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None and recompute_scale_factor:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    given = size if size is not None else scale_factor
    listed = list(given) if isinstance(given, (tuple, list)) else [given] * spatial
    if size is not None and any(isinstance(n, float) for n in listed):
        raise TypeError(f"interpolate(): the numbers of size must be ints, but they are {listed}")
    if len(listed) != spatial:
        raise ValueError(
            f"Input and {'size' if size is not None else 'scale_factor'} must have the same "
            f"number of spatial dimensions, but got input with {spatial} and {len(listed)}"
        )
    if spatial not in (1, 2, 3):
        raise _no_such_resize(input, mode)
    factors = None
    if size is None:
        size = [int(float(n) * f) for n, f in zip(input.shape[2:], listed)]
        factors = None if recompute_scale_factor else [float(f) for f in listed]
    else:
        size = listed
    if mode != "area" and any(n < 1 for n in size):
        raise RuntimeError(
            "Input and output sizes should be greater than 0, but got input "
            f"{list(input.shape[2:])} and output {size}"
        )
    resized = _resized(input, size, factors, mode, bool(align_corners), antialias)
    if mode == "area":
        return resized
    kind = _KINDS.get(mode, mode.title()) + f"{spatial}D" + "Aa" * bool(antialias)
    return _results.image(resized, input, f"Upsample{kind}Backward0")


_KINDS = {"nearest-exact": "NearestExact"}


def _no_such_resize(input: Tensor, mode: str) -> NotImplementedError:
    return NotImplementedError(
        "Input Error: Only 3D, 4D and 5D input Tensors supported "
        f"(got {input.dim()}D) for the modes: nearest | linear | bilinear | bicubic | trilinear | "
        f"area | nearest-exact (got {mode})"
    )


def _resized(
    input: Tensor, size: Any, factors: Any, mode: str, align_corners: bool, antialias: bool
) -> Tensor:
    spatial, by_bytes = input.dim() - 2, input.dtype is tenon.uint8
    if not (by_bytes or input.is_floating_point()):
        raise NotImplementedError(f'"interpolate" ({mode}) not implemented for {input.dtype}')
    if antialias:
        if mode not in _SMOOTH or spatial != 2:
            raise ValueError(
                "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D "
                "tensor as input"
            )
        return _weighted(input, size, align_corners, factors, _SMOOTH[mode])
    if mode == "bicubic" and spatial == 2:
        if not by_bytes:
            return _cubic_resize(input, size, align_corners, factors)
        return _weighted(input, size, align_corners, factors, _cubic_weights)
    if by_bytes and mode == "bilinear" and spatial == 2:
        return _weighted(input, size, align_corners, factors, _linear_weights)
    flat = ["area", "linear" if spatial == 1 else "bilinear", *([] if by_bytes else ["nearest"])]
    if spatial < 3 and mode in flat:
        corners = (True,) if align_corners else ()  # what is off is not said of all modes
        if factors is None or mode == "area":
            return _nn.interpolate(input, size, None, mode, *corners)
        if len(set(factors)) == 1:
            return _nn.interpolate(input, None, factors[0], mode, *corners)
        return _upsample2d(mode, input, size, align_corners, factors)
    if mode == "area":
        from tenon.nn._pooling import adaptive_avg_pool3d

        return adaptive_avg_pool3d(input, size)
    if mode == "trilinear" and spatial == 3:
        return _trilinear(input, size, align_corners, factors)
    if mode in ("nearest", "nearest-exact"):
        half = 0.5 if mode == "nearest-exact" else 0.0
        for d in range(spatial):
            factor = factors[d] if factors else None
            if spatial == 2 and not half and size[d] in (input.size(d + 2), 2 * input.size(d + 2)):
                factor = None  # planes of the same size and of twice the size are copies
            input = input.index_select(d + 2, _nearest(input, d + 2, size[d], half, factor))
        return input
    raise _no_such_resize(input, mode)


def _ratio(old: int, new: int, factor: float | None) -> float:
    """How far the source moves for one step of the result."""
    return 1.0 / factor if factor else old / new


def _nearest(input: Tensor, dim: int, new: int, half: float, factor: float | None) -> Tensor:
    """Which element of a dimension each element of the result is."""
    old = input.size(dim)
    places = (tenon.arange(new, dtype=tenon.float32) + half) * _ratio(old, new, factor)
    return places.floor().long().clamp(max=old - 1).to(input.device)


def _weighted(
    input: Tensor, size: Any, align_corners: bool, factors: Any, weights: Callable[..., Tensor]
) -> Tensor:
    """An image whose columns, then rows, are sums of the input's, where their number changes."""
    if input.dtype in (tenon.float16, tenon.bfloat16):
        return _weighted(input.float(), size, align_corners, factors, weights).to(input.dtype)
    result = input
    for dim in (-1, -2):
        if size[dim] == input.size(dim):
            continue
        factor = factors[dim] if factors else None
        matrix = weights(input.size(dim), size[dim], align_corners, factor).to(input.device)
        if input.dtype is tenon.uint8:
            result = _of_bytes(result, matrix, dim)
        else:
            matrix = matrix.to(input.dtype)
            result = result @ matrix.t() if dim == -1 else matrix @ result
    return result.clone() if result is input else result


def _of_bytes(input: Tensor, weights: Tensor, dim: int) -> Tensor:
    """Sums of bytes, as PyTorch rounds them: weights are 15-bit parts of a power of two."""
    most, bits = weights.max().item(), 0
    while bits < 22 and int(0.5 + most * 2 ** (bits + 1)) < 2**15:
        bits += 1
    parts = (weights * 2**bits + weights.sign() / 2).trunc()
    wide = input.double()
    sums = wide @ parts.t() if dim == -1 else parts @ wide
    return (sums / 2**bits + 0.5).floor().clamp(0, 255).to(input.dtype)


def _sources(old: int, new: int, align_corners: bool, factor: float | None) -> Tensor:
    """Where in the dimension each element of the result lies."""
    step = tenon.arange(new, dtype=tenon.float64)
    if align_corners:
        return step * ((old - 1) / (new - 1) if new > 1 else 0.0)
    return (step + 0.5) * _ratio(old, new, factor) - 0.5


def _linear_weights(old: int, new: int, align_corners: bool, factor: float | None) -> Tensor:
    """(new, old): what each element of the result takes of its two neighbours."""
    source = _sources(old, new, align_corners, factor).clamp(min=0)
    base = source.floor()
    t = (source - base).unsqueeze(1)
    weights = tenon.zeros(new, old, dtype=tenon.float64)
    for offset, weight in ((0, 1 - t), (1, t)):
        weights.scatter_add_(1, (base.long() + offset).clamp(max=old - 1).unsqueeze(1), weight)
    return weights


def _cubic_taps(
    old: int, new: int, align_corners: bool, factor: float | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Four times, for all elements of the result: which element they take, and how much of it."""
    a, source = -0.75, _sources(old, new, align_corners, factor)
    base = source.floor()
    t = source - base
    for offset in range(-1, 3):
        x = (t - offset).abs()
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        yield (base.long() + offset).clamp(0, old - 1), tenon.where(x <= 1, near, far)


def _cubic_weights(old: int, new: int, align_corners: bool, factor: float | None) -> Tensor:
    """(new, old): what each element of the result takes of each element of a dimension."""
    weights = tenon.zeros(new, old, dtype=tenon.float64)
    for place, weight in _cubic_taps(old, new, align_corners, factor):
        weights.scatter_add_(1, place.unsqueeze(1), weight.unsqueeze(1))
    return weights


def _cubic_resize(input: Tensor, size: Any, align_corners: bool, factors: Any) -> Tensor:
    """Sums of four neighbours by columns, then by rows: elements that are not finite reach no
    farther, as they would in a product with a matrix of weights. Half precision is rounded once."""
    if input.dtype in (tenon.float16, tenon.bfloat16):
        return _cubic_resize(input.float(), size, align_corners, factors).to(input.dtype)
    result = input
    for dim in (-1, -2):
        factor = factors[dim] if factors else None
        taps = _cubic_taps(input.size(dim), size[dim], align_corners, factor)
        parts = [
            result.index_select(dim, place.to(input.device))
            * weight.to(input.device, input.dtype).reshape(-1, *[1] * (-dim - 1))
            for place, weight in taps
        ]
        result = parts[0] + parts[1] + parts[2] + parts[3]
    return result


def _cubic(x: Tensor) -> Tensor:
    a = -0.5
    x = x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return tenon.where(x < 1, near, tenon.where(x < 2, far, 0.0))


def _smooth_weights(
    kernel: Callable[[Tensor], Tensor],
    reach: float,
    old: int,
    new: int,
    align_corners: bool,
    factor: float | None,
) -> Tensor:
    """(new, old): the weights of a kernel that is as wide as an element of the smaller side."""
    if align_corners:
        scale = (old - 1) / (new - 1) if new > 1 else 0.0
    else:
        scale = _ratio(old, new, factor)
    wide = max(scale, 1.0)
    center = (scale * (tenon.arange(new, dtype=tenon.float64) + 0.5)).unsqueeze(1)
    first = (center - reach * wide + 0.5).trunc().clamp(min=0)
    last = (center + reach * wide + 0.5).trunc().clamp(max=old)
    place = tenon.arange(old, dtype=tenon.float64)
    weights = kernel((place - center + 0.5) / wide)
    weights = tenon.where((place >= first) & (place < last), weights, 0.0)
    return weights / weights.sum(1, keepdim=True)


# Weights of smoothing resizes: the kernel, and how far it reaches.
_SMOOTH = {
    "bilinear": partial(_smooth_weights, lambda x: (1 - x.abs()).clamp(min=0), 1.0),
    "bicubic": partial(_smooth_weights, _cubic, 2.0),
}


def _trilinear(input: Tensor, size: Any, align_corners: bool | None, factors: Any) -> Tensor:
    """Planes first, then the depth; half precision is rounded once, at the end."""
    if input.dtype in (tenon.float16, tenon.bfloat16):
        return _trilinear(input.float(), size, align_corners, factors).to(input.dtype)
    n, c, depth = input.shape[:3]
    flat = input.reshape(n, c * depth, *input.shape[3:])
    faces = _upsample2d("bilinear", flat, size[1:], align_corners, factors and factors[1:])
    columns = faces.reshape(n, c, depth, size[1] * size[2])
    wide = [factors[0], None] if factors else None
    result = _upsample2d("bilinear", columns, [size[0], columns.size(-1)], align_corners, wide)
    return result.reshape(n, c, *size)


def _upsample2d(
    mode: str, input: Tensor, size: Any, align_corners: bool | None, factors: Any
) -> Tensor:
    height, width = factors if factors else (None, None)
    if mode == "nearest":
        return _nn.upsample_nearest2d(input, size, height, width)
    return _nn.upsample_bilinear2d(input, size, bool(align_corners), height, width)


def _say_deprecated(name: str) -> None:
    warnings.warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=overridable.users_level(),
    )


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The older name of interpolate.

    Shapes: (N, C, *), one to three sizes behind, to (N, C, *size).

    >>> F.upsample(tn.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    _say_deprecated("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """The older name of interpolate with mode="nearest".

    >>> F.upsample_nearest(tn.ones(1, 1, 2, 2), scale_factor=2).shape
    tenon.Size([1, 1, 4, 4])
    """
    _say_deprecated("upsample_nearest")
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """The older name of interpolate with mode="bilinear", align_corners=True.

    >>> F.upsample_bilinear(tn.ones(1, 1, 2, 2), size=(3, 4)).shape
    tenon.Size([1, 1, 3, 4])
    """
    _say_deprecated("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)


def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Every window of (N, C, H, W) as a column of (N, C * kh * kw, windows).

    >>> F.unfold(tn.rand(1, 3, 4, 4), 2).shape
    tenon.Size([1, 12, 9])
    """
    windows = _pair(kernel_size), _pair(dilation), _pair(padding), _pair(stride)
    return _nn.im2col(input, *windows)


overridable.make_overridable(globals(), flags=("align_corners",))
