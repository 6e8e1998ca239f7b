"""The commands that look at operators and plugins and check an installation."""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from tenon._command import graph
from tenon._plugin import command, native

# Variables that change which kernels run, and so what a report about speed or results must name.
VARIABLES = (
    "TENON_PLUGIN_PATH", "TENON_PLUGINS", "TENON_PLUGINS_LOCK", "TENON_PROBE", "TENON_CHECK",
    "TENON_NUM_THREADS", "TENON_CPU_ISA", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
    "OPENBLAS_NUM_THREADS",
)  # fmt: skip


def op_rows(name: str) -> list[dict[str, Any]]:
    """Entries of the op table under a name as Python or C spells it."""
    rows = json.loads((native.PACKAGE / "ops.json").read_text(encoding="utf-8"))
    names = {name, name.replace(".", "_")}
    return [r for r in rows if names & {r["name"], r["py_name"], *r["alias"]}]


def unknown_op(name: str) -> str:
    """That there is no such operator, and those whose names are like it."""
    rows = json.loads((native.PACKAGE / "ops.json").read_text(encoding="utf-8"))
    names = {n for r in rows if r["where"] for n in (r["py_name"], *r["alias"])}
    close = difflib.get_close_matches(name, sorted(names), 3)
    return f"there is no operator '{name}'" + (f"; close: {', '.join(close)}" if close else "")


def show_gradient(row: dict[str, Any]) -> str:
    grad = row["grad"]
    if grad == "missing":
        return "  gradient   missing: backward raises"
    if not grad or grad == "none":
        parts = "through its parts" if row["composite"] and not grad else "none: not differentiable"
        return f"  gradient   {parts}"
    if isinstance(grad, str):
        return f"  gradient   by hand: tni_grad_{row['name']}"
    return "\n".join(f"  grad.{name:<6} {formula}" for name, formula in grad.items())


def show_batching(family: str) -> str:
    if family == "each":
        return "by element: called once for each"
    return "its parts, all elements at once" if family == "parts" else f"{family}, all at once"


def show_autocast(row: dict[str, Any]) -> str:
    rule = row["autocast"]
    if len(set(rule.values())) == 1 and len(rule) == 2:
        return rule["cpu"]
    absent = "as its parts" if row["kind"] == "composite" else "none"
    return ", ".join(f"{place}: {to}" for place, to in rule.items()) or absent


# Of operators of plugins, which do not say for which dtypes they have kernels.
ADDED_DTYPES = ("bool", "int64", "float16", "bfloat16", "float32", "float64", "complex64")


def command_added_op(options: argparse.Namespace) -> int:
    """An operator of a plugin, which is loaded for it."""
    import tenon
    from tenon import _C

    try:
        op = _C._added_op(options.name)
    except ImportError as err:
        print(f"tenon: {err}", file=sys.stderr)
        return 1
    if op is None:
        print(f"tenon: there is no operator '{options.name}'", file=sys.stderr)
        return 1
    print(op.__doc__)
    namespace, _, name = options.name.partition("::")
    plain = name.isidentifier()
    print(f"  Python     tenon.ops.{namespace}" + (f".{name}" if plain else f'["{name}"]'))
    for device in [options.device] if options.device else native.Library().devices():
        for dtype in [options.dtype] if options.dtype else ADDED_DTYPES:
            text = tenon.explain(options.name, device, getattr(tenon, dtype)).strip()
            print(f"  {device} {dtype}: {text}")
    return 0


def asked_library(options: argparse.Namespace) -> native.Library:
    """The library, which must know the dtype that is asked for."""
    library = native.Library()
    if options.dtype and options.dtype not in library.dtypes():
        raise ValueError(f"there is no dtype '{options.dtype}'")
    return library


def command_op(options: argparse.Namespace) -> int:
    if "::" in options.name:
        return command_added_op(options)
    rows = op_rows(options.name)
    if not rows:
        print(f"tenon: {unknown_op(options.name)}", file=sys.stderr)
        return 1
    library = asked_library(options)
    for row in rows:
        print(f"{row['sig']}\n  {row['doc']}")
        print(f"  entry      {row['file']}:{row['line']}, {row['kind']}")
        print(f"  Python     {', '.join(row['where']) or 'internal'}")
        print(f"  vmap       {show_batching(row['vmap'])}")
        print(f"  autocast   {show_autocast(row)}")
        print(f"  dtypes     {', '.join(row['dtypes']) or 'any'}")
        print(show_gradient(row))
        if row["ref"]:
            print(f"  reference  {row['ref']}")
        for device in [options.device] if options.device else library.devices():
            for dtype in [options.dtype] if options.dtype else row["dtypes"]:
                text = library.explain(row["name"], device, dtype).strip()
                print(f"  {device} {dtype}: {text}")
    return 0


def command_explain(options: argparse.Namespace) -> int:
    """Which kernel or way runs for an operator, for each device and dtype."""
    rows = op_rows(options.name)
    if not rows:
        print(f"tenon: {unknown_op(options.name)}", file=sys.stderr)
        return 1
    library = asked_library(options)
    for row in rows:
        for device in [options.device] if options.device else library.devices():
            for dtype in [options.dtype] if options.dtype else row["dtypes"] or library.dtypes():
                way = library.explain(row["name"], device, dtype).strip()
                print(f"{row['name']} {device} {dtype}: {way}")
    return 0


def command_coverage(options: argparse.Namespace) -> int:
    from tenon._command import coverage as _coverage

    report = _coverage.measure(options.device)
    print(json.dumps(report, indent=1) if options.json else _coverage.text(report))
    return 0


def command_missing(options: argparse.Namespace) -> int:
    from tenon._command import missing

    return missing.command(options.script)


def report(label: str, get: Callable[[], str]) -> bool:
    try:
        print(f"{label:<11} {get()}")
    except Exception as err:  # a doctor reports whatever is wrong and goes on
        print(f"{label:<11} PROBLEM: {err}")
        return False
    return True


def smoke() -> str:
    import tenon

    a = tenon.ones(2, 3)
    total = float((a @ a.t() + 1.0).sum())
    if total != 16.0:
        raise RuntimeError(f"a small product gave {total}, not 16.0")
    return "a small product is right"


def cuda_libraries() -> list[str]:
    """What NVIDIA's libraries are like, where there is a GPU."""
    import tenon

    return tenon.cuda.libraries() if tenon.cuda.is_available() else []


def command_doctor(options: argparse.Namespace) -> int:
    del options
    good = report("python", lambda: f"{sys.version.split()[0]} at {sys.executable}")
    good &= report("package", lambda: str(native.PACKAGE))
    try:
        library = native.Library()
    except OSError as err:
        print(f"libtenon    PROBLEM: {err}; reinstall tenon")
        return 1
    good &= report("libtenon", library.version)
    good &= report("cpu", lambda: library.describe("cpu"))
    broken = 0
    for plugin in library.plugins():
        health = command.health(plugin)
        broken += health.startswith("PROBLEM")
        print(f"plugin      {plugin.name} {plugin.version}: {health}")
    for line in cuda_libraries():
        print(f"cuda        {line}")
    good &= report("operators", smoke)
    for name in VARIABLES:
        if name in os.environ:
            print(f"variable    {name}={os.environ[name]}")
    if not good:
        print("something is wrong; see the PROBLEM lines above")
    elif broken:
        print(f"Tenon is well; plugins with a PROBLEM: {broken}")
    else:
        print("all is well")
    return 0 if good else 1


def command_config(options: argparse.Namespace) -> int:
    package = native.PACKAGE
    answers = {
        "include": f"-I{package / 'include'}",
        "cflags": f"-I{package / 'include'}",
        "libs": f"-L{package} -ltenon -Wl,-rpath,{package}",
        "pkgconfigdir": str(package / "pkgconfig"),
        "plugindir": str(native.PLUGINS),
    }
    asked = [text for name, text in answers.items() if getattr(options, name)]
    if asked:
        print(" ".join(asked))
    else:
        print("\n".join(f"{name:<13} {text}" for name, text in answers.items()))
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="tenon", description=__doc__)
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(metavar="COMMAND")

    op = commands.add_parser("op", help="show an operator: entry, gradient, kernels")
    op.add_argument("name", metavar="NAME")
    op.add_argument("--device", help="only this device (default: every known one)")
    op.add_argument("--dtype", help="only this dtype (default: every one of the entry)")
    op.set_defaults(call=command_op)

    explain = commands.add_parser("explain", help="show which kernels run for an operator")
    explain.add_argument("name", metavar="NAME")
    explain.add_argument("--device", help="only this device (default: every known one)")
    explain.add_argument("--dtype", help="only this dtype (default: every one of the entry)")
    explain.set_defaults(call=command_explain)

    coverage = commands.add_parser("coverage", help="what a device computes by itself")
    coverage.add_argument("device", metavar="DEVICE")
    coverage.add_argument("--json", action="store_true", help="the same for programs")
    coverage.set_defaults(call=command_coverage)

    commands.add_parser("conform", help="test a device plugin", add_help=False)

    usage = "tenon run [-h] FILE | -m MODULE | -c TEXT | - [arguments]"
    text = "run a program that imports torch on Tenon"
    commands.add_parser("run", help=text, usage=usage, description=text)

    absent = commands.add_parser("missing", help="names of PyTorch that a program lacks here")
    absent.add_argument("script", metavar="FILE")
    absent.set_defaults(call=command_missing)

    commands.add_parser("launch", help="run a program in several processes", add_help=False)

    doctor = commands.add_parser("doctor", help="check the installation and say what is wrong")
    doctor.set_defaults(call=command_doctor)

    config = commands.add_parser("config", help="compiler flags and folders")
    for name, text in {
        "include": "flags that find the headers",
        "cflags": "the same, by the name that pkg-config gives it",
        "libs": "flags that link with libtenon",
        "pkgconfigdir": "folder of tenon.pc",
        "plugindir": "folder of the plugins that came with Tenon",
    }.items():
        config.add_argument(f"--{name}", action="store_true", help=text)
    config.set_defaults(call=command_config)

    command.add_parsers(commands)
    graph.add_parsers(commands)
    return top


def main(arguments: list[str]) -> int:
    """The commands that are neither conform, launch nor run, which take their words as they are."""
    for stream in (sys.stdout, sys.stderr):  # names of files need not be text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    top = parser()
    options = top.parse_args(arguments)
    if options.version:
        print(f"tenon {native.Library().version()}")
        return 0
    if not hasattr(options, "call"):
        top.print_help()
        return 2
    try:
        return options.call(options)
    except (RuntimeError, ValueError, ImportError) as err:  # what a command was asked for is wrong
        print(f"tenon: {err}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
