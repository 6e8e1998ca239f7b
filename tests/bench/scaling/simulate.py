"""The exchanges of a training step through the engine for MPI among simulated machines: SimGrid's
SMPI in MPI's place (Debian: libsimgrid-dev)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from model import Link, Work

HERE = Path(__file__).parent
TOP = HERE.parent.parent.parent
# A machine is a host of two processors: of the process that computes, and the one that exchanges.
# A message passes the links of two machines, each of which has half of the latency.
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="all" prefix="m" suffix="" radical="0-{last}" speed="1Gf" core="2"
           bw="{bandwidth:.0f}Bps" lat="{latency:.12f}s"
           loopback_bw="1TBps" loopback_lat="1ns"/>
</platform>
"""
# CM02: a message takes the latency and its bytes at the link's rate, as in the model; the default
# is measured on Ethernet. lr: one ring. Large blocks of all processes are the same memory.
OPTIONS = (
    "network/model:CM02", "smpi/simulate-computation:no", "smpi/allreduce:lr",
    "smpi/auto-shared-malloc-thresh:100000", "contexts/stack-size:1024",
)  # fmt: skip


def lacks() -> str:
    """What is missing, "" for nothing."""
    return "" if shutil.which("smpicc") and shutil.which("smpirun") else "there is no smpicc"


def build(folder: Path) -> Path:
    """Compiles the engine for MPI and the step's program."""
    program = folder / "step"
    subprocess.run(
        [
            "smpicc", "-O2", "-w", "-include", HERE / "simulated_mpi.h",
            "-I", TOP / "plugins" / "include", TOP / "backends" / "engines" / "mpi.c",
            HERE / "step.c", "-o", program,
        ],
        check=True,
    )  # fmt: skip
    return program


def step(program: Path, devices: int, work: Work, link: Link) -> float:
    """What the slowest of `devices` processes needs for the work, in simulated seconds."""
    folder = program.parent
    platform, hosts = folder / f"{devices}.xml", folder / f"{devices}.hosts"
    platform.write_text(
        PLATFORM.format(last=devices - 1, bandwidth=link.bytes_per_second, latency=link.alpha / 2)
    )
    hosts.write_text("".join(f"m{i}\nm{i}\n" for i in range(devices)))
    facts = [
        str(fact)
        for size, ready in zip(work.sizes, work.ready, strict=True)
        for fact in (int(size), f"{ready:.9f}")
    ]
    done = subprocess.run(
        [
            "smpirun", "-np", str(2 * devices), "-platform", platform, "-hostfile", hosts,
            *(f"--cfg={option}" for option in OPTIONS), "--log=root.thres:warning",
            program, *facts, f"{work.forward + work.backward:.9f}",
        ],
        check=False, capture_output=True, text=True, cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"smpirun ended with {done.returncode}: {done.stderr.strip()[:400]}")
    return float(done.stdout)
