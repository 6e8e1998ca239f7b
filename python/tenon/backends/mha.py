"""Whether attention takes its shorter ways in inference."""

from __future__ import annotations

_fastpath = True


def get_fastpath_enabled() -> bool:
    """Whether the shorter ways are taken."""
    return _fastpath


def set_fastpath_enabled(value: bool) -> None:
    """Switches them on or off: without them an encoder computes what stands behind the ends of
    sequences, too."""
    global _fastpath
    _fastpath = value
