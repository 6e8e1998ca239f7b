"""Operations of process groups over every engine."""

from __future__ import annotations

import pytest
from ranks import ENGINES, run


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_operations_of_three_processes(engine: str) -> None:
    assert run(engine, 3, "collectives.py").count("ok") == 3


@pytest.mark.slow
def test_exchanges_that_are_made_in_parts() -> None:
    """Core cuts them, for any engine: one that moves four elements at once gives the same."""
    assert run("openmpi", 3, "collectives.py", TENON_EXCHANGE_ELEMENTS="4").count("ok") == 3
