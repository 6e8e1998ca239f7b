"""Memory of GPUs: what is in use, what is kept for reuse, and how to give it back."""

from __future__ import annotations

import ctypes as c
from typing import Any

from tenon._C import OutOfMemoryError
from tenon.cuda import _base

__all__ = [
    "OutOfMemoryError", "empty_cache", "max_memory_allocated", "max_memory_reserved",
    "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats", "memory_summary",
    "reset_peak_memory_stats",
]  # fmt: skip


def empty_cache() -> None:
    """Gives unused memory back; without a GPU there is none to give."""
    if _base.is_available():
        _base.module.empty_cache()


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors on a GPU."""
    return _base.module.memory_allocated(device) if _base.is_available() else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were in use at once."""
    return _base.module.max_memory_allocated(device) if _base.is_available() else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes held from the driver."""
    return _base.module.memory_reserved(device) if _base.is_available() else 0


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that were held at once."""
    return _base.module.max_memory_reserved(device) if _base.is_available() else 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Starts the counting of peaks anew."""
    if _base.is_available():
        _base.module.reset_peak_memory_stats(device)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes that are free on a GPU, and all that it has, as the driver says."""
    index, free, total = _base.index_of(device, "mem_get_info"), c.c_int64(), c.c_int64()
    _base.library.check(_base.runtime().memory_info(index, c.byref(free), c.byref(total)))
    return free.value, total.value


def memory_stats(device: Any = None) -> dict[str, int]:
    """Statistics of a GPU's memory under PyTorch's names; empty without a GPU."""
    if not _base.is_available():
        return {}
    s = _base.module.memory_stats(device)
    return {
        "allocated_bytes.all.current": s["allocated"],
        "allocated_bytes.all.peak": s["allocated_peak"],
        "reserved_bytes.all.current": s["reserved"],
        "reserved_bytes.all.peak": s["reserved_peak"],
        "allocation.all.allocated": s["allocations"],
        "allocation.all.freed": s["frees"],
        "allocation.all.current": s["allocations"] - s["frees"],
    }


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The statistics of a GPU's memory as a table."""
    return _base.module.memory_summary(device) if _base.is_available() else ""
