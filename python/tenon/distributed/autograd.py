"""Backward passes over several processes' tensors, by PyTorch's names: not planned."""

from __future__ import annotations

from typing import Any

from tenon.distributed._absent import absent

__all__ = ["is_available"]

_NAMES = ("DistAutogradContext", "backward", "context", "get_gradients")


def is_available() -> bool:
    """Whether there are such passes."""
    return False


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return absent("torch.distributed.autograd", name, "gradients go by DistributedDataParallel")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
