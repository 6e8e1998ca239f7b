"""Many single calls beside PyTorch's: which take longer?

    python tests/bench/scan.py [small|middle|short] [PATTERN ...] [--turns N] [--most N] [--json F]

`calls/small.txt` has calls on a few elements, where the way to the kernel counts,
`calls/middle.txt` operators on tensors that stay in the second cache,
`calls/short.txt` the same on rows of few elements, a line an expression of the names that
`calls/names.py` makes. Each framework has a process of its own, with one thread; turns
alternate, and the least processor time of all turns counts, so that a busy machine matters little.
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import importlib.util
import json
import math
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TURN = {"small": 5e-4, "middle": 1e-3, "short": 1e-3}  # seconds of one call's share of a turn


# ---- A framework in a process of its own -------------------------------------------------------


def serve(framework: str, size: str, lines: list[str]) -> None:
    """Answers each line of standard input with the least seconds of every call so far."""
    from calls import names

    warnings.filterwarnings("ignore")
    T = importlib.import_module(framework)
    T.set_num_threads(1)
    T.manual_seed(0)
    scope = getattr(names, size)(T)
    calls: dict[str, Any] = {}
    T.set_grad_enabled(size == "small")
    for line in lines:
        call = eval(f"lambda: {line}", scope)
        try:
            call(), call()
        except Exception as err:
            print(f"{framework}: {line}: {type(err).__name__}: {err}", file=sys.stderr)
            continue
        calls[line] = call
    least: dict[str, float] = dict.fromkeys(calls, math.inf)
    loops: dict[str, int] = {}
    gc.disable()
    for _ in sys.stdin:
        for line, call in calls.items():
            n = loops.get(line, 1)
            start = time.thread_time()
            for _ in range(n):
                call()
            seconds = (time.thread_time() - start) / n
            least[line] = min(least[line], seconds)
            loops[line] = max(1, min(2000, int(TURN[size] / max(seconds, 1e-7))))
        gc.collect()
        print(json.dumps(least), flush=True)


# ---- Both of them --------------------------------------------------------------------------------


def measure(size: str, lines: list[str], turns: int) -> dict[str, dict[str, float]]:
    workers = {}
    for framework in filter(importlib.util.find_spec, ("tenon", "torch")):
        command = [sys.executable, str(HERE / "scan.py"), size, "--serve", framework]
        env = {**os.environ, "TENON_SCAN": json.dumps(lines)}
        pipe = subprocess.PIPE
        workers[framework] = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)
    least: dict[str, dict[str, float]] = {}
    for _ in range(turns):
        for framework, worker in workers.items():
            assert worker.stdin and worker.stdout
            worker.stdin.write("\n")
            worker.stdin.flush()
            answer = worker.stdout.readline()
            if not answer:
                sys.exit(f"scan: the process of {framework} ended")
            least[framework] = json.loads(answer)
    for worker in workers.values():
        worker.communicate()
    return least


def main() -> None:
    parser = argparse.ArgumentParser(prog="scan", description=__doc__.splitlines()[0])
    parser.add_argument("size", nargs="?", choices=tuple(TURN), default="middle")
    parser.add_argument("patterns", nargs="*", help="of expressions; default: all")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--most", type=int, default=40, help="rows of the table, the slowest first")
    parser.add_argument("--json", type=Path, help="write all seconds there")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    opts = parser.parse_args()
    if opts.serve:
        serve(opts.serve, opts.size, json.loads(os.environ["TENON_SCAN"]))
        return
    lines = (HERE / "calls" / f"{opts.size}.txt").read_text().splitlines()
    lines = [x for x in lines if any(fnmatch.fnmatch(x, p) for p in opts.patterns or ["*"])]
    least = measure(opts.size, lines, opts.turns)
    ours, theirs = least["tenon"], least.get("torch", {})
    rows = sorted((ours[x] / theirs[x], x) for x in lines if x in ours and x in theirs)[::-1]
    for ratio, line in rows[: opts.most]:
        print(f"{ratio:7.2f}  {line:60} {ours[line] * 1e6:10.2f} us {theirs[line] * 1e6:10.2f} us")
    if not theirs:
        print(f"{len(ours)} calls; PyTorch is not installed, so there are no ratios")
    mean = math.exp(sum(math.log(ratio) for ratio, _ in rows) / max(len(rows), 1))
    over = sum(ratio > 1 for ratio, _ in rows)
    print(f"{len(rows)} calls, {over} of them slower than PyTorch's, geometric mean {mean:.2f}")
    if opts.json:
        opts.json.write_text(json.dumps(least, indent=1) + "\n")


if __name__ == "__main__":
    main()
