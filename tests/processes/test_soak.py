"""Many operations take no more than few do, and leave nothing behind."""

from __future__ import annotations

import os

import pytest
from ranks import ENGINES, run

ROUNDS = os.environ.get("TENON_TEST_ROUNDS", "300")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_many_operations(engine: str) -> None:
    shared = set(os.listdir("/dev/shm"))
    size = 2 if engine == "mpich" else 3  # which spins where there are fewer cores
    assert run(engine, size, "soak.py", ROUNDS).count("ok") == size
    assert set(os.listdir("/dev/shm")) <= shared
