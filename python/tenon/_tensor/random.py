"""The random state of the process."""

from __future__ import annotations

import os

from tenon._C import Generator, Tensor, _seed_all, default_generator


def fresh_seed() -> int:
    """A seed of 63 bits from the system."""
    return int.from_bytes(os.urandom(8), "little") >> 1


def manual_seed(seed: int) -> Generator:
    """Seeds the default generators of all devices; returns that of the CPU.

    >>> tn.manual_seed(1).initial_seed()
    1
    """
    return _seed_all(int(seed))


def seed() -> int:
    """Seeds the default generator from the system; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the default generator was last given."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator as a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Restores what `get_rng_state` gave."""
    default_generator.set_state(new_state)
