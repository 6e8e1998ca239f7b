"""The simulated device, built with nothing but the installed headers and a compiler, for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tenon as tn

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "plugins" / "sim"
INSTALLED = Path(tn.__file__).parent / "include"
# In a build tree the SDK lies where its parts are made.
BUILT = [ROOT / "plugins" / "include", Path(tn.__file__).absolute().parents[2] / "dispatch/include"]
SDK = [INSTALLED] if INSTALLED.exists() else BUILT
HAVE_CC = shutil.which("cc") is not None


def build(folder: Path) -> None:
    """Puts the device and its manifest into a plugin folder."""
    shutil.copy(SOURCE / "tenon_sim.json", folder)
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fPIC", "-shared"]
    # What Tenon lends is looked at, too, where the test runs with a sanitizer.
    if sanitizers := os.environ.get("TENON_TEST_SANITIZE"):
        flags += ["-g", f"-fsanitize={sanitizers}"]
    includes = [f"-I{path}" for path in SDK]
    files = sorted(SOURCE.glob("*.c"))
    command = ["cc", *flags, *includes, *files, "-o", folder / "tenon_sim.so", "-lm", "-pthread"]
    subprocess.run(command, check=True)


def run(
    folder: Path, *args: str, cache: int = 1, **switches: str | int
) -> subprocess.CompletedProcess[str]:
    """Python with the device; switches are TENON_SIM_ variables, `cache` is TENON_MEMORY_CACHE."""
    env = {**os.environ, "TENON_PLUGIN_PATH": str(folder), "TENON_FALLBACK": "allow"}
    env |= {"TENON_TEST_DEVICE": "sim", "TENON_MEMORY_CACHE": str(cache)}
    env.update({f"TENON_SIM_{name}": str(value) for name, value in switches.items()})
    command = [sys.executable, *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, cwd=ROOT)


def script(folder: Path, text: str, cache: int = 1, **switches: str | int) -> str:
    """What a program prints; it must end well."""
    done = run(folder, "-c", "import tenon as tn\n" + text, cache=cache, **switches)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


# Python source: launches(op) says how many kernels of an operator ran on the device.
COUNTS = """
import ctypes
from tenon._plugin import native

class Counts(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
                ("launches", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p))]

def counter():
    library = native.Library()
    query = library.lib.tn_device_query
    query.restype = ctypes.POINTER(Counts)
    query.argtypes = [ctypes.c_int32, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)]
    found = query(library.device("sim").slot, b"tenon.sim/1", ctypes.byref(ctypes.c_void_p()))
    return found.contents.launches

def launches(op):
    return counter()(op.encode())
"""
