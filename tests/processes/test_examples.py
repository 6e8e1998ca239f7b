"""The programs in examples/distributed, as a user starts them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import need

EXAMPLES = Path(__file__).parents[2] / "examples" / "distributed"


def run(program: str, *args: str) -> str:
    need("gloo")
    job = subprocess.run(
        [sys.executable, "-m", "tenon", "launch", "-n", "2", str(EXAMPLES / program), *args],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert job.returncode == 0, job.stderr
    return job.stdout


@pytest.mark.slow
def test_digits() -> None:
    said = run("digits_ddp.py", "--epochs", "1", "--images", "2000")
    found = re.fullmatch(r"digits: ([\d.]+) % of 1500 images never seen are right\n", said)
    assert found and float(found[1]) > 60, said


@pytest.mark.slow
def test_hogwild() -> None:
    """Without a group, as its processes only share memory."""
    job = subprocess.run(
        [sys.executable, "-m", "tenon", "run", str(EXAMPLES / "hogwild.py"), "--epochs", "1",
         "--images", "2000"], capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert job.returncode == 0, job.stderr
    found = re.search(
        r"^hogwild: ([\d.]+) % of 1500 images never seen are right$", job.stdout, re.M
    )
    assert found and float(found[1]) > 50, job.stdout


@pytest.mark.slow
def test_shakespeare_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    first = run("shakespeare_fsdp.py", "--steps", "6", "--every", "3", "--folder", str(tmp_path))
    assert re.search(r"from step 0: \d+ of \d+ parameters in each of 2 processes", first)
    assert (tmp_path / ".metadata").exists()
    again = run("shakespeare_fsdp.py", "--steps", "8", "--folder", str(tmp_path))
    assert "from step 6:" in again and "after 8 steps" in again


@pytest.mark.slow
def test_tensor_parallel_layers_give_the_losses_of_whole_ones() -> None:
    said = run("tensor_parallel.py")
    pairs = re.findall(r"step \d: ([\d.]+) in one process, ([\d.]+) cut", said)
    assert len(pairs) == 5 and all(abs(float(a) - float(b)) < 1e-4 for a, b in pairs), said
    assert "(128, 64) of (256, 64)" in said


@pytest.mark.slow
def test_pipeline_learns() -> None:
    losses = [float(x) for x in re.findall(r"step \d+: ([\d.]+)", run("pipeline.py"))]
    assert len(losses) == 10 and losses[-1] < losses[0], losses
