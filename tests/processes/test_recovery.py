"""Ranks that are killed at any step: the job goes on from its last checkpoint, to the same bits."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import HERE, left_in_shared_memory, need, shared_memory

PLACES = ("forward", "backward", "save")
RUNS = int(os.environ.get("TENON_TEST_KILLS", "1"))  # times two kills


def train(folder: Path, *kills: str) -> list[str]:
    """The number of restarts and what each rank ended with."""
    need("gloo")
    meet = folder.with_name(f"{folder.name}.meet")
    meet.mkdir(mode=0o700)
    shared = shared_memory()
    command = [sys.executable, "-m", "tenon", "launch", "-n", "3", "--max-restarts", "2"]
    job = subprocess.run(
        [*command, str(HERE / "recovery.py"), "gloo", str(folder), ",".join(kills)],
        env={**os.environ, "TENON_NUM_THREADS": "1", "XDG_RUNTIME_DIR": str(meet)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert job.returncode == 0, job.stderr
    stops = sum(kill.endswith("stop") for kill in kills)
    assert job.stderr.count("killed by SIGKILL") == len(kills) - stops, job.stderr
    assert job.stderr.count("is stopped; restart") == stops, job.stderr
    # Nothing is left behind: no process, not even of those that were killed, no file of theirs.
    pids = [pid for file in folder.parent.glob(f"{folder.name}.[0-9]")
            for pid in file.read_text().split()]  # fmt: skip
    assert len(pids) == 2 * len(kills)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not [p for p in meet.rglob("*") if p.parent != meet]
    assert not left_in_shared_memory(shared)
    return job.stdout.split()


@pytest.mark.slow
def test_killed_ranks_cost_no_bit(tmp_path: Path) -> None:
    restarts, *whole = train(tmp_path / "whole")
    assert restarts == "0" and len(set(whole)) == 3  # each rank has its own numbers
    chosen = random.Random(4)
    for i in range(RUNS):
        steps = sorted(chosen.sample(range(12), 2))
        kills = []
        for step in steps:
            place = chosen.choice(PLACES)
            step = step // 3 * 3 + 3 if place == "save" else step
            kills.append(f"{step}.{chosen.randrange(3)}.{place}")
        assert train(tmp_path / str(i), *kills) == ["2", *whole], kills


@pytest.mark.slow
def test_stopped_ranks_cost_no_bit(tmp_path: Path) -> None:
    """A rank that hangs is found by the deadline of the group, and ended."""
    whole = train(tmp_path / "whole")[1:]
    assert train(tmp_path / "stopped", "4.1.forward.stop", "7.0.backward.stop") == ["2", *whole]
