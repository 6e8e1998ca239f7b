"""Counts and reductions of parts of a tensor: histogramdd, segment_reduce, nonzero_static."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tenon import _C, return_types
from tenon._C import Tensor
from tenon._tape import overridable

_ops = _C._ops


def _edges(points: Tensor, bins: Any, range: Sequence[float] | None) -> tuple[Tensor, ...]:
    """The borders of the bins, by dimension."""
    count = points.shape[-1]
    listed = [bins] * count if isinstance(bins, int) else list(bins)
    if len(listed) != count:
        raise RuntimeError(
            f"histogramdd(): expected {count} sequences of bin edges or bins for a {count}-"
            f"dimensional histogram but got {len(listed)}"
        )
    if isinstance(listed[0], Tensor):
        return tuple(listed)
    if range is not None and len(range) != 2 * count:
        raise RuntimeError(
            f"histogramdd(): for a {count}-dimensional histogram range should have {2 * count} "
            f"elements, but got {len(range)}"
        )
    given = [None, None] * count if range is None else range
    places = enumerate(zip(listed, given[::2], given[1::2], strict=True))
    return tuple(_ops._histogram_edges(points[:, i], *bin) for i, bin in places)


def histogramdd(
    input: Tensor,
    bins: Any,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> return_types.histogramdd:
    """(hist, bin_edges): how many points lie in each bin. The last dimension of input holds their
    coordinates; bins: numbers of bins, or edges, by coordinate."""
    if input.dim() < 2:
        raise RuntimeError("histogramdd(): input tensor should have at least 2 dimensions")
    if not input.is_floating_point():
        raise NotImplementedError(f'"histogramdd" not implemented for {input.dtype}')
    points = input.reshape(-1, input.shape[-1])
    edges = _edges(points, bins, range)
    shape = [e.numel() - 1 for e in edges]
    place = _ops.zeros(points.shape[0], dtype=_C.int64, device=input.device)
    inside = _ops.ones(points.shape[0], dtype=_C.bool, device=input.device)
    for i, (e, n) in enumerate(zip(edges, shape, strict=True)):
        x = points[:, i].contiguous()
        inside = inside & (x >= e[0]) & (x <= e[-1])
        bin = _ops.searchsorted(e.contiguous(), x, right=True) - 1
        place = place * n + bin.clamp(0, n - 1)  # the last bin has its end
    each = _ops.ones_like(points[:, 0]) if weight is None else weight.reshape(-1).to(input.dtype)
    hist = _ops.zeros(math.prod(shape), dtype=input.dtype, device=input.device)
    hist = hist.index_add(0, place[inside], each[inside]).reshape(shape)
    if density:
        hist = hist / hist.sum()
        for i, e in enumerate(edges):
            hist = hist / e.diff().reshape([-1 if k == i else 1 for k, _ in enumerate(shape)])
    return return_types.histogramdd(hist, edges)


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` rows of nonzero, and rows of fill_value where there are fewer."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found = input.nonzero()[:size]
    rows = found.new_full((size - found.shape[0], found.shape[1]), fill_value)
    return _ops.cat([found, rows])


# ---- Segments ------------------------------------------------------------------------------------

_NEUTRAL = {"sum": 0.0, "mean": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0}
_SCATTER = {"sum": "sum", "mean": "sum", "max": "amax", "min": "amin", "prod": "prod"}


def _sums(data: Tensor, reduce: str) -> bool:
    """Whether runs of rows are summed by the kernel of sparse products."""
    known = data.is_cpu and data.is_floating_point() and not _C._program_is_recording()
    return reduce in ("sum", "mean") and known


def _sum_of_runs(
    data: Tensor, ends: Tensor, counts: Tensor, reduce: str, initial: float | None
) -> Tensor:
    """As the product with the sparse matrix that has a one for each row."""
    starts = _ops.cat([ends.new_zeros(1), ends]).to(_C.int64)
    ones = _ops.ones(data.shape[0], dtype=data.dtype)
    matrix = data.reshape(data.shape[0], -1)
    result = _ops._spmm(starts, _ops.arange(data.shape[0]), ones, matrix)
    result = result.reshape(-1, *data.shape[1:])
    if reduce == "sum":
        return result
    number = counts.reshape(-1, *(1,) * (data.ndim - 1))
    empty = math.nan if initial is None else initial
    return _ops.where(number == 0, empty, result / number.clamp(min=1).to(data.dtype))


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """One value for each run of rows along axis: its sum, mean, max, min or prod; max and min are
    called amax and amin, too. Runs are given by lengths, or by the offsets where they begin and the
    last one ends."""
    reduce = {"amax": "max", "amin": "min"}.get(reduce, reduce)
    if reduce not in _NEUTRAL:
        raise RuntimeError(f"unsupported reduction given! {reduce}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if (lengths is None) == (offsets is None):
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    axis %= max(data.dim(), 1)
    counts = offsets.diff(dim=axis) if lengths is None else lengths
    ends = (
        counts.cumsum(axis) if lengths is not None else offsets.narrow(axis, 1, counts.shape[axis])
    )
    if not unsafe and data.numel() and bool((counts < 0).any()):
        raise RuntimeError("segment_reduce(): lengths contains negative value!")
    rows, runs = data.shape[axis], counts.shape[axis]
    if lengths is not None and not unsafe and bool((counts.sum(axis) != rows).any()):
        raise RuntimeError("segment_reduce(): Expected all rows of lengths along axis to sum to "
                           "data.size(lengths.dim()-1) when !unsafe.")  # fmt: skip
    lead = tuple(counts.shape[:axis])
    whole = counts.ndim == 1 and lengths is not None and not unsafe
    if whole and axis == 0 and rows and initial in (None, 0) and _sums(data, reduce):
        return _sum_of_runs(data, ends, counts, reduce, initial)
    if whole and axis == 0:
        run = _ops.arange(runs, device=data.device).repeat_interleave(counts)
    else:
        at = _ops.arange(rows, device=data.device).expand(*lead, rows).contiguous()
        run = _ops.searchsorted(ends.to(_C.int64).contiguous(), at, right=True)
    rest = (1,) * (data.dim() - axis - 1)
    # a run more for the rows behind the last one
    shape = (*data.shape[:axis], runs + 1, *data.shape[axis + 1 :])
    start = _NEUTRAL[reduce] if initial is None else initial
    result = data.new_full(shape, start).scatter_reduce(
        axis, run.reshape(*lead, rows, *rest).expand(data.shape), data, _SCATTER[reduce]
    )
    result = result.narrow(axis, 0, runs)
    if reduce != "mean":
        return result
    number = counts.reshape(*lead, runs, *rest)
    empty = math.nan if initial is None else initial
    return _ops.where(number == 0, empty, result / number.clamp(min=1).to(data.dtype))


overridable.make_overridable(globals(), flags=("density", "unsafe"))
