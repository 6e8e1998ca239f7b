"""Batches in memory that a device reaches by itself."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon._torch._utils import ExceptionWrapper
from tenon.utils.data._utils.worker import MP_STATUS_CHECK_INTERVAL


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


def _pin_memory_loop(
    in_queue: Any, out_queue: Any, device_id: int, done_event: Any, device: str | None
) -> None:
    """The body of a thread that pins (number, batch) on their way from one queue to another."""
    tenon.set_num_threads(1)
    tenon.accelerator.set_device_index(device_id)
    while not done_event.is_set():
        try:
            number, data = in_queue.get(timeout=MP_STATUS_CHECK_INTERVAL)
        except queue.Empty:
            continue
        if not done_event.is_set() and not isinstance(data, ExceptionWrapper):
            try:
                data = pin_memory(data, device)
            except Exception:
                data = ExceptionWrapper(where=f"in pin memory thread for device {device_id}")
        while not done_event.is_set():
            try:
                out_queue.put((number, data), timeout=MP_STATUS_CHECK_INTERVAL)
                break
            except queue.Full:
                continue
