"""tenon.signal: windows of signals."""

from tenon.signal import windows

__all__ = ["windows"]
