"""Where the CUDA host harness of this build lies, and Python with it as the machine's driver.

With TENON_TEST_GPU=1 (./dev test --cuda) Python runs with the machine's own driver instead, and
tests of what only the harness does are skipped with a reason that names the device.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tenon as tn

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(tn.__file__).absolute().parents[2] / "tests" / "cuda_host"
ON_GPU = os.environ.get("TENON_TEST_GPU") == "1"
NAME = "Tenon CUDA host harness (no GPU)"
# What asks the harness's own libraries, or writes through the driver behind Tenon's back.
OWN = re.compile(r"\w+Host(Count|MathMode)|libcuda\.so\.1")
# A GPU may round what the tests compare with float64; those about the switches see the defaults.
EXACT = {"TENON_CUDNN_TF32": "0", "TENON_CUDA_REDUCED_F16": "0", "TENON_CUDA_REDUCED_BF16": "0"}
SWITCHES = re.compile("allow_tf32|reduced_precision")


def is_built() -> bool:
    """Whether there is a device to test on."""
    return ON_GPU or (FOLDER / "libcuda.so.1").exists()


@functools.cache
def device() -> tuple[str, int]:
    """The name of the first device that tests run on, and how many there are."""
    if not ON_GPU:
        return NAME, 2
    ask = "import tenon as tn\nprint(tn.cuda.get_device_name())\nprint(tn.cuda.device_count())"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    name, count = done.stdout.splitlines()
    return name, int(count)


def most() -> int:
    """How many devices there are for a test that takes one or two."""
    return min(2, device()[1])


def packaged(name: str) -> Path:
    """A library among NVIDIA's Python packages, by a pattern; skips the test where it is not."""
    for folder in sys.path:
        for path in Path(folder).glob(f"nvidia/*/lib/{name}"):
            return path
    pytest.skip(f"there is no {name.split('.')[0]}: ./dev build --cuda")


def skip_on_gpu(
    args: tuple[str, ...], folder: Path | None, env: dict[str, str], devices: int = 1
) -> None:
    """Skips a test that a GPU cannot run: it wants libraries or settings that only the harness has,
    or more devices than there are."""
    name, count = device()
    knobs = sorted(key for key in env if "_HOST" in key and key != "TENON_CUDA_HOST_DELAY")
    text = "\n".join(args)
    if name != NAME and (folder != FOLDER or knobs or OWN.search(text) or NAME in text):
        pytest.skip(f"not on {name}: about the host harness")
    if count < devices:
        pytest.skip(f"not on {name}: takes two devices")


def run(
    *args: str, folder: Path | None = FOLDER, devices: int = 1, **env: str
) -> subprocess.CompletedProcess[str]:
    """Python with the harness in the loader's path; `folder` is another one, or None for none. The
    harness has as many devices as the test says, so that one that takes a second says so."""
    full = {**os.environ, "TENON_FALLBACK": "allow", **env}
    if ON_GPU:  # whose modules may have to be compiled: they stay in the cache
        skip_on_gpu(args, folder, env, devices)
        full = full if SWITCHES.search("\n".join(args)) else {**EXACT, **full}
    else:
        full.setdefault("TENON_CUDA_CACHE", "")
        full.setdefault("TENON_CUDA_HOST_DEVICES", str(devices))
    if folder is not None and not (ON_GPU and folder == FOLDER):
        full["LD_LIBRARY_PATH"] = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    command = [sys.executable, *args]
    return subprocess.run(command, env=full, capture_output=True, text=True, cwd=ROOT)


def script(text: str, devices: int = 1, **env: str) -> str:
    done = run("-c", "import tenon as tn\n" + text, devices=devices, **env)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout
