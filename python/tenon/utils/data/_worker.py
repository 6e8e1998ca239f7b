"""Worker processes of a DataLoader: what they run, and how the parent talks to them.

Every worker has a queue of tasks and a queue of results of its own, so one that dies cannot hold a
lock that others need. Task i goes to the next worker in turn, and results are taken in the order of
the tasks.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import random
import sys
import time
import traceback
from collections import deque
from typing import Any, NamedTuple

import tenon
from tenon.utils.data._shared import remove_leftovers, share_tensors

_CHECK_SECONDS = 1.0  # how often a waiting side looks whether the other is alive


class WorkerInfo(NamedTuple):
    """What a dataset may know of the worker that it is in."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The worker that this code runs in; None in the main process."""
    return _info


class _Failure:
    """An exception on its way from a worker to the parent."""

    def __init__(self, worker: int) -> None:
        kind, value, _ = sys.exc_info()
        self.kind = kind
        self.text = traceback.format_exc()
        self.where = f"in DataLoader worker process {worker}"

    def reraise(self) -> None:
        """Raises an exception of the same type with the worker's traceback in its text."""
        name = self.kind.__name__
        message = f"Caught {name} {self.where}.\nOriginal {self.text}"
        if self.kind is KeyError:
            raise KeyError(_Quoted(message))
        try:
            error = self.kind(message)
        except Exception:  # its constructor wants other arguments
            raise RuntimeError(message) from None
        raise error


class _Quoted(str):
    """Text that KeyError shows as it is."""

    def __repr__(self) -> str:
        return str(self)


class _End:
    """The stream of a worker is at its end."""


def _seed(base_seed: int, worker: int) -> int:
    seed = base_seed + worker
    random.seed(seed)
    tenon.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        entropy = [worker, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
        numpy.random.seed(numpy.random.SeedSequence(entropy).generate_state(4))
    return seed


def _work(loader: Any, base_seed: int, worker: int, tasks: Any, results: Any, parent: int) -> None:
    """The body of a worker process."""
    global _info
    try:
        tenon.set_num_threads(1)
        share_tensors()
        seed = _seed(base_seed, worker)
        _info = WorkerInfo(worker, loader.num_workers, seed, loader.dataset)
        failure = None
        fetch = None
        try:
            if loader.worker_init_fn is not None:
                loader.worker_init_fn(worker)
            fetch = loader._fetcher()
        except Exception:
            failure = _Failure(worker)
        while True:
            try:
                task = tasks.get(timeout=_CHECK_SECONDS)
            except queue.Empty:
                if os.getppid() != parent:
                    break
                continue
            if task is None:
                break
            number, index = task
            if number is None:  # a new pass
                try:
                    fetch = loader._fetcher()
                except Exception:
                    failure = _Failure(worker)
                continue
            if failure is not None:
                results.put((number, failure))
                failure = None
                continue
            try:
                data = fetch(index)
            except StopIteration:
                data = _End()
            except Exception:
                data = _Failure(worker)
            results.put((number, data))
    except KeyboardInterrupt:
        pass
    finally:
        # What nobody will read must not keep the process alive.
        results.cancel_join_thread()
        results.close()
        if os.getppid() != parent:  # which else does this when it closes its workers
            remove_leftovers(os.getpid())


class Workers:
    """The worker processes of one loader."""

    def __init__(self, loader: Any, base_seed: int) -> None:
        context = loader.multiprocessing_context or multiprocessing.get_context()
        self.timeout = loader.timeout
        self.prefetch = loader.prefetch_factor or 2
        self.iterable = loader._iterable
        self.tasks: list[Any] = []
        self.results: list[Any] = []
        self.processes: list[Any] = []
        self.closed = False
        self.parent = os.getpid()
        for worker in range(loader.num_workers):
            tasks, results = context.Queue(), context.Queue()
            tasks.cancel_join_thread()
            process = context.Process(
                target=_work,
                args=(loader, base_seed, worker, tasks, results, os.getpid()),
                daemon=True,
            )
            process.start()
            self.tasks.append(tasks)
            self.results.append(results)
            self.processes.append(process)

    def begin(self, fresh: bool) -> None:
        """Starts a pass."""
        if not fresh:
            for tasks in self.tasks:
                tasks.put((None, None))
        self.sent = 0
        self.turn = 0
        self.active = [True] * len(self.processes)
        self.waiting: deque[tuple[int, int]] = deque()  # (task, worker) in order

    def send(self, index: Any) -> bool:
        """Gives a task to the next worker whose stream goes on; False: there is none."""
        for _ in range(len(self.processes)):
            worker = self.turn
            self.turn = (self.turn + 1) % len(self.processes)
            if self.active[worker]:
                self.tasks[worker].put((self.sent, index))
                self.waiting.append((self.sent, worker))
                self.sent += 1
                return True
        return False

    def room(self) -> bool:
        """Whether more tasks may be sent ahead."""
        return len(self.waiting) < self.prefetch * sum(self.active)

    def drain(self) -> None:
        """Throws away what an unfinished pass has left."""
        while self.waiting:
            number, worker = self.waiting.popleft()
            self._receive(number, worker)

    def _receive(self, number: int, worker: int) -> Any:
        limit = time.monotonic() + self.timeout if self.timeout > 0 else None
        while True:
            wait = _CHECK_SECONDS
            if limit is not None:
                wait = min(wait, max(limit - time.monotonic(), 0.001))
            try:
                got, data = self.results[worker].get(timeout=wait)
            except queue.Empty:
                if limit is not None and time.monotonic() >= limit:
                    self.close()
                    raise RuntimeError(
                        f"DataLoader timed out after {self.timeout} seconds"
                    ) from None
                process = self.processes[worker]
                if not process.is_alive():
                    self.close()
                    raise RuntimeError(
                        f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly "
                        f"(exit code {process.exitcode})"
                    ) from None
                continue
            if got != number:
                raise AssertionError(f"worker {worker} answered task {got}, expected {number}")
            return data

    def next(self, next_index: Any) -> Any:
        """The data of the next task; sends new tasks as there is room. StopIteration: all done."""
        while True:
            while self.room():
                try:
                    index = next_index()
                except StopIteration:
                    break
                if not self.send(index):
                    break
            if not self.waiting:
                raise StopIteration
            number, worker = self.waiting.popleft()
            data = self._receive(number, worker)
            if isinstance(data, _End):
                self.active[worker] = False
                continue
            if isinstance(data, _Failure):
                data.reraise()
            return data

    def close(self) -> None:
        """Ends the processes; waits a little, then terminates them."""
        if self.closed:
            return
        self.closed = True
        for tasks in self.tasks:
            try:
                tasks.put(None)
            except (OSError, ValueError):
                continue
        for process in self.processes:
            process.join(timeout=0.5)
            if process.is_alive():
                process.terminate()
                process.join(timeout=5)
            remove_leftovers(process.pid)
        for q in (*self.tasks, *self.results):
            q.cancel_join_thread()
            q.close()

    def __del__(self) -> None:
        # A worker that was forked since has a copy of this; the processes are not its own.
        if self.parent == os.getpid():
            self.close()
