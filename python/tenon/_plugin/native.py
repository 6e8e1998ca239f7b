"""The parts of libtenon's C API that the command line needs, through ctypes.

They do not go through the extension module, so that `tenon doctor` can say what is wrong when the
extension does not load.
"""

from __future__ import annotations

import ctypes as c
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def _package() -> Path:
    """The folder that holds libtenon, headers and plugins beside the Python files. Not resolved: in
    a build tree it is made of links into several others. An editable installation leaves the Python
    files with the sources and the extension in a build tree, whose `site` is such a folder."""
    here = Path(__file__).absolute().parent.parent
    if not (here / "libtenon.so").exists():
        from importlib.util import find_spec  # costs an import of tenon half a millisecond

        spec = find_spec("tenon._C")
        if spec is not None and spec.origin is not None:
            site = Path(spec.origin).absolute().parents[1] / "site" / "tenon"
            return site if site.is_dir() else here
    return here


PACKAGE = _package()
LIBRARY = PACKAGE / "libtenon.so"
PLUGINS = LIBRARY.resolve().parent / "plugins"  # those that came with Tenon
# How a call runs, by the numbers that the core gives (TN_WAY_*).
WAYS = ("core", "kernel", "wider", "composite", "cpu", "none")
RNG_PHILOX, RNG_MT19937 = 0, 1


class _Device(c.Structure):
    _fields_ = [("slot", c.c_int32), ("index", c.c_int32)]


class _Error(c.Structure):
    _fields_ = [
        ("code", c.c_int32),
        ("arg", c.c_int32),
        ("op", c.c_char_p),
        ("message", c.c_char_p),
        ("detail", c.c_char_p),
    ]


class _PluginStatus(c.Structure):
    _fields_ = [
        ("name", c.c_char_p),
        ("version", c.c_char_p),
        ("summary", c.c_char_p),
        ("path", c.c_char_p),
        ("problem", c.c_char_p),
        ("active", c.c_int32),
        ("kernels", c.c_int32),
    ]


# Exceptions of the core's status codes; the others are RuntimeError.
_EXCEPTIONS: dict[int, type[Exception]] = {
    1: ValueError, 2: TypeError, 3: IndexError, 8: MemoryError, 9: OSError, 10: NotImplementedError,
    12: ImportError,
}  # fmt: skip


class _MemoryStats(c.Structure):
    _fields_ = [
        (name, c.c_uint64)
        for name in (
            "allocated",
            "allocated_peak",
            "reserved",
            "reserved_peak",
            "allocations",
            "frees",
            "total",
            "available",
        )  # fmt: skip
    ]


@dataclass(frozen=True)
class Plugin:
    """What is known of one plugin; `problem` says why it is not active and what to do."""

    name: str
    version: str
    summary: str
    path: str
    problem: str
    active: bool
    kernels: int


class Library:
    """libtenon, loaded from beside this file."""

    def __init__(self) -> None:
        self.lib = c.CDLL(str(LIBRARY))
        self.lib.tn_version.restype = c.c_char_p
        self.lib.tn_error_last.restype = c.POINTER(_Error)
        self.lib.tn_device_describe.restype = c.c_char_p
        self.lib.tn_device_describe.argtypes = [_Device]
        self.lib.tn_device_name.restype = c.c_char_p
        self.lib.tn_dtype_name.restype = c.c_char_p
        self.lib.tn_explain_way.argtypes = [c.c_char_p, _Device, c.c_int32, c.POINTER(c.c_int32)]
        self.lib.tn_free.argtypes = [c.c_void_p]
        self.lib.tn_memory_get_stats.argtypes = [_Device, c.POINTER(_MemoryStats)]
        self.lib.tn_memory_reset_peak.argtypes = [_Device]
        self.lib.tn_memory_empty_cache.argtypes = [_Device]
        self.lib.tn_device_set_current.argtypes = [_Device]
        self.lib.tn_explain.argtypes = [c.c_char_p, _Device, c.c_int32, c.POINTER(c.c_void_p)]

    def error(self) -> str:
        return self.lib.tn_error_last().contents.message.decode(errors="replace")

    def version(self) -> str:
        return self.lib.tn_version().decode()

    def plugins(self) -> list[Plugin]:
        found = []
        status = _PluginStatus()
        while self.lib.tn_plugin_at(len(found), c.byref(status)) == 0:
            name, version, summary, problem = (
                (getattr(status, f) or b"").decode(errors="replace")
                for f in ("name", "version", "summary", "problem")
            )
            path = os.fsdecode(status.path or b"")
            found.append(
                Plugin(name, version, summary, path, problem, bool(status.active), status.kernels)
            )
        return found

    def device(self, text: str) -> _Device:
        """The device of a name such as "cpu"; loads the plugin that serves it."""
        device = _Device()
        if self.lib.tn_device_parse(text.encode(), c.byref(device)) != 0:
            raise RuntimeError(self.error())
        return device

    def current_device(self, kind: str) -> int:
        """The index that a name without one stands for on the calling thread."""
        return self.lib.tn_device_current(self.device(kind).slot)

    def set_current_device(self, text: str) -> None:
        self.check(self.lib.tn_device_set_current(self.device(text)))

    def describe(self, text: str) -> str:
        return self.lib.tn_device_describe(self.device(text)).decode(errors="replace")

    def devices(self) -> list[str]:
        names = (self.lib.tn_device_name(slot) for slot in range(32))
        return [name.decode() for name in names if name]

    def dtypes(self) -> list[str]:
        names = (self.lib.tn_dtype_name(slot) for slot in range(64))
        return [name.decode() for name in names if name]

    def explain(self, op: str, device: str, dtype: str) -> str:
        """Which kernel would run and why."""
        text = c.c_void_p()
        slot = self.lib.tn_dtype_find(dtype.encode())
        if self.lib.tn_explain(op.encode(), self.device(device), slot, c.byref(text)) != 0:
            raise RuntimeError(self.error())
        try:
            return c.string_at(text.value or 0).decode(errors="replace")
        finally:
            self.lib.tn_free(text)

    def check(self, status: int) -> None:
        """Raises what the core's last error says, unless the status is 0."""
        if status != 0:
            raise _EXCEPTIONS.get(status, RuntimeError)(self.error())

    def way(self, op: str, device: str, dtype: str) -> str:
        """How a call would run, as one of WAYS."""
        way = c.c_int32()
        slot = self.lib.tn_dtype_find(dtype.encode())
        where = self.device(device)
        self.check(self.lib.tn_explain_way(op.encode(), where, slot, c.byref(way)))
        return WAYS[way.value]

    def fallback_count(self, op: str, device: str) -> tuple[int, int]:
        """How many calls of an operator on a device ran in a wider dtype, and on the CPU."""
        wide, host = c.c_uint64(), c.c_uint64()
        slot = self.device(device).slot
        self.check(self.lib.tn_fallback_count(op.encode(), slot, c.byref(wide), c.byref(host)))
        return wide.value, host.value

    def interface(self, device: str, name: str, kind: type[c.Structure]) -> tuple[Any, c.c_void_p]:
        """A named table of a device, None where it has no such table, and the table's context."""
        context = c.c_void_p()
        query = self.lib.tn_device_query
        query.restype = c.POINTER(kind)
        query.argtypes = [c.c_int32, c.c_char_p, c.POINTER(c.c_void_p)]
        found = query(self.device(device).slot, name.encode(), c.byref(context))
        return (found.contents if found else None), context

    def memory_stats(self, device: str) -> dict[str, int]:
        """What is known of a device's memory, in bytes and calls."""
        stats = _MemoryStats()
        self.check(self.lib.tn_memory_get_stats(self.device(device), c.byref(stats)))
        return {name: getattr(stats, name) for name, _ in stats._fields_}

    def memory_reset_peak(self, device: str) -> None:
        self.check(self.lib.tn_memory_reset_peak(self.device(device)))

    def memory_empty_cache(self, device: str) -> None:
        self.check(self.lib.tn_memory_empty_cache(self.device(device)))
