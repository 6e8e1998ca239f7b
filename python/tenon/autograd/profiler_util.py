"""The events of profiles, and how times, shares and sizes are written in their tables."""

from __future__ import annotations

from tenon.profiler import EventList, FunctionEvent, FunctionEventAvg
from tenon.profiler import _time as _format_time

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg"]


def _format_time_share(time_us: float, total_time_us: float) -> str:
    """A part of a time in per cent."""
    if total_time_us != 0:
        return f"{time_us * 100.0 / total_time_us:.2f}%"
    if time_us != 0:
        raise AssertionError(f"expected a part of 0 us, got {time_us} us")
    return "NaN"


def _format_memory(nbytes: int) -> str:
    """Bytes in the largest unit of which there is one."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"


__all__ += ["_format_memory", "_format_time", "_format_time_share"]
