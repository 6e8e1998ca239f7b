"""Operators by their names in PyTorch's table of functions."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import _C


def __getattr__(name: str) -> Any:
    for place in (_C._ops, _C._nn, tenon):
        found = getattr(place, name, None)
        if found is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
