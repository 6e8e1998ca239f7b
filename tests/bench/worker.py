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


def seconds(fn: Callable[[], Any], loops: int) -> float:
    start = time.perf_counter()
    for _ in range(loops):
        fn()
    return (time.perf_counter() - start) / loops


def main() -> None:
    name, threads = sys.argv[1], int(sys.argv[2])
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints goes to stderr
    framework = importlib.import_module(name)
    framework.set_num_threads(threads)
    from cases import CASES

    fn: Callable[[], Any] = lambda: None  # noqa: E731
    loops = 1
    gc.disable()
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if request["do"] == "make":
                gc.collect()
                fn, check = CASES[request["case"]].make(framework)
                answer["check"] = check()
                once = min(seconds(fn, 1) for _ in range(3))
                loops = max(1, int(request["slice"] / max(once, 1e-8)))
            elif request["do"] == "time":
                answer["seconds"] = seconds(fn, loops)
            elif request["do"] == "drop":
                fn = lambda: None  # noqa: E731
        except Exception as err:
            answer["error"] = f"{type(err).__name__}: {err}"
        reply.write(json.dumps(answer) + "\n")
        reply.flush()


if __name__ == "__main__":
    main()
