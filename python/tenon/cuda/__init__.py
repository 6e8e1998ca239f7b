"""GPUs of the CUDA backend. Everything here may be asked without one."""

# ruff: noqa: F401
from __future__ import annotations

import ctypes as c
from types import SimpleNamespace
from typing import Any

from tenon._C import OutOfMemoryError, Tensor
from tenon._submodules import on_demand
from tenon.cuda import _base, amp, memory, nvtx, profiler, random
from tenon.cuda._base import device_count, is_available
from tenon.cuda._graphed import make_graphed_callables
from tenon.cuda._kernel import Kernel, compile_kernel
from tenon.cuda.graphs import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing
from tenon.cuda.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from tenon.cuda.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from tenon.cuda.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)


def __getattr__(name: str) -> Any:
    """The types of tensors on GPUs: `tenon.cuda.FloatTensor`; what is_initialized says."""
    if name == "_initialized":
        return is_initialized()
    from tenon._tensor import tensor_types

    return tensor_types.member(__name__, name, "cuda")


# What the plugin says of a device, by PyTorch's names.
_PROPERTIES = (
    "major", "minor", "total_memory", "multi_processor_count", "warp_size", "is_integrated",
    "is_multi_gpu_board", "max_threads_per_block", "max_threads_per_multi_processor",
    "regs_per_multiprocessor", "shared_memory_per_block", "shared_memory_per_block_optin",
    "shared_memory_per_multiprocessor", "L2_cache_size", "clock_rate", "memory_clock_rate",
    "memory_bus_width", "pci_bus_id", "pci_device_id", "pci_domain_id",
)  # fmt: skip


def _settings() -> Any:
    """The plugin's own table, "tenon.cuda/1"; needs a GPU."""
    return _base.settings()


def libraries() -> list[str]:
    """NVIDIA's libraries, one line each: the version that is there, or what to install."""
    _base.require("libraries")
    return _base.settings().libraries().decode().splitlines()


def is_initialized() -> bool:
    """Whether a GPU is in use by this process; asking does not start one."""
    active = any(p.name == "tenon-cuda" and p.active for p in _base.library.plugins())
    return active and bool(_base.runtime().is_started())


def init() -> None:
    """Starts the backend, which starts by itself on first use."""
    _base.require("init")


def _lazy_call(callable: Any, **kwargs: Any) -> None:  # noqa: A002 - PyTorch's name
    """Calls something that needs a GPU, where there is one."""
    del kwargs
    if is_available():
        callable()


# ---- Devices -------------------------------------------------------------------------------------


def synchronize(device: Any = None) -> None:
    """Waits for all work on a GPU, and raises what went wrong in it."""
    _base.require("synchronize")
    _base.module.synchronize(device)


def current_device() -> int:
    """The GPU that "cuda" stands for on the calling thread."""
    _base.require("current_device")
    return _base.module.current_device()


def set_device(device: Any) -> None:
    """Chooses the GPU that "cuda" stands for on the calling thread; a negative number: none."""
    _base.require("set_device")
    if not (isinstance(device, int) and device < 0):
        _base.module.set_device(device)
        _base.was_chosen = True


class device:  # noqa: N801 - PyTorch's name
    """A with statement inside which "cuda" stands for another GPU; None and -1: for the same."""

    def __init__(self, device: Any) -> None:
        self._chosen = None if device is None or device == -1 else _base.module.device(device)

    def __enter__(self) -> None:
        if self._chosen is not None:
            _base.require("device")
            self._chosen.__enter__()

    def __exit__(self, *exc: object) -> None:
        if self._chosen is not None:
            self._chosen.__exit__(*exc)


class device_of(device):  # noqa: N801 - PyTorch's name
    """A with statement inside which "cuda" stands for a tensor's GPU, if it is on one."""

    def __init__(self, obj: Tensor) -> None:
        super().__init__(obj.device if obj.is_cuda else None)


def get_device_name(device: Any = None) -> str:
    """What a GPU is called."""
    return _base.runtime().name(_base.index_of(device, "get_device_name")).decode()


def _property(index: int, name: str) -> int:
    value = c.c_int64()
    _base.library.check(_base.runtime().property(index, name.encode(), c.byref(value)))
    return value.value


def get_device_properties(device: Any = None) -> SimpleNamespace:
    """Name, memory, multiprocessors and limits of a GPU."""
    index = _base.index_of(device, "get_device_properties")
    found = {name: _property(index, name) for name in _PROPERTIES}
    return SimpleNamespace(name=get_device_name(index), **found)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The version of a GPU's instruction set: (9, 0) for sm_90."""
    index = _base.index_of(device, "get_device_capability")
    return _property(index, "major"), _property(index, "minor")


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether a GPU can reach the memory of another one."""
    what, can = "can_device_access_peer", c.c_int32()
    index, peer = _base.index_of(device, what), _base.index_of(peer_device, what)
    _base.library.check(_base.runtime().can_access_peer(index, peer, c.byref(can)))
    return can.value != 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the GPU computes in bfloat16; every one does, those before sm_80 by way of float."""
    return is_available() and (including_emulation or get_device_capability() >= (8, 0))


def is_tf32_supported() -> bool:
    """Whether the GPU can compute products of float32 in TF32."""
    return is_available() and get_device_capability() >= (8, 0)


_compile_kernel = compile_kernel  # PyTorch's name


def ipc_collect() -> None:
    """Nothing: memory of GPUs is not shared between processes."""


# ---- Counters ------------------------------------------------------------------------------------


def counters(device: Any = None) -> dict[str, int]:
    """What a GPU was asked to do so far: launches of kernels, calls of NVIDIA's libraries, waits of
    the host, bytes copied."""
    index, table = _base.index_of(device, "counters"), _base.runtime()
    found: dict[str, int] = {}
    while (name := table.counter_name(len(found))) is not None:
        found[name.decode()] = table.counter(index, len(found))
    return found


def reset_counters(device: Any = None) -> None:
    """Starts the counting anew."""
    index = _base.index_of(device, "reset_counters")
    _base.runtime().reset_counters(index)


def fallback_count(op: str) -> tuple[int, int]:
    """How many calls of an operator ran in a wider dtype, and on the CPU."""
    _base.require("fallback_count")
    return _base.module.fallback_count(op)


on_demand(globals())
