"""Operations of process groups over every engine."""

from __future__ import annotations

import pytest
from ranks import ENGINES, run
from tenon.distributed import _engine


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_operations_of_three_processes(engine: str) -> None:
    assert run(engine, 3, "collectives.py").count("ok") == 3


@pytest.mark.slow
def test_exchanges_that_are_made_in_parts() -> None:
    """Core cuts them, for any engine: one that moves four elements at once gives the same."""
    assert run("openmpi", 3, "collectives.py", TENON_EXCHANGE_ELEMENTS="4").count("ok") == 3


def test_threads_begin_operations_while_another_sweeps() -> None:
    """Each look at an operation lets another thread in, which begins one of its own."""

    class Begun:
        swept = False

        def done(self) -> bool:
            _engine._running.add(Begun())  # type: ignore[arg-type]
            return True

        def sweep(self) -> None:
            self.swept = True

    before, own = set(_engine._running), [Begun() for _ in range(3)]
    _engine._running.update(own)  # type: ignore[arg-type]
    try:
        _engine._sweep()
        assert all(o.swept for o in own) and not _engine._running & set(own)
    finally:
        _engine._running.clear()
        _engine._running.update(before)
