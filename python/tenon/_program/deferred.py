"""Calls that wait until a value is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tenon import _C
from tenon._tape.modes import decorate

_F = TypeVar("_F", bound=Callable[..., Any])


class deferred:
    """Pointwise operators inside wait, and run as one when a value is looked at; a decorator, too.

    Values, errors and side effects are those without it.

    Examples:
        >>> x = tn.ones(100, 100)
        >>> with tn.deferred():
        ...     y = tn.relu(x * 2 + 1) - x
        >>> y[0, 0].item()
        2.0
    """

    def __enter__(self) -> None:
        _C._deferred_begin()

    def __exit__(self, *exception: object) -> None:
        _C._deferred_end()

    def __call__(self, function: _F) -> _F:
        wrapped: _F = decorate(self, function)
        return wrapped

    def clone(self) -> deferred:
        return type(self)()
