"""The random state of the process; see _tensor/random.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tenon
from tenon._C import default_generator
from tenon._tensor.random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state

__all__ = [
    "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed",
    "set_rng_state",
]  # fmt: skip


@contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None, enabled: bool = True, *, device_type: str | None = None
) -> Iterator[None]:
    """A with statement after which the default generators go on as if nothing had been drawn in it:
    that of the CPU, and those of these devices, of all of the kind if none are given. Without
    `device_type` the kind is that of the accelerator."""
    if not enabled:
        yield
        return
    kind = tenon.device(device_type) if device_type else tenon.accelerator.current_accelerator()
    module = tenon.get_device_module(kind) if kind is not None and kind.type != "cpu" else None
    count = module.device_count() if module is not None else 0
    chosen = list(range(count) if devices is None else devices)
    if chosen and module is None:
        raise RuntimeError("fork_rng: there are no devices but the CPU")
    before = get_rng_state()
    states = [module.get_rng_state(device) for device in chosen]
    try:
        yield
    finally:
        set_rng_state(before)
        for device, state in zip(chosen, states):
            module.set_rng_state(state, device)
