"""Ctrl-C while a long operator runs: KeyboardInterrupt comes soon, and the process computes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif("TENON_TEST_SANITIZE" in os.environ, reason="takes its time")

# What makes the call, of a size that takes longer than BOUND where nothing looks for the signal.
CALLS = {
    "sort": "x = tn.rand(1 << 26); call = lambda: tn.sort(x)",
    "topk": "x = tn.rand(1 << 26); call = lambda: tn.topk(x, 1 << 24)",
    "kthvalue": "x = tn.rand(1 << 26); call = lambda: tn.kthvalue(x, 1 << 24)",
    "median": "x = tn.rand(1 << 26); call = lambda: tn.median(x)",
    "cumsum": "x = tn.rand(1, 1).expand(1 << 14, 1 << 14); call = lambda: tn.cumsum(x, 0)",
    "gemm": "x = tn.rand(3500, 3500).to(tn.complex128); call = lambda: x @ x",
    "cat": "x = tn.rand(1 << 26); call = lambda: tn.cat([x] * 8)",
    "cdist": "x = tn.rand(6000, 64); call = lambda: tn.cdist(x, x, p=1.5)",
}
BOUND = 3.0 * len(os.sched_getaffinity(0))  # seconds of all threads: others may use the machine

CODE = """
import sys, time
import tenon as tn

{make}
print("ready", flush=True)
try:
    call()
    print("finished", time.process_time(), flush=True)
except KeyboardInterrupt:
    print("interrupted", time.process_time(), flush=True)
assert float((tn.ones(50, 50) @ tn.ones(50, 50)).sum()) == 125000.0
assert tn.tensor([3, 1, 2]).sort()[0].tolist() == [1, 2, 3]
"""


def worked(pid: int) -> float:
    """The seconds for which a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("name", CALLS)
def test_a_long_call_ends_soon(name: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CODE.format(make=CALLS[name])], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        sent = worked(child.pid)
        child.send_signal(signal.SIGINT)
        said, _, at = child.stdout.readline().strip().partition(" ")
        assert child.wait(60) == 0
    took = float(at) - sent
    if said == "finished" and took < BOUND:
        pytest.skip("this machine is too fast for the size")
    assert said == "interrupted" and took < BOUND, f"{said}: {took:.1f} s of work"
