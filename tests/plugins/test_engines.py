"""`tenon-conform --engine`: engines that pass, each fault of the simulated engine found and named,
and that engine under programs: what it delays, loses and changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import as_user
import pytest
import simulated
import tenon as tn
from tenon.distributed import _engine

PROGRAM = Path(tn.__file__).parent / "tenon-conform"
PROCESSES = Path(__file__).parents[1] / "processes"
CHECKS = (
    "barrier", "all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "all_to_all",
    "messages", "sizes", "any", "order", "bits", "groups", "compare", "deadline", "death", "abort",
)  # fmt: skip
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

pytestmark = pytest.mark.skipif(not simulated.HAVE_CC, reason="there is no C compiler")


def conform(
    *args: str, before: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [*before, str(PROGRAM), "--engine", *args]
    env = {**os.environ, **_AS_ROOT, **variables}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=400)


def test_the_simulated_engine_passes(folder: Path, tmp_path: Path) -> None:
    done = conform(str(folder / "tenon_sim.so"), "--timeout", "1", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 ranks: 20/20 checks, " in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_gloo_passes() -> None:
    if _engine.find("gloo") is None:
        pytest.skip("the engine tenon_gloo.so was not built")
    done = conform("gloo", "--timeout", "2")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "launcher"),
    [
        ("mpi_openmpi", ("mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", "3")),
        ("mpi_mpich", ("mpirun.mpich", "-n", "2")),
    ],
)
def test_mpi_passes_under_its_launcher(engine: str, launcher: tuple[str, ...]) -> None:
    if _engine.find(engine) is None or shutil.which(launcher[0]) is None:
        pytest.skip(f"the engine tenon_{engine}.so was not built, or {launcher[0]} is missing")
    done = conform(engine, before=launcher)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("fault", "check", "rank", "said"),
    [
        ("flip@1:9", "all_gather", 0, "uint8, 100003 elements: element 100003 is 0, not 1"),
        ("flip:3", "bits", 1, "a sum has other bits on rank 0"),
        ("flip@1:9", "messages", 2, "recv int8, 5000 elements: element 0 is 1, not 0"),
        ("lose@1:30", "broadcast", 2, "int32, 100003 elements: is not done within 0.5 s"),
        ("swap@1:40", "messages", 2, "messages: number 4 of tag 32767 is"),
        ("fail@2:5", "reduce", 2, "cannot be started: the simulated network is down"),
        ("hang@0:4", "all_to_all", 0, "all_to_all uint8, 5000 elements: is not done within 0.5 s"),
        ("die@1:7", "reduce_scatter", 1, "crashed: killed by SIGKILL"),
        ("die@1:1", "death", 1, "crashed: killed by SIGKILL"),  # only rank 2 may
        ("early@1:2", "barrier", 1, "barrier: done before rank 0 had come"),
        ("early@1:8", "all_reduce", 1, "all_reduce uint8 sum, 1 elements: element 0 is"),
        ("spill@1:4", "sizes", 1, "uint8, 48 elements: 8 bytes beside its memory were written"),
        ("spill@1:19", "sizes", 1, "48 elements: 2988188 bytes beside its memory were written"),
        ("pass@0:1", "sizes", 0, "recv uint8, 56 elements: a message of another size is taken"),
        ("stranger:2", "sizes", 0, "of another size is said to be of rank 0, not 2"),
        ("stranger:5", "any", 0, "said to be of rank 0"),
        ("order:1", "groups", 0, "rank 0 of a group is rank 0 of its parent, not 2"),
        ("flip@2:1", "compare", 0, "different operations"),
        ("nonsense:1", "open", 2, "must be KIND:N or KIND@RANK:N"),
    ],
)  # fmt: skip
def test_each_fault_is_found(folder: Path, fault: str, check: str, rank: int, said: str) -> None:
    only = ("--check", "barrier" if check == "open" else check)
    done = conform(
        str(folder / "tenon_sim.so"), "--timeout", "0.5", *only, TENON_SIM_ENGINE_FAULT=fault
    )
    lines = [line for line in done.stdout.splitlines() if f"engine {check}, rank {rank}: " in line]
    assert done.returncode == 1 and any(said in line for line in lines), done.stdout


def test_usage(folder: Path) -> None:
    assert conform("", "--list").stdout.split() == list(CHECKS)
    for words, said in (
        (("nobody",), "there is no engine 'nobody'"),
        (("sim", "--ranks", "0"), "1 to 64"),
        (("sim", "--check", "speed"), "no such check"),
        (("sim", "acme"), "needs no device"),
    ):
        done = conform(*words, TENON_ENGINE_PATH=str(folder))
        assert done.returncode == 2 and said in done.stderr
    two = conform("sim", "--ranks", "2", "--check", "barrier", TENON_ENGINE_PATH=str(folder))
    assert two.returncode == 0 and "2 ranks: " in two.stdout


# ---- Programs over it ----------------------------------------------------------------------------


def launch(
    folder: Path, size: int, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TENON_ENGINE_PATH": str(folder), "TENON_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", "tenon", "launch", "-n", str(size), *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=400)


def test_operations_of_three_processes(folder: Path) -> None:
    program = str(PROCESSES / "collectives.py")
    done = launch(folder, 3, program, "sim", TENON_SIM_DELAY="500")
    assert done.stdout.count("ok") == 3, done.stderr


def test_messages_of_anyone(folder: Path) -> None:
    for size in (2, 3):
        done = launch(folder, size, str(PROCESSES / "anyone.py"), "sim", TENON_SIM_DELAY="500")
        assert done.stdout.count("ok") == size, done.stderr


# An engine of before test_from was there, or one that names a rank of another world.
WRAPPED = """
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/engine.h>

static const tn_engine *inner;
static tn_engine table;

static tn_status lie(void *group, void *request, int32_t *ret_done, int32_t *ret_peer, char *why) {
    tn_status st = inner->test_from(group, request, ret_done, ret_peer, why);
    *ret_peer = 99;
    return st;
}

const tn_engine *tn_engine_main(uint32_t version) {
    void *library = dlopen(getenv("WRAPPED"), RTLD_NOW | RTLD_LOCAL);
    void *symbol = dlsym(library, "tn_engine_main");
    tn_engine_main_fn enter;
    memcpy(&enter, &symbol, sizeof enter);
    inner = enter(version);
    if (!inner) return NULL;
    table = *inner;
    table.test_from = lie;
    if (getenv("OLD")) {
        table.struct_size = offsetof(tn_engine, test_from);
        table.test_from = (void *)8; /* lies beyond the table */
    }
    return &table;
}
"""
ASKS = """
import sys
import torch
import torch.distributed as dist
dist.init_process_group("wrapped")
if dist.get_rank():
    dist.send(torch.ones(1), 0)
else:
    try:
        dist.recv(torch.zeros(1))
    except Exception as err:
        print(type(err).__name__, err, flush=True)
    if len(sys.argv) > 1:
        assert dist.recv(torch.zeros(1), 1) == 1
        print("goes on", flush=True)
import os
os._exit(0)
"""


@pytest.mark.parametrize(
    ("old", "said"),
    [
        (True, "NotImplementedError world_start(): the engine 'sim' cannot receive from any rank"),
        (False, "a message has come of rank 99"),
    ],
)
def test_engines_that_cannot_say_whose_a_message_is(
    folder: Path, tmp_path: Path, old: bool, said: str
) -> None:
    source, program = tmp_path / "wrapped.c", tmp_path / "asks.py"
    source.write_text(WRAPPED, encoding="utf-8")
    program.write_text(ASKS, encoding="utf-8")
    library = tmp_path / "tenon_wrapped.so"
    command = ["cc", "-fPIC", "-shared", f"-I{as_user.SDK}", str(source), "-o", str(library)]
    subprocess.run([*command, "-ldl"], check=True)
    variables = {"WRAPPED": str(folder / "tenon_sim.so"), "TENON_ENGINE_PATH": str(tmp_path)}
    if old:
        variables["OLD"] = "1"
    done = launch(folder, 2, str(program), *(["old"] if old else []), **variables)
    assert said in done.stdout and ("goes on" in done.stdout) == old, done.stdout + done.stderr
    if old:
        kit = conform("wrapped", "--timeout", "1", "--check", "any", **variables)
        assert kit.returncode == 0, kit.stdout + kit.stderr


FAULTY = """
import sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

dist.init_process_group("sim")  # processes may start long after each other
distributed_c10d._set_pg_timeout(timedelta(seconds=2))
start = time.monotonic()
try:
    for step in range(20):
        t = torch.full((1000,), dist.get_rank() + step + 0.0)
        dist.all_reduce(t)
        assert t[0].item() == 3 + 3 * step, (step, t[0])
    print("done", flush=True)
except Exception as err:
    took = time.monotonic() - start
    print(f"rank {dist.get_rank()} after {took:.0f} s: {err}\\n", end="", flush=True)
import os
os._exit(0)
"""


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        # Messages 4k + 3 and 4k + 4 of a rank are those of sum k, the two before compare.
        ("lose@1:15", " s in all_reduce(1000 x float32, sum) as operation 4 of group 0; not all"),
        ("flip@1:13", "called different operations: rank 0 all_reduce(1000 x float32, sum) as "
                      "operation 4 of group 0, rank 1 all_reduce"),
        ("fail@1:8", "rank 1 of 3 in all_reduce(1000 x float32, sum) as operation 4 of group 0: "
                     "the simulated network is down"),
    ],
)  # fmt: skip
def test_what_goes_wrong_between_ranks_is_named(
    folder: Path, tmp_path: Path, fault: str, said: str
) -> None:
    program = tmp_path / "faulty.py"
    program.write_text(FAULTY, encoding="utf-8")
    done = launch(folder, 3, str(program), TENON_SIM_ENGINE_FAULT=fault)
    assert "done" not in done.stdout and said in done.stdout, done.stdout + done.stderr
    assert done.stdout.count(" after ") == 3, done.stdout + done.stderr
