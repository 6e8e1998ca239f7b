"""The old size_average and reduce arguments of losses, as a `reduction` string."""

from __future__ import annotations

import warnings


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
            stacklevel=3,
        )
    return reduction
