"""Who is told of the exchanges that are begun."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["WATCHED", "watch", "watchers"]

WATCHED = (
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single",
    "broadcast", "reduce_scatter", "reduce_scatter_tensor",
)  # fmt: skip
watchers: list[Callable[[str], None]] = []  # are called with the name of the function


def _seen(function: Callable[..., Any]) -> Callable[..., Any]:
    name = function.__name__

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for watcher in watchers:
            watcher(name)
        return function(*args, **kwargs)

    return call


def watch(namespace: dict[str, Any]) -> None:
    """Lets the functions of a module tell of their calls."""
    for name in WATCHED:
        namespace[name] = _seen(namespace[name])
