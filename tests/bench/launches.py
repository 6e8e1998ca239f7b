"""Instructions of the host for each operator on the CUDA device, from the call in C to the driver.

    python tests/bench/launches.py BUILD

BUILD is a build folder with the host harness (tests/cuda_host), whose driver is called in place of
NVIDIA's; what it does itself is left out, as are other threads. Counted by callgrind, so that it
does not depend on how busy the machine is.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import instructions

CASES = ("add", "add_out", "mul_scalar", "add_grad", "sum", "matmul_8x8", "mul_fwd_bwd")
# The harness's own entry points: collection stops when one is entered.
DRIVER = "cu*"


def total(build: Path, case: str, calls: int) -> int:
    """Instructions of the calling thread in a whole run, those of the driver apart."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(build / "tests/cuda_host")}
    env |= {"TENON_BENCH_DEVICE": "cuda", "TENON_CUDA_HOST_DELAY": "0", "TENON_CUDA_CACHE": ""}
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes"]
        command += [
            f"--toggle-collect={DRIVER}",
            "--collect-atstart=yes",
            f"--callgrind-out-file={folder}/out",
        ]
        program = build / "tests/bench/callpath"
        run = subprocess.run(
            [*command, program, case, str(calls)], capture_output=True, text=True, env=env
        )
        if run.returncode != 0:
            raise SystemExit(f"{case}: {run.stderr.strip()[-500:]}")
        found = re.search(r"^totals: (\d+)", (Path(folder) / "out-01").read_text(), re.MULTILINE)
    if not found:
        raise SystemExit(f"{case}: callgrind printed no count")
    return int(found[1])


def count(build: Path, case: str) -> int:
    """Instructions of one call; start-up cancels out."""
    few, many = 1000, 3000
    return round((total(build, case, many) - total(build, case, few)) / (many - few))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    opts = parser.parse_args()
    if not instructions.available():
        print("launches: skipped, valgrind is not installed")
        return 0
    if not (opts.build / "tests/cuda_host/libcuda.so.1").exists():
        print("launches: skipped, there is no host harness in the build")
        return 0
    for case in CASES:
        print(f"{case}: {count(opts.build.absolute(), case)} instructions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
