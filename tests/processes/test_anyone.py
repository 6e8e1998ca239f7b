"""Messages that are received from whichever process sends one."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

import pytest
from ranks import ENGINES, HERE, need, run


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [2, 3])
def test_messages_of_anyone(engine: str, size: int) -> None:
    assert run(engine, size, "anyone.py").count("ok") == size


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["gloo", "openmpi"])
def test_messages_in_parts(engine: str) -> None:
    """Parts of messages that are under way at once are never taken for each other's."""
    assert run(engine, 3, "anyone.py", TENON_EXCHANGE_ELEMENTS="4").count("ok") == 3


def by_hand(size: int, *words: str, **variables: str) -> list[subprocess.Popen]:
    """Without a launcher, which would take the others down."""
    need("gloo")
    port = str(20000 + uuid.uuid4().int % 40000)
    jobs = []
    for rank in range(size):
        place = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "localhost",
                 "MASTER_PORT": port, "TENON_NUM_THREADS": "1", **variables}  # fmt: skip
        jobs.append(subprocess.Popen(
            [sys.executable, "-m", "tenon", "run", str(HERE / "anyone.py"), *words],
            env={**os.environ, **place}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ))  # fmt: skip
    return jobs


@pytest.mark.slow
@pytest.mark.parametrize("case", range(7))
def test_sizes_of_messages_in_parts(case: int) -> None:
    """Also where one of the two is as large as what is moved at once."""
    for job in by_hand(2, "gloo", "sizes_in_parts", str(case), TENON_EXCHANGE_ELEMENTS="4"):
        out, err = job.communicate(timeout=120)
        assert (job.returncode, out) == (0, "ok\n"), err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "what"), [(2, "die"), (3, "die"), (3, "leave"), (3, "nobody"), (1, "alone")]
)
def test_waiting_for_anyone_ends(size: int, what: str) -> None:
    for rank, job in enumerate(by_hand(size, "gloo", what)):
        out, err = job.communicate(timeout=120)
        killed = what == "die" and rank == size - 1
        assert (job.returncode, out) == ((-9, "") if killed else (0, "ok\n")), err
