"""One framework in one process: makes cases on request and times them, a line of JSON each way."""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

BURST = 0.002  # seconds; shorter than the turn that a busy system gives a process


def seconds(fn: Callable[[], Any], loops: int) -> float:
    start = time.perf_counter()
    for _ in range(loops):
        fn()
    return (time.perf_counter() - start) / loops


def about(framework: Any) -> dict[str, str]:
    """What did the work: the version, and where the framework tells, its build."""
    facts = {"version": framework.__version__}
    if framework.__name__ != "numpy":
        facts["instructions"] = framework.backends.cpu.get_cpu_capability()
    if framework.__name__ == "torch":
        facts["build"] = framework.__config__.show()
    return facts


class Bench:
    """The case at hand."""

    def __init__(self, framework: Any) -> None:
        self.framework = framework
        self.drop()

    def drop(self) -> dict[str, Any]:
        self.fn: Callable[[], Any] = lambda: None
        self.loops = self.bursts = 1
        gc.collect()
        return {}

    def make(self, case: str, slice_: float) -> dict[str, Any]:
        """Prepares a case. Its check is the result of the third call."""
        from registry import CASES, digest

        make = CASES[case].maker(self.framework.__name__)
        assert make
        fn = make(self.framework)
        once = min(seconds(fn, 1) for _ in range(2))
        start = time.perf_counter()
        result = fn()
        once = min(once, time.perf_counter() - start)
        self.fn, self.loops = fn, max(1, int(BURST / max(once, 1e-8)))
        self.bursts = max(1, int(slice_ / max(once, BURST)))
        return {"check": digest(result)}

    def time(self) -> dict[str, Any]:
        self.fn()  # brings data and threads back after the other frameworks' turns
        return {"seconds": min(seconds(self.fn, self.loops) for _ in range(self.bursts))}


def main() -> None:
    name, threads = sys.argv[1], int(sys.argv[2])
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints goes to stderr
    framework = importlib.import_module(name)
    if name != "numpy":
        framework.set_num_threads(threads)
    import cases  # noqa: F401

    bench = Bench(framework)
    gc.disable()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            match request["do"]:
                case "about":
                    answer = about(framework)
                case "make":
                    answer = bench.make(request["case"], request["slice"])
                case "time":
                    answer = bench.time()
                case _:
                    answer = bench.drop()
        except Exception as err:
            answer = {"error": f"{type(err).__name__}: {err}"}
        reply.write(json.dumps(answer) + "\n")
        reply.flush()


if __name__ == "__main__":
    main()
