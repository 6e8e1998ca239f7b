"""`tenon plugin ...`: begin a new one, list, check, try out, lock."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

from tenon._plugin import (
    elf as _elf,
)
from tenon._plugin import (
    environment,
    manifest,
    native,
    skeleton,
    trial,
)
from tenon._plugin import (
    reference as _reference,
)

ENTRY = "tn_plugin_entry_v1"


def command_list(options: argparse.Namespace) -> int:
    del options
    plugins = native.Library().plugins()
    for p in plugins:
        state = "active" if p.active else "problem" if p.problem else "found"
        print(f"{p.name}  {p.version}  {state}  {p.path}")
        if p.problem or p.summary:
            print(f"    {p.problem or p.summary}")
    if not plugins:
        print("no plugins; TENON_PLUGIN_PATH may name folders that hold some")
    return 0


def health(plugin: native.Plugin) -> str:
    """One line about a plugin. One that is not loaded is loaded, by a child process."""
    if plugin.active:
        return f"active, {plugin.kernels} kernels"
    problem = plugin.problem
    if not problem:
        seconds = trial.limit()
        if seconds is None:
            return "not loaded, and not tried (TENON_PROBE=off)"
        lived, problem = trial.judge(plugin.path, seconds, again=True)
        if not lived:
            problem = f"{plugin.path}: {problem}; reinstall the plugin, or its driver"
        if not problem:
            return "works, not loaded"
    # What comes with Tenon is there on every machine, also on those that have not its hardware.
    ours = Path(plugin.path).parent == native.PLUGINS
    return f"not used here: {problem}" if ours else f"PROBLEM: {problem}"


def command_probe(options: argparse.Namespace) -> int:
    path = str(Path(options.path).absolute())
    lived, problem = trial.judge(path, trial.limit() or trial.SECONDS, again=True)
    print(f"{path}: {problem or 'works'}")
    return 0 if lived and not problem else 1


# ---- The lock file ------------------------------------------------------------------------------


def lock_path() -> Path:
    named = environment.variable("TENON_PLUGINS_LOCK")
    return Path(named) if named else environment.config_folder() / "tenon" / "plugins.lock"


def command_lock(options: argparse.Namespace) -> int:
    del options
    lines = [
        "# Tenon loads these plugin libraries and no others; `tenon plugin lock` writes the list.",
    ]
    for plugin in native.Library().plugins():
        library = Path(plugin.path)
        if library.suffix == ".json" or not library.is_file():
            continue  # its manifest is broken, or the file is missing: it cannot be loaded anyway
        with library.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {library}")
    path = lock_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text("\n".join(lines) + "\n", encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(path)
    print(f"{path}: {len(lines) - 1} libraries")
    return 0


# ---- New ----------------------------------------------------------------------------------------


def command_new(options: argparse.Namespace) -> int:
    folder = Path(options.dir or options.name)
    try:
        files = skeleton.create(options.name, options.kind, options.lang, options.openmp, folder)
    except (OSError, ValueError) as err:
        print(f"tenon plugin new: {err}", file=sys.stderr)
        return 1
    print(f"{folder}: {', '.join(files)}\nREADME.md says how to build, install and test it")
    return 0


# ---- Check --------------------------------------------------------------------------------------


def check_library(path: Path) -> str:
    elf = _elf.read(path)
    if not elf.fits():
        raise ValueError("it is for another processor than this machine's")
    if ENTRY not in elf.exported:
        raise ValueError(f"it exports no {ENTRY} (see TN_PLUGIN_EXPORT in tenon/plugin.h)")
    return f"exports {ENTRY}"


def check_needs(path: Path) -> str:
    elf = _elf.read(path)
    ours = [name for name in elf.needed if name.startswith(("libtenon", "_C."))]
    loose = sorted(name for name in elf.undefined if name.startswith(("tn_", "tni_")))
    if ours or loose:
        names = ", ".join(ours + loose)
        raise ValueError(f"it needs {names}: a plugin gets all from the host table it is given")
    return f"needs {', '.join(elf.needed) or 'nothing'}"


def check_manifest(path: Path) -> str:
    for file in sorted(path.parent.glob("*.json")):
        try:
            named = manifest.load(file)["library"]
        except (OSError, ValueError, TypeError, KeyError):
            continue  # not a manifest of this library
        if named == path.name:
            needed, served = manifest.read(file).min_minor, manifest.served_minor()
            if needed > served:
                raise ValueError(
                    f"{file.name} needs plugin ABI {manifest.ABI_MAJOR}.{needed} and this Tenon "
                    f"serves {manifest.ABI_MAJOR}.{served}: nothing would load it here"
                )
            return f"{file.name} names it"
    raise ValueError(f'no manifest in {path.parent} has "library": "{path.name}"')


def check_start(path: Path) -> str:
    lived, problem = trial.judge(str(path), trial.limit() or trial.SECONDS, again=True)
    if problem or not lived:
        raise ValueError(problem)
    return "activates"


CHECKS: dict[str, Callable[[Path], str]] = {
    "library": check_library,
    "needs": check_needs,
    "manifest": check_manifest,
    "start": check_start,
}


def library_of(text: str) -> Path:
    """A library, by its path, its manifest's, or the name of a plugin that was found."""
    path = Path(text).absolute()
    if path.suffix == ".json":
        return path.parent / manifest.read(path).library
    if not path.exists():
        named = [p.path for p in native.Library().plugins() if p.name == text]
        return Path(named[0]) if named else path
    return path


def command_check(options: argparse.Namespace) -> int:
    try:
        path = library_of(options.path)
    except (OSError, ValueError) as err:
        print(f"manifest    PROBLEM: {err}")
        return 1
    faults = 0
    for name, check in CHECKS.items():
        if name == "start" and faults:
            print("start       not tried")
            break
        try:
            print(f"{name:<11} {check(path)}")
        except (OSError, ValueError) as err:
            faults += 1
            print(f"{name:<11} PROBLEM: {err}")
    return 1 if faults else 0


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    plugin = commands.add_parser("plugin", help="plugins")
    verbs = plugin.add_subparsers(metavar="COMMAND", required=True)
    new = verbs.add_parser("new", help="write a project to begin with: source, tests, build files")
    new.add_argument("name", metavar="NAME", help="of the plugin: small letters, digits and _")
    new.add_argument("--kind", choices=skeleton.KINDS, required=True, help="what the plugin adds")
    new.add_argument("--lang", choices=("c", "c++"), default="c", help="default: c")
    new.add_argument("--openmp", action="store_true", help="operators that run on all cores")
    new.add_argument("--dir", help="folder to make (default: NAME)")
    new.set_defaults(call=command_new)
    listing = verbs.add_parser("list", help="what was found, and what is wrong with it")
    listing.set_defaults(call=command_list)
    check = verbs.add_parser("check", help="look a library over, then try it in a child process")
    check.add_argument(
        "path", metavar="LIBRARY", help="its path, its manifest's, or a plugin's name"
    )
    check.set_defaults(call=command_check)
    probe = verbs.add_parser("probe", help="try a library in a child process, and keep the verdict")
    probe.add_argument("path", metavar="LIBRARY")
    probe.set_defaults(call=command_probe)
    lock = verbs.add_parser("lock", help="write plugins.lock: only these libraries are loaded")
    lock.set_defaults(call=command_lock)
    reference = verbs.add_parser("reference", help="what the SDK's headers say, as Markdown")
    reference.add_argument("name", nargs="?", help="a name, as tn_plan or tn.stream/1; else all")
    reference.set_defaults(call=_reference.command)
