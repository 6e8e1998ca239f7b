"""Parts of embedding_bag: what it refuses, where bags begin, sums and maxima of their rows."""

from __future__ import annotations

import tenon
from tenon import _C, Tensor
from tenon._C import _ops


def check(
    weight: Tensor,
    mode: str,
    scale_grad_by_freq: bool,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int | None,
) -> None:
    """Refuses what the mode has no gradient for, and facts that do not fit the table."""
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    rows = weight.size(0)
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise RuntimeError(
            "padding_idx must be within the number of embeddings, "
            f"{-rows} through {rows - 1}, but got {padding_idx}"
        )
    if per_sample_weights is not None and per_sample_weights.dtype != weight.dtype:
        raise RuntimeError(
            "embedding_bag: expected per_sample_weights to have the same type as weight, "
            f"but got {per_sample_weights.dtype} and {weight.dtype}"
        )


def name_outside(input: Tensor, weight: Tensor) -> None:
    """Raises an error that names the first index without a row, if there is one."""
    outside = input[(input < 0) | (input >= weight.size(0))]
    if len(outside):
        raise RuntimeError(
            "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be "
            f"{outside[0]}"
        ) from None


def lengths(input: Tensor, offsets: Tensor, include_last_offset: bool) -> tuple[Tensor, Tensor]:
    """Where bags begin and the last one ends, and how many indices each bag has."""
    if offsets.dim() != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if len(offsets) and int(offsets[0]) != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
            f"position 0. However, got {offsets[0]}"
        )
    if include_last_offset and not len(offsets):
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    if len(offsets) and int(offsets[-1]) > len(input):
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {len(input)} but got "
            f"offsets[-1] of {offsets[-1]}"
        )
    if not include_last_offset:
        offsets = tenon.cat([offsets, offsets.new_full((1,), len(input))])
    return offsets, offsets.diff()


def can_sum(input: Tensor, weight: Tensor) -> bool:
    """Whether `summed` is there for them, and nobody asks for a history."""
    return (
        weight.is_cpu
        and weight.is_floating_point()
        and input.dtype == tenon.int64
        and not _C._program_is_recording()
        and not (tenon.is_grad_enabled() and weight.requires_grad)
    )


def summed(input: Tensor, weight: Tensor, starts: Tensor, shares: Tensor | None) -> Tensor:
    """Sums of rows, as the product with the sparse matrix that says how often each is taken."""
    each = weight.new_ones(len(input)) if shares is None else shares
    return _ops._spmm(starts, input, each, weight)


def divided(sums: Tensor, lengths: Tensor) -> Tensor:
    """Means of bags; zeros for a bag without rows."""
    return sums / lengths.clamp(min=1).unsqueeze(1)


def largest(rows: Tensor, bags: Tensor, size: int) -> Tensor:
    """The largest of each bag's rows, of equal ones the first; zeros for a bag without rows."""
    width, count = rows.size(1), len(rows)
    place = bags.unsqueeze(1).expand_as(rows)
    with tenon.no_grad():
        top = rows.new_zeros(size, width)
        top = top.scatter_reduce(0, place, rows, "amax", include_self=False)
        order = tenon.arange(count, device=rows.device).unsqueeze(1)
        order = tenon.where((rows == top[bags]) | rows.isnan(), order, count)
        first = order.new_full((size, width), count).scatter_reduce(0, place, order, "amin")
    return tenon.cat([rows, rows.new_zeros(1, width)]).gather(0, first)
