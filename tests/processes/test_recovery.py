"""Ranks that are killed at any step: the job goes on from its last checkpoint, to the same bits."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import HERE, need

PLACES = ("forward", "backward", "save")
RUNS = int(os.environ.get("TENON_TEST_KILLS", "1"))  # times two kills


def train(folder: Path, *kills: str) -> list[str]:
    """The number of restarts and what each rank ended with."""
    need("gloo")
    command = [sys.executable, "-m", "tenon", "launch", "-n", "3", "--max-restarts", "2"]
    job = subprocess.run(
        [*command, str(HERE / "recovery.py"), "gloo", str(folder), ",".join(kills)],
        env={**os.environ, "TENON_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert job.returncode == 0, job.stderr
    assert job.stderr.count("killed by SIGKILL") == len(kills), job.stderr
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
