"""Where a process stands: launchers' environments, meeting places, contradictions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks import left_in_shared_memory, need, run, shared_memory
from tenon import distributed
from tenon.distributed import _output, _place
from tenon.distributed import run as launcher


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "1", "WORLD_SIZE": "3"}, (1, 3)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 4)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, (5, 8)),
        ({}, None),
    ],
)
def test_launchers(environment: dict[str, str], expected: tuple[int, int] | None) -> None:
    assert _place.ask_launcher(environment) == expected


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"RANK": "1"}, "WORLD_SIZE is not"),
        ({"WORLD_SIZE": "2"}, "RANK is not"),
        ({"RANK": "3", "WORLD_SIZE": "3"}, "no rank of WORLD_SIZE=3"),
        ({"RANK": "one", "WORLD_SIZE": "3"}, "expected a number"),
        (
            {
                "RANK": "0", "WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
            },
            "openmpi says rank 1",
        ),
    ],
)  # fmt: skip
def test_contradictions_are_refused(environment: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        _place.ask_launcher(environment)


def test_what_is_said_stands_for_what_a_launcher_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = distributed._groups._where
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29512")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert where(None, 1, -1, None) == where(None, 1, 2, None) == (1, 2, "tcp://localhost:29512")
    assert where("tcp://localhost:29511", 1, 3, None) == (1, 3, "tcp://localhost:29511")
    assert where("tcp://localhost:29511", 1, -1, None)[:2] == (1, 2)
    with pytest.raises(ValueError, match="WORLD_SIZE is set and RANK is not"):
        where(None, -1, 2, None)
    with pytest.raises(ValueError, match="the launcher says rank 1 of 2"):
        where(None, 1, 3, None)
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.setenv("RANK", "0")
    assert where(None, -1, 2, None)[:2] == (0, 2)
    with pytest.raises(ValueError, match="RANK is set and WORLD_SIZE is not"):
        where(None, 0, -1, None)


def test_what_is_said_completes_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    where = distributed._groups._where
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert (
        where(None, 0, 1, None) == where("env://?rank=0&world_size=1", -1, -1, None) == (0, 1, "")
    )
    assert where("tcp://localhost:29511?rank=1", -1, 2, None)[:2] == (1, 2)
    assert where("file:///tmp/x", 0, 2, None) == (0, 2, "file:///tmp/x")
    for url, rank, size, words in (
        (None, -1, 2, "variable RANK expected, but not set"),
        (None, 0, -1, "variable WORLD_SIZE expected, but not set"),
        ("env://?rank=0", -1, -1, "variable WORLD_SIZE expected, but not set"),
        ("file:///tmp/x", -1, 2, "rank parameter missing"),
        ("file:///tmp/x", 0, -1, "world_size parameter missing"),
    ):
        with pytest.raises(ValueError, match=words):
            where(url, rank, size, None)
    with pytest.raises(ValueError, match="a store needs rank and world_size"):
        where(None, 0, -1, distributed.HashStore())
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank, size in ((0, 3), (1, 2), (0, -1)):
        with pytest.raises(ValueError, match="was asked for, the launcher says rank 1 of 3"):
            where(None, rank, size, None)


def test_mpi_is_for_its_own_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages take MPI where it is available: processes of torchrun could not meet through it."""
    monkeypatch.setattr(distributed._groups._engine, "find", lambda name: Path(name))
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert distributed.is_mpi_available()
    monkeypatch.setenv("RANK", "0")
    assert not distributed.is_mpi_available()
    monkeypatch.setenv("PMI_RANK", "0")
    assert distributed.is_mpi_available()


def test_urls() -> None:
    assert _place.meeting_place("file:///tmp/x") == Path("/tmp/x.tenon")
    with pytest.raises(ValueError, match="another machine"):
        _place.meeting_place("tcp://192.0.2.1:29500")
    with pytest.raises(ValueError, match="env://, tcp:// or file://"):
        _place.meeting_place("http://x")
    with pytest.raises(ValueError, match="a host and a port"):
        _place.meeting_place("tcp://localhost")


def test_meeting_finds_the_living_and_names_the_doubled(tmp_path: Path) -> None:
    dead = tmp_path / "1-dead"
    dead.mkdir()
    (dead / "owner").write_text("2")
    first = _place.Meeting(tmp_path, 0, 2, 1, 5.0)
    assert not dead.exists()
    second = _place.Meeting(tmp_path, 1, 2, 1, 5.0)
    assert second.folder == first.folder
    with pytest.raises(distributed.DistNetworkError, match="rank 0, which has not come"):
        _place.Meeting(tmp_path, 1, 2, 1, 0.05)  # rank 1 is there already
    with pytest.raises(ValueError, match="rank 0 one of 2"):
        _place.Meeting(tmp_path, 2, 3, 1, 5.0)
    first.leave()
    assert not tmp_path.exists()


def test_who_has_not_come_is_named(tmp_path: Path) -> None:
    need("gloo")
    program = (
        "import sys, datetime, tenon.distributed as d\n"
        "span = datetime.timedelta(seconds=float(sys.argv[3]))\n"
        "d.init_process_group('gloo', init_method='file://' + sys.argv[1], rank=int(sys.argv[2]),\n"
        "                     world_size=3, timeout=span)\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "meet"), str(rank), seconds],
            stderr=subprocess.PIPE, text=True,
        )
        for rank, seconds in ((0, "4"), (2, "30"))
    ]  # fmt: skip
    first, second = (p.communicate(timeout=200)[1] for p in started)
    assert "DistStoreError: init_process_group: rank 0 has waited 4 s; rank 1 of 3 has not" in first
    assert "rank 1 of 3 has not come" in second or "rank 0 has ended or left" in second


def test_arguments_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="variable RANK expected"):
        distributed.init_process_group("gloo")
    with pytest.raises(ValueError, match="MASTER_ADDR"):
        distributed.init_process_group("gloo", rank=0, world_size=2)
    with pytest.raises(ValueError, match="no rank of 2"):
        distributed.init_process_group("gloo", "file:///tmp/x", rank=2, world_size=2)
    with pytest.raises(ValueError, match="Invalid backend"):
        distributed.init_process_group("nonsense", "file:///tmp/x", rank=0, world_size=2)
    with pytest.raises(RuntimeError, match="no GPUs found"):
        distributed.init_process_group("nccl", "file:///tmp/x", rank=0, world_size=1)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ValueError, match="WORLD_SIZE is not"):
        distributed.init_process_group("gloo")
    assert not distributed.is_initialized()


@pytest.mark.parametrize("method", ["env://", "file", "tcp"])
def test_nobody_else_can_reach_a_job(method: str, tmp_path: Path) -> None:
    """Stores and launchers listen nowhere, processes at addresses that this machine alone knows."""
    port = 29650 + os.getpid() % 300
    url = {"file": f"file://{tmp_path}/met", "tcp": f"tcp://localhost:{port}"}.get(method, method)
    said = run("gloo", 2, "sockets.py", url, str(port + 1))
    found = [line.split()[2:] for line in said.splitlines()]
    assert len(found) == 2
    assert all(addresses and {*addresses} <= {"127.0.0.1", "::1"} for addresses in found), found


FAULT = """
import os, signal, sys, time, torch, torch.distributed as dist
from datetime import timedelta
from torch.distributed import distributed_c10d
dist.init_process_group("gloo", timeout=timedelta(seconds=600))
dist.barrier()
distributed_c10d._set_pg_timeout(timedelta(seconds=float(sys.argv[2])))
if dist.get_rank() == 1:
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1000)
t = torch.ones(4)
try:
    dist.all_reduce(t)
except Exception as err:
    print(f"{type(err).__name__}: {err}", flush=True)
    try:
        dist.all_reduce(t)
    except RuntimeError as again:
        print(f"again: {again}", flush=True)
    os._exit(3)
"""


def spawn(tmp_path: Path, *words: str) -> list[subprocess.Popen]:
    """Three processes without a launcher, which would end them all."""
    need("gloo")
    script = tmp_path / "fault.py"
    script.write_text(FAULT)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(os.getpid()), "WORLD_SIZE": "3"}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tenon", "run", str(script), *words],
            env={**os.environ, **place, "RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(3)
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["killed", "asleep"])
def test_a_rank_that_is_gone_is_an_error_of_the_others(tmp_path: Path, fault: str) -> None:
    ranks = spawn(tmp_path, fault, "600" if fault == "killed" else "2")
    for rank in (0, 2):
        out, err = ranks[rank].communicate(timeout=120)
        assert ranks[rank].returncode == 3, err
        assert "again: the process group was lost before" in out
    ranks[1].kill()
    ranks[1].communicate()


@pytest.mark.slow
def test_a_launcher_ends_and_restarts_its_processes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys, time\n"
        "again = os.environ['TENON_RESTART_COUNT'] != '0'\n"
        "line = f\"{os.environ['RANK']} {os.environ['WORLD_SIZE']} {again}\\n\"\n"
        "os.write(1, line.encode())  # in one piece\n"
        "if os.environ['RANK'] == '1' and not again: os.kill(os.getpid(), signal.SIGKILL)\n"
        "if not again: time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "tenon", "launch", "-n", "3", "--max-restarts", "1"]
    job = subprocess.run(
        [*command, "--min-ranks", "2", str(program)], capture_output=True, text=True, timeout=300
    )
    assert job.returncode == 0, job.stderr
    assert "rank 1" in job.stderr and "killed by SIGKILL; restart 1 of 1" in job.stderr
    lines = set(job.stdout.splitlines())
    assert {"1 3 False", "0 2 True", "1 2 True"} <= lines and "2 2 True" not in lines
    once = subprocess.run(
        [*command[:-2], "--no-python", "sh", "-c", "exit 7"], capture_output=True, text=True
    )
    assert once.returncode == 7 and "exit code 7; giving up" in once.stderr


def test_a_rank_that_was_killed_is_named_before_those_that_miss_it() -> None:
    job = object.__new__(launcher.Job)
    ends = ("exit 1", "kill -9 $$", "exit 3")
    job.processes = [subprocess.Popen(["sh", "-c", end]) for end in ends]
    for process in job.processes:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert job.wait() == (1, -signal.SIGKILL)


@pytest.mark.slow
def test_a_restart_has_as_many_ranks_as_there_are(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, time\n"
        "if os.environ['TENON_RESTART_COUNT'] == '0':\n"
        f"    open('{tmp_path}/' + os.environ['RANK'], 'w').close()\n"
        f"    while len(os.listdir('{tmp_path}')) < 6: time.sleep(0.01)\n"
        "    if os.environ['RANK'] in '13': os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    time.sleep(0.5)\n"
        "    if os.environ['RANK'] == '4': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    time.sleep(60)\n"
        "os.write(1, (os.environ['RANK'] + os.environ['WORLD_SIZE'] + '\\n').encode())\n"
    )
    command = [sys.executable, "-m", "tenon", "launch", "-n", "5", "--max-restarts", "1"]
    job = subprocess.run(
        [*command, "--min-ranks", "1", str(program)], capture_output=True, text=True, timeout=300
    )
    assert job.returncode == 0 and sorted(job.stdout.split()) == ["02", "12"], job.stderr
    said = job.stderr.strip().splitlines()[-1]
    assert [words in said for words in ("rank 4", "rank 1", "rank 3", "is stopped")] == [True] * 4
    for least in ("6", "0"):
        job = subprocess.run([*command, "--min-ranks", least, str(program)], capture_output=True)
        assert job.returncode == 1 and f"at least {least} of 5".encode() in job.stderr


@pytest.mark.slow
def test_a_run_leaves_no_folder(tmp_path: Path) -> None:
    """Nor does one that was killed with its launcher, once the next has started."""
    need("gloo")
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, time, torch, torch.distributed as dist\n"
        "dist.init_process_group()\n"
        "store = dist.TCPStore('127.0.0.1', 0, is_master=True)\n"
        "dist.barrier()\n"
        "if len(sys.argv) > 1: open(sys.argv[1], 'w').close(); time.sleep(60)\n"
        "dist.destroy_process_group()\n"
    )
    meet, there = tmp_path / "meet", tmp_path / "there"
    meet.mkdir(mode=0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(meet)}
    command = [sys.executable, "-m", "tenon", "launch", "-n", "2", str(program)]
    job = subprocess.Popen([*command, str(there)], env=environment)
    deadline = time.monotonic() + 60
    while not there.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    job.kill()
    job.wait()
    (own,) = meet.iterdir()
    assert len(list(own.iterdir())) > 3
    time.sleep(0.5)  # until the ranks have ended, too
    assert subprocess.run(command, env=environment, timeout=300).returncode == 0
    assert not list(own.iterdir())


@pytest.mark.slow
def test_a_killed_launcher_takes_its_processes_along(tmp_path: Path) -> None:
    need("gloo")
    program = tmp_path / "program.py"
    program.write_text(f"import os, time\nopen('{tmp_path}/' + os.environ['RANK'], 'w').write("
                       "str(os.getpid()))\ntime.sleep(60)\n")  # fmt: skip
    job = subprocess.Popen([sys.executable, "-m", "tenon", "launch", "-n", "2", str(program)])
    deadline = time.monotonic() + 30
    files = [tmp_path / "0", tmp_path / "1"]
    while not all(f.exists() and f.read_text() for f in files) and time.monotonic() < deadline:
        time.sleep(0.05)
    job.send_signal(signal.SIGKILL)
    job.wait()
    pids = [int(f.read_text()) for f in files]
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


INTERRUPTED = """
import os, signal, sys, time
import torch, torch.distributed as dist

if sys.argv[1] == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
dist.init_process_group()
dist.all_reduce(torch.ones(1000))
open(f"{sys.argv[2]}/{dist.get_rank()}", "w").write(str(os.getpid()))
if dist.get_rank() == 0:
    time.sleep(100)
while True:  # waits for rank 0
    dist.all_reduce(torch.ones(1000))
"""


@pytest.mark.slow
@pytest.mark.parametrize("ears", ["hearing", "deaf"])
def test_a_launcher_that_is_interrupted_leaves_nothing_behind(tmp_path: Path, ears: str) -> None:
    """Ctrl-C, which a terminal sends to the launcher and its processes."""
    need("gloo")
    program, meet = tmp_path / "program.py", tmp_path / "meet"
    program.write_text(INTERRUPTED)
    meet.mkdir(mode=0o700)
    shared = shared_memory()
    job = subprocess.Popen(
        [sys.executable, "-m", "tenon", "launch", "-n", "3", str(program), ears, str(tmp_path)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(meet)}, start_new_session=True,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    files = [tmp_path / str(rank) for rank in range(3)]
    deadline = time.monotonic() + 60
    while not all(f.exists() and f.read_text() for f in files) and time.monotonic() < deadline:
        time.sleep(0.05)
    pids = [int(f.read_text()) for f in files]
    start = time.monotonic()
    os.killpg(job.pid, signal.SIGINT)
    job.communicate(timeout=30)
    assert job.returncode == 130 and time.monotonic() - start < 10
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not left_in_shared_memory(shared)
    assert not [p for p in meet.rglob("*") if p.parent != meet]


def test_a_start_that_fails_leaves_no_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tenon", "launch", "-n", "2", "--no-python"]
    job = subprocess.run([*command, str(tmp_path / "none")], capture_output=True, text=True)
    assert job.returncode == 1 and "none" in job.stderr and "Traceback" not in job.stderr


def test_a_launcher_says_what_a_process_has_recorded(tmp_path: Path) -> None:
    """The error of the rank that failed stands in its line, and where a launcher above looks."""
    program, above = tmp_path / "program.py", tmp_path / "error.json"
    program.write_text(
        "import os, sys\n"
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\n"
        "def main():\n"
        "    if os.environ['RANK'] == '1': raise KeyError('no such thing')\n"
        "    print('well', flush=True)\n"
        "main()\n"
    )
    command = [sys.executable, "-m", "tenon", "launch", "-n", "2"]
    environment = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(above)}
    job = subprocess.run(
        [*command, str(program)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert job.returncode == 1
    line = job.stderr.splitlines()[-1]
    assert re.fullmatch(
        r"launch: rank 1 \(process \d+\) ended with exit code 1: KeyError: 'no such thing'; "
        "giving up",
        line,
    )
    message = json.loads(above.read_text())["message"]
    assert message["message"] == "KeyError: 'no such thing'"
    assert "raise KeyError" in message["extraInfo"]["py_callstack"]


@pytest.mark.parametrize("text", ["", "no", "3", "{}", '{"message": {}}', '{"message": [1]}'])
def test_a_record_that_is_none_is_left_out(text: str) -> None:
    write = "import os; open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write(" + repr(text) + ")"
    command = [sys.executable, "-m", "tenon", "launch", "--no-python", sys.executable, "-c"]
    job = subprocess.run(
        [*command, write + "; raise SystemExit(5)"], capture_output=True, text=True
    )
    said = ": [1]" if "[1]" in text else ""
    assert job.returncode == 5
    assert re.fullmatch(rf"launch: .* exit code 5{re.escape(said)}; giving up\n", job.stderr)


def test_streams_go_where_they_shall(tmp_path: Path) -> None:
    """To files, to the launcher's own streams, or to both, by rank."""
    logs = tmp_path / "logs"
    say = ["--no-python", "sh", "-c", "echo out $RANK; echo err $RANK >&2"]
    command = [sys.executable, "-m", "tenon", "launch", "-n", "2", "--log-dir", str(logs)]
    options = ["--redirects", "0:3", "--tee", "1:1", "--rdzv-id", "job", "--role", "it"]
    job = subprocess.run([*command, *options, *say], capture_output=True, text=True, timeout=300)
    assert job.returncode == 0 and job.stdout == "[it1]:out 1\n"
    (made,) = logs.iterdir()
    assert made.name.startswith("job_")
    assert sorted(job.stderr.splitlines()) == ["err 1", f"launch: streams go to {made}"]
    found = {str(f.relative_to(made / "attempt_0")): f.read_text() for f in made.rglob("*.log")}
    assert found == {
        "0/stdout.log": "out 0\n", "0/stderr.log": "err 0\n", "1/stdout.log": "out 1\n",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["4", "-1", "2:1", "0:4", "x", "0:1,", "-1:1", "0:1:1"])
def test_streams_that_are_none(text: str) -> None:
    with pytest.raises(SystemExit, match=f"--tee: expected 0 to 3.* of 2 ranks, got '{text}'"):
        _output.streams("tee", text, 2)


def test_streams_by_rank() -> None:
    assert _output.streams("tee", None, 2) == [0, 0] and _output.streams("tee", "3", 2) == [3, 3]
    assert _output.streams("tee", "1:2", 3) == [0, 2, 0]
    assert _output.streams("tee", "0:1,2:3", 3) == [1, 0, 3]
