"""`torch.profiler.itt`: marks for a tool that nothing here is built for."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def is_available() -> bool:
    """Whether the tool is there: no."""
    return False


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError("ITT functions not installed. Are you sure you have a ITT build?")


mark = range = range_pop = range_push = _refuse  # noqa: A001 - PyTorch's names
