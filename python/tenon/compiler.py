"""compile: accepted, so that programs run; execution is eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compile(model: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Returns the function or module as it is. Without one, returns a decorator that does so."""
    if model is None:
        return lambda fn: fn
    return model


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True) -> Any:
    """Returns the function as it is."""
    return (lambda f: f) if fn is None else fn


def is_compiling() -> bool:
    """Whether the caller is being compiled: never."""
    return False


def reset() -> None:
    """Forgets compiled code; there is none."""
