"""Instructions per operation on the call path, counted by callgrind, against recorded figures.

    python tests/bench/instructions.py PROGRAM [--record]

PROGRAM is tests/bench/callpath of a build folder. Counts do not depend on how busy the machine is.
The recorded figures are of a release build by gcc 12 on Debian 12, whose OpenBLAS matmul_8x8 runs
through; a count more than 15 % above its figure fails. Another compiler gives other counts: record
first, change, then compare.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

FIGURES = Path(__file__).with_name("instructions.json")
CASES = (
    "add", "add_out", "mul_scalar", "add_grad",
    "select", "view", "sum", "matmul_8x8", "mul_fwd_bwd",
)  # fmt: skip
SLACK = 1.15


@dataclass(frozen=True)
class Count:
    """Instructions of one case next to the recorded figure."""

    case: str
    instructions: int
    recorded: int

    @property
    def over(self) -> bool:
        return self.instructions > self.recorded * SLACK

    def __str__(self) -> str:
        mark = "  OVER" if self.over else ""
        return f"{self.case}: {self.instructions} instructions, recorded {self.recorded}{mark}"


def available() -> bool:
    return shutil.which("valgrind") is not None


def total(program: str, case: str, calls: int) -> int:
    """Instructions of a whole run."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    env["TENON_CPU_ISA"] = "baseline"  # the same code path on every x86-64 machine
    env["TENON_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        run = subprocess.run(
            [*command, program, case, str(calls)],
            capture_output=True,
            text=True,
            env=env,
            check=False,
        )
    if run.returncode != 0:
        raise SystemExit(f"{case}: {run.stderr.strip()[-500:]}")
    found = re.search(r"Collected : (\d+)", run.stderr)
    if not found:
        raise SystemExit(f"{case}: callgrind printed no count")
    return int(found[1])


def count(program: str, case: str) -> int:
    few, many = 1000, 3000
    return round((total(program, case, many) - total(program, case, few)) / (many - few))


def compare(program: str) -> list[Count]:
    figures = json.loads(FIGURES.read_text())
    return [Count(case, count(program, case), figures[case]) for case in CASES]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--record", action="store_true", help="write the figures")
    opts = parser.parse_args()
    if not available():
        print("instructions: skipped, valgrind is not installed")
        return 0
    if opts.record:
        counts = {case: count(opts.program, case) for case in CASES}
        FIGURES.write_text(json.dumps(counts, indent=1) + "\n")
        return 0
    rows = compare(opts.program)
    for row in rows:
        print(row)
    return 1 if any(row.over for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
