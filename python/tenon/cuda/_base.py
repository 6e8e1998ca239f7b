"""What the modules of tenon.cuda share: whether there is a GPU, and the plugin's tables."""

from __future__ import annotations

from typing import Any

from tenon import _C
from tenon._device import devices
from tenon._plugin import native
from tenon.cuda import _table

library = native.Library()
# What every device of a plugin offers, for this one.
module = devices.DeviceModule("cuda")
was_chosen = False  # the program has called set_device


def device_count() -> int:
    """How many GPUs there are."""
    try:
        return _C._device_count("cuda:0")
    except MemoryError:
        raise
    except (RuntimeError, ImportError):
        return 0


def is_available() -> bool:
    """Whether there is a GPU that the plugin serves; `tenon doctor` says why there is none."""
    return device_count() > 0


def require(what: str) -> None:
    """Raises why there is no GPU, unless there is one."""
    try:
        _C._device_count("cuda:0")
    except MemoryError:
        raise
    except (RuntimeError, ImportError) as err:
        raise RuntimeError(f"cuda.{what}: no CUDA device is available: {err}") from None


def index_of(device: Any, what: str) -> int:
    """The index of a GPU; None: the current one."""
    require(what)
    return library.device(module._name(device)).index


def settings() -> Any:
    """The table "tenon.cuda/1"; needs a GPU."""
    return library.interface("cuda", "tenon.cuda/1", _table.Settings)[0]


def runtime() -> Any:
    """The table "tenon.cuda.runtime/1"; needs a GPU."""
    return library.interface("cuda", "tenon.cuda.runtime/1", _table.Runtime)[0]
