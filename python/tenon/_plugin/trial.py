"""The trial of a plugin in a process of its own.

The first time that a library from elsewhere is to be loaded, a child process loads it. When that
process dies or hangs, the plugin is left out with a line that says so, and the verdict is kept."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tenon._plugin import environment, native

SECONDS = 20.0  # that a trial may take; drivers of real devices need some


# ---- Trials -------------------------------------------------------------------------------------


def limit() -> float | None:
    """Seconds that a trial may take; None: TENON_PROBE=off."""
    text = environment.variable("TENON_PROBE")
    if text == "off":
        return None
    try:
        seconds = float(text) if text else SECONDS
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 3600.0:
        raise ValueError(f"TENON_PROBE is '{text}', not 'off' or a number of seconds")
    return seconds


def _active() -> list[str]:
    """Libraries that are loaded in this process and did not come with Tenon."""
    own = str(native.PLUGINS)
    paths = [p.path for p in native.Library().plugins() if p.active]
    return [path for path in paths if os.path.dirname(path) != own]


def try_out(path: str, seconds: float, *before: str) -> tuple[bool, str]:
    """Loads a plugin in a child, after the others in `before`: whether the child lived, and why the
    plugin does not work ("")."""
    script = str(native.PACKAGE / "_plugin" / "probe.py")
    command = [sys.executable, "-I", "-S", script, str(native.LIBRARY), path, *before]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
    )
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return False, f"it did not start within {seconds:g} seconds"
    verdict = out.decode(errors="replace").rpartition("tenon-probe:")[2].strip()
    if child.returncode == 0 and verdict:
        return True, json.loads(verdict)
    last = err.decode(errors="replace").strip().rpartition("\n")[2]
    how = f"exited with {child.returncode}"
    if child.returncode < 0:
        number = -child.returncode
        known = {s.value: s.name for s in signal.Signals}
        how = f"died of {known.get(number, f'signal {number}')}"
    return False, f"a process that loaded it {how}" + (f" ({last[:200]})" if last else "")


def _verdict_file(path: str) -> Path:
    """Where the verdict about a library as it is now is kept."""
    info = os.stat(path)
    cache = environment.variable("TENON_CACHE") or environment.cache_folder() / "tenon"
    core = os.stat(native.LIBRARY)
    facts = (path, info.st_size, info.st_mtime_ns, info.st_ino, core.st_size, core.st_mtime_ns)
    name = hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
    return Path(cache) / "probe" / f"{name}.json"


def _is_passing(problem: str) -> bool:
    """Whether a trial ended for a reason that is none of the plugin's: memory was lacking."""
    return any(
        words in problem for words in ("out of memory", "MemoryError", "annot allocate", "SIGKILL")
    )


def judge(path: str, seconds: float, *, again: bool = False) -> tuple[bool, str]:
    """`try_out`, once per library: the verdict is kept until the file or libtenon changes."""
    if not os.path.isfile(path):
        return True, f"{path}: there is no such file; reinstall the plugin"
    file = _verdict_file(path)
    if not again:
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
            return bool(kept["lived"]), str(kept["problem"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # there is none, or none that can be read: the trial is repeated
    lived, problem = try_out(path, seconds)
    if not lived and (before := _active()):  # it may rely on what they registered
        lived, problem = try_out(path, seconds, *before)
    if _is_passing(problem):
        return lived, problem
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({"path": path, "lived": lived, "problem": problem}))
        fresh.replace(file)
    except OSError:
        pass  # a home that cannot be written costs a trial per process
    return lived, problem


def admit(path: str) -> None:
    """Raises when a library is known to take its process down. The core calls this before it maps
    one; a plugin that refuses to start in good order says so itself."""
    if "tenon.ops" in sys.modules:  # its operators may be newer than what has been looked up
        sys.modules["tenon.ops"].forget()
    seconds = limit()
    if seconds is None or not sys.executable or not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return  # no code of it can run; the core says what it is
    lived, problem = judge(path, seconds)
    if not lived:
        raise ImportError(
            f"{problem}; reinstall the plugin, or try it again with `tenon plugin probe {path}`"
        )
