"""H10: links between hosts that lose packets, break for a while, or for ever. Hosts are network
namespaces of this machine (`wires.py`)."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks import HERE, need
from wires import DEVICE, Hosts, hosts

SIZE = 3


def started(net: Hosts, folder: Path, steps: int, seconds: int) -> list[subprocess.Popen[str]]:
    need("gloo")
    program = [sys.executable, "-m", "tenon", "run", str(HERE / "links.py")]
    return [
        net.start(
            rank, [*program, *map(str, (folder, rank, SIZE, steps, seconds))],
            TENON_SOCKET_IFNAME=DEVICE, TENON_NUM_THREADS="1",
        )
        for rank in range(SIZE)
    ]  # fmt: skip


def reach(jobs: list[subprocess.Popen[str]], step: int) -> None:
    """Reads what the ranks say until all have done that step."""
    for job in jobs:
        assert job.stdout is not None
        line = job.stdout.readline()
        while line and line != f"step {step}\n":
            line = job.stdout.readline()
        assert line, job.communicate()[1]


@pytest.mark.slow
def test_lost_packets_cost_time_alone(tmp_path: Path) -> None:
    with hosts(SIZE) as net:
        net.loss = 0.05
        jobs = started(net, tmp_path, 40, 60)
        for job in jobs:
            out, err = job.communicate(timeout=180)
            assert job.returncode == 0, err
            assert out.split("\n")[-2] == "step 39"
        assert net.lost > 50 and net.carried > 1000  # it did go over the links


@pytest.mark.slow
def test_a_link_that_comes_back_in_time(tmp_path: Path) -> None:
    with hosts(SIZE) as net:
        jobs = started(net, tmp_path, 400, 60)
        reach(jobs, 20)
        net.cut = {1}
        while not net.lost:
            time.sleep(0.01)
        with pytest.raises(subprocess.TimeoutExpired):
            jobs[0].wait(2)
        net.cut = set()
        for job in jobs:
            out, err = job.communicate(timeout=180)
            assert job.returncode == 0, err
            assert out.endswith("step 399\n")


@pytest.mark.slow
def test_a_link_that_is_cut_ends_all_ranks_in_time(tmp_path: Path) -> None:
    seconds = 4
    with hosts(SIZE) as net:
        jobs = started(net, tmp_path, 100_000, seconds)
        reach(jobs, 20)
        net.cut = {2}
        for rank, job in enumerate(jobs):
            out, err = job.communicate(timeout=60)
            assert job.returncode == 3, out[-300:] + err
            last = out.splitlines()[-1]
            after = float(last.split()[2])
            assert last.startswith("error after") and after < seconds + 3, last
            assert f"rank {rank} waited {seconds}.0 s in all_reduce(" in last, last
