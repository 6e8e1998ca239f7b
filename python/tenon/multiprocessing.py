"""Python's multiprocessing, with queues and pipes that send tensors through shared memory.

A CPU tensor that is sent moves into shared memory, with its views, and the receiver sees the same
memory. Where others look at that memory, such as detached tensors, a copy is sent. Tensors of a
device are shared where the device can do so ("tn.ipc/1"), and then must live in the sender until
they were received; else they are copied. A process must live until what it sent was received, and
not be hidden from the receiver. Queues go on when a process that uses them is killed.
Small tensors share files: who receives one could read its
neighbours. What lies next to a tensor that a process keeps is free again when that one is.
"""

from __future__ import annotations

import multiprocessing as _standard
import os
import signal
import weakref
from multiprocessing import *  # noqa: F403
from multiprocessing import connection, context, reduction
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any

from tenon import _C, Tensor, _queues
from tenon._tensor.reduce import rebuild_subclass
from tenon.nn import Parameter

__all__ = [
    *_standard.__all__,
    "ProcessException", "ProcessExitedException", "ProcessRaisedException",
    "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn",
    "start_processes",
]  # fmt: skip

_STRATEGIES = frozenset({"file_descriptor", "file_system"})
_strategy = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """The names that set_sharing_strategy takes."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The name that was set."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Takes PyTorch's names. Both share files without a name, so that nothing is left over."""
    global _strategy
    if new_strategy not in _STRATEGIES:
        raise ValueError(
            f"set_sharing_strategy: expected one of {sorted(_STRATEGIES)}, got {new_strategy!r}"
        )
    _strategy = new_strategy


# ---- What is sent --------------------------------------------------------------------------------


def _rebuild(
    handle: bytes, file: Any, kind: Any, shape: tuple[int, ...], strides: tuple[int, ...],
    offset: int, requires_grad: bool, cls: type[Tensor], state: dict[str, Any],
) -> Tensor:  # fmt: skip
    try:
        number = file.detach() if file is not None else -1
    except (ConnectionError, FileNotFoundError, EOFError) as err:
        raise ConnectionError(
            "a tensor cannot be received, because the process that sent it is gone: it must live "
            "until then"
        ) from err
    try:
        tensor = _C._open_shared(handle, number, kind, shape, strides, offset)
    finally:
        if number >= 0:
            os.close(number)
    if cls is not Tensor:
        return rebuild_subclass(cls, tensor, requires_grad, state)
    tensor.__dict__.update(state)
    return tensor.requires_grad_(requires_grad)


def _sent_file(number: int) -> Any:
    """What a message holds for an open file, which is closed when it is not needed any more."""
    popen = get_spawning_popen()
    if popen is None:  # a queue or a pipe: a duplicate waits for the receiver
        try:
            return reduction.DupFd(number)
        finally:
            os.close(number)
    weakref.finalize(popen, os.close, number)  # arguments of a process: it inherits the file
    return reduction.DupFd(number)


def _reduce(tensor: Tensor) -> Any:
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "a tensor that is not a leaf and requires a gradient cannot be sent to another "
            "process, because its history stays here; send tensor.detach()"
        )
    if not tensor._storage_bytes():
        return tensor.__reduce_ex__(2)
    try:
        tensor.share_memory_()
    except MemoryError:
        raise
    except RuntimeError:
        pass  # other tensors look at the memory: a copy is sent
    handle, number = _C._share(tensor)
    file = _sent_file(number) if number >= 0 else None
    geometry = (tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())
    state = dict(tensor.__dict__)
    return _rebuild, (
        handle, file, tensor.dtype, *geometry, tensor.requires_grad, type(tensor), state
    )  # fmt: skip


def init_reductions() -> None:
    """Queues and pipes of this process send tensors through shared memory."""
    ForkingPickler.register(Tensor, _reduce)
    ForkingPickler.register(Parameter, _reduce)


init_reductions()

# ---- Queues --------------------------------------------------------------------------------------


class _Queues:
    """What our contexts have of their own."""

    def get_context(self: Any, method: str | None = None) -> Any:
        """The context of a start method."""
        return self if method is None else get_context(method)

    def Queue(self: Any, maxsize: int = 0) -> _queues.Queue:  # noqa: N802 - Python's name
        """A queue that goes on when a process which uses it is killed."""
        return _queues.Queue(maxsize, ctx=self)

    def JoinableQueue(self: Any, maxsize: int = 0) -> _queues.JoinableQueue:  # noqa: N802
        """A queue whose users say when they have done what they took."""
        return _queues.JoinableQueue(maxsize, ctx=self)

    def SimpleQueue(self: Any) -> _queues.SimpleQueue:  # noqa: N802
        """A queue without a thread: `put` waits until there is room."""
        return _queues.SimpleQueue(ctx=self)

    def Pool(self: Any, *args: Any, **options: Any) -> Any:  # noqa: N802
        """Python's pool of processes, over its own queues, whose locks it uses."""
        return _standard.get_context(self.get_start_method()).Pool(*args, **options)


class _Fork(_Queues, context.ForkContext):
    pass


class _Spawn(_Queues, context.SpawnContext):
    pass


class _ForkServer(_Queues, context.ForkServerContext):
    pass


_CONTEXTS = {kind._name: kind() for kind in (_Fork, _Spawn, _ForkServer)}


def get_context(method: str | None = None) -> Any:
    """The context of a start method, or of the one that is set."""
    return _CONTEXTS[_standard.get_context(method).get_start_method()]


def Queue(maxsize: int = 0) -> _queues.Queue:  # noqa: N802 - Python's name
    """A queue that goes on when a process which uses it is killed."""
    return get_context().Queue(maxsize)  # type: ignore[no-any-return]


def JoinableQueue(maxsize: int = 0) -> _queues.JoinableQueue:  # noqa: N802
    """A queue whose users say when they have done what they took."""
    return get_context().JoinableQueue(maxsize)  # type: ignore[no-any-return]


def SimpleQueue() -> _queues.SimpleQueue:  # noqa: N802
    """A queue without a thread: `put` waits until there is room."""
    return get_context().SimpleQueue()  # type: ignore[no-any-return]


# ---- Processes -----------------------------------------------------------------------------------


class ProcessException(Exception):  # noqa: N818 - PyTorch's name
    """A process that `spawn` started did not end well."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """It raised."""


class ProcessExitedException(ProcessException):
    """It ended with another exit code than 0."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(fn: Any, index: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        import traceback

        errors.put((index, traceback.format_exc()))
        errors.close()
        errors.join_thread()
        raise SystemExit(1) from None


class ProcessContext:
    """The processes that were started together."""

    def __init__(self, processes: list[Any], errors: Any) -> None:
        self.processes = processes
        self._errors = errors

    def pids(self) -> list[int]:
        """Their numbers in the system."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None) -> bool:
        """Waits for all; the first that fails ends the others and is raised."""
        running = {process.sentinel: i for i, process in enumerate(self.processes)}
        while running:
            ready = connection.wait(list(running), timeout)
            if not ready:
                return False
            for sentinel in ready:
                index = running.pop(sentinel)
                self.processes[index].join()
                if self.processes[index].exitcode != 0:
                    self._fail(index)
        return True

    def _fail(self, index: int) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
            process.join()
        process = self.processes[index]
        code = int(process.exitcode)
        said = {}
        while not self._errors.empty():
            number, text = self._errors.get()
            said[number] = text
        if index in said:
            text = f"\n\n-- Process {index} terminated with the following error:\n{said[index]}"
            raise ProcessRaisedException(text, index, process.pid)
        number = -code if code < 0 else 0
        known = number in set(signal.Signals)
        name = signal.Signals(number).name if known else f"<Unknown signal {number}>"
        how = f"signal {name}" if number else f"exit code {code}"
        raise ProcessExitedException(
            f"process {index} terminated with {how}", index, process.pid, code,
            name if number else None,
        )  # fmt: skip


def start_processes(
    fn: Any, args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """Runs fn(i, *args) in `nprocs` processes."""
    method = get_context(start_method)
    errors = method.Queue()
    processes = []
    for i in range(nprocs):
        process = method.Process(target=_run, args=(fn, i, args, errors), daemon=daemon)
        process.start()
        processes.append(process)
    group = ProcessContext(processes, errors)
    if not join:
        return group
    while not group.join():
        pass
    return None


def spawn(
    fn: Any, args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """start_processes with the start method that PyTorch's programs expect."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
