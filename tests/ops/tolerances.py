"""Relative and absolute error that a result of each dtype may have against float64: the numbers are
those of the conformance kit, plugins/conform/tolerances.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

_FILE = Path(__file__).resolve().parents[2] / "plugins" / "conform" / "tolerances.toml"
TOLERANCES: dict[str, tuple[float, float]] = {
    name: (row["ulps"] * row["epsilon"], row["absolute"])
    for name, row in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()
}
EXACT = (0.0, 0.0)


def tolerance(dtype: str) -> tuple[float, float]:
    """(rtol, atol) for results of a dtype; integers and bool must be equal."""
    return TOLERANCES.get(dtype, EXACT)
