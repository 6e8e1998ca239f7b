"""Counters that programs read after compiling, and what they ask beside."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from contextlib import AbstractContextManager
from typing import Any

import tenon

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
warn_once_cache: set[str] = set()


def warn_once(msg: str, stacklevel: int = 1) -> None:
    """Warns of one thing once."""
    if msg not in warn_once_cache:
        warn_once_cache.add(msg)
        warnings.warn(msg, stacklevel=stacklevel + 1)


def is_compile_supported(device_type: Any) -> bool:
    """Whether `compile` makes faster kernels for a device."""
    return tenon.device(device_type).type in ("cpu", "cuda")


def disable_cache_limit() -> AbstractContextManager[None]:
    """Inside it a function may have as many graphs as it takes."""
    from tenon._program import compiled

    return compiled.without_limit()
