"""Devices as decorators, by the names of PyTorch's module of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon._tensor.settings import run_on_device

__all__ = ["set_device"]


def device_decorator(device: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which makes its tensors on a device."""
    return run_on_device(tenon.device(device), func)


def set_device(device: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: what the function makes is made on the device."""
    return lambda func: device_decorator(device, func)
