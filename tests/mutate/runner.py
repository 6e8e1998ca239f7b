"""Runs the tests once for each mutant, in forks of one process that has collected them.

Started by __main__.py with the package of build/mutate/site: `runner.py FOLDER JOBS RESULTS
[near|far]`; reads mutants.json there and writes the file RESULTS after each mutant, so that a run
that is cut off leaves what it found. Mutants that the tests of their entries let live meet all
collected tests that reach them, with `near` none; `far`: those of the whole Python package are
collected, too.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import pycode

ROOT = Path(__file__).resolve().parents[2]
MEMORY = 6 << 30
NAMES = (("core", "libtenon.so"), ("cpu", "tenon_cpu.so"), ("module", "_C.abi3.so"))
DEFAULTS = "test_defaults.py"  # looks at defaults and constants of what it does not call
ANEW = "anew"  # the first word of a process for one mutant
ANEW_PATIENCE = 60.0
PATIENCE = 10.0  # seconds, and four times what the tests take unchanged
OPTIONS = ["-p", "no:cacheprovider", "-p", "no:faulthandler", "--capture=no", "-q",
           "-m", "not slow"]  # fmt: skip


class NoTorch:
    """Finds no PyTorch."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "torch" or name.startswith("torch."):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


class Libraries:
    """The switches in libtenon, the CPU plugin and the Python module."""

    def __init__(self, site: Path, size: int) -> None:
        self.parts: list[tuple[Any, int]] = []
        self.size = max(size, 1)
        for name, file in NAMES:
            for path in site.rglob(file):
                library = ctypes.CDLL(str(path))
                if hasattr(library, f"tn_mutate_{name}"):
                    switch = getattr(library, f"tn_mutate_{name}")
                    reached = getattr(library, f"tn_mutate_{name}_reached")
                    reached.restype = ctypes.c_void_p
                    self.parts.append((switch, reached()))

    def switch_on(self, number: int) -> None:
        for switch, _ in self.parts:
            switch(number)

    def forget(self) -> None:
        for _, reached in self.parts:
            ctypes.memset(reached, 0, self.size)

    def reached(self) -> list[int]:
        found: set[int] = set()
        for _, at in self.parts:
            found |= {i for i, b in enumerate(ctypes.string_at(at, self.size)) if b}
        return sorted(found)


class Beside:
    """What processes reach that the tests of this one start."""

    def __init__(self, path: Path, size: int) -> None:
        path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self.seen = mmap.mmap(file.fileno(), size)
        os.environ["TN_REACHED"] = str(path)

    def forget(self) -> None:
        self.seen[:] = bytes(len(self.seen))

    def reached(self) -> list[int]:
        return [i for i, b in enumerate(self.seen[:]) if b]


def quiet() -> None:
    """For a child: no output, no core files, no more memory than a test can need."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (1, 2):
        os.dup2(null, fd)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def run_item(item: Any, following: Any) -> str:
    """ "passed", "failed" or "skipped"; what modules set up stays for the item that follows."""
    from _pytest.runner import runtestprotocol

    reports = runtestprotocol(item, log=False, nextitem=following)
    if any(r.failed for r in reports):
        return "failed"
    return "skipped" if any(r.skipped for r in reports) else "passed"


class Runner:
    """A pytest plugin whose loop is over mutants."""

    def __init__(self, folder: Path, jobs: int, written: Path, near: bool) -> None:
        import tenon

        self.folder, self.jobs, self.written, self.near = folder, jobs, written, near
        plan = json.loads((folder / "mutants.json").read_text(encoding="utf-8"))
        self.mutants, self.callers = plan["mutants"], plan["callers"]
        self.tests, self.most = plan["tests"], plan["most"]
        self.modules = {m["file"] for m in self.mutants if m["span"][2]}
        site = Path(tenon.__file__).parent
        self.rows = {r["name"]: r for r in json.loads((site / "ops.json").read_text("utf-8"))}
        tenon.ones(3).sum()  # the plugin is loaded before anything forks
        self.libraries = Libraries(site, 1 + max((m["seen"] for m in self.mutants), default=0))
        self.results: dict[str, str] = {}

    def note(self, mutant: dict[str, Any], how: str) -> None:
        """What became of a mutant, at once in the file; never half of it."""
        self.results[mutant["id"]] = how
        self.write()

    def write(self) -> None:
        failing = [self.items[i].nodeid for i, f in self.facts.items() if f["how"] == "failed"]
        part = self.written.with_name(self.written.name + ".part")
        out = {"results": self.results, "failing": failing}
        part.write_text(json.dumps(out, indent=1), encoding="utf-8")
        part.replace(self.written)

    # -- which tests ---------------------------------------------------------------------------

    def candidates(self, entries: list[str]) -> list[int]:
        """The tests of entries; of internal ones, those of the entries that call them."""
        found: set[int] = set()
        open_, done = list(entries), set[str]()
        while open_:
            name = open_.pop()
            if name in done:
                continue
            done.add(name)
            found |= self.own.get(name, set())
            row = self.rows.get(name)
            if row and row["tests"]:
                found |= self.in_file.get(row["tests"], set())
            if not row or not (row["tests"] or row["ref"]) or name.startswith("_"):
                open_ += self.callers.get(name, [])
        return sorted(found)

    def pytest_runtestloop(self, session: Any) -> bool:
        self.items = session.items
        self.own: dict[str, set[int]] = {}
        self.in_file: dict[str, set[int]] = {}
        for i, item in enumerate(self.items):
            row = item.callspec.params.get("row") if hasattr(item, "callspec") else None
            if isinstance(row, dict) and "name" in row:
                self.own.setdefault(row["name"], set()).add(i)
            else:
                file = item.path.relative_to(ROOT).as_posix()
                self.in_file.setdefault(file, set()).add(i)
        every = list(range(len(self.items))) if self.tests else []
        asked = {m["id"]: every or self.candidates(m["entries"]) for m in self.mutants}
        started = time.monotonic()
        self.facts = self.unchanged(sorted({i for many in asked.values() for i in many}))
        self.say(f"{len(self.facts)} tests unchanged in {time.monotonic() - started:.0f} s")
        self.run_mutants(asked)
        if not self.tests and not self.near:
            self.run_far()
        if not self.near:
            self.run_programs()
        self.write()
        return True

    def run_far(self) -> None:
        """All collected tests, for what still lives and is not known to; descriptors say nothing
        about who reaches them."""
        left = [
            m
            for m in self.mutants
            if self.results[m["id"]] != "killed" and m["seen"] >= 0 and not m["listed"]
        ]
        if not left:
            return
        every = list(range(len(self.items)))
        self.facts |= self.unchanged([i for i in every if i not in self.facts])
        self.say(f"{len(left)} live and meet {len(every)} tests")
        self.mutants = left
        self.run_mutants({m["id"]: every for m in left})

    def run_programs(self) -> None:
        """The C tests, for what still lives of the library and the CPU plugin."""
        site = self.folder / "site" / "tenon"
        built = self.folder.parent / "tests"
        env = {**os.environ, "LD_LIBRARY_PATH": f"{site}:{os.environ.get('LD_LIBRARY_PATH', '')}",
               "TENON_TEST_PLUGINS": str(built / "plugins"),
               "TENON_TEST_CPU": str(site / "plugins" / "tenon_cpu.so")}  # fmt: skip

        def ends_well(program: Path, number: int) -> bool:
            try:
                done = subprocess.run([program], env=env | {"TN_MUTANT": str(number)}, timeout=60,
                                      capture_output=True, check=False)  # fmt: skip
            except subprocess.TimeoutExpired:
                return False
            return done.returncode == 0

        every = [p for p in sorted(built.glob("test_*")) if p.is_file() and os.access(p, os.X_OK)]
        programs = [p for p in every if ends_well(p, 0)]

        def meets(mutant: dict[str, Any]) -> str:
            well = all(ends_well(p, mutant["number"]) for p in programs)
            return self.results[mutant["id"]] if well else "killed"

        module = str(ROOT / "python")
        left = [m for m in self.mutants if self.results[m["id"]] != "killed" and m["number"]
                and not m["listed"] and not m["file"].startswith(module)]  # fmt: skip
        self.say(f"{len(left)} live and meet {len(programs)} of {len(every)} C programs")
        with ThreadPoolExecutor(self.jobs) as pool:
            for mutant, how in zip(left, pool.map(meets, left), strict=True):
                self.note(mutant, how)

    def say(self, text: str) -> None:
        print(f"mutate: {text}", file=sys.stderr, flush=True)

    # -- without a mutant ----------------------------------------------------------------------

    def in_order(self, tests: list[int]) -> Iterator[tuple[int, Any]]:
        """Each test, and the item that follows it."""
        return zip(tests, [*(self.items[i] for i in tests[1:]), None], strict=True)

    def unchanged(self, wanted: list[int]) -> dict[int, dict[str, Any]]:
        """Outcome, duration and reached functions of each test."""
        children = []
        for job in range(self.jobs):
            pid = os.fork()
            if pid == 0:
                quiet()
                facts = {}
                beside = Beside(self.folder / f"reached{job}.bin", self.libraries.size)
                for i, following in self.in_order(wanted[job :: self.jobs]):
                    self.libraries.forget()
                    beside.forget()
                    before = time.monotonic()
                    with self.called() as called:
                        how = run_item(self.items[i], following)
                    reached = [*{*self.libraries.reached(), *beside.reached()}, *called]
                    facts[i] = {"how": how, "seconds": time.monotonic() - before,
                                "reached": reached}  # fmt: skip
                (self.folder / f"facts{job}.json").write_text(json.dumps(facts), encoding="utf-8")
                os._exit(0)
            children.append(pid)
        found: dict[int, dict[str, Any]] = {}
        for job, pid in enumerate(children):
            if os.waitpid(pid, 0)[1]:
                raise SystemExit("mutate: the tests crash without any mutant")
            text = (self.folder / f"facts{job}.json").read_text(encoding="utf-8")
            for i, fact in json.loads(text).items():
                found[int(i)] = fact | {"reached": set(fact["reached"])}
        return found

    @contextmanager
    def called(self) -> Iterator[set[str]]:
        """The functions of changed modules that run meanwhile."""
        found: set[str] = set()
        codes: dict[Any, bool] = {}

        def note(frame: Any, event: str, _: Any) -> None:
            if event == "call" and frame.f_code not in codes:
                codes[frame.f_code] = True
                name = os.path.realpath(frame.f_code.co_filename)
                if name in self.modules:
                    # What a function defines is a part of it.
                    found.add(f"{name}:{frame.f_code.co_qualname.partition('.<locals>')[0]}")

        if self.modules:
            sys.setprofile(note)
        try:
            yield found
        finally:
            if self.modules:
                sys.setprofile(None)

    # -- with one ------------------------------------------------------------------------------

    def tests_of(self, mutant: dict[str, Any], asked: list[int], anew: bool) -> list[int]:
        """Those that do not fail without the mutant and reach it, shortest first."""
        facts = self.facts
        seen = mutant["seen"]
        if mutant["span"][2]:
            seen = f"{mutant['file']}:{mutant['function']}"
        looks = DEFAULTS if mutant["id"].startswith("default of ") else None
        if anew:  # what runs at import shows in all functions of the module
            within = f"{mutant['file']}:"
            reach = [i for i in asked if any(str(r).startswith(within) for r in facts[i]["reached"])
                     or self.items[i].path.name == DEFAULTS]  # fmt: skip
        else:
            reach = [i for i in asked if seen == -1 or seen in facts[i]["reached"]
                     or self.items[i].path.name == looks]  # fmt: skip
        # Skipped ones may do much before.
        able = [i for i in reach if facts[i]["how"] != "failed"]
        able.sort(key=lambda i: facts[i]["seconds"])
        ends = accumulate(facts[i]["seconds"] for i in able)
        return [i for i, end in zip(able, ends, strict=True) if end <= self.most]

    def run_mutants(self, asked: dict[str, list[int]]) -> None:
        running: dict[int, tuple[dict[str, Any], float]] = {}
        for done, mutant in enumerate(self.mutants):
            anew = mutant["function"].endswith(pycode.AT_IMPORT)
            tests = self.tests_of(mutant, asked[mutant["id"]], anew)
            if not tests and mutant["span"][2]:  # a function that is called at import, maybe
                anew, tests = True, self.tests_of(mutant, asked[mutant["id"]], True)
            if not tests:
                self.note(mutant, "unreached")
                continue
            while len(running) >= self.jobs:
                self.collect(running)
            patience = PATIENCE + 4 * sum(self.facts[i]["seconds"] for i in tests)
            patience += ANEW_PATIENCE if mutant["span"][2] else 0
            running[self.start(mutant, tests, anew)] = (mutant, time.monotonic() + patience)
            if done % 250 == 249:
                lives = sum(r != "killed" for r in self.results.values())
                self.say(f"{done + 1} of {len(self.mutants)}, {lives} live so far")
        while running:
            self.collect(running)

    def start(self, mutant: dict[str, Any], tests: list[int], anew: bool) -> int:
        pid = os.fork()
        if pid:
            return pid
        quiet()
        if mutant["span"][2]:
            if anew or not pycode.switch_on(Path(mutant["file"]), *mutant["span"]):
                self.start_anew(mutant, tests)
        else:
            self.libraries.switch_on(mutant["number"])
            os.environ["TN_MUTANT"] = str(mutant["number"])
        for i, following in self.in_order(tests):
            if run_item(self.items[i], following) == "failed":
                os._exit(1)
        os._exit(0)

    def start_anew(self, mutant: dict[str, Any], tests: list[int]) -> None:
        """A change of what ran when the modules were imported: in a process of its own."""
        ids = [self.items[i].nodeid for i in tests]
        order = {"file": mutant["file"], "span": mutant["span"], "tests": ids}
        path = self.folder / f"anew{os.getpid()}.json"
        path.write_text(json.dumps(order), encoding="utf-8")
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, __file__, ANEW, str(path)])

    def collect(self, running: dict[int, tuple[dict[str, Any], float]]) -> None:
        """Waits until a child ends, or ends one that takes too long."""
        for pid in self.ended(running):
            mutant, _ = running.pop(pid)
            _, status = os.waitpid(pid, 0) if pid in self.late else (pid, self.status.pop(pid))
            self.late.discard(pid)
            self.note(mutant, "killed" if status else "lives")
            if not status:
                self.say(f"lives so far: {mutant['id']}")

    late: set[int] = set()
    status: dict[int, int] = {}

    def ended(self, running: dict[int, tuple[dict[str, Any], float]]) -> Iterator[int]:
        while True:
            found = []
            for pid, (_, deadline) in list(running.items()):
                got, status = os.waitpid(pid, os.WNOHANG)
                if got:
                    self.status[pid] = status
                    found.append(pid)
                elif time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                    self.late.add(pid)
                    found.append(pid)
            if found:
                yield from found
                return
            time.sleep(0.002)


def run_anew(path: Path) -> int:
    order = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    pycode.switch_on_at_import(Path(order["file"]), *order["span"])
    import pytest

    return int(pytest.main([*OPTIONS, "-x", *order["tests"]]))


def main() -> int:
    sys.meta_path.insert(0, NoTorch())
    if sys.argv[1] == ANEW:
        return run_anew(Path(sys.argv[2]))
    import pytest

    folder, jobs, far = Path(sys.argv[1]), int(sys.argv[2]), "far" in sys.argv[4:]
    runner = Runner(folder, jobs, Path(sys.argv[3]), "near" in sys.argv[4:])
    files = {r["tests"] for r in runner.rows.values() if r["tests"]}
    files = {f for f in files if (ROOT / f).is_file() and not f.startswith("tests/ops/")}
    if far:
        files.add("tests/python")
    paths = runner.tests or ["tests/ops", *sorted(files)]
    return int(pytest.main([*OPTIONS, *paths], plugins=[runner]))


if __name__ == "__main__":
    sys.exit(main())
