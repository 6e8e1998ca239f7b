"""The older place of tenon.amp."""

from __future__ import annotations

import functools
from typing import Any

from tenon import amp
from tenon.amp import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")


class autocast(amp.autocast):  # noqa: N801 - PyTorch's name
    """amp.autocast for GPUs."""

    def __init__(
        self, enabled: bool = True, dtype: Any = None, cache_enabled: bool | None = None
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)
