"""The engine for NCCL over the harness: its stand-in for NCCL exchanges by Gloo, on the streams of
the harness's driver. Several processes, each with the one device that the harness has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import tenon as tn
from harness import FOLDER, ON_GPU, ROOT, run

PROCESSES = ROOT / "tests" / "processes"
CONFORM = Path(tn.__file__).parent / "tenon-conform"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(ON_GPU, reason="NCCL wants a GPU for each process"),
    pytest.mark.skipif(
        not (FOLDER / "libnccl.so.2").exists(), reason="libgloo-dev or the harness is missing"
    ),
]


def launch(size: int, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A program of tests/processes, or of here, in several processes."""
    program, *rest = words
    path = (
        PROCESSES / program if (PROCESSES / program).exists() else Path(__file__).parent / program
    )
    env.setdefault("TENON_NUM_THREADS", "1")
    return run("-m", "tenon", "launch", "-n", str(size), str(path), *rest, **env)


def test_the_engine_keeps_the_rules_of_engines() -> None:
    """Results of every kind and dtype, messages, groups; ranks that differ, die and are late."""
    words = [str(CONFORM), "--engine", "nccl", "--timeout", "3"]
    done = run("-c", f"import subprocess, sys; sys.exit(subprocess.run({words!r}).returncode)")
    assert done.returncode == 0 and "20/20 checks" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("backend", "device"), [("nccl", "cpu"), ("nccl", "cuda"), ("cpu:gloo,cuda:nccl", "cuda")]
)
def test_operations_of_three_processes(backend: str, device: str) -> None:
    done = launch(3, "collectives.py", backend, device)
    assert done.stdout.count("ok") == 3, done.stdout + done.stderr
