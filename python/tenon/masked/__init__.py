"""tenon.masked: reductions and normalisations that leave elements out, and tensors with a mask.

Where `mask` is False an element stands aside: it is replaced by what does not change the result.
The mask is broadcast to the input; None takes every element. Slices of which nothing is left give
that neutral value, or NaN where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon._C import Tensor
from tenon._C import dtype as DType  # noqa: N812

__all__ = [
    "MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor",
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp",
    "logsumexp", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum",
    "var",
]  # fmt: skip

Dims = int | Sequence[int] | None


def _lowest(input: Tensor) -> float | int | bool:
    """What no element lies below."""
    if input.dtype is tenon.bool:
        return False
    return -math.inf if input.is_floating_point() else tenon.iinfo(input.dtype).min


def _highest(input: Tensor) -> float | int | bool:
    if input.dtype is tenon.bool:
        return True
    return math.inf if input.is_floating_point() else tenon.iinfo(input.dtype).max


def _spread(input: Tensor, mask: Tensor) -> Tensor:
    """The mask in the shape of the input."""
    if mask.dim() > input.dim():
        raise IndexError(
            "_input_mask expected broadcastable mask "
            f"(got mask dimensionality higher than of the input: {mask.dim()} > {input.dim()})"
        )
    return mask.to(tenon.bool).expand(input.shape)


def _filled(input: Tensor, mask: Tensor | None, value: float, name: str) -> Tensor:
    if input.layout is not tenon.strided:
        raise ValueError(f"masked {name} expects strided tensor (got {input.layout} tensor)")
    return input if mask is None else input.masked_fill(~_spread(input, mask), value)


def _dims(input: Tensor, dim: Dims) -> tuple[int, ...]:
    """The dimensions that are reduced; those of nothing are all."""
    rank = input.dim()
    listed = (dim,) if isinstance(dim, int) else () if dim is None else tuple(dim)
    wrapped = []
    for d in listed:
        if not -max(rank, 1) <= d < max(rank, 1):
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[{-max(rank, 1)}, {max(rank, 1) - 1}], but got {d})"
            )
        wrapped.append(d % max(rank, 1))
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError(f"dim={min(d for d in wrapped if wrapped.count(d) > 1)} appears twice")
    return tuple(wrapped) if wrapped else tuple(range(rank))


def _total_dtype(input: Tensor, dtype: DType | None) -> DType:
    """Integers are added and multiplied in int64."""
    if dtype is not None:
        return dtype
    small = not input.is_floating_point() and not input.is_complex()
    return tenon.int64 if small else input.dtype


def _input_mask(input: Tensor, *args: Any, mask: Tensor | None = None, **kwargs: Any) -> Tensor:
    """Which elements of the input a call with these arguments looks at."""
    return _spread(input, input.new_ones((), dtype=tenon.bool) if mask is None else mask)


_ALONG = {"cumsum", "cumprod", "softmax", "log_softmax", "softmin", "normalize"}


def _output_mask(op: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Which elements of the result of op(input, *args, **kwargs) are made of any at all."""
    left = _input_mask(input, mask=kwargs.get("mask"))
    if op.__name__ in _ALONG:
        return left
    given = args[1:] if op.__name__ == "norm" else args
    dim = given[0] if given else kwargs.get("dim", -1 if op.__name__ == "median" else None)
    for d in sorted(_dims(input, dim), reverse=True):
        left = left.any(d, bool(kwargs.get("keepdim", False)))
    return left


# ---- Reductions ----------------------------------------------------------------------------------


def sum(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Sums of the elements that the mask leaves."""
    kept = _filled(input, mask, 0, "sum")
    return kept.sum(_dims(input, dim), bool(keepdim), dtype=_total_dtype(input, dtype))


def prod(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Products of the elements that the mask leaves."""
    result = _filled(input, mask, 1, "prod").to(_total_dtype(input, dtype))
    for d in sorted(_dims(input, dim), reverse=True):
        result = result.prod(d, bool(keepdim))
    return result


def amax(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The largest of the elements that the mask leaves."""
    kept = _filled(input, mask, _lowest(input), "amax")
    return kept.amax(_dims(input, dim), bool(keepdim)).to(dtype or input.dtype)


def amin(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The smallest of the elements that the mask leaves."""
    kept = _filled(input, mask, _highest(input), "amin")
    return kept.amin(_dims(input, dim), bool(keepdim)).to(dtype or input.dtype)


def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Where the largest of the elements that the mask leaves stands, in the input's dtype."""
    kept = _filled(input, mask, _lowest(input), "argmax")
    return kept.argmax(dim, bool(keepdim)).to(dtype or input.dtype)


def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Where the smallest of the elements that the mask leaves stands, in the input's dtype."""
    kept = _filled(input, mask, _highest(input), "argmin")
    return kept.argmin(dim, bool(keepdim)).to(dtype or input.dtype)


def _count(input: Tensor, dim: Dims, keepdim: bool, mask: Tensor | None) -> Tensor:
    """How many elements are left."""
    there = input.new_ones((), dtype=tenon.bool) if mask is None else mask
    return _spread(input, there).sum(_dims(input, dim), keepdim)


def mean(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Means of the elements that the mask leaves."""
    kind = input.dtype if dtype is None else dtype
    if not (kind.is_floating_point or kind.is_complex):
        source = "Input" if dtype is None else "Optional"
        raise ValueError(
            f"mean(): Could not infer output dtype. {source} dtype must be either "
            f"a floating point or complex dtype. Got: {kind}"
        )
    total = sum(input, dim, keepdim=keepdim, dtype=kind, mask=mask)
    return total / _count(input, dim, bool(keepdim), mask)


def median(
    input: Tensor,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The lower median of the elements that the mask leaves."""
    whole = not input.is_floating_point()
    values = input.to(tenon.float32) if whole else input
    result = _filled(values, mask, math.nan, "median").nanmedian(dim, keepdim).values
    if whole and bool(result.isnan().any()):
        raise ValueError(
            "masked median expects no fully masked out rows if dtype is not floating point"
        )
    return result.to(dtype or input.dtype) if whole else result


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Vector norms of the elements that the mask leaves."""
    order = 2.0 if ord is None else ord
    kept = _filled(input, mask, math.inf if order == -math.inf else 0, "norm")
    kind = input.dtype if dtype is None else dtype
    return tenon.linalg.vector_norm(kept, order, _dims(input, dim), bool(keepdim), dtype=kind)


def logsumexp(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """log(sum(exp(x))) of the elements that the mask leaves."""
    least = -math.inf if input.is_complex() else _lowest(input)
    kept = _filled(input, mask, least, "logsumexp")
    return kept.logsumexp(_dims(input, dim), keepdim).to(dtype or input.dtype)


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: DType | None = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """log(exp(input) + exp(other)); what a mask leaves out counts as -inf."""
    one = _filled(input, input_mask, -math.inf, "logaddexp")
    two = _filled(other, other_mask, -math.inf, "logaddexp")
    return tenon.logaddexp(one, two).to(dtype or input.dtype)


def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Variances of the elements that the mask leaves; the divisor is their number less
    `correction`."""
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    less = float(1 if unbiased is None else unbiased) if correction is None else float(correction)
    floating = input.is_floating_point() or input.is_complex()
    result = dtype or (input.dtype if floating else tenon.float32)
    inner = result if result.is_floating_point or result.is_complex else tenon.float32
    count = _count(input, dim, True, mask)
    gaps = input - sum(input, dim, keepdim=True, dtype=result, mask=mask) / count
    total = sum(gaps * gaps.conj(), dim, keepdim=keepdim, dtype=inner, mask=mask)
    divisor = count.reshape(total.shape)
    if less != 0:
        divisor = (divisor.to(inner.to_real()) - less).clamp_min(0)
    return (total / divisor).to(result)


def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Standard deviations: roots of `var`."""
    given = {"correction": correction, "keepdim": keepdim, "dtype": dtype, "mask": mask}
    return var(input, dim, unbiased, **given).sqrt()


# ---- Along a dimension ---------------------------------------------------------------------------


def cumsum(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Running sums over the elements that the mask leaves."""
    kind = dtype or input.dtype
    return _filled(input, mask, 0, "cumsum").cumsum(dim, dtype=kind).to(kind)


def cumprod(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Running products over the elements that the mask leaves."""
    kind = dtype or input.dtype
    return _filled(input, mask, 1, "cumprod").cumprod(dim, dtype=kind).to(kind)


def softmax(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """softmax over the elements that the mask leaves; the others are 0."""
    kept = _filled(input, mask, _lowest(input), "softmax")
    return tenon.nn.functional.softmax(kept, dim, dtype=dtype or input.dtype)


def log_softmax(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """log_softmax over the elements that the mask leaves; the others are -inf."""
    kept = _filled(input, mask, _lowest(input), "log_softmax")
    return tenon.nn.functional.log_softmax(kept, dim, dtype=dtype or input.dtype)


def softmin(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """softmin over the elements that the mask leaves; the others are 0."""
    kept = _filled(input, mask, _highest(input), "softmin")
    return tenon.nn.functional.softmin(kept, dim, dtype=dtype or input.dtype)


def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The input over its norm along `dim`; what the mask leaves out is 0."""
    kept = _filled(input, mask, 0, "normalize")
    size = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return kept / size.clamp_min(eps)


from tenon.masked._tensor import (  # noqa: E402 - it is made of the functions above
    MaskedTensor,
    as_masked_tensor,
    is_masked_tensor,
    masked_tensor,
)
