"""Many operations take no more than few do, and leave nothing behind."""

from __future__ import annotations

import os

import pytest
from ranks import ENGINES, left_in_shared_memory, run, shared_memory

ROUNDS = os.environ.get("TENON_TEST_ROUNDS", "300")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_many_operations(engine: str) -> None:
    shared = shared_memory()
    size = 2 if engine == "mpich" else 3  # which spins where there are fewer cores
    # One arena: how many there are would depend on how many threads happen to run at once.
    said = run(engine, size, "soak.py", ROUNDS, MALLOC_ARENA_MAX="1")
    assert said.count("ok") == size
    assert not left_in_shared_memory(shared)
