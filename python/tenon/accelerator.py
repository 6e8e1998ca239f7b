"""The accelerator of this process, whatever its kind: a GPU if there is one, else the first device
of a plugin that is in use. Functions that need one raise RuntimeError where there is none.

A device is given as an index, a `tenon.device` or its name; None is the current one.
"""

from __future__ import annotations

from typing import Any

import tenon
from tenon._device import streams
from tenon._device.capture import Graph
from tenon._plugin import native

__all__ = [
    "Graph", "current_accelerator", "current_device_idx", "current_device_index", "current_stream",
    "device_count", "device_index", "empty_cache", "get_device_capability", "get_memory_info",
    "is_available", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
    "memory_reserved", "memory_stats", "reset_peak_memory_stats", "set_device_idx",
    "set_device_index", "set_stream", "synchronize",
]  # fmt: skip

_library = native.Library()


def current_accelerator(check_available: bool = False) -> tenon.device | None:
    """The accelerator's kind as a device without an index; None: there is only the CPU."""
    del check_available  # what is not available is not an accelerator here
    if tenon.cuda.is_available():
        return tenon.device("cuda")
    kinds = [kind for kind in _library.devices() if kind not in ("cpu", "cuda", "meta")]
    return tenon.device(kinds[0]) if kinds else None


def _module() -> Any:
    """What is said of that kind of device: `tenon.cuda` or its like."""
    found = current_accelerator()
    if found is None:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return tenon.get_device_module(found)


def is_available() -> bool:
    """Whether there is an accelerator."""
    return current_accelerator() is not None


def device_count() -> int:
    """How many devices of its kind there are; 0 without one."""
    return _module().device_count() if is_available() else 0


# ---- The current device --------------------------------------------------------------------------


def current_device_index() -> int:
    """The device that its kind without an index stands for on the calling thread."""
    return _module().current_device()


def set_device_index(device: Any, /) -> None:
    """Chooses that device."""
    _module().set_device(device)


current_device_idx, set_device_idx = current_device_index, set_device_index  # older names


def device_index(device: int | None, /) -> Any:
    """A with statement inside which another device is the current one; None: the same."""
    return _module().device(device)


def get_device_capability(device: Any = None, /) -> dict[str, set[tenon.dtype]]:
    """The dtypes that tensors on a device may have."""
    _module().current_stream(device)  # raises for a device that there is not
    return {"supported_dtypes": {getattr(tenon, name) for name in _library.dtypes()}}


# ---- Work ----------------------------------------------------------------------------------------


def synchronize(device: Any = None, /) -> None:
    """Waits for all work on a device."""
    _module().synchronize(device)


def current_stream(device: Any = None, /) -> streams.Stream:
    """The stream that the calling thread's work on a device goes to."""
    return _module().current_stream(device)


def set_stream(stream: streams.Stream) -> None:
    """Sends the calling thread's work on the stream's device there from now on."""
    stream._set()


# ---- Memory --------------------------------------------------------------------------------------


def empty_cache() -> None:
    """Gives unused memory back to the system."""
    _module().empty_cache()


def memory_stats(device_index: Any = None, /) -> dict[str, int]:
    """What `memory_stats` of the device's kind says."""
    return _module().memory_stats(device_index)


def memory_allocated(device_index: Any = None, /) -> int:
    """Bytes in use by tensors."""
    return _module().memory_allocated(device_index)


def max_memory_allocated(device_index: Any = None, /) -> int:
    """The most bytes that were in use at once."""
    return _module().max_memory_allocated(device_index)


def memory_reserved(device_index: Any = None, /) -> int:
    """Bytes held from the system."""
    return _module().memory_reserved(device_index)


def max_memory_reserved(device_index: Any = None, /) -> int:
    """The most bytes that were held at once."""
    return _module().max_memory_reserved(device_index)


def reset_peak_memory_stats(device_index: Any = None, /) -> None:
    """Starts the counting of peaks anew."""
    _module().reset_peak_memory_stats(device_index)


def get_memory_info(device_index: Any = None, /) -> tuple[int, int]:
    """Bytes that are free on a device, and all that it has."""
    return _module().mem_get_info(device_index)
