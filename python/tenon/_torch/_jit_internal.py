"""What packages import from `torch._jit_internal`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.jit import export, ignore, is_scripting, unused

__all__ = ["export", "ignore", "is_scripting", "unused"]


def _copy_to_script_wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, as it is: methods of scripts are found by their classes."""
    return fn
