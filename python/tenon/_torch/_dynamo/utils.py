"""Counters that programs read after compiling."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
warn_once_cache: set[str] = set()


def warn_once(msg: str, stacklevel: int = 1) -> None:
    """Warns of one thing once."""
    if msg not in warn_once_cache:
        warn_once_cache.add(msg)
        warnings.warn(msg, stacklevel=stacklevel + 1)
