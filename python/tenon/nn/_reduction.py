"""What losses look at before they compute: old flags of reduction, sizes that differ."""

from __future__ import annotations

import warnings

from tenon import Tensor
from tenon._tape import overridable


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """What `reduction` the two old flags mean; None counts as True."""
    averaged = size_average is None or size_average
    reduced = reduce is None or reduce
    reduction = ("mean" if averaged else "sum") if reduced else "none"
    if emit_warning:
        warnings.warn(
            "size_average and reduce args will be deprecated, "
            f"please use reduction='{reduction}' instead.",
            stacklevel=overridable.users_level(),
        )
    return reduction


def get_enum(reduction: str) -> int:
    """The number of a reduction in PyTorch's own calls."""
    if reduction == "elementwise_mean":
        warnings.warn(
            "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.",
            stacklevel=2,
        )
        return 1
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return ("none", "mean", "sum").index(reduction)


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """What the two old flags mean, as a number."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))


def warn_sizes(input: Tensor, target: Tensor) -> None:
    """Sizes that differ are broadcast, which is hardly ever meant."""
    if input.shape != target.shape:
        warnings.warn(
            f"Using a target size ({target.size()}) that is different to the input size "
            f"({input.size()}). This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
            stacklevel=overridable.users_level(),
        )
