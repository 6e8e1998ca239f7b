"""Figures of whole processes and of what is installed: import time, memory, size, the C call path.

Each is taken in fresh processes, the frameworks in turn; the smallest figure counts.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent

ADD = "x = {0}.ones(8); x + x"

# Memory of the process now and at its highest, in bytes.
MEMORY = """
import pathlib
def status(name):
    text = pathlib.Path("/proc/self/status").read_text()
    return int(text.split(name + ":")[1].split()[0]) * 1024
def rss():
    return status("VmRSS")
def peak():
    return status("VmHWM")
"""

TRAINING_STEP = """
import registry, cases
before = rss()
run = registry.CASES["resnet18_b2_train_step"].make({0})
for _ in range(3): run()
print(peak() - before)
"""


def child(code: str, *folders: str) -> str:
    """Output of a fresh interpreter, with these folders on its path."""
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join([str(HERE), *folders, env.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        raise RuntimeError(run.stderr.strip().splitlines()[-1])
    return run.stdout


def span(code: str) -> float:
    start = time.perf_counter()
    child(code)
    return time.perf_counter() - start


def work(code: str, *folders: str) -> float:
    """The processor's time, which says more than the clock about differences of a millisecond."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child(code, *folders)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def import_time(framework: str) -> float:
    """Beyond the bare interpreter."""
    return span(f"import {framework}") - min(span("pass") for _ in range(2))


def import_add_time(framework: str) -> float:
    code = f"import {framework}; {ADD.format(framework)}"
    return span(code) - min(span("pass") for _ in range(2))


def install_plugin(site: Path, name: str) -> None:
    """What pip leaves of a plugin's wheel, but for the library, which nothing asks for."""
    package, info = site / f"tenon_{name}", site / f"tenon_{name}-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    manifest = {
        "manifest": 1, "name": name, "version": "1.0", "library": f"tenon_{name}.so",
        "abi": {"major": 1, "min_minor": 0}, "devices": [name],
    }  # fmt: skip
    (package / f"tenon_{name}.json").write_text(json.dumps(manifest))
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tenon-{name}\nVersion: 1.0\n")
    target = f"tenon_{name}:tenon_{name}.json"
    (info / "entry_points.txt").write_text(f"[tenon.plugins]\n{name} = {target}\n")


def import_with_plugins(framework: str) -> float:
    """What 50 installed plugins add to an import: with and without them in turn, the shortest of
    each."""
    with tempfile.TemporaryDirectory() as full, tempfile.TemporaryDirectory() as empty:
        for i in range(50):
            install_plugin(Path(full), f"vendor{i}")
        pairs = [[work(f"import {framework}", site) for site in (full, empty)] for _ in range(20)]
    return min(pair[0] for pair in pairs) - min(pair[1] for pair in pairs)


def rss_import_add(framework: str) -> float:
    return float(child(f"{MEMORY}import {framework}; {ADD.format(framework)}; print(rss())"))


def peak_rss_step(framework: str) -> float:
    """How much a training step adds at most to what the process held before."""
    return float(child(f"{MEMORY}import {framework}{TRAINING_STEP.format(framework)}"))


def package_files(framework: str) -> list[Path]:
    """What is installed, links followed, the BLAS library apart."""
    spec = importlib.util.find_spec(framework)
    assert spec and spec.submodule_search_locations
    found = []
    for folder in spec.submodule_search_locations:
        for root, _, names in os.walk(folder, followlinks=True):
            if not root.endswith("__pycache__"):
                found += [Path(root) / n for n in names if "openblas" not in n]
    return found


def installed_size(framework: str) -> float:
    return float(sum(p.stat().st_size for p in package_files(framework)))


def wheel_size(framework: str) -> float:
    """The files packed one by one, which is what a wheel does. An upper bound: a wheel's libraries
    are stripped of their symbols."""
    return float(sum(len(zlib.compress(p.read_bytes())) for p in package_files(framework)))


@dataclass(frozen=True)
class Figure:
    """`goal` is the ratio to PyTorch's figure, `most` an absolute bound; either may be missing."""

    name: str
    unit: str
    measure: Callable[[str], float]
    goal: float = math.nan
    most: float = math.nan
    frameworks: tuple[str, ...] = ("tenon", "torch", "numpy")
    rounds: int = 5
    quick: bool = False


FIGURES = (
    Figure("import_time", "s", import_time, goal=0.03, most=0.030, quick=True),
    Figure(
        "import_50_plugins", "s", import_with_plugins,
        most=0.005, rounds=1, frameworks=("tenon",), quick=True,
    ),
    Figure("import_add_time", "s", import_add_time, goal=0.03, rounds=3),
    Figure("rss_import_add", "B", rss_import_add, goal=0.15, rounds=2, quick=True),
    Figure(
        "peak_rss_resnet18_step", "B", peak_rss_step,
        goal=0.85, rounds=2, frameworks=("tenon", "torch"),
    ),
    Figure("installed_size", "B", installed_size, goal=0.03, rounds=1, quick=True),
    Figure("wheel_size", "B", wheel_size, most=6e6, rounds=1, frameworks=("tenon",), quick=True),
)  # fmt: skip


# A plugin with a formula of several operators, which becomes one kernel: the time from its first
# call to its result.
FIRST_FUSED = r'''
import os
os.environ["TENON_CUDA_CACHE"] = ""  # no kernels of earlier processes
import time
import tenon
SOURCE = """
#include <tenon/plugin.h>
static tn_status activate(const tn_host *host, tn_txn *txn) {
    static const tn_op_desc op = {
        .struct_size = sizeof(tn_op_desc), .kind = TN_OP_COMPOSITE,
        .schema = "first::swish(Tensor x) -> Tensor", .formula = "x * sigmoid(x)"};
    return host->register_op(txn, &op);
}
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin);
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "first", "1.0", "a composite", activate);
}
"""
tenon.load_inline(name="first", source=SOURCE)
x = tenon.ones(1000, device="cuda")
tenon.cuda.synchronize()
tenon.cuda.reset_counters()
start = time.perf_counter()
tenon.ops.first.swish(x)
tenon.cuda.synchronize()
taken = time.perf_counter() - start
launches = tenon.cuda.counters()["launches"]
assert launches == 1, f"{launches} launches: the formula did not become one kernel"
print(taken)
'''

# What ten steps of the digits' network count, for one.
COUNTED_STEP = """
import registry, cases
{0}.set_default_device("cuda")
run = registry.CASES["digits_mlp_step"].make({0})
for _ in range(3): run()
{0}.cuda.reset_counters()
for _ in range(10): run()
print({0}.cuda.counters()[{1!r}] / 10)
"""


def first_fused_kernel(_: str) -> float:
    return float(child(FIRST_FUSED))


def step_count(what: str) -> Callable[[str], float]:
    code = "import {0}\n" + COUNTED_STEP
    return lambda framework: float(child(code.format(framework, what)))


CUDA = (
    Figure("cuda_first_fused_kernel", "s", first_fused_kernel, most=0.060, frameworks=("tenon",)),
    Figure("cuda_waits_per_step", "count", step_count("waits"), most=0, frameworks=("tenon",)),
    Figure("cuda_launches_per_step", "count", step_count("launches"), frameworks=("tenon",)),
)


@functools.cache
def door() -> dict[str, float]:
    """What door.py measures in a process of its own."""
    run = subprocess.run(
        [sys.executable, HERE / "door.py", "--json"], capture_output=True, text=True, check=True
    )
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def door_figure(name: str, unit: str, most: float) -> Figure:
    ours = ("tenon",)
    return Figure(name, unit, lambda _: door()[name], most=most, frameworks=ours, quick=True)


DOOR = (
    door_figure("plugin_op", "x", 1.1),
    door_figure("plugin_op_fwd_bwd", "x", 1.1),
    door_figure("fallback_extra", "s", 2e-6),
    door_figure("ffi_call", "s", 300e-9),
)


def call_path(program: Path) -> tuple[Figure, ...]:
    """The call path from C, without Python. PyTorch's would need a C++ program against it."""

    def timed(case: str) -> Callable[[str], float]:
        def measure(_: str) -> float:
            run = subprocess.run(
                [program, case, "1000000", "time"], capture_output=True, text=True, check=True
            )
            return float(run.stdout) * 1e-9

        return measure

    def hand_over(_: str) -> float:
        """What the dispatcher's last step costs beyond a call through a pointer."""
        plugin = program.parents[2] / "backends" / "cpu" / "tenon_cpu.so"
        run = subprocess.run(
            [program.with_name("handover"), plugin], capture_output=True, text=True, check=True
        )
        direct, dispatched = map(float, run.stdout.split())
        return (dispatched - direct) * 1e-9

    ours = ("tenon",)
    bounds = {"add": 15e-9, "add_grad": 40e-9}
    calls = tuple(
        Figure(f"c_{case}_8", "s", timed(case), most=most, frameworks=ours, quick=True)
        for case, most in bounds.items()
    )
    return (*calls, Figure("c_hand_over", "s", hand_over, most=3e-9, frameworks=ours, quick=True))


@dataclass
class Taken:
    """The figures of the frameworks that have one."""

    figure: Figure
    values: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.values.get("tenon", math.nan) / self.values.get("torch", math.nan)

    @property
    def over(self) -> bool:
        ours = self.values.get("tenon", math.nan)
        return self.ratio > self.figure.goal or ours > self.figure.most


def take(figure: Figure, frameworks: list[str], rounds: int) -> Taken:
    taken = Taken(figure)
    names = [f for f in figure.frameworks if f in frameworks]
    for _ in range(min(rounds, figure.rounds)):
        for name in names:
            try:
                value = figure.measure(name)
            except (RuntimeError, OSError, subprocess.CalledProcessError) as err:
                taken.errors[name] = str(err)
                continue
            taken.values[name] = min(value, taken.values.get(name, math.inf))
    return taken
