"""Results that are kept while others have them."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable

__all__ = ["weakly_cached"]


def weakly_cached(make: Callable[[type], type]) -> Callable[[type], type]:
    """A function that makes a class of a class, once while the result is used: classes that are
    read from files go with their last module, and so do those that are made of them."""
    made: weakref.WeakValueDictionary[type, type] = weakref.WeakValueDictionary()

    @functools.wraps(make)
    def call(kind: type) -> type:
        found = made.get(kind)
        return made.setdefault(kind, make(kind)) if found is None else found

    return call
