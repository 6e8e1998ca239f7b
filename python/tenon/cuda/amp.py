"""The older place of tenon.amp."""

from __future__ import annotations

import functools
import sys
from typing import Any

from tenon import amp, cuda
from tenon.amp import GradScaler
from tenon.amp import OptState as OptState

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]

common = sys.modules[__name__]  # a module of its own in PyTorch
custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")


class autocast(amp.autocast):  # noqa: N801 - PyTorch's name
    """amp.autocast for GPUs."""

    def __init__(
        self, enabled: bool = True, dtype: Any = None, cache_enabled: bool | None = None
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


def amp_definitely_not_available() -> bool:
    """Whether there is no GPU for it."""
    return not cuda.is_available()
