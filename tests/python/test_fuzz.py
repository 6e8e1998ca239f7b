"""Short runs of tests/fuzz, each in a process of its own: a crash is a failed test that names its
seed. Longer ones are run by hand: tests/README.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"


def run(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, errors="replace", timeout=300
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"[-4000:]


@pytest.mark.parametrize("seed", [1, 2])
def test_operators(seed: int, tmp_path: Path) -> None:
    log = tmp_path / "case"
    try:
        run(str(FUZZ / "ops.py"), "--seed", str(seed), "--cases", "4000", "--log", str(log))
    except AssertionError as e:
        text = log.read_text(errors="replace") if log.exists() else ""
        raise AssertionError(f"seed {seed}, {text}\n{e}") from None


def test_python() -> None:
    run(str(FUZZ / "python.py"), "--seed", "1", "--cases", "600")


def test_files() -> None:
    run(str(FUZZ / "files.py"), "--seed", "1", "--seconds", "3")


def test_formats() -> None:
    run(str(FUZZ / "formats.py"), "--seed", "1", "--cases", "400")


@pytest.mark.slow
def test_null_for_every_pointer() -> None:
    run(str(FUZZ / "nulls.py"))
