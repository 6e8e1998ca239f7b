"""Asked by programs that look for mkldnn; it is not used here, whatever its settings say."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from tenon.backends import _options

_values: dict[str, Any] = {"enabled": True, "deterministic": False, "allow_tf32": True}


class _Settings(ModuleType):
    """This module: programs assign its settings."""

    enabled = _options.kept(_values, "enabled", "Whether mkldnn would be used where it is there.")
    deterministic = _options.kept(_values, "deterministic", "Whether it would give the same bits.")
    allow_tf32 = _options.kept(_values, "allow_tf32", "Whether it would compute in TF32.")


def is_available() -> bool:
    """Whether mkldnn is in use."""
    return False


def is_built() -> bool:
    """Whether mkldnn is part of this build."""
    return False


def is_acl_available() -> bool:
    """Whether mkldnn is built with the Arm Compute Library."""
    return False


def set_flags(
    _enabled: bool | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
) -> tuple[Any, ...]:
    """Sets those that are given, and gives what all of them were."""
    return _options.assign(__name__, _wanted(_enabled, _deterministic, _allow_tf32))


def flags(
    enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True
) -> AbstractContextManager[None]:
    """A with statement in which the settings are these; afterwards they are what they were."""
    return _options.assigned(__name__, _wanted(enabled, deterministic, allow_tf32))


def _wanted(*values: Any) -> dict[str, Any]:
    return dict(zip(("enabled", "deterministic", "allow_tf32"), values, strict=True))


sys.modules[__name__].__class__ = _Settings
