"""Memory runs out at one allocation of a scenario: MemoryError, and afterwards the process
computes. heap.py says how."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import heap
import pytest
import tenon as tn

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
sys.path.insert(0, str(PLUGINS))

import as_user  # noqa: E402 - the folder of the tests of plugins

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
    pytest.mark.skipif("TENON_TEST_SANITIZE" in os.environ, reason="it brings its own allocator"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator"),
]


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a scenario: the allocator, and two plugins that nobody has used yet."""
    folder = tmp_path_factory.mktemp("heap")
    plugins = folder / "plugins"
    plugins.mkdir()
    for source, manifest in ("device/acme.c", "tenon_acme"), ("ops/gelu.c", "tenon_example"):
        path = as_user.EXAMPLES / source
        as_user.build(path, path.with_name(f"{manifest}.json"), plugins)
    return {
        **os.environ,
        "LD_PRELOAD": str(heap.build(folder)),
        "TENON_PLUGIN_PATH": str(plugins),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


def swept(env: dict[str, str], name: str, *options: str) -> int:
    """Runs heap.py and checks what it says; how many allocations failed."""
    command = [sys.executable, heap.__file__, name, *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    found = re.search(rf"{name}: (\d+) allocations failed, 0 faults", done.stdout)
    assert found is not None
    return int(found[1])


# How many allocations lie between two that fail: the first use of the CPU has some thousand.
STRIDES = {
    "first_use": 211, "first_product": 607, "plugin_device": 307, "graph": 17, "compiled": 17,
    "plugin_operator": 5, "plugin_path": 5, "saved": 2, "safetensors": 2, "workers": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", heap.SCENARIOS)
def test_one_allocation_fails(surroundings: dict[str, str], name: str) -> None:
    tried = swept(surroundings, name, "--every", str(STRIDES.get(name, 1)))
    assert tried > 0 or name == "loader"  # Python has memory for that at hand


@pytest.mark.parametrize("part", range(4))
def test_an_allocation_of_an_operator_fails(surroundings: dict[str, str], part: int) -> None:
    """Every operator and its gradient: heap_steps.py."""
    env = {**surroundings, "TENON_MEMORY_CACHE": "0", "TENON_PLUGIN_PATH": ""}
    script = Path(heap.__file__).with_name("heap_steps.py")
    command = [sys.executable, str(script), "--most", "12", "--part", f"{part}/4"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    found = re.search(r"(\d+) operators, (\d+) allocations failed, 0 faults", done.stdout)
    assert found is not None
    assert int(found[1]) > 100 and int(found[2]) > 5 * int(found[1])


PYTHONS = {"function": 3, "step": 41, "graph": 211, "saved": 7, "loader": 7, "transforms": 17}


@pytest.mark.parametrize("name", PYTHONS)
def test_one_of_pythons_allocations_fails(surroundings: dict[str, str], name: str) -> None:
    env = {**surroundings, "PYTHONMALLOC": "malloc"}
    assert swept(env, name, "--every", str(PYTHONS[name])) > 3


def test_work_memory_cannot_be_had(surroundings: dict[str, str]) -> None:
    """Calls of kernels while the CPU's allocator has too little: full.py."""
    script = Path(heap.__file__).with_name("full.py")
    done = subprocess.run(
        [sys.executable, str(script)], env=surroundings, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = re.search(r"(\d+) calls, (\d+) without memory, 0 faults", done.stdout)
    assert found is not None
    assert int(found[2]) > 20 * int(found[1])


def test_the_last_memory_is_gone(surroundings: dict[str, str]) -> None:
    """From one allocation on there is no more, until the scenario has given up."""
    assert swept(surroundings, "first_use", "--every", "997", "--lasting") > 3


def test_a_use_that_fails_is_a_lack_of_memory(surroundings: dict[str, str]) -> None:
    """The first use of a device that cannot be had now names it."""
    code = (
        "import heap, tenon as tn\n"
        "a = heap.Allocator(); a.arm(1500, 1500, False)\n"
        "try: tn.ones(3)\n"
        "except MemoryError as err: a.disarm(); print(err)\n"
        "print(tn.ones(3).sum().item())\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=surroundings, capture_output=True, text=True, cwd=Path(heap.__file__).parent
    )
    assert "device 'cpu' could not be used now" in done.stdout and "out of memory" in done.stdout
    assert done.stdout.endswith("3.0\n"), done.stdout + done.stderr


def test_lists_that_hold_each_other() -> None:
    """80 lists that stand for 2**40 numbers, and some that stand for a million."""
    x: list[object] = [1.0]
    for depth in range(40):
        x = [x, x]
        if depth == 19:
            assert tn.tensor(x).shape == (2,) * 20 + (1,)
    with pytest.raises(MemoryError):
        tn.tensor(x)
