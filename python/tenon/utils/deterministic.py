"""A setting beside `use_deterministic_algorithms`."""

from __future__ import annotations

import sys
from types import ModuleType

from tenon import _C


class _Settings(ModuleType):
    """This module: programs assign its setting."""

    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether `empty` and its like hand out NaN, the largest integer or True while
        `use_deterministic_algorithms` is set."""
        return _C._is_unset_filled()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise RuntimeError(f"expected a bool, but got {type(mode).__name__}")
        _C._set_unset_filled(mode)


sys.modules[__name__].__class__ = _Settings
