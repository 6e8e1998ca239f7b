"""Worker processes of a DataLoader: what they run, and how the parent talks to them.

Every worker has a channel of its own, so one that dies takes nothing with it. Task i goes to the
next worker in turn, and results are taken in the order of the tasks. Whatever goes wrong in a
worker reaches the parent as the answer to its task: an exception, also one that cannot be pickled,
or data that cannot; and the parent watches the processes themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import tenon
from tenon.utils.data._utils.channel import Channel, Closed, Message
from tenon.utils.data._utils.shared import packed, unpacked

MP_STATUS_CHECK_INTERVAL = 5.0  # seconds between two looks, in loaders other than this one
_CHECK_SECONDS = 1.0  # how often a waiting side looks whether the other is alive
_EXIT_SECONDS = 5.0  # for the exit code of a worker that has closed its connection
_NEW_PASS = -1  # in the place of a task's number


class WorkerInfo(NamedTuple):
    """What a dataset may know of the worker that it is in."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The worker that this code runs in; None in the main process."""
    return _worker_info


def _samples(index: Any) -> str:
    """What a task was about, for messages."""
    if index is None or (isinstance(index, list) and all(i is None for i in index)):
        return "the next samples of its stream"
    try:
        text = repr(index)
    except Exception:
        return f"samples whose index is a {type(index).__name__}"
    return f"samples {text if len(text) <= 200 else text[:200] + '...'}"


class _Failure:
    """An exception on its way from a worker to the parent."""

    def __init__(self, worker: int, what: str) -> None:
        kind, _, _ = sys.exc_info()
        self.kind: Any = kind
        self.name = kind.__name__ if kind else "an error"
        self.text = traceback.format_exc()
        self.where = f"in DataLoader worker process {worker}"
        self.what = what

    def packed(self) -> tuple[bytes, list[int]]:
        """This as a message; a class that the parent cannot have becomes RuntimeError."""
        try:
            data = packed(self)
            ForkingPickler.loads(data[0])
            return data
        except Exception:
            self.kind = RuntimeError
            return packed(self)

    def reraise(self) -> None:
        """Raises an exception of the same type with the worker's traceback in its text."""
        message = f"Caught {self.name} {self.where}.\nOriginal {self.text}\nIt made {self.what}."
        if self.kind is KeyError:
            raise KeyError(_Quoted(message))
        try:
            error = self.kind(message)
        except Exception:  # its constructor wants other arguments
            raise RuntimeError(message) from None
        raise error


@dataclass(frozen=True)
class _IterableDatasetStopIteration:
    """In other loaders, a worker's answer when its stream is at its end."""

    worker_id: int


@dataclass(frozen=True)
class _ResumeIteration:
    """In other loaders, the task that starts another pass."""

    seed: int | None = None


class ManagerWatchdog:
    """A worker's look at the process that started it."""

    def __init__(self) -> None:
        self.manager_pid = os.getppid()
        self.manager_dead = False

    def is_alive(self) -> bool:
        """Whether that process is still there."""
        self.manager_dead = self.manager_dead or os.getppid() != self.manager_pid
        return not self.manager_dead


class _Quoted(str):
    """Text that KeyError shows as it is."""

    def __repr__(self) -> str:
        return str(self)


class _End:
    """The stream of a worker is at its end."""


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four words of 32 bits that seed NumPy in a worker."""
    import numpy

    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return numpy.random.SeedSequence(entropy).generate_state(4).tolist()


def _seed(base_seed: int, worker: int) -> int:
    seed = base_seed + worker
    random.seed(seed)
    tenon.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(_generate_state(base_seed, worker))
    return seed


# ---- In the worker -------------------------------------------------------------------------------


class _Link:
    """The worker's side: waits for the parent as long as it lives."""

    def __init__(self, end: socket.socket) -> None:
        self.channel = Channel(end)
        self.born_to = os.getppid()
        self.poll = select.poll()
        parent = multiprocessing.parent_process()
        if parent is not None:
            self.poll.register(parent.sentinel, select.POLLIN)

    def _wait(self, event: int) -> None:
        self.poll.register(self.channel, event)
        ready = dict(self.poll.poll(_CHECK_SECONDS * 1000))
        if os.getppid() != self.born_to or set(ready) - {self.channel.fileno()}:
            raise Closed

    def receive(self) -> Message:
        while (message := self.channel.pull()) is None:
            self._wait(select.POLLIN)
        return message

    def send(self, number: int, data: bytes, files: list[int]) -> None:
        self.channel.add(number, data, files)
        while not self.channel.push():
            self._wait(select.POLLOUT)


def _made(fetch: Any, task: Message, worker: int, ends: bool) -> tuple[bytes, list[int]]:
    """The answer to a task, in a form that certainly can be sent."""
    what = "its task"
    try:
        index = unpacked(task)
        what = _samples(index)
        try:
            return packed(fetch(index))
        except StopIteration as err:
            if ends:
                return packed(_End())
            raise RuntimeError("a dataset with a length raised StopIteration") from err
    except Exception:
        return _Failure(worker, what).packed()


def _work(loader: Any, seeds: tuple[int, Any], worker: int, end: socket.socket) -> None:
    """The body of a worker process."""
    global _worker_info
    base_seed, shared = seeds
    with suppress(KeyboardInterrupt, Closed):
        link = _Link(end)
        tenon.set_num_threads(1)
        seed = _seed(base_seed, worker)
        _worker_info = WorkerInfo(worker, loader.num_workers, seed, loader.dataset)
        failure = None
        fetch = None
        try:
            loader._begin_in_worker(worker, shared)
            if loader.worker_init_fn is not None:
                loader.worker_init_fn(worker)
            fetch = loader._fetcher()
        except Exception:
            failure = _Failure(worker, "itself ready")
        while True:
            task = link.receive()
            if task.number == _NEW_PASS:
                try:
                    loader._begin_pass(unpacked(task))
                    fetch = loader._fetcher()
                except Exception:
                    failure = _Failure(worker, "itself ready for a pass")
                continue
            answer = (
                failure.packed()
                if failure is not None
                else _made(fetch, task, worker, loader._iterable)
            )
            failure = None
            link.send(task.number, *answer)


# ---- In the parent -------------------------------------------------------------------------------


_DONE = object()  # in the place of data: there is no more


class _Task(NamedTuple):
    number: int
    worker: int
    index: Any


class Workers:
    """The worker processes of one loader."""

    def __init__(self, loader: Any, base_seed: int, shared: int | None = None) -> None:
        context = loader.multiprocessing_context or multiprocessing.get_context()
        self.timeout = loader.timeout
        self.prefetch = loader.prefetch_factor or 2
        self.channels: list[Channel] = []
        self.processes: list[Any] = []
        self.arrived: dict[int, Message] = {}
        self.waiting: deque[_Task] = deque()  # in order
        self.gone: set[int] = set()  # workers that have closed their channels
        self.sent = 0
        self.first = 0  # number of this pass's first task; earlier answers are thrown away
        self.closed = False
        # While a call is on its way through here: an exception out of its middle (Ctrl-C, a lack of
        # memory) may have taken half of a message with it, and nothing more can be asked.
        self.torn = False
        self.parent = os.getpid()
        self.taking = threading.Lock()
        try:
            for worker in range(loader.num_workers):
                self._start(context, loader, (base_seed, shared), worker)
        except BaseException:
            self.close()
            raise

    def _start(self, context: Any, loader: Any, seeds: tuple[int, Any], worker: int) -> None:
        own, other = socket.socketpair()
        with other:
            self.channels.append(Channel(own))
            process = context.Process(
                target=_work, args=(loader, seeds, worker, other), daemon=True
            )
            self.processes.append(process)
            process.start()

    def begin(self, fresh: bool, shared: int | None = None) -> None:
        """Starts a pass; what an unfinished one has left is thrown away."""
        self.torn = True
        self.waiting.clear()
        for message in self.arrived.values():
            message.close()
        self.arrived.clear()
        self.first = self.sent
        self.turn = 0
        self.active = [True] * len(self.processes)
        if not fresh:
            for worker in range(len(self.channels)):
                self._tell(worker, _NEW_PASS, bytes(ForkingPickler.dumps(shared)))
        self.torn = False

    def _tell(self, worker: int, number: int, data: bytes) -> None:
        self.channels[worker].add(number, data)
        with suppress(Closed):  # who waits for the answer sees why there is none
            self.channels[worker].push()

    def send(self, index: Any) -> bool:
        """Gives a task to the next worker whose stream goes on; False: there is none."""
        for _ in range(len(self.processes)):
            worker = self.turn
            self.turn = (self.turn + 1) % len(self.processes)
            if self.active[worker]:
                self._send_to(worker, index)
                return True
        return False

    def _send_to(self, worker: int, index: Any) -> None:
        try:
            data = bytes(ForkingPickler.dumps(index))
        except MemoryError:
            raise
        except Exception as err:
            self.torn = False
            raise RuntimeError(
                f"DataLoader cannot send {_samples(index)} to worker {worker}: "
                f"{type(err).__name__}: {err}"
            ) from err
        self._tell(worker, self.sent, data)
        self.waiting.append(_Task(self.sent, worker, index))
        self.sent += 1

    def room(self) -> bool:
        """Whether more tasks may be sent ahead."""
        return len(self.waiting) < self.prefetch * sum(self.active)

    def _take(self, worker: int) -> None:
        """Keeps the messages of a worker that have arrived."""
        try:
            while (message := self.channels[worker].pull()) is not None:
                if message.number < self.first:
                    message.close()
                else:
                    self.arrived[message.number] = message
        except Closed:
            self.gone.add(worker)

    def _wait(self, seconds: float) -> None:
        """Lets messages go both ways until something has come, for some seconds at most."""
        poll = select.poll()
        for worker, (channel, process) in enumerate(zip(self.channels, self.processes)):
            if process.is_alive() and worker not in self.gone:
                poll.register(channel, select.POLLIN | (select.POLLOUT if channel.outgoing else 0))
                poll.register(process.sentinel, select.POLLIN)
        poll.poll(seconds * 1000)
        for worker, channel in enumerate(self.channels):
            with suppress(Closed):
                channel.push()
            self._take(worker)

    def _check(self) -> None:
        """Raises when a worker that owes an answer is gone."""
        # Asked once, so that the oldest task of a worker is the one that is named.
        ended = {w for w, p in enumerate(self.processes) if w in self.gone or not p.is_alive()}
        for task in self.waiting:
            process = self.processes[task.worker]
            if task.worker not in ended:
                continue
            self._take(task.worker)  # what it sent before it ended
            if task.number in self.arrived:
                continue
            process.join(_EXIT_SECONDS)
            code = process.exitcode
            how = "closed its connection" if code is None else f"ended with exit code {code}"
            if code is not None and code < 0:
                with suppress(ValueError):
                    how = f"was killed by {signal.Signals(-code).name}"
            self._fail(
                task,
                f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly: worker "
                f"{task.worker} {how}",
            )

    def _fail(self, task: _Task, what: str) -> None:
        self.close()
        self.torn = False
        raise RuntimeError(f"{what}; it was to make {_samples(task.index)}")

    def _receive(self) -> Any:
        """The answer to the oldest task."""
        task = self.waiting[0]
        limit = time.monotonic() + self.timeout if self.timeout > 0 else None
        self._take(task.worker)
        while task.number not in self.arrived:
            self._check()
            left = _CHECK_SECONDS if limit is None else limit - time.monotonic()
            if left <= 0:
                self._fail(
                    task,
                    f"DataLoader timed out after {self.timeout} seconds: worker {task.worker} "
                    "has not answered",
                )
            self._wait(min(left, _CHECK_SECONDS))
        self.waiting.popleft()
        try:
            return unpacked(self.arrived.pop(task.number))
        except MemoryError:
            raise
        except Exception as err:
            self.torn = False
            raise RuntimeError(
                f"DataLoader cannot read what worker {task.worker} sent for "
                f"{_samples(task.index)}: {type(err).__name__}: {err}"
            ) from err

    def next(self, next_index: Any) -> Any:
        """The data of the next task; sends new tasks as there is room. StopIteration: all done."""
        if self.parent != os.getpid():
            raise RuntimeError("the workers of a DataLoader answer the process that started them")
        with self.taking:
            if self.torn:
                self.close()
                raise RuntimeError(
                    "a call of this DataLoader was interrupted while it talked to its workers; "
                    "begin a new pass"
                )
            self.torn = True
            data = self._next(next_index)
            self.torn = False
        if data is _DONE:
            raise StopIteration
        if isinstance(data, _Failure):
            data.reraise()
        return data

    def _next(self, next_index: Any) -> Any:
        while True:
            while self.room():
                try:
                    index = next_index()
                except StopIteration:
                    break
                except BaseException:
                    self.torn = False
                    raise
                if not self.send(index):
                    break
            if not self.waiting:
                return _DONE
            worker = self.waiting[0].worker
            data = self._receive()
            if not isinstance(data, _End):
                return data
            self.active[worker] = False

    def close(self) -> None:
        """Ends the processes: asks, waits a little, terminates, kills."""
        if self.closed:
            return
        self.closed = True
        started = [process for process in self.processes if process.pid is not None]
        try:
            self._end(started)
        finally:  # also of one that was interrupted
            for process in started:
                if process.is_alive():
                    process.kill()
            for message in self.arrived.values():
                message.close()
            self.arrived.clear()
            for channel in self.channels:
                channel.close()

    def _end(self, started: list[Any]) -> None:
        for channel in self.channels:
            channel.shut()
        for end, seconds in (
            (None, 0.5),
            ("terminate", 2.0),
            ("kill", 5.0),  # also what is stopped, or blocks the signal
        ):
            limit = time.monotonic() + seconds
            for process in started:
                if end is not None and process.is_alive():
                    getattr(process, end)()
            for process in started:
                process.join(max(0.0, limit - time.monotonic()))

    def __del__(self) -> None:
        # A worker that was forked since has a copy of this; the processes are not its own.
        if self.parent == os.getpid():
            self.close()
