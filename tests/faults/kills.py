"""Faults of processes: one is killed while it works."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python that runs `code` and has said its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline()
    return process


def kill_after(process: subprocess.Popen[str], seconds: float) -> None:
    """SIGKILL to a process that goes on for ever."""
    time.sleep(seconds)
    assert process.poll() is None, "it ended by itself"
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def kill_at_random(code: str, times: int, seed: int, *arguments: str) -> None:
    """Starts `code` and kills it, each time at another moment."""
    rng = random.Random(seed)
    for _ in range(times):
        kill_after(start(code, *arguments), rng.random() * 0.05)


def lives(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def shared_memory_names() -> set[str]:
    """What lies in the memory file system by name."""
    folder = Path("/dev/shm")
    return set(os.listdir(folder)) if folder.is_dir() else set()


def kill_group(process: subprocess.Popen[str]) -> None:
    """SIGKILL to a process and everything that it started, at once: nobody can clean up."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
