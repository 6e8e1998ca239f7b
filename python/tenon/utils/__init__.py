"""Helpers around training: data, checkpoints, hooks."""

from __future__ import annotations

import importlib
from typing import Any

_SUBMODULES = frozenset(("checkpoint", "data", "hooks"))

__all__ = sorted(_SUBMODULES)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
