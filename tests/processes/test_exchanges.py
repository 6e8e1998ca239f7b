"""Operations of process groups over every engine."""

from __future__ import annotations

import pytest
from ranks import ENGINES, run


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_operations_of_three_processes(engine: str) -> None:
    assert run(engine, 3, "collectives.py").count("ok") == 3
