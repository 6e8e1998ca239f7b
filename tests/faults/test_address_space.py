"""A process with little address space: products and decompositions give results or MemoryError, and
the process ends; nothing waits for memory that cannot come."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS"),
    pytest.mark.skipif("TENON_TEST_SANITIZE" in os.environ, reason="needs terabytes of it"),
]

# Each case runs in a child of one process that has not used the CPU yet.
CODE = """
import os, re, resource, signal, sys
import tenon as tn

CASES = {
    "matmul": lambda: float((tn.ones(300, 300) @ tn.ones(300, 300))[0, 0]) == 300.0,
    "small": lambda: float((tn.ones(2, 2) @ tn.ones(2, 2))[0, 0]) == 2.0,
    "cholesky": lambda: float(tn.linalg.cholesky(tn.eye(40) * 4)[0, 0]) == 2.0,
    "solve": lambda: float(tn.linalg.solve(tn.eye(40) * 2, tn.ones(40, 1))[0, 0]) == 0.5,
    "svd": lambda: abs(float(tn.linalg.svd(tn.eye(30) * 3)[1][0]) - 3.0) < 1e-4,
    "attention": lambda: float(tn.nn.functional.scaled_dot_product_attention(
        tn.ones(1, 1, 64, 8), tn.ones(1, 1, 64, 8), tn.ones(1, 1, 64, 8))[0, 0, 0, 0]) == 1.0,
}
now = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
for mib in (16, 40, 100, 180, 260, 700):
    for name, case in CASES.items():
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            limit = now + (mib << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            try:
                status = 0 if case() else 3
            except MemoryError as err:
                status = 1 if mib < 700 else 4
            except BaseException as err:
                print(name, mib, type(err).__name__, err, flush=True)
                status = 5
            if mib in (100, 180):
                sys.exit(status)  # the way out, with whatever libraries do there
            os._exit(status)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code not in (0, 1):
            print("FAULT", name, mib, code, flush=True)
print("done")
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_little_address_space(threads: str) -> None:
    env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    env["TENON_NUM_THREADS"] = threads
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=env, capture_output=True, text=True, timeout=500
    )
    assert "FAULT" not in done.stdout and "done" in done.stdout, done.stdout + done.stderr


REFUSED = """
import contextlib, re, resource
import tenon as tn

now = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (now + (400 << 20), before[1]))
with contextlib.suppress(MemoryError):  # the threads that there are have taken all of it
    tn.ones(4_000_000).sum()
resource.setrlimit(resource.RLIMIT_AS, before)
print(float(tn.ones(4_000_000).sum()))
"""


def test_refused_threads_are_told_once() -> None:
    env = {**os.environ, "TENON_NUM_THREADS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", REFUSED], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["4000000.0"], done.stdout + done.stderr
    assert done.stderr.count("refused a thread") == 1, done.stderr
