"""The random state of the process; see _random.py."""

from tenon._random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state

__all__ = ["get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]
