"""Questions about sizes that may be symbols. Sizes are numbers here, so every one has an answer."""

from __future__ import annotations

from typing import Any

__all__ = ["guard_or_false", "guard_or_true", "statically_known_true"]


def guard_or_false(a: Any) -> bool:
    """The condition; false where it is not known, which is never so."""
    return bool(a)


def guard_or_true(a: Any) -> bool:
    """The condition; true where it is not known, which is never so."""
    return bool(a)


def statically_known_true(x: Any) -> bool:
    """The condition."""
    return bool(x)
