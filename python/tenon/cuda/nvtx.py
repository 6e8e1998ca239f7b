"""Named spans of time for NVIDIA's tools; nothing without NVTX's library or a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tenon.cuda import _base

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def range_push(msg: str) -> int:
    """Begins a span inside the thread's others; how deep it lies, negative if nobody listens."""
    return _base.runtime().range_push(msg.encode()) if _base.is_available() else -1


def range_pop() -> int:
    """Ends the innermost span of the thread."""
    return _base.runtime().range_pop() if _base.is_available() else -1


def range_start(msg: str) -> int:
    """Begins a span that `range_end` ends, by any thread."""
    return _base.runtime().range_start(msg.encode()) if _base.is_available() else 0


def range_end(range_id: int) -> None:
    """Ends what `range_start` began."""
    if _base.is_available():
        _base.runtime().range_end(range_id)


def mark(msg: str) -> None:
    """A point in time."""
    if _base.is_available():
        _base.runtime().mark(msg.encode())


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:  # noqa: A001 - PyTorch's name
    """A with statement, or a decorator, that is a span; `args` go into msg.format."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
