"""GPUs of the CUDA backend. Everything here may be asked without one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tenon import _C
from tenon.cuda import amp as amp


def _module() -> Any:
    """What every device of a plugin offers, for this one."""
    from tenon import _devices

    return _devices.DeviceModule("cuda")


def device_count() -> int:
    """How many GPUs there are."""
    try:
        return _C._device_count("cuda")
    except (RuntimeError, ImportError):
        return 0


def is_available() -> bool:
    """Whether there is a GPU that the plugin serves; `tenon doctor` says why there is none."""
    return device_count() > 0


def _require(what: str) -> None:
    if is_available():
        return
    try:
        _C._device_count("cuda")
    except (RuntimeError, ImportError) as err:
        raise RuntimeError(f"cuda.{what}: no CUDA device is available: {err}") from None
    raise RuntimeError(f"cuda.{what}: no CUDA device is available")


def _settings() -> Any:
    """The plugin's own table, "tenon.cuda/1"; needs a GPU."""
    from tenon import _native
    from tenon.cuda import _table

    return _native.Library().interface("cuda", "tenon.cuda/1", _table.Settings)[0]


def libraries() -> list[str]:
    """NVIDIA's libraries, one line each: the version that is there, or what to install."""
    _require("libraries")
    return _settings().libraries().decode().splitlines()


def is_initialized() -> bool:
    """Whether a GPU is in use."""
    return is_available()


def init() -> None:
    """Starts the backend, which starts by itself on first use."""
    _require("init")


def synchronize(device: Any = None) -> None:
    """Waits for all work on a GPU, and raises what went wrong in it."""
    _require("synchronize")
    _module().synchronize(device)


def current_device() -> int:
    """The GPU that "cuda" stands for."""
    _require("current_device")
    return 0


def set_device(device: Any) -> None:
    """Chooses the GPU that "cuda" stands for."""
    _require("set_device")
    index = device if isinstance(device, int) else getattr(device, "index", 0) or 0
    if index != 0:
        raise NotImplementedError("cuda.set_device: only the first GPU can be chosen")


def empty_cache() -> None:
    """Gives unused memory back; without a GPU there is none to give."""
    if is_available():
        _module().empty_cache()


def manual_seed(seed: int) -> None:
    """Seeds the generator of the GPU; without one there is nothing to seed."""
    if is_available():
        _module().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all GPUs."""
    if is_available():
        _module().manual_seed_all(seed)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the GPU computes in bfloat16."""
    return is_available()


def get_device_name(device: Any = None) -> str:
    """What the GPU is called."""
    _require("get_device_name")
    return _module().get_device_name(device).split(", sm_")[0]


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors on a GPU."""
    return _module().memory_allocated(device) if is_available() else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were in use at once."""
    return _module().max_memory_allocated(device) if is_available() else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes held from the system."""
    return _module().memory_reserved(device) if is_available() else 0


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that were held at once."""
    return _module().max_memory_reserved(device) if is_available() else 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Starts the counting of peaks anew."""
    if is_available():
        _module().reset_peak_memory_stats(device)


def fallback_count(op: str) -> tuple[int, int]:
    """How many calls of an operator ran in a wider dtype, and on the CPU."""
    _require("fallback_count")
    return _module().fallback_count(op)


def current_stream(device: Any = None) -> Any:
    """The stream that the calling thread's work on a GPU goes to."""
    _require("current_stream")
    return _module().current_stream(device)


class device:  # noqa: N801 - PyTorch's name
    """A with statement inside which "cuda" stands for another GPU."""

    def __init__(self, device: Any) -> None:
        self.index = device

    def __enter__(self) -> None:
        if self.index is not None and self.index != -1:
            set_device(self.index)

    def __exit__(self, *exc: object) -> None:
        return None


def stream(stream: Any) -> Any:
    """A with statement inside which work goes to a stream; None is allowed everywhere."""
    if stream is None:
        return nullcontext()
    _require("stream")
    return _module().stream(stream)


def Stream(device: Any = None, priority: int = 0) -> Any:  # noqa: N802 - PyTorch's name
    """A new queue of work on a GPU."""
    _require("Stream")
    return _module().Stream(device, priority=priority)


def Event(*args: Any, **kwargs: Any) -> Any:  # noqa: N802 - PyTorch's name
    """A mark in a queue of work."""
    _require("Event")
    return _module().Event(*args, **kwargs)


def CUDAGraph(keep_graph: bool = False) -> Any:  # noqa: N802 - PyTorch's name
    """Work on a GPU that is captured once and replayed often."""
    _require("CUDAGraph")
    return _module().CUDAGraph(keep_graph)


def graph(
    cuda_graph: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
) -> Any:
    """`with tn.cuda.graph(g):` captures what is called inside."""
    _require("graph")
    return _module().graph(cuda_graph, stream=stream)


def graph_pool_handle() -> Any:
    """A name for memory that graphs share, which they do not."""
    _require("graph_pool_handle")
    return _module().graph_pool_handle()


def is_current_stream_capturing() -> bool:
    """Whether the calling thread's work is being captured."""
    return is_available() and _module().is_current_stream_capturing()
