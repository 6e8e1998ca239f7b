"""Side-by-side benchmark against PyTorch and NumPy; see README.md beside this file.

Each framework runs in its own process; the rounds of a case alternate between them, the smallest
time of each counts.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import cases
import growth
import instructions
import process
import report
from cases.cuda import SMALL, Sizes
from cases.growth import GROUP
from registry import CASES, Case, Rates, agree
from report import Row
from tqdm import tqdm

HERE = Path(__file__).resolve().parent
PATIENCE = 8.0  # seconds a case may take for all its rounds, beyond the first three
LOUD = ("OPENBLAS_", "OMP_", "MKL_", "KMP_")  # variables that change what a peer does


class Worker:
    """A framework in a process of its own."""

    def __init__(self, framework: str, threads: int, sizes: Sizes | None) -> None:
        env = dict(os.environ)
        env["PYTHONPATH"] = os.pathsep.join([str(HERE), env.get("PYTHONPATH", "")])
        if framework == "numpy":
            env["OPENBLAS_NUM_THREADS"] = str(threads)
        command = [sys.executable, str(HERE / "worker.py"), framework, str(threads)]
        if sizes is not None:
            command.append(json.dumps(asdict(sizes)))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        return json.loads(answer) if answer else {"error": "the process ended"}

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(10)


class Bench:
    """One run: the workers for a number of threads, and the rows so far."""

    def __init__(self, frameworks: list[str], opts: argparse.Namespace) -> None:
        self.frameworks = frameworks
        self.opts = opts
        self.rows: list[Row] = []
        self.versions: dict[str, Any] = {}

    def run_case(self, case: Case, threads: int, workers: dict[str, Worker], rates: Rates) -> Row:
        limit = case.limit(rates) if rates else math.nan
        row = Row(case.name, case.family, case.group, threads, case.goal, limit, case.share)
        checks: dict[str, list[float]] = {}
        # A GPU's memory may be too small for the work of two frameworks: each has it for itself.
        turns = [{n: w} for n, w in workers.items()] if self.opts.cuda else [workers]
        for turn in turns:
            self.take_turn(case, turn, row, checks)
        ours = checks.pop("tenon", None)
        if ours:
            row.differs = [n for n, c in checks.items() if not agree(ours, c, case.rtol)]
        return row

    def take_turn(
        self, case: Case, workers: dict[str, Worker], row: Row, checks: dict[str, list[float]]
    ) -> None:
        """The rounds of frameworks that alternate; adds to the row and to the digests."""
        made = []
        for name, worker in workers.items():
            if case.maker(name) is None:
                continue
            answer = worker.ask(do="make", case=case.name, slice=self.opts.slice)
            if "error" in answer:
                row.errors[name] = answer["error"]
            else:
                checks[name] = answer["check"]
                made.append(name)
        start = time.perf_counter()
        for k in range(self.opts.rounds):
            if k >= 3 and time.perf_counter() - start > PATIENCE:
                break
            for name in made[k % 2 :] + made[: k % 2]:
                answer = workers[name].ask(do="time")
                if "error" in answer:
                    row.errors[name] = answer["error"]
                    continue
                row.times[name] = min(answer["seconds"], row.times.get(name, math.inf))
        for worker in workers.values():
            worker.ask(do="drop")

    def run_cases(self, chosen: list[Case], threads: int, rates: Rates) -> None:
        sizes = self.opts.sizes
        workers = {f: Worker(f, threads, sizes) for f in self.frameworks}
        self.versions = {f: w.ask(do="about") for f, w in workers.items()}
        alone = {r.case: r.ours for r in self.rows}
        progress = tqdm(chosen, desc=f"threads: {threads}", file=sys.stderr, leave=False)
        for case in progress:
            progress.set_postfix_str(case.name)
            row = self.run_case(case, threads, workers, rates)
            row.slower_than_one = row.ours > report.SLOWER * alone.get(row.case, math.inf)
            self.rows.append(row)
            tqdm.write(report.row_line(row), file=sys.stdout)
            for name, worker in workers.items():
                if worker.process.poll() is not None:  # a crash: the next case starts afresh
                    workers[name] = Worker(name, threads, sizes)
        for worker in workers.values():
            worker.close()


def tool(name: str) -> Path | None:
    """A program of this folder in the build that tenon is imported from."""
    spec = importlib.util.find_spec("tenon")
    if not spec or not spec.origin:
        sys.exit("bench: tenon cannot be imported; run ./dev bench")
    path = Path(spec.origin).absolute().parents[2] / "tests" / "bench" / name
    return path if path.exists() else None


def machine_rates(threads: int) -> Rates:
    """What the machine can do at most, from probe.c; empty where it is not built."""
    probe = tool("probe")
    if not probe:
        print("bench: no limits, the probe is not built", file=sys.stderr)
        return {}
    rates: Rates = {}
    for _ in range(3):  # other programs can only lower a rate
        run = subprocess.run([probe, str(threads)], capture_output=True, text=True, check=True)
        rates = {k: max(v, rates.get(k, 0.0)) for k, v in json.loads(run.stdout).items()}
    shown = ", ".join(f"{name} {rates[name] / 1e9:.0f} GB/s" for name in ("memory", "l3", "l2"))
    print(f"{threads} threads: read {shown}; {rates['flops'] / 1e9:.0f} GFLOP/s (float32)")
    return rates


def copy_rates(sizes: Sizes) -> Rates:
    """The rate of a copy within the GPU's memory, which stands for every limit."""
    worker = Worker("tenon", 1, sizes)
    answer = worker.ask(do="copy_rate", elements=sizes.elements)
    worker.close()
    if "error" in answer:
        sys.exit(f"bench: the GPU cannot be used: {answer['error']}")
    rate = answer["rate"]
    print(f"GPU: a copy reads and writes {rate / 1e9:.0f} GB/s")
    return {"memory": rate, "l3": rate, "l2": rate, "flops": math.inf}


def has_gpu(framework: str) -> bool:
    code = f"import {framework}; print({framework}.cuda.is_available())"
    return process.child(code).strip() == "True"


def count_instructions() -> list[instructions.Count]:
    program = tool("callpath")
    if not program or not instructions.available():
        missing = "the program is not built" if not program else "valgrind is not installed"
        print(f"instruction counts: skipped, {missing}\n")
        return []
    counts = instructions.compare(str(program))
    print("\n".join(str(c) for c in counts), end="\n\n", flush=True)
    return counts


def take_figures(frameworks: list[str], opts: argparse.Namespace) -> list[process.Taken]:
    program = tool("callpath")
    figures = process.FIGURES + process.DOOR + (process.call_path(program) if program else ())
    if opts.cuda:
        figures = process.CUDA
    chosen = [f for f in figures if wanted(f.name, f.quick, opts)]
    taken = []
    for figure in tqdm(chosen, desc="processes", file=sys.stderr, leave=False):
        taken.append(process.take(figure, frameworks, opts.rounds))
        tqdm.write(report.taken_line(taken[-1]), file=sys.stdout)
    return taken


def wanted(name: str, quick: bool, opts: argparse.Namespace) -> bool:
    named = any(fnmatch.fnmatch(name, p) for p in opts.cases)
    return named and (quick or not opts.quick)


def summary(rows: list[Row], taken: list[process.Taken]) -> str:
    judged = [r for r in rows if not math.isnan(r.excess)]
    worst_first = sorted((r for r in judged if r.over), key=lambda r: -r.excess)
    over = [f"{r.case} ({r.threads}T, {r.excess:.2g}x)" for r in worst_first]
    over += [t.figure.name for t in taken if t.over]
    wrong = [f"{r.case} ({r.threads}T)" for r in rows if r.differs or "tenon" in r.errors]
    slower = [r.case for r in rows if r.slower_than_one]
    lines = [f"failed or different: {', '.join(wrong)}"] if wrong else []
    if slower:
        lines.append(f"slower on two threads than on one: {', '.join(slower)}")
    total = len(judged) + len(taken)
    lines.append(
        f"{total - len(over)} of {total} within their goals"
        + (f"; over, worst first: {', '.join(over)}" if over else "")
    )
    return "\n".join(lines)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="names or patterns; default: all")
    parser.add_argument("--quick", action="store_true", help="a selection, in under a minute")
    parser.add_argument("--threads", type=int, nargs="+", help="default: 1 2, on a GPU 1")
    parser.add_argument("--cuda", action="store_true", help="on the GPU; default: its own cases")
    parser.add_argument("--batch", type=int, help="sequences of GPT-2's step on the GPU")
    parser.add_argument("--tokens", type=int, help="tokens of each of them")
    parser.add_argument("--small", action="store_true", help="sizes that only try the GPU's cases")
    parser.add_argument("--rounds", type=int, help="default: 9, quick: 3")
    parser.add_argument("--slice", type=float, help="seconds of one round; default: 0.05")
    parser.add_argument("--no-instructions", action="store_true", help="do not run valgrind")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument(
        "--growth", type=Path, nargs="?", const=Path("growth.png"), metavar="PICTURE",
        help="time against size instead, as a picture too; default: growth.png",
    )  # fmt: skip
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("OLD", "NEW"), help="of --json")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    opts = parser.parse_args()
    opts.rounds = opts.rounds or (3 if opts.quick else 9)
    opts.slice = opts.slice or (0.02 if opts.quick else 0.05)
    opts.threads = opts.threads or ([1] if opts.cuda else [1, 2])
    opts.sizes = None
    if opts.cuda:
        given = {k: v for k in ("batch", "tokens") if (v := getattr(opts, k)) is not None}
        if any(n < 1 for n in given.values()):
            parser.error("--batch and --tokens must be 1 or more")
        opts.sizes = replace(SMALL if opts.small else Sizes(), **given)
    elif opts.batch or opts.tokens or opts.small:
        parser.error("--batch, --tokens and --small are for --cuda")
    return opts


def choose(opts: argparse.Namespace) -> list[Case]:
    """What is named; else on a GPU the cases that were made for it, and otherwise all."""
    if opts.cuda:
        cases.add_cuda(asdict(opts.sizes))
    own = opts.cuda and not opts.cases
    opts.cases = opts.cases or ["*"]
    whole = opts.cuda or opts.growth
    chosen = [c for c in CASES.values() if wanted(c.name, c.quick or whole, opts)]
    chosen = [c for c in chosen if (c.group == GROUP) == bool(opts.growth)]
    return [c for c in chosen if c.group == "cuda"] if own else chosen


def main() -> int:
    opts = options()
    if opts.compare:
        print(report.compare(*(json.loads(path.read_text()) for path in opts.compare)))
        return 0
    chosen = choose(opts)
    if opts.list:
        print("\n".join(f"{c.group}: {c.name}" for c in chosen))
        return 0
    for name in [n for n in os.environ if n.startswith(LOUD)]:
        del os.environ[name]
    frameworks = [f for f in ("tenon", "torch", "numpy") if importlib.util.find_spec(f)]
    if opts.cuda:
        frameworks = [f for f in frameworks if f != "numpy" and has_gpu(f)]
        if "tenon" not in frameworks:
            sys.exit("bench: there is no GPU: tenon doctor says why")
    if "torch" not in frameworks:
        missing = "finds no GPU here" if importlib.util.find_spec("torch") else "is not installed"
        print(f"bench: PyTorch {missing}, so there are no ratios", file=sys.stderr)
    skip = opts.no_instructions or opts.quick or opts.cuda or opts.growth
    counts = [] if skip else count_instructions()
    rates = {n: copy_rates(opts.sizes) if opts.cuda else machine_rates(n) for n in opts.threads}
    print(f"\n{report.head()}", flush=True)
    bench = Bench(frameworks, opts)
    for threads in opts.threads:
        bench.run_cases([c for c in chosen if threads in c.threads], threads, rates[threads])
    taken = [] if opts.growth else take_figures(frameworks, opts)
    if opts.json:
        record = {
            "machine": report.machine(),
            "versions": bench.versions,
            "rates": rates,
            "sizes": opts.sizes and asdict(opts.sizes),
            "instructions": {c.case: c.instructions for c in counts},
            "processes": {t.figure.name: {**t.values, "over": t.over} for t in taken},
            "rows": [r.as_dict() for r in bench.rows],
        }
        opts.json.write_text(json.dumps(report.finite(record), indent=1) + "\n")
    print(f"\n{report.standings(bench.rows)}\n\n{summary(bench.rows, taken)}")
    if opts.growth:
        print(growth.draw(bench.rows, opts.growth))
    return 0


if __name__ == "__main__":
    sys.exit(main())
