"""Asked by programs that look for NNPACK; it is not used here, whatever its setting says."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from tenon.backends import _options

_values: dict[str, Any] = {"enabled": True}


class _Settings(ModuleType):
    """This module: programs assign its setting."""

    enabled = _options.kept(_values, "enabled", "Whether NNPACK would be used where it is there.")


def is_available() -> bool:
    """Whether NNPACK is in use."""
    return False


def set_flags(_enabled: bool) -> tuple[Any, ...]:
    """Sets it, and gives what it was."""
    return _options.assign(__name__, {"enabled": _enabled})


def flags(enabled: bool = False) -> AbstractContextManager[None]:
    """A with statement in which the setting is this; afterwards it is what it was."""
    return _options.assigned(__name__, {"enabled": enabled})


sys.modules[__name__].__class__ = _Settings
