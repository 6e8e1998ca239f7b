"""Notices worker processes that die: for loaders other than Tenon's own, which watches its workers
itself."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterable
from typing import Any

_workers: dict[int, set[int]] = {}  # by the loader's pass
_handles_children = False


def _set_worker_pids(key: int, child_pids: Iterable[int]) -> None:
    """These processes belong to a pass."""
    if key in _workers:
        raise ValueError(
            "_set_worker_pids should be called only once for each _BaseDataLoaderIter."
        )
    _workers[key] = set(child_pids)


def _remove_worker_pids(key: int) -> None:
    """A pass is over."""
    if key not in _workers:
        raise ValueError(f"Cannot find worker information for _BaseDataLoaderIter with id {key}")
    del _workers[key]


def _ended(pid: int) -> Any:
    try:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT  # its parent can still ask for the status
        return os.waitid(os.P_PID, pid, flags)
    except ChildProcessError:
        return None


def _error_if_any_worker_fails() -> None:
    """Raises where a worker was killed, or ended with an error."""
    for pids in _workers.values():
        for pid in sorted(pids):
            end = _ended(pid)
            if end is None or (end.si_code == os.CLD_EXITED and end.si_status == 0):
                continue
            pids.clear()  # said once
            if end.si_code == os.CLD_EXITED:
                raise RuntimeError(
                    f"DataLoader worker (pid {pid}) exited unexpectedly with exit code "
                    f"{end.si_status}. Details are lost due to multiprocessing. Rerunning with "
                    "num_workers=0 may give better error trace."
                )
            name = signal.strsignal(end.si_status)
            raise RuntimeError(f"DataLoader worker (pid {pid}) is killed by signal: {name}. ")


def _set_worker_signal_handlers() -> None:
    """In a worker: a crash says where it was, and to be told to end is no failure."""
    if not faulthandler.is_enabled() and sys.stderr is not None:
        faulthandler.enable()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))


def _set_SIGCHLD_handler() -> None:
    """Once in the main thread: whenever a child ends, looks whether it was a worker that failed."""
    global _handles_children
    if _handles_children or threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGCHLD)

    def look(number: int, frame: Any) -> None:
        _error_if_any_worker_fails()
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGCHLD, look)
    _handles_children = True
