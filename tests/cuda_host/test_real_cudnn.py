"""NVIDIA's own cuDNN, where it is installed, plans the graphs that our backend describes: for
devices that are described to it, so that no GPU is needed. Nothing is executed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import harness
import pytest

PROGRAM = harness.FOLDER / "real_cudnn"
DRIVER = harness.FOLDER / "libreal_driver.so"
TOO_OLD = 3  # what the program returns
# By version: processors, shared memory of a block.
DEVICES = {"8.0": (108, 166912), "8.9": (128, 101376), "9.0": (132, 232448), "10.0": (148, 232448)}


def libraries() -> list[Path]:
    """The folders of cuDNN and of NVRTC among Python's packages."""
    return [harness.packaged(name).parent for name in ("libcudnn.so.9", "libnvrtc.so.1[23]")]


def test_the_program_is_built() -> None:
    """Here too, where no cuDNN may be: it has to follow the files that it is made of."""
    if not harness.is_built() or harness.ON_GPU and not harness.FOLDER.exists():
        pytest.skip("no C++ compiler: no CUDA harness")
    assert os.access(PROGRAM, os.X_OK) and DRIVER.exists()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries that cuDNN looks into, under their names."""
    libraries()
    if not PROGRAM.exists():
        pytest.skip("no C++ compiler: no CUDA harness")
    made = tmp_path_factory.mktemp("real_cudnn")
    for name in ("libcuda.so.1", "libcublasLt.so.12", "libcublasLt.so.13"):
        (made / name).symlink_to(DRIVER)
    return made


def describe(version: str) -> str:
    processors, shared = DEVICES[version]
    facts = {
        "deviceVer": int(version.replace(".", "")) * 10,
        "driverVer": 13000,
        "cudaDeviceId": 0,
        "totalGlobalMem": 80 << 30,
        "maxGridSize": [2147483647, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": 65536,
        "multiProcessorCount": processors,
        "smCountOrigin": 0,
        "warpSize": 32,
        "maxSharedMemoryPerBlock": 49152,
        "maxSharedMemoryPerBlockOptin": shared,
        "oversizedSharedMemoryPerBlock": 0,
        "reservedSharedMemoryPerBlock": 1024,
        "maxRegistersPerSM": 65536,
        "maxCtasPerSM": 32,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": 2048,
        "pciDeviceId": 0,
        "isTccDriver": 0,
        "supportCoopLaunch": 1,
        "smClockRateKHz": 1500000,
        "memClockRateKHz": 2600000,
        "memoryBusWidth": 5120,
        "l2CacheSize": 50 << 20,
        "deviceName": "A GPU",
    }
    return json.dumps(facts)


def run(folder: Path, version: str, cache: Path) -> str:
    path = ":".join(map(str, [folder, *libraries()]))
    env = {**os.environ, "LD_LIBRARY_PATH": path, "TENON_CUDA_CACHE": str(cache)}
    command = [str(PROGRAM), describe(version), version.split(".")[0]]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    lacks = re.search(r"Could not load symbol (\w+)", done.stdout + done.stderr)
    if lacks:
        pytest.skip(f"this cuDNN looks up {lacks[1]}, which real_driver.c has not")
    if done.returncode == TOO_OLD:
        pytest.skip("this cuDNN is too old to plan for a device that is not there")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def newer(said: str) -> bool:
    """Whether this cuDNN takes any number of keys going backward (OLDEST_ANY_KEYS)."""
    found = re.search(r"^cuDNN (\d+)$", said, re.MULTILINE)
    assert found, said
    return int(found[1]) >= 91501


@pytest.mark.parametrize("version", DEVICES)
def test_every_graph_has_a_plan(folder: Path, tmp_path: Path, version: str) -> None:
    """But for gradients that are to be the same every time, from 10.0 on; and plans are kept."""
    said = run(folder, version, tmp_path)
    left = [] if newer(said) else ["odd", "shared heads", "narrow"]
    left += ["ordered"] if version == "10.0" else []
    found = re.findall("(.*): (?:declined|failed)", said)
    assert found == [f"attention backward {name}" for name in left], said
    planned = said.count(": planned")
    assert planned + len(left) == 2 * (6 + 3), said
    assert f"searched {planned}, executed {planned}" in said
    assert f"searched 0, executed {planned}" in run(folder, version, tmp_path)
