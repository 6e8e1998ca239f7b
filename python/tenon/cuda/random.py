"""The random numbers of GPUs: the default generator of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenon._C import Tensor
from tenon._tensor import random
from tenon.cuda import _base

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed",
    "seed_all", "set_rng_state", "set_rng_state_all",
]  # fmt: skip


def manual_seed(seed: int) -> None:
    """Seeds the generator of the current GPU; without one there is nothing to seed."""
    if _base.is_available():
        _base.module.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all GPUs."""
    if _base.is_available():
        _base.module.manual_seed_all(seed)


def seed() -> None:
    """Seeds the generator of the current GPU from the system."""
    manual_seed(random.fresh_seed())


def seed_all() -> None:
    """Seeds the generators of all GPUs from the system, with one number."""
    manual_seed_all(random.fresh_seed())


def initial_seed() -> int:
    """The seed that the generator of the current GPU was last given."""
    _base.require("initial_seed")
    return _base.module.initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The state of a GPU's generator as a uint8 tensor."""
    _base.require("get_rng_state")
    return _base.module.get_rng_state(device)


def get_rng_state_all() -> list[Tensor]:
    """The states of all GPUs' generators."""
    return [get_rng_state(index) for index in range(_base.device_count())]


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Restores what `get_rng_state` gave."""
    _base.require("set_rng_state")
    _base.module.set_rng_state(new_state, device)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Restores what `get_rng_state_all` gave."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
