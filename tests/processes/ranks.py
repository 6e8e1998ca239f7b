"""Starts programs in several processes, over each engine that was built."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tenon.distributed import _engine

HERE = Path(__file__).parent
ENGINES = ("gloo", "openmpi", "mpich")
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
_MPIRUN = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none"],
    "mpich": ["mpirun.mpich"],
}


def need(engine: str) -> None:
    """Skips the test where an engine was not built or cannot be started."""
    name = engine if engine == "gloo" else f"mpi_{engine}"
    if _engine.find(name) is None:
        pytest.skip(f"the engine tenon_{name}.so was not built")
    if engine != "gloo" and shutil.which(_MPIRUN[engine][0]) is None:
        pytest.skip(f"{_MPIRUN[engine][0]} is missing")


def start(engine: str, size: int, program: str, *args: str, **variables: str) -> subprocess.Popen:
    """A program of this folder in `size` processes; it gets the engine's name first."""
    need(engine)
    own = [str(HERE / program), engine if engine == "gloo" else "mpi", *args]
    if engine == "gloo":
        command = [sys.executable, "-m", "tenon", "launch", "-n", str(size), *own]
    else:
        command = [*_MPIRUN[engine], "-n", str(size), sys.executable, "-m", "tenon", "run", *own]
    environment = {**os.environ, **_AS_ROOT, "TENON_NUM_THREADS": "1", **variables}
    environment.pop("PYTHONUNBUFFERED", None)  # lines of ranks, which share a pipe, stay whole
    environment.pop("GLOO_SOCKET_IFNAME", None)  # where Gloo listens is ours to choose
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def shared_memory() -> set[str]:
    """Names in the memory file system."""
    return set(os.listdir("/dev/shm"))


def left_in_shared_memory(before: set[str]) -> set[str]:
    """Names that have come and that no process has open or mapped: other tests run beside this."""
    deadline = time.monotonic() + 20
    while (left := _unused(shared_memory() - before)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def _unused(names: set[str]) -> set[str]:
    used = {_file(link) for link in Path("/proc").glob("[0-9]*/fd/*")} if names else set()
    for maps in Path("/proc").glob("[0-9]*/maps") if names else ():
        with contextlib.suppress(OSError):
            used |= {line.split()[-1] for line in maps.read_text(errors="replace").splitlines()}
    return {name for name in names if f"/dev/shm/{name}" not in used}


def _file(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:  # closed meanwhile, or another user's
        return ""


def run(engine: str, size: int, program: str, *args: str, **variables: str) -> str:
    """What the processes print, which end well within two minutes on an idle machine."""
    job = start(engine, size, program, *args, **variables)
    try:
        out, err = job.communicate(timeout=500)
    except subprocess.TimeoutExpired:
        job.kill()
        raise
    assert job.returncode == 0, err
    return out
