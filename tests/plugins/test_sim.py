"""The simulated device, plugins/sim, built with nothing but the installed headers and a compiler:
the operator suite at every level, and what happens when memory, kernels or the device go wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tenon as tn

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "plugins" / "sim"
INSTALLED = Path(tn.__file__).parent / "include"
# In a build tree the SDK lies where its parts are made.
BUILT = [ROOT / "plugins" / "include", Path(tn.__file__).absolute().parents[2] / "dispatch/include"]
SDK = [INSTALLED] if INSTALLED.exists() else BUILT

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plugin folder with the device in it."""
    out = tmp_path_factory.mktemp("sim")
    shutil.copy(SOURCE / "tenon_sim.json", out)
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fPIC", "-shared"]
    includes = [f"-I{path}" for path in SDK]
    files = sorted(SOURCE.glob("*.c"))
    command = ["cc", *flags, *includes, *files, "-o", out / "tenon_sim.so", "-lm", "-pthread"]
    subprocess.run(command, check=True)
    return out


def run(folder: Path, *args: str, **switches: str | int) -> subprocess.CompletedProcess[str]:
    """Python with the device; switches are TENON_SIM_ variables."""
    env = {**os.environ, "TENON_PLUGIN_PATH": str(folder), "TENON_FALLBACK": "allow"}
    env["TENON_TEST_DEVICE"] = "sim"
    env.update({f"TENON_SIM_{name}": str(value) for name, value in switches.items()})
    command = [sys.executable, *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, cwd=ROOT)


def script(folder: Path, text: str, **switches: str | int) -> str:
    done = run(folder, "-c", "import tenon as tn\n" + text, **switches)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def suite(folder: Path, **switches: str | int) -> None:
    done = run(
        folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ops/test_ops.py", **switches
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


# ---- Operators -----------------------------------------------------------------------------------


def test_every_operator_without_kernels(folder: Path) -> None:
    suite(folder, LEVEL=0)


# ---- Memory --------------------------------------------------------------------------------------


def test_the_host_cannot_read_the_memory(folder: Path) -> None:
    text = """
import ctypes
x = tn.ones(4, device="sim")
assert x.tolist() == [1.0] * 4
ctypes.string_at(x.data_ptr(), 4)
"""
    done = run(folder, "-c", "import tenon as tn\n" + text)
    assert done.returncode < 0, "the host read memory of the device"


@pytest.mark.parametrize("pointers", ["address", "opaque"])
def test_views_and_writes(folder: Path, pointers: str) -> None:
    text = """
base = tn.arange(12.0, device="sim:1").reshape(3, 4)
same = tn.arange(12.0).reshape(3, 4)
for t in (base, same):
    t[1:, ::2] += 10
    t.t()[0].mul_(3)
    t[t > 15] = -1
assert tn.equal(base.cpu(), same)
assert repr(base).endswith("device='sim:1')")
"""
    script(folder, text, POINTERS=pointers)


def test_out_of_memory(folder: Path) -> None:
    text = """
kept = tn.zeros(1000, device="sim")
for _ in range(50):
    tn.zeros(50000, device="sim")  # what is dropped can be used again
try:
    tn.zeros(100000, device="sim")
except MemoryError as err:
    assert "sim:0 is out of memory: 400000 bytes" in str(err), err
else:
    raise AssertionError("there was memory")
assert tn.zeros(100, device="sim:1").sum().item() == 0
assert kept.sum().item() == 0
"""
    script(folder, text, MEMORY=300000)


def test_the_nth_allocation_fails(folder: Path) -> None:
    text = """
x = tn.ones(3, device="sim")
try:
    x.clone()
except MemoryError:
    pass
else:
    raise AssertionError("the switch was not obeyed")
assert x.clone().tolist() == [1.0] * 3
"""
    script(folder, text, FAULT="oom:2")


# ---- Failures ------------------------------------------------------------------------------------


def test_a_lost_device_stays_lost(folder: Path) -> None:
    text = """
x = tn.ones(3, device="sim")
y = tn.ones(3, device="sim:1")
for use in (x.cpu, x.cpu, x.clone, lambda: tn.ones(2, device="sim")):
    try:
        use()
    except RuntimeError as err:
        assert "sim:0 was lost" in str(err), err
    else:
        raise AssertionError("a lost device worked")
assert y.tolist() == [1.0] * 3
"""
    script(folder, text, FAULT="lost:1")


@pytest.mark.parametrize("fault", ["kernel", "kernel:x", "disk:1", "kernel:mul:0", "oom:-1"])
def test_a_switch_that_makes_no_sense(folder: Path, fault: str) -> None:
    done = run(folder, "-c", "import tenon as tn; tn.ones(1, device='sim')", FAULT=fault)
    assert f"TENON_SIM_FAULT is '{fault}' and must be" in done.stderr
