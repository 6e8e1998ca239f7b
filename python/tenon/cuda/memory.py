"""Memory of GPUs: what is in use, what is kept for reuse, and how to give it back."""

from __future__ import annotations

import ctypes as c
from typing import Any

from tenon._C import OutOfMemoryError
from tenon.cuda import _base, _table

__all__ = [
    "OutOfMemoryError", "empty_cache", "max_memory_allocated", "max_memory_cached",
    "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved",
    "memory_snapshot", "memory_stats", "memory_summary", "reset_max_memory_allocated",
    "reset_peak_memory_stats", "set_per_process_memory_fraction",
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


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved  # older names
reset_max_memory_allocated = reset_peak_memory_stats  # older name


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes that are free on a GPU, and all that it has, as the driver says."""
    index, free, total = _base.index_of(device, "mem_get_info"), c.c_int64(), c.c_int64()
    _base.library.check(_base.runtime().memory_info(index, c.byref(free), c.byref(total)))
    return free.value, total.value


def _counts(device: Any) -> tuple[int, int]:
    index, retries, failures = _base.index_of(device, "memory"), c.c_uint64(), c.c_uint64()
    _base.runtime().memory_counts(index, c.byref(retries), c.byref(failures))
    return retries.value, failures.value


def memory_stats(device: Any = None) -> dict[str, int]:
    """Statistics of a GPU's memory under PyTorch's names; empty without a GPU."""
    if not _base.is_available():
        return {}
    s = _base.module.memory_stats(device)
    blocks = _blocks(device)
    waiting = sum(b.bytes for b in blocks if b.state == _WAITS)
    used = sum(b.bytes for b in blocks if b.state == _USED)
    retries, failures = _counts(device)
    return {
        "allocation.all.current": s["allocations"] - s["frees"],
        "allocation.all.allocated": s["allocations"],
        "allocation.all.freed": s["frees"],
        "requested_bytes.all.current": s["allocated"],
        "requested_bytes.all.peak": s["allocated_peak"],
        "allocated_bytes.all.current": s["allocated"],
        "allocated_bytes.all.peak": s["allocated_peak"],
        "active_bytes.all.current": used + waiting,
        "reserved_bytes.all.current": s["reserved"],
        "reserved_bytes.all.peak": s["reserved_peak"],
        "segment.all.current": len({b.segment for b in blocks}),
        "inactive_split_bytes.all.current": _split_bytes(blocks),
        "num_alloc_retries": retries,
        "num_ooms": failures,
    }


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The statistics of a GPU's memory as a table."""
    if not _base.is_available():
        return ""
    retries, failures = _counts(device)
    text = _base.module.memory_summary(device)
    return f"{text}\n{retries:,} retries after giving back, {failures:,} failures"


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limits what this process takes of a GPU's memory."""
    if not 0 <= fraction <= 1:
        raise ValueError(
            f"cuda.set_per_process_memory_fraction: fraction must be from 0 to 1, not {fraction}"
        )
    index = _base.index_of(device, "set_per_process_memory_fraction")
    limit = max(1, int(mem_get_info(index)[1] * fraction)) if fraction < 1 else 0
    _base.library.check(_base.runtime().set_memory_limit(index, limit))


# ---- Snapshots -----------------------------------------------------------------------------------

_USED, _WAITS, _HOLE = 1, 2, 3
_STATES = ("inactive", "active_allocated", "active_pending_free", "unmapped")
_SMALL, _EXPANDABLE = 1, 2


def _blocks(device: Any) -> list[_table.Block]:
    index, table, room = _base.index_of(device, "memory"), _base.runtime(), 256
    while True:
        blocks = (_table.Block * room)()
        found = table.memory_snapshot(index, blocks, room)
        if found <= room:
            return list(blocks[:found])
        room = 2 * found


def _split_bytes(blocks: list[_table.Block]) -> int:
    """What lies free beside blocks in use, and so cannot be given back."""
    busy = {b.segment for b in blocks if b.state in (_USED, _WAITS)}
    return sum(b.bytes for b in blocks if b.state == 0 and b.segment in busy)


def memory_snapshot() -> list[dict[str, Any]]:
    """Every segment that is held from the driver, on all GPUs, with the blocks in it."""
    segments: dict[tuple[int, int], dict[str, Any]] = {}
    for device in range(_base.device_count()):
        for b in _blocks(device):
            segment = segments.setdefault((device, b.segment), _segment(device, b))
            if b.state == _HOLE:
                continue
            segment["total_size"] += b.bytes
            segment["allocated_size"] += b.bytes if b.state == _USED else 0
            segment["active_size"] += b.bytes if b.state in (_USED, _WAITS) else 0
            segment["requested_size"] += b.asked
            block = {"address": b.address, "size": b.bytes, "requested_size": b.asked}
            segment["blocks"].append({**block, "state": _STATES[b.state]})
    return list(segments.values())


def _segment(device: int, b: _table.Block) -> dict[str, Any]:
    sizes = dict.fromkeys(("total_size", "allocated_size", "active_size", "requested_size"), 0)
    return {
        "device": device,
        "address": b.segment,
        "stream": b.stream,
        "segment_type": "small" if b.flags & _SMALL else "large",
        "is_expandable": bool(b.flags & _EXPANDABLE),
        **sizes,
        "blocks": [],
    }
