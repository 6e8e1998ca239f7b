"""What python/announce.py says while pip builds: to the log, and to whoever waits at a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "python" / "announce.py"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ("1", r"tenon: compiling, about 0.5 minute on "),
        ("1e6", " minutes on "),
    ],
)
def test_one_line_is_said(seconds: str, said: str) -> None:
    command = [sys.executable, SCRIPT, seconds, "compiling"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, start_new_session=True
    )
    cores = len(os.sched_getaffinity(0))
    assert said in done.stdout and done.stdout.count("\n") == 1
    assert done.stdout.rstrip("\n").endswith(f"on {cores} {'core' if cores == 1 else 'cores'}")


def test_a_terminal_hears_what_pip_hides() -> None:
    try:
        child, terminal = pty.fork()
    except OSError as err:
        pytest.skip(f"this machine makes no terminals: {err}")
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # as pip, which keeps the output to itself
        os.execv(sys.executable, [sys.executable, str(SCRIPT), "60", "compiling"])
    heard = b""
    try:
        while part := os.read(terminal, 1000):
            heard += part
    except OSError:  # the child has closed its side
        pass
    assert os.waitpid(child, 0)[1] == 0
    assert b"tenon: compiling, about " in heard
