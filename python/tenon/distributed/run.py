"""`tenon launch`, and `python -m torch.distributed.run` (torchrun) by its arguments: starts the
processes of a program on this machine, watches them, and starts them again where that was asked
for.

A process that ends with an error, or is killed, takes the others down: they get SIGTERM, and
SIGKILL after a while, and so do processes that they have started. A killed launcher takes its
processes with it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tenon.distributed import _output, _place
from tenon.distributed._output import Outputs

__all__ = ["main", "run"]

_GRACE_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def parser(prog: str) -> argparse.ArgumentParser:
    """torchrun's arguments; those of other machines' rendezvous are refused where they are used."""
    top = argparse.ArgumentParser(prog=prog, description=__doc__)
    top.add_argument(
        "-n", "--nproc-per-node", "--nproc_per_node", default="1", metavar="N",
        help="processes, or auto/cpu: one for each core, gpu: one for each GPU",
    )  # fmt: skip
    top.add_argument("--max-restarts", "--max_restarts", type=int, default=0, metavar="K")
    top.add_argument(
        "--min-ranks", "--min_ranks", type=int, metavar="M",
        help="a restart may have fewer processes, at least M",
    )  # fmt: skip
    top.add_argument("--nnodes", default="1", help="machines: 1; more need MPI's launcher")
    top.add_argument("--node-rank", "--node_rank", type=int, default=0)
    top.add_argument("--master-addr", "--master_addr", default="127.0.0.1")
    top.add_argument("--master-port", "--master_port", type=int)
    top.add_argument("--standalone", action="store_true", help="taken; there is no other way")
    for name in ("rdzv-backend", "rdzv-endpoint", "rdzv-conf", "rdzv-id", "role", "run-path"):
        top.add_argument(f"--{name}", f"--{name.replace('-', '_')}", help=argparse.SUPPRESS)
    which = "0 none, 1 stdout, 2 stderr, 3 both; of a rank: 0:3,1:1"
    top.add_argument(
        "-r", "--redirects", metavar="WHICH", help=f"streams that go to files: {which}"
    )
    top.add_argument("-t", "--tee", metavar="WHICH", help="streams that go to files and here")
    top.add_argument("--log-dir", "--log_dir", metavar="FOLDER", help="where these files are made")
    for name in ("monitor-interval", "start-method", "local-addr"):
        top.add_argument(f"--{name}", f"--{name.replace('-', '_')}", help=argparse.SUPPRESS)
    top.add_argument("--use-env", "--use_env", action="store_true", help=argparse.SUPPRESS)
    top.add_argument("-m", "--module", action="store_true", help="the program is a module")
    top.add_argument(
        "--no-python", "--no_python", action="store_true", help="the program is no Python file"
    )
    top.add_argument("program")
    top.add_argument("args", nargs=argparse.REMAINDER)
    return top


def _count(text: str) -> int:
    if text in ("auto", "cpu"):
        return len(os.sched_getaffinity(0))
    if text == "gpu":
        import tenon

        return tenon.cuda.device_count()
    try:
        return int(text)
    except ValueError:
        raise SystemExit(f"launch: expected a number of processes, got {text!r}") from None


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _adopt_orphans() -> None:
    """What processes of ranks leave behind becomes a child of the launcher, which ends it."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> list[int]:
    """The processes whose parent is this one."""
    try:
        words = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
    except OSError:  # a kernel without this list
        return []
    return [int(word) for word in words.split()]


def _is_stopped(process: int) -> bool:
    """Whether a process was stopped by a signal and does not run."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


class Job:
    """The processes of one start."""

    def __init__(
        self, options: argparse.Namespace, size: int, restart: int, outputs: Outputs
    ) -> None:
        words = [sys.executable, "-m", "tenon", "run", *(["-m"] if options.module else [])]
        command = [*([] if options.no_python else words), options.program, *options.args]
        # The port is a name: processes of one machine meet by files. A new start has a new one.
        port = options.master_port or _place.new_port()
        self.processes: list[subprocess.Popen[Any]] = []
        self.others = set(_children())  # of a program that calls `run`
        self.outputs = outputs
        for rank in range(size):
            place = {
                "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size,
                "GROUP_RANK": 0, "ROLE_RANK": rank, "ROLE_NAME": options.role or "default",
                "ROLE_WORLD_SIZE": size, "GROUP_WORLD_SIZE": 1,
                "MASTER_ADDR": options.master_addr, "MASTER_PORT": port,
                "TORCHELASTIC_RESTART_COUNT": restart, "TENON_RESTART_COUNT": restart,
                "TORCHELASTIC_MAX_RESTARTS": options.max_restarts,
                "TORCHELASTIC_RUN_ID": options.rdzv_id or f"tenon-{os.getpid()}",
                "TORCHELASTIC_ERROR_FILE": outputs.error_file(rank),
            }  # fmt: skip
            environment = {**os.environ, **{k: str(v) for k, v in place.items()}}
            if size > 1:
                environment.setdefault("TENON_NUM_THREADS", "1")
            try:
                process = subprocess.Popen(
                    command, env=environment, preexec_fn=_die_with_parent, **outputs.options(rank)
                )
            except OSError as err:
                self.stop()
                raise SystemExit(f"launch: rank {rank} cannot be started: {err}") from None
            self.processes.append(process)
            outputs.follow(rank, process)

    def wait(self) -> tuple[int, int] | None:
        """Until all have ended well (None), or one has not: its rank and exit code."""
        while True:
            codes = [p.poll() for p in self.processes]
            if any(codes):
                return self._first_failure()
            if all(code == 0 for code in codes):
                return None
            time.sleep(0.02)

    def _first_failure(self) -> tuple[int, int]:
        """A process that was killed before any other: those that miss it end with errors."""
        codes = [(p.poll() or 0, rank) for rank, p in enumerate(self.processes)]
        code, rank = min(failed for failed in codes if failed[0])
        return rank, code

    def missing(self) -> tuple[int, list[int]]:
        """How many processes were killed, and the ranks of those that are stopped."""
        killed = [p for p in self.processes if p.poll() == -signal.SIGKILL]
        stopped = [r for r, p in enumerate(self.processes) if p.poll() is None
                   and _is_stopped(p.pid)]  # fmt: skip
        return len(killed), stopped

    def error(self, rank: int) -> str:
        """What a rank has recorded of its error; the launcher's own launcher gets it, too."""
        file = self.outputs.error_file(rank)
        try:
            text = file.read_text()
            message = json.loads(text)["message"]
            said = message["message"] if isinstance(message, dict) else message
        except (OSError, ValueError, KeyError, TypeError):
            return ""
        if (above := os.environ.get("TORCHELASTIC_ERROR_FILE")) is not None:
            with contextlib.suppress(OSError):
                Path(above).write_text(text)
        return f": {said}"

    def stop(self, first: int = signal.SIGTERM) -> None:
        """Ends those that still run."""
        for p in self.processes:
            if p.poll() is None:
                p.send_signal(first)
        deadline = time.monotonic() + _GRACE_SECONDS
        for p in self.processes:
            try:
                p.wait(max(deadline - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        while orphans := [pid for pid in _children() if pid not in self.others]:
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        self.outputs.close()
        _place.remove_what_killed_processes_left()


def _said(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def run(options: argparse.Namespace) -> int:
    """Runs the job; the exit code."""
    if str(options.nnodes).split(":")[-1] != "1":
        raise SystemExit(
            "launch: processes of several machines are started by MPI: "
            "mpirun -n N --host a,b tenon run PROGRAM"
        )
    size = _count(options.nproc_per_node)
    if size < 1:
        raise SystemExit(f"launch: {size} processes")
    least = size if options.min_ranks is None else options.min_ranks
    if not 1 <= least <= size or options.max_restarts < 0:
        raise SystemExit(f"launch: at least {least} of {size} processes, {options.max_restarts} "
                         "restarts")  # fmt: skip
    redirects = _output.streams("redirects", options.redirects, size)
    tee = _output.streams("tee", options.tee, size)
    _adopt_orphans()
    _place.remove_what_killed_processes_left()
    top = Path(options.log_dir or tempfile.gettempdir())
    if any(redirects + tee):
        top.mkdir(parents=True, exist_ok=True)
        top = Path(tempfile.mkdtemp(prefix=f"{options.rdzv_id or 'tenon'}_", dir=top))
        print(f"launch: streams go to {top}", file=sys.stderr)
    role = options.role or "default"
    return _starts(
        options, size, least, lambda n: Outputs(top / f"attempt_{n}", redirects, tee, role)
    )


def _starts(
    options: argparse.Namespace, size: int, least: int, outputs_of: Callable[[int], Outputs]
) -> int:
    """Starts the job until it ends well, or as often as is allowed; the exit code."""
    for restart in range(options.max_restarts + 1):
        job = Job(options, size, restart, outputs_of(restart))
        try:
            failed = job.wait()
        except BaseException as err:
            job.stop(signal.SIGINT if isinstance(err, KeyboardInterrupt) else signal.SIGTERM)
            if isinstance(err, KeyboardInterrupt):
                return 130
            raise
        if failed is None:
            job.outputs.close()
            return 0
        rank, code = failed
        pid = job.processes[rank].pid
        killed, stopped = job.missing()
        error = job.error(rank)
        job.stop()
        again = restart < options.max_restarts
        what = f"restart {restart + 1} of {options.max_restarts}" if again else "giving up"
        said = [f"rank {rank} (process {pid}) {_said(code)}{error}"]
        said += [f"rank {r} (process {job.processes[r].pid}) is stopped" for r in stopped]
        print(f"launch: {', '.join(said)}; {what}", file=sys.stderr)
        if options.min_ranks is not None:
            size = max(least, size - max(killed + len(stopped), 1))
    return code if code > 0 else 128 - code


def main(args: Sequence[str] | None = None, prog: str = "torchrun") -> None:
    """The program torchrun."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        code = run(parser(prog).parse_args(args))
    finally:
        signal.signal(signal.SIGTERM, before)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
