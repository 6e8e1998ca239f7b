"""Helpers around training: data, checkpoints, hooks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenon.utils import checkpoint, data, hooks

_SUBMODULES = frozenset(("checkpoint", "data", "hooks"))

__all__ = ["checkpoint", "data", "hooks"]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
