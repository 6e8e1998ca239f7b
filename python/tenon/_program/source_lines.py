"""The text of functions that are made of one: tracebacks and `inspect` find its lines as long as
one of the functions is there."""

from __future__ import annotations

import linecache
import weakref
from typing import Any

__all__ = ["keep_lines"]


class _Lines:
    """What lives as long as the functions of a text."""


def keep_lines(file: str, text: str, space: dict[str, Any]) -> None:
    """Shows a text under the name of a file, while the names that its functions see are there."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space["__lines__"] = lines = _Lines()
    weakref.finalize(lines, linecache.cache.pop, file, None).atexit = False
