"""The engine for NCCL over the harness: its stand-in for NCCL exchanges by Gloo, on the streams of
the harness's driver. Several processes, each with the one device that the harness has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import tenon as tn
from harness import FOLDER, ON_GPU, ROOT, run

PROCESSES = ROOT / "tests" / "processes"
CONFORM = Path(tn.__file__).parent / "tenon-conform"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(ON_GPU, reason="NCCL wants a GPU for each process"),
    pytest.mark.skipif(
        not (FOLDER / "libnccl.so.2").exists(), reason="libgloo-dev or the harness is missing"
    ),
]


def launch(
    size: int, *words: str, devices: int = 1, **env: str
) -> subprocess.CompletedProcess[str]:
    """A program of tests/processes, or of here, in several processes."""
    program, *rest = words
    path = (
        PROCESSES / program if (PROCESSES / program).exists() else Path(__file__).parent / program
    )
    env.setdefault("TENON_NUM_THREADS", "1")
    return run("-m", "tenon", "launch", "-n", str(size), str(path), *rest, devices=devices, **env)


def good(size: int, done: subprocess.CompletedProcess[str]) -> None:
    """All processes have ended well."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") == size, done.stdout + done.stderr


def test_the_engine_keeps_the_rules_of_engines() -> None:
    """Results of every kind and dtype, messages, groups; ranks that differ, die and are late."""
    words = [str(CONFORM), "--engine", "nccl", "--timeout", "3"]
    done = run("-c", f"import subprocess, sys; sys.exit(subprocess.run({words!r}).returncode)")
    assert done.returncode == 0 and "20/20 checks" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("backend", "device"), [("nccl", "cpu"), ("nccl", "cuda"), ("cpu:gloo,cuda:nccl", "cuda")]
)
def test_operations_of_three_processes(backend: str, device: str) -> None:
    good(3, launch(3, "collectives.py", backend, device))


def test_operations_made_of_several() -> None:
    """Core divides what goes through the host; on the device NCCL counts for itself."""
    for device in ("cpu", "cuda"):
        good(3, launch(3, "collectives.py", "nccl", device, TENON_EXCHANGE_ELEMENTS="64"))


@pytest.mark.parametrize(
    ("what", "size"), [("differ", 3), ("destroyed", 2), ("sizes", 2), ("order", 2), ("meet", 4)]
)
def test_what_other_engines_are_asked(what: str, size: int) -> None:
    good(size, launch(size, "faults.py", "nccl", what))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_many_operations(device: str) -> None:
    good(3, launch(3, "soak.py", "nccl", "100", device, MALLOC_ARENA_MAX="1"))


def test_wrong_calls_end_on_every_rank(tmp_path: Path) -> None:
    good(3, launch(3, "../fuzz/distributed.py", "nccl", str(tmp_path), "12", "30"))


@pytest.mark.parametrize(
    ("what", "check"), [("stream", "0"), ("memory", "0"), ("streams", "1"), ("mixed", "1")]
)
def test_streams_and_memory(what: str, check: str) -> None:
    done = launch(3, "nccl_faults.py", what, TENON_CHECK_COLLECTIVES=check)
    good(3, done)


@pytest.mark.parametrize("fault", ["error@1:2", "hang@1:2", "refuse@1:2"])
def test_ranks_that_fail_on_the_device(fault: str) -> None:
    """H17: asynchronous errors, kernels that never end: said in time, and aborted."""
    env = {"TENON_NCCL_HOST_FAULT": fault, "TENON_CHECK_COLLECTIVES": "0"}
    good(3, launch(3, "nccl_faults.py", "lost", **env))


@pytest.mark.parametrize("fault", ["hang@1:2", "error@1:2"])
def test_nothing_is_read_of_what_was_lost(fault: str) -> None:
    """Of a program that starts nothing more, which would hear of it, the process ends."""
    env = {"TENON_NCCL_HOST_FAULT": fault, "TENON_CHECK_COLLECTIVES": "0"}
    done = launch(3, "nccl_faults.py", "unheard", **env)
    assert done.returncode != 0 and "[" not in done.stdout, done.stdout + done.stderr
    assert "on the device) as operation 2" in done.stderr, done.stderr


def test_the_host_waits_where_a_program_asks_for_it() -> None:
    env = {"TENON_NCCL_HOST_FAULT": "hang@1:2", "TENON_CHECK_COLLECTIVES": "0"}
    good(3, launch(3, "nccl_faults.py", "blocking", TENON_BLOCKING_WAIT="1", **env))


def test_communicators_that_are_never_ready() -> None:
    good(3, launch(3, "nccl_faults.py", "never", TENON_NCCL_HOST_FAULT="never@1:0"))


@pytest.mark.parametrize(
    ("first", "second"),
    [("nccl", "gloo"), ("gloo", "nccl"), ("gloo", "cpu:gloo,cuda:nccl"), ("nccl", "nccl")],
)
def test_groups_over_another_engine(first: str, second: str) -> None:
    good(3, launch(3, "nccl_groups.py", first, second))


@pytest.mark.parametrize("how", ["launcher", "set", "mesh"])
def test_the_gpu_of_a_process(how: str) -> None:
    good(2, launch(2, "nccl_devices.py", how, devices=2))


def test_models_on_gpus_train_as_in_one_process() -> None:
    """The first two without a copy through the host."""
    good(3, launch(3, "nccl_training.py"))


def test_without_nccl_it_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").symlink_to(FOLDER / "libcuda.so.1")
    code = (
        "import torch.distributed as dist\n"
        "dist.init_process_group('nccl', rank=0, world_size=2, init_method='tcp://localhost:29')\n"
    )
    program = tmp_path / "alone.py"
    program.write_text(code, encoding="utf-8")
    done = run("-m", "tenon", "run", str(program), folder=tmp_path)
    assert done.returncode == 1, done.stdout
    assert "nccl: there is no libnccl.so.2: install NVIDIA's NCCL" in done.stderr, done.stderr
