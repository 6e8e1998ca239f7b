"""The older place of tenon.amp for the CPU: `cpu.amp`."""

from __future__ import annotations

from tenon._device import older_amp

__all__ = ["GradScaler", "autocast"]


class autocast(older_amp.Autocast):  # noqa: N801 - PyTorch's name
    """amp.autocast for the CPU."""

    kind = "cpu"


class GradScaler(older_amp.Scaler):
    """amp.GradScaler for the CPU."""

    kind = "cpu"
