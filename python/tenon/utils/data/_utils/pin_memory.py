"""Batches in memory that a device reaches by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon import Tensor


def pin_memory(data: Any, device: str | None = None) -> Any:
    """The batch with all tensors pinned, also inside of lists, dictionaries and whatever has a
    method pin_memory."""
    if isinstance(data, Tensor):
        return data.pin_memory(device)
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, Mapping):
        return type(data)({key: pin_memory(value, device) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(value, device) for value in data))
    if isinstance(data, tuple):
        return [pin_memory(value, device) for value in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes, range)):
        return type(data)([pin_memory(value, device) for value in data])
    return data
