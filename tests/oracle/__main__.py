"""PyTorch's own databases of operators, modules and optimizers against Tenon; README.md.

python tests/oracle [NAME...] [--sections forward,out] [--tiers 1,2] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import report

HERE = Path(__file__).resolve().parent
OPERATOR_SECTIONS = ["forward", "gradients", "second", "out", "inplace", "methods", "errors"]
SECTIONS = {
    "operators": OPERATOR_SECTIONS,
    "modules": ["forward", "gradients", "initial", "state", "errors"],
    "optimizers": ["steps", "state", "errors"],
}
BY_NAME = ["dtypes", "varied", "strides"]  # of operators
LIMIT = 120.0  # seconds for one section of one entry


class Child:
    """A worker and a thread that reads its lines, so that a wait can end."""

    def __init__(self) -> None:
        # The random numbers of both libraries are the same, so draws compare like other results.
        env = {**os.environ, "TENON_RNG": "torch", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py")], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.entries: dict[str, list[list[str]]] = self.line()["entries"]

    def read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def line(self) -> dict[str, Any]:
        got = self.lines.get(timeout=LIMIT)
        if got is None:
            raise EOFError(self.process.wait())
        return got

    def ask(self, group: str, title: str, sections: list[str]) -> dict[str, list[Any]]:
        """Verdicts by section. One that ends the process, or takes too long, is a verdict too."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps([group, title, *sections]) + "\n")
        self.process.stdin.flush()
        out: dict[str, list[Any]] = {}
        running = sections[0]
        try:
            while True:
                line = self.line()
                if "done" in line:
                    return out
                running = line.get("begin", running)
                if "end" in line:
                    out[line["end"]] = line["verdicts"]
        except (EOFError, queue.Empty) as e:
            how = "no answer in time" if isinstance(e, queue.Empty) else f"the process ended: {e}"
            out[running] = [["the process", how]]
            self.close()
            left = sections[sections.index(running) + 1 :]
            self.__init__()  # type: ignore[misc]
            return {**out, **(self.ask(group, title, left) if left else {})}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def work(child: Child, todo: queue.Queue[Any], records: list[Any], quiet: bool) -> None:
    while True:
        try:
            group, title, name, sections = todo.get_nowait()
        except queue.Empty:
            child.close()
            return
        for section, verdicts in child.ask(group, title, sections).items():
            bad = [v for v in verdicts if v[1] is not None]
            records.append({
                "group": group, "title": title, "tier": report.tier(group, name),
                "section": section, "samples": len(verdicts), "failures": bad,
                "other": sorted({v[2] for v in verdicts if len(v) > 2}),
            })  # fmt: skip
        if not quiet:
            print(f"\r{todo.qsize()} left   ", end="", file=sys.stderr, flush=True)


def chosen(options: argparse.Namespace, databases: dict[str, Any]) -> Iterator[Any]:
    """What the options ask for: (group, title, name, sections) of each entry."""
    for group, entries in databases.items():
        sections = options.sections.split(",") if options.sections else SECTIONS[group]
        known = [*SECTIONS[group], *(BY_NAME if group == "operators" else [])]
        sections = [s for s in sections if s in known]
        if not sections or (options.groups and group not in options.groups.split(",")):
            continue
        for title, name in entries:
            tier = str(report.tier(group, name))
            wanted = not options.names or title in options.names or name in options.names
            if wanted and (not options.tiers or tier in options.tiers.split(",")):
                yield group, title, name, sections


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/oracle", description=__doc__)
    parser.add_argument("names", nargs="*", help="such as add or nn.functional.pad; all when none")
    parser.add_argument(
        "--sections", help="sections to run; dtypes, varied and strides run by name alone"
    )
    parser.add_argument("--tiers", help="tiers to run, such as 1,2")
    parser.add_argument("--groups", help="operators, modules, optimizers")
    parser.add_argument("--json", type=Path, help="write every record there")
    parser.add_argument("--keep", type=Path, help="records of a run before, for what does not run")
    parser.add_argument("--coverage", type=Path, help="write the report in Markdown there")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--show", type=int, default=1, help="failures to show of each section")
    options = parser.parse_args()

    first = Child()
    todo: queue.Queue[Any] = queue.Queue()
    for entry in chosen(options, first.entries):
        todo.put(entry)
    if options.names and todo.empty():
        parser.error(f"the databases have no {' '.join(options.names)}")
    records: list[dict[str, Any]] = []
    extra = [Child() for _ in range(min(options.jobs, todo.qsize()) - 1)]
    threads = [
        threading.Thread(target=work, args=(child, todo, records, bool(options.names)))
        for child in [first, *extra]
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(file=sys.stderr)
    if options.keep:
        ran = {(r["group"], r["title"], r["section"]) for r in records}
        before = json.loads(options.keep.read_text())["records"]
        records += [r for r in before if (r["group"], r["title"], r["section"]) not in ran]
    print(report.missing(records, options.show))
    print(report.table(records))
    if options.json:
        whole = {"totals": report.totals(records), "records": records}
        options.json.write_text(json.dumps(whole, indent=1))
    if options.coverage:
        options.coverage.write_text(report.coverage(records))
    return any(r["failures"] and r["tier"] <= 2 for r in records)


if __name__ == "__main__":
    sys.exit(main())
