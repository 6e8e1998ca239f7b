"""GPUs of the CUDA backend. Everything here may be asked without one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NoReturn

from tenon import _C
from tenon.cuda import amp as amp


def device_count() -> int:
    """How many GPUs there are."""
    try:
        return _C._device_count("cuda")
    except (RuntimeError, AttributeError):
        return 0


def is_available() -> bool:
    """Whether there is a GPU and the plugin for it."""
    return device_count() > 0


def _missing(what: str) -> NoReturn:
    raise RuntimeError(
        f"cuda.{what}: no CUDA device is available; the CPU is the device of this installation"
    )


def _require(what: str) -> None:
    if not is_available():
        _missing(what)


def is_initialized() -> bool:
    """Whether a GPU is in use."""
    return False


def init() -> None:
    """Starts the backend, which starts by itself on first use."""
    _require("init")


def synchronize(device: Any = None) -> None:
    """Waits for all work on a GPU."""
    _require("synchronize")
    index = device if isinstance(device, int) else getattr(device, "index", None)
    _C._synchronize("cuda", index or 0)


def current_device() -> int:
    """The GPU in use."""
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


def manual_seed(seed: int) -> None:
    """Seeds the generator of the GPU; without one there is nothing to seed."""


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all GPUs."""
    manual_seed(seed)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the GPU computes in bfloat16."""
    return is_available()


def get_device_name(device: Any = None) -> str:
    """What the GPU is called."""
    _require("get_device_name")
    return _C._describe("cuda")


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors on a GPU."""
    if is_available():
        raise NotImplementedError("cuda.memory_allocated: no statistics yet")
    return 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were in use at once."""
    return memory_allocated(device)


def memory_reserved(device: Any = None) -> int:
    """Bytes held from the system."""
    return memory_allocated(device)


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that were held at once."""
    return memory_allocated(device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Starts the counting of peaks anew."""


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
    _missing("stream")


def Stream(*args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802 - PyTorch's name
    """A queue of work on a GPU."""
    _missing("Stream")


def Event(*args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802 - PyTorch's name
    """A mark in a queue of work."""
    _missing("Event")
