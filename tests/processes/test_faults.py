"""Ranks that die, hang or do something else: the others say who, and in which operation."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

import pytest
from ranks import HERE, left_in_shared_memory, need, run, shared_memory, start


@pytest.mark.slow
def test_ranks_that_differ() -> None:
    assert run("gloo", 3, "faults.py", "differ").count("ok") == 3


@pytest.mark.slow
@pytest.mark.parametrize("what", ["refuse", "arguments", "destroyed"])
def test_arguments_that_do_not_fit(what: str) -> None:
    assert run("gloo", 2, "faults.py", what).count("ok") == 2


@pytest.mark.slow
@pytest.mark.parametrize("what", ["alone", "late"])
def test_groups_that_wait_for_a_rank(what: str) -> None:
    assert run("gloo", 2, "faults.py", what).count("ok") == 2


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["gloo", "openmpi", "mpich"])
@pytest.mark.parametrize("what", ["sizes", "order"])
def test_messages_of_another_size(engine: str, what: str) -> None:
    assert run(engine, 2, "faults.py", what).count("ok") == 2


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["gloo", "openmpi", "mpich"])
@pytest.mark.parametrize("what", ["stopped", "killed_sender"])
def test_nothing_waits_for_those_that_stand_still_or_die(engine: str, what: str) -> None:
    """The launcher ends in time, and leaves neither processes nor memory."""
    before = shared_memory()
    job = start(engine, 2, "faults.py", what)
    try:
        out, err = job.communicate(timeout=120)  # ends when the last process has closed its ends
    finally:
        job.kill()
    assert job.returncode != 0, err
    assert "AssertionError" not in err and "Segmentation" not in err, err
    assert "ok" in out or what == "killed_sender", out + err
    assert not left_in_shared_memory(before)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["gloo", "openmpi", "mpich"])
def test_groups_that_their_members_alone_make(engine: str) -> None:
    assert run(engine, 3, "faults.py", "own_groups").count("ok") == 3


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["gloo", "openmpi", "mpich"])
def test_a_rank_that_raises_ends_the_job(engine: str) -> None:
    """Well before the others' operations run out of time, after 60 s."""
    job = start(engine, 3, "faults.py", "raises")
    try:
        _, err = job.communicate(timeout=50)
    finally:
        job.kill()
    assert job.returncode != 0 and "KeyError: 'this rank fails'" in err


@pytest.mark.slow
def test_ranks_that_leave_as_soon_as_they_have_met() -> None:
    """They took others' connections along that were not made yet, in one of five runs of three."""
    for _ in range(8):
        assert run("gloo", 4, "faults.py", "meet").count("ok") == 4


@pytest.mark.slow
def test_a_socket_that_has_gone_is_no_signal() -> None:
    assert run("gloo", 2, "faults.py", "pipe").count("ok") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "size", "killed"), [("die", 3, 2), ("die_while_sending", 2, 1), ("hang", 2, None)]
)
def test_those_that_are_left_say_what_happened(fault: str, size: int, killed: int | None) -> None:
    """Without a launcher, which would take the others down."""
    need("gloo")
    port = str(20000 + uuid.uuid4().int % 40000)
    jobs = []
    for rank in range(size):
        place = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "localhost",
                 "MASTER_PORT": port, "TENON_NUM_THREADS": "1"}  # fmt: skip
        jobs.append(subprocess.Popen(
            [sys.executable, "-m", "tenon", "run", str(HERE / "faults.py"), "gloo", fault],
            env={**os.environ, **place}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        ))  # fmt: skip
    for rank, job in enumerate(jobs):
        out, err = job.communicate(timeout=120)
        assert (job.returncode, out) == ((-9, "") if rank == killed else (0, "ok\n")), err
