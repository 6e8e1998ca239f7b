"""In which order einsum multiplies more than two tensors: from left to right, or as the package
opt_einsum plans it."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from tenon.backends import _options

_installed = importlib.util.find_spec("opt_einsum") is not None
_values: dict[str, Any] = {"enabled": _installed, "strategy": "auto" if _installed else None}


class _Settings(ModuleType):
    """This module: programs assign its settings."""

    enabled = _options.kept(_values, "enabled", "Whether einsum asks opt_einsum for an order.")
    strategy = _options.kept(_values, "strategy", "How opt_einsum looks for one.")


def is_available() -> bool:
    """Whether the package opt_einsum is installed."""
    return _installed


def get_opt_einsum() -> Any:
    """The package, None where it is not installed."""
    return importlib.import_module("opt_einsum") if is_available() else None


def set_flags(_enabled: Any = None, _strategy: Any = None) -> tuple[Any, ...]:
    """Sets those that are given, and gives what both were."""
    return _options.assign(__name__, {"enabled": _enabled, "strategy": _strategy})


def flags(enabled: Any = None, strategy: Any = None) -> AbstractContextManager[None]:
    """A with statement in which the settings are these; afterwards they are what they were."""
    return _options.assigned(__name__, {"enabled": enabled, "strategy": strategy})


sys.modules[__name__].__class__ = _Settings
