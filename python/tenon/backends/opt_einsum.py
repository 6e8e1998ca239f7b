"""In which order einsum multiplies more than two tensors: from left to right, or as the package
opt_einsum plans it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

enabled = importlib.util.find_spec("opt_einsum") is not None
strategy = "auto" if enabled else None


def is_available() -> bool:
    """Whether the package opt_einsum is installed."""
    return importlib.util.find_spec("opt_einsum") is not None


def get_opt_einsum() -> Any:
    """The package, None where it is not installed."""
    return importlib.import_module("opt_einsum") if is_available() else None


def set_flags(_enabled: Any = None, _strategy: Any = None) -> tuple[Any, Any]:
    """Sets both, and gives what they were."""
    global enabled, strategy
    before = enabled, strategy
    if _enabled is not None:
        enabled = _enabled
    if _strategy is not None:
        strategy = _strategy
    return before


@contextmanager
def flags(enabled: Any = None, strategy: Any = None) -> Iterator[None]:
    """set_flags for a `with` block."""
    before = set_flags(enabled, strategy)
    try:
        yield
    finally:
        set_flags(*before)
