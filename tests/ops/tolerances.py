"""Relative and absolute error that a result of each dtype may have against float64."""

from __future__ import annotations

TOLERANCES: dict[str, tuple[float, float]] = {
    "float16": (2e-3, 1e-3),
    "bfloat16": (1.6e-2, 1e-2),
    "float32": (2e-5, 1e-5),
    "float64": (1e-10, 1e-12),
    "complex64": (3e-5, 1e-5),
    "complex128": (1e-10, 1e-12),
}
EXACT = (0.0, 0.0)


def tolerance(dtype: str) -> tuple[float, float]:
    """(rtol, atol) for results of a dtype; integers and bool must be equal."""
    return TOLERANCES.get(dtype, EXACT)
