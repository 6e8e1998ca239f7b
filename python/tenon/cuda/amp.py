"""The older place of tenon.amp."""

from __future__ import annotations

import functools
import sys

from tenon import amp, cuda
from tenon._device import older_amp
from tenon.amp import OptState as OptState

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]

common = sys.modules[__name__]  # a module of its own in PyTorch
custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")


class autocast(older_amp.Autocast):  # noqa: N801 - PyTorch's name
    """amp.autocast for GPUs."""

    kind = "cuda"


class GradScaler(older_amp.Scaler):
    """amp.GradScaler for GPUs."""

    kind = "cuda"


def amp_definitely_not_available() -> bool:
    """Whether there is no GPU for it."""
    return not cuda.is_available()
