"""The older place of tenon.amp."""

from __future__ import annotations

from typing import Any

from tenon import amp
from tenon.amp import GradScaler

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):  # noqa: N801 - PyTorch's name
    """amp.autocast for GPUs."""

    def __init__(
        self, enabled: bool = True, dtype: Any = None, cache_enabled: bool | None = None
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)
