"""One framework in one process: makes cases on request and times them, a line of JSON each way.

    python worker.py FRAMEWORK THREADS [SIZES]

With SIZES, those of the cases for a GPU as JSON, everything is made on the CUDA device.
"""

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


def seconds(
    fn: Callable[[], Any], loops: int, wait: Callable[[], Any], host: bool = False
) -> float:
    """`wait` ends when the device has done what it was given; with `host` the clock has stopped by
    then."""
    start = time.perf_counter()
    for _ in range(loops):
        fn()
    called = time.perf_counter()
    wait()
    return ((called if host else time.perf_counter()) - start) / loops


def about(framework: Any, on_gpu: bool) -> dict[str, str]:
    """What did the work: the version, and where the framework tells, its build."""
    facts = {"version": framework.__version__}
    if framework.__name__ != "numpy":
        facts["instructions"] = framework.backends.cpu.get_cpu_capability()
    if framework.__name__ == "torch":
        facts["build"] = framework.__config__.show()
    if on_gpu:
        facts["gpu"] = framework.cuda.get_device_name()
    return facts


class Bench:
    """The case at hand."""

    def __init__(self, framework: Any, on_gpu: bool) -> None:
        self.framework = framework
        self.on_gpu = on_gpu
        self.wait: Callable[[], Any] = framework.cuda.synchronize if on_gpu else lambda: None
        self.drop()

    def drop(self) -> dict[str, Any]:
        self.fn: Callable[[], Any] = lambda: None
        self.loops = self.bursts = 1
        self.host = False
        gc.collect()
        if self.on_gpu:
            self.framework.cuda.empty_cache()
        return {}

    def make(self, case: str, slice_: float) -> dict[str, Any]:
        """Prepares a case. Its check is the result of the third call."""
        from registry import CASES, begin, digest

        make = CASES[case].maker(self.framework.__name__)
        assert make
        begin()
        fn = make(self.framework)
        once = min(seconds(fn, 1, self.wait) for _ in range(2))
        start = time.perf_counter()
        result = fn()
        self.wait()
        once = min(once, time.perf_counter() - start)
        self.host = CASES[case].host
        self.fn, self.loops = fn, max(1, int(BURST / max(once, 1e-8)))
        self.bursts = max(1, int(slice_ / max(once, BURST)))
        return {"check": digest(result)}

    def time(self) -> dict[str, Any]:
        self.fn()  # brings data and threads back after the other frameworks' turns
        self.wait()
        turns = range(self.bursts)
        return {"seconds": min(seconds(self.fn, self.loops, self.wait, self.host) for _ in turns)}

    def copy_rate(self, elements: int) -> dict[str, Any]:
        """Bytes that a copy within the GPU's memory reads and writes in a second."""
        x = self.framework.zeros(elements)
        y = self.framework.zeros(elements)
        best = min(seconds(lambda: y.copy_(x), 10, self.wait) for _ in range(10))
        return {"rate": 8 * elements / best}


def main() -> None:
    name, threads = sys.argv[1], int(sys.argv[2])
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints goes to stderr
    framework = importlib.import_module(name)
    if name != "numpy":
        framework.set_num_threads(threads)
    import cases

    on_gpu = len(sys.argv) > 3
    if on_gpu:
        framework.set_default_device("cuda")
        cases.add_cuda(json.loads(sys.argv[3]))
    bench = Bench(framework, on_gpu)
    gc.disable()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            match request["do"]:
                case "about":
                    answer = about(framework, on_gpu)
                case "make":
                    answer = bench.make(request["case"], request["slice"])
                case "time":
                    answer = bench.time()
                case "copy_rate":
                    answer = bench.copy_rate(request["elements"])
                case _:
                    answer = bench.drop()
        except Exception as err:
            answer = {"error": f"{type(err).__name__}: {err}"}
        reply.write(json.dumps(answer) + "\n")
        reply.flush()


if __name__ == "__main__":
    main()
