"""What `cuda.amp` and `cpu.amp` have in common, the older places of tenon.amp: their classes are
of one kind of device, and name none."""

from __future__ import annotations

from typing import Any

from tenon import amp


class Autocast(amp.autocast):
    """amp.autocast for one kind of device."""

    kind: str

    def __init__(
        self, enabled: bool = True, dtype: Any = None, cache_enabled: bool | None = None
    ) -> None:
        super().__init__(self.kind, dtype, enabled, cache_enabled)


class Scaler(amp.GradScaler):
    """amp.GradScaler for one kind of device."""

    kind: str

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            self.kind, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
