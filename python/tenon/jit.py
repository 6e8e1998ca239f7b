"""Names of the script compiler: code runs eagerly, so compiling returns it as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


def is_scripting() -> bool:
    """Whether the caller is being compiled: never."""
    return False


def is_tracing() -> bool:
    """Whether the caller is being traced: never."""
    return False


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns the function or module as it is."""
    return obj


def _as_it_is(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Marks that the compiler would read; returns the function as it is."""
    return (lambda f: f) if fn is None or not callable(fn) else fn


ignore = unused = export = script_method = _as_it_is


def annotate(the_type: Any, the_value: Any) -> Any:
    """Returns the value."""
    return the_value


class Final:
    """Marks attributes that do not change."""

    def __class_getitem__(cls, item: Any) -> Any:
        return item


def _missing(*args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError("jit: compiled programs and their files are not there yet")


trace = save = load = freeze = _missing
