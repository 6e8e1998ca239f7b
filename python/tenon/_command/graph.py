"""`tenon graph`: programs in .tng files, looked at, run and timed."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any


def _load(path: str) -> Any:
    from tenon import _program

    return _program.load(path)


def _inputs(program: Any, given: list[str], size: int | None) -> list[Any]:
    """From .npy files, else drawn: numbers from a normal distribution, integers 0 and 1.

    A free size is `size`, or 1 where it is the first, else what it was in the recording.
    """
    import tenon
    from tenon._program import input_shapes, places_of
    from tenon.io import npy

    slots = program.inputs
    if given and len(given) != len(slots):
        raise ValueError(f"the program has {len(slots)} inputs, and {len(given)} files are given")
    if given:
        return [npy.load(name) for name in given]
    data, drawn = program.data, []
    given_sizes = {}
    for symbol in data["symbols"]:
        first = any(d == 0 for _, d, _ in places_of(data, symbol["name"]))
        given_sizes[symbol["name"]] = 1 if size is None and first else size or symbol["seen"]
    shapes = input_shapes(data, given_sizes)
    for (_, dtype, _, device), sizes in zip(slots, shapes, strict=True):
        if dtype.is_floating_point or dtype.is_complex:
            drawn.append(tenon.randn(*sizes, dtype=dtype, device=device))
        else:
            drawn.append(tenon.randint(0, 2, sizes, device=device).to(dtype))
    return drawn


def command_show(options: argparse.Namespace) -> int:
    form = "dot" if options.dot else "json" if options.json else "text"
    print(_load(options.file).print(form), end="")
    return 0


def command_run(options: argparse.Namespace) -> int:
    import tenon

    program = _load(options.file)
    tenon.manual_seed(options.seed)
    with tenon.no_grad():
        outputs = program(*_inputs(program, options.inputs, options.size))
    for i, out in enumerate(outputs):
        print(f"output {i}: {str(out.dtype).split('.')[-1]} {list(out.shape)}")
        print(out)
    return 0


def command_time(options: argparse.Namespace) -> int:
    import tenon

    start = time.perf_counter()
    program = _load(options.file)
    loaded = time.perf_counter() - start
    tenon.manual_seed(options.seed)
    inputs = _inputs(program, options.inputs, options.size)
    times = []
    with tenon.no_grad():
        for _ in range(options.count + 1):
            start = time.perf_counter()
            program(*inputs)
            times.append(time.perf_counter() - start)
    rest = sorted(times[1:])
    print(f"load   {loaded * 1e3:.3f} ms")
    print(f"first  {times[0] * 1e3:.3f} ms")
    print(f"median {rest[len(rest) // 2] * 1e3:.3f} ms of {len(rest)} runs")
    return 0


def _guarded(call: Any) -> Any:
    def run(options: argparse.Namespace) -> int:
        try:
            return call(options)
        except (ValueError, RuntimeError, ImportError, OSError, TypeError) as err:
            print(f"tenon graph: {options.file}: {err}", file=sys.stderr)
            return 1

    return run


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    graph = commands.add_parser("graph", help="programs in .tng files")
    verbs = graph.add_subparsers(metavar="COMMAND", required=True)
    show = verbs.add_parser("show", help="print a program")
    show.add_argument("file", metavar="FILE")
    form = show.add_mutually_exclusive_group()
    form.add_argument("--dot", action="store_true", help="a picture, for Graphviz's dot")
    form.add_argument("--json", action="store_true", help="the same for programs")
    show.set_defaults(call=_guarded(command_show))
    for name, call, text in (
        ("run", command_run, "run a program"),
        ("time", command_time, "time a program"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("file", metavar="FILE")
        verb.add_argument("inputs", nargs="*", metavar="INPUT.npy", help="default: drawn at random")
        verb.add_argument(
            "--size", type=int, help="of free sizes (default: the first 1, others as recorded)"
        )
        verb.add_argument("--seed", type=int, default=0)
        if name == "time":
            verb.add_argument("--count", type=int, default=100, help="runs (default: 100)")
        verb.set_defaults(call=_guarded(call))
