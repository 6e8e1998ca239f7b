"""How much groups say of themselves, and operations that are started together: PyTorch's names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

__all__ = ["DebugLevel", "get_debug_level", "set_debug_level", "set_debug_level_from_env"]


class DebugLevel(Enum):
    """The values of TORCH_DISTRIBUTED_DEBUG. Ranks are compared at every level."""

    OFF = 0
    INFO = 1
    DETAIL = 2


def _of_environment() -> DebugLevel:
    text = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if text not in DebugLevel.__members__:
        raise RuntimeError(
            "The value of TORCH_DISTRIBUTED_DEBUG must be one of OFF, INFO, DETAIL, not " + text
        )
    return DebugLevel[text]


_level: DebugLevel | None = None


def get_debug_level() -> DebugLevel:
    """The level that was set, or that of the environment."""
    return _of_environment() if _level is None else _level


def set_debug_level(level: DebugLevel) -> None:
    """Sets the level of this process."""
    global _level
    _level = level


def set_debug_level_from_env() -> None:
    """Takes the level of TORCH_DISTRIBUTED_DEBUG again."""
    set_debug_level(_of_environment())


class _Together:
    """What _coalescing_manager gives."""

    def wait(self) -> None:
        """Operations that were called without async_op are done already."""


@contextmanager
def _coalescing_manager(
    group: Any = None, device: Any = None, async_ops: bool = False
) -> Iterator[_Together]:
    """Operations that a program lets run together; they run one after the other, as called."""
    yield _Together()
