"""Side-by-side benchmark: `python -m bench [case ...] [--threads 1 2] [--json FILE]`.

Each framework runs in its own process; the rounds of a case alternate between them, the smallest
time of each counts. OPENBLAS_*, OMP_* and MKL_* are removed from the environment first.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import json
import math
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from cases import CASES

HERE = Path(__file__).resolve().parent


class Worker:
    def __init__(self, framework: str, threads: int) -> None:
        env = {
            k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_", "OMP_", "MKL_"))
        }
        env["PYTHONPATH"] = os.pathsep.join([str(HERE), env.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), framework, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "the process ended"}

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(10)


def run_case(name: str, workers: dict[str, Worker], rounds: int, slice_: float) -> dict[str, Any]:
    row: dict[str, Any] = {"case": name, "goal": CASES[name].goal}
    best = dict.fromkeys(workers, math.inf)
    checks = {}
    for framework, worker in workers.items():
        answer = worker.ask(do="make", case=name, slice=slice_)
        if "error" in answer:
            row[f"{framework}_error"] = answer["error"]
            best[framework] = math.nan
        else:
            checks[framework] = answer["check"]
    for _ in range(rounds):
        for framework, worker in workers.items():
            if framework in checks:
                best[framework] = min(best[framework], worker.ask(do="time")["seconds"])
    for worker in workers.values():
        worker.ask(do="drop")
    row.update(best)
    if len(checks) == 2:
        a, b = checks.values()
        row["agree"] = math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-2)
    if "torch" in best:
        row["ratio"] = best["tenon"] / best["torch"]
    return row


def duration(s: float) -> str:
    if math.isnan(s):
        return "-"
    for scale, unit in ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms")):
        if s < 1000 * scale:
            return f"{s / scale:.3g} {unit}"
    return f"{s:.3g} s"


def show(row: dict[str, Any], threads: int) -> None:
    ratio = row.get("ratio", math.nan)
    state = "" if math.isnan(ratio) else "ok" if ratio <= row["goal"] else "over"
    note = row.get("tenon_error") or row.get("torch_error") or ""
    if row.get("agree") is False:
        note = "results differ"
    times = f"{duration(row['tenon'])} | {duration(row.get('torch', math.nan))}"
    figures = f"{ratio:.2f} | {row['goal']:.2f} | {state} {note}"
    print(f"| {row['case']} | {threads} | {times} | {figures} |", flush=True)


def machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            x.split(":")[1].strip() for x in info.read_text().splitlines() if "model name" in x
        ]
        model = names[0] if names else model
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("cases", nargs="*", default=["*"], help="names or patterns")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--slice", type=float, default=0.05, help="seconds of one round")
    parser.add_argument("--json", type=Path, help="write all figures there")
    opts = parser.parse_args()
    frameworks = ["tenon"] + (["torch"] if importlib.util.find_spec("torch") else [])
    if len(frameworks) == 1:
        print("torch is not installed: no ratios", file=sys.stderr)
    names = [n for n in CASES if any(fnmatch.fnmatch(n, p) for p in opts.cases)]
    rows = []
    print("| case | threads | tenon | torch | ratio | goal | |")
    print("| --- " * 7 + "|")
    for threads in opts.threads:
        workers = {f: Worker(f, threads) for f in frameworks}
        for name in names:
            if threads not in CASES[name].threads:
                continue
            row = run_case(name, workers, opts.rounds, opts.slice)
            show(row, threads)
            rows.append({**row, "threads": threads})
        for worker in workers.values():
            worker.close()
    if opts.json:
        opts.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    over = [r["case"] for r in rows if r.get("ratio", 0) > r["goal"]]
    print(
        f"\n{len(rows) - len(over)} of {len(rows)} within their goals"
        + (f"; over: {', '.join(over)}" if over else "")
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
