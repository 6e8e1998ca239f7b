"""Groups of processes and their operations, as libtenon has them (`tenon/processes.h`)."""

from __future__ import annotations

import ctypes as c
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tenon import Tensor
from tenon._device import capture, streams
from tenon._plugin import native
from tenon.distributed._errors import DistBackendError

BARRIER, BROADCAST, ALL_REDUCE, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND, RECV = range(
    9
)
_NAMES = (
    "barrier", "broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter", "all_to_all",
    "send", "recv",
)  # fmt: skip
ANY = -1  # as the peer of RECV
OWN_ID = 0x80000000  # numbers of groups that their members alone make
SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR = range(7)
# Milliseconds between two looks for a signal such as Ctrl-C.
_SLICE_MS = 100


class _Place(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("rank", c.c_int32), ("size", c.c_int32),
        ("reserved", c.c_int32), ("folder", c.c_char_p), ("interface", c.c_char_p),
        ("timeout_ms", c.c_int64), ("device", c.c_int32), ("reserved2", c.c_int32),
    ]  # fmt: skip


class _There(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("device", c.c_int32), ("ready", c.c_void_p)]


class _Exchange(c.Structure):
    _fields_ = [
        ("kind", c.c_uint32), ("op", c.c_uint32), ("dtype", c.c_int32), ("peer", c.c_int32),
        ("tag", c.c_int32), ("element", c.c_int32), ("count", c.c_int64),
        ("input", c.c_void_p), ("output", c.c_void_p),
        ("in_counts", c.POINTER(c.c_int64)), ("out_counts", c.POINTER(c.c_int64)),
        ("timeout_ms", c.c_int64),
    ]  # fmt: skip


@cache
def library() -> native.Library:
    """libtenon with the types of what is called here."""
    found = native.Library()
    lib = found.lib
    lib.tn_world_open.argtypes = [c.c_char_p, c.POINTER(_Place), c.c_int32, c.POINTER(c.c_void_p)]
    lib.tn_world_part.argtypes = [
        c.c_void_p, c.POINTER(c.c_int32), c.c_int32, c.c_uint32, c.c_int64,
        c.POINTER(c.c_void_p),
    ]  # fmt: skip
    lib.tn_world_start.argtypes = [
        c.c_void_p, c.POINTER(_Exchange), c.c_int32, c.POINTER(c.c_void_p),
    ]  # fmt: skip
    lib.tn_world_takes.argtypes = [c.c_void_p, c.POINTER(_Exchange), c.c_int32]
    lib.tn_world_start_there.argtypes = [
        c.c_void_p, c.POINTER(_Exchange), c.POINTER(_There), c.POINTER(c.c_void_p),
    ]  # fmt: skip
    lib.tn_work_follow.argtypes = [c.c_void_p, c.c_void_p, c.c_int64, c.POINTER(c.c_int32)]
    lib.tn_world_device.argtypes = [c.c_void_p]
    lib.tn_world_device.restype = c.c_char_p
    lib.tn_event_handle.argtypes = [c.c_void_p]
    lib.tn_event_handle.restype = c.c_void_p
    for name in ("tn_world_rank", "tn_world_size", "tn_world_close"):
        getattr(lib, name).argtypes = [c.c_void_p]
    lib.tn_work_give_up.argtypes = [c.c_void_p, c.c_char_p]
    lib.tn_work_give_up.restype = None
    lib.tn_world_on_loss.argtypes = [c.c_void_p, c.c_void_p, c.c_void_p]
    lib.tn_world_on_loss.restype = None
    lib.tn_world_abort.argtypes = [c.c_void_p, c.c_int32]
    lib.tn_work_wait.argtypes = [c.c_void_p, c.c_int64]
    for name in ("tn_work_done", "tn_work_lost", "tn_work_peer", "tn_work_unref"):
        getattr(lib, name).argtypes = [c.c_void_p]
    lib.tn_world_close.restype = lib.tn_work_unref.restype = None
    return found


def find(name: str) -> Path | None:
    """The library of an engine: `tenon_NAME.so` in TENON_ENGINE_PATH, or beside the plugins."""
    folders = [Path(p) for p in os.environ.get("TENON_ENGINE_PATH", "").split(os.pathsep) if p]
    for folder in [*folders, native.PLUGINS]:
        path = folder / f"tenon_{name}.so"
        if path.exists():
            return path.resolve()
    return None


# Says which processes have ended, where that can be known.
who_is_gone: Callable[[], list[str]] | None = None
# Why a message of none of some ranks of the default group can come, or can be waited for, any more.
why_none_sends: Callable[[list[int]], str | None] | None = None
# The kernel closes a process's connections a little before it lets go of its locks.
_LOOK_SECONDS = 0.3


def told_who_is_gone(err: BaseException) -> BaseException:
    """An error of a group that was lost, with the processes that have ended."""
    if isinstance(err, OSError):
        err = DistBackendError(str(err))
    if who_is_gone is None:
        return err
    deadline = time.monotonic() + _LOOK_SECONDS
    while not (gone := who_is_gone()) and time.monotonic() < deadline:
        time.sleep(0.01)
    err.args = (f"{err}; {', '.join(gone) if gone else 'the processes of all ranks still run'}",)
    return err


def waits_for_devices() -> bool:
    """Whether a program waits for what runs on devices itself, as its environment says."""
    names = ("TENON_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT")
    return any(os.environ.get(name, "0") not in ("", "0") for name in names)


# Memory that an engine may still write to, as its operation was given up: never freed.
_lost: list[Any] = []
# Operations that nobody may hold any more; what they work on has to stay until they are done.
_running: set[Operation] = set()


def _sweep() -> None:
    """Lets go of what is done. Other threads begin and end operations meanwhile: the list is made
    without Python's code between."""
    for ended in [o for o in list(_running) if o.done()]:
        ended.sweep()
        _running.discard(ended)


class Operation:
    """One operation that was started. `after` runs once, when it was waited for. senders: where it
    receives from any of these ranks of the default group, which an engine does not watch. there:
    the device that makes it; world: of which group."""

    def __init__(
        self,
        handle: c.c_void_p,
        keep: Any,
        after: Callable[[], None] | None,
        senders: list[int] | None,
        there: Any = None,
        world: World | None = None,
    ) -> None:
        self._handle, self._keep, self._after = handle, keep, after
        self._senders, self._there, self.world = senders, there, world
        self._error: BaseException | None = None
        self._ended = False

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended or bool(library().lib.tn_work_done(self._handle))

    def wait(self, seconds: float | None = None) -> None:
        """Waits for its end; raises what went wrong, or TimeoutError when the seconds are over.
        On a device the current stream waits, unless TENON_BLOCKING_WAIT says otherwise."""
        if self._there is not None and not self._ended:
            self._follow(seconds)
            if not waits_for_devices():
                return
        left = None if seconds is None else int(seconds * 1000)
        while not self._ended:
            span = _SLICE_MS if left is None else max(min(_SLICE_MS, left), 0)
            status = library().lib.tn_work_wait(self._handle, span)
            if library().lib.tn_work_done(self._handle):
                self._end(status)
                continue
            if self._senders and why_none_sends and (why := why_none_sends(self._senders)):
                library().lib.tn_work_give_up(self._handle, why.encode())
                continue
            if left is not None:
                left -= span
                if left <= 0:
                    raise TimeoutError(f"the operation did not end within {seconds} s")
        if self._error is not None:
            raise self._error

    def _follow(self, seconds: float | None) -> None:
        """Lets the current stream of its device wait for it, and finish its work."""
        stream = streams.current_stream(self._there)
        follows, end = c.c_int32(), None if seconds is None else time.monotonic() + seconds
        while not follows:
            library().lib.tn_work_follow(
                self._handle, stream.stream_id or None, _SLICE_MS, c.byref(follows)
            )
            if self.done():
                self._end(library().lib.tn_work_wait(self._handle, 0))
                if self._error is not None:
                    raise self._error
                return
            if not follows and end is not None and time.monotonic() > end:
                raise TimeoutError(f"the operation did not begin within {seconds} s")
        for tensor in self._keep:
            if isinstance(tensor, Tensor):
                tensor.record_stream(stream)
        after, self._after = self._after, None
        if after is not None:
            after()

    def settle(self) -> None:
        """Waits for its end, well or not: how it ended is told to those who wait() for it."""
        while not self.done():
            library().lib.tn_work_wait(self._handle, _SLICE_MS)

    def peer(self) -> int:
        """The rank in the group whose message it was."""
        return int(library().lib.tn_work_peer(self._handle))

    def error(self) -> BaseException | None:
        """What went wrong, of an operation that has ended."""
        if not self._ended and self.done():
            self._end(library().lib.tn_work_wait(self._handle, 0))
        return self._error

    def sweep(self) -> None:
        """It has ended, and nobody may ask how: memory that is lost stays."""
        if not self._ended and library().lib.tn_work_lost(self._handle):
            _lost.append(self._keep)

    def _end(self, status: int) -> None:
        self._ended = True
        _running.discard(self)
        lost = library().lib.tn_work_lost(self._handle)
        try:
            library().check(status)
        except Exception as err:
            self._error = told_who_is_gone(err) if lost else err
        if lost:
            _lost.append(self._keep)
        elif self._error is None and self._after is not None:
            self._after()
        self._keep = self._after = None

    def __del__(self) -> None:
        if hasattr(self, "_handle"):  # not what a copy was made of in vain
            library().lib.tn_work_unref(self._handle)

    def __reduce__(self) -> Any:
        raise TypeError("an operation of a process group cannot be copied or pickled")


class World:
    """A group of processes through an engine."""

    def __init__(self, handle: c.c_void_p) -> None:
        self._handle = handle
        self.rank: int = library().lib.tn_world_rank(handle)
        self.size: int = library().lib.tn_world_size(handle)
        device = library().lib.tn_world_device(handle)
        # The kind of device whose memory the engine reads and writes by itself.
        self.device: str | None = device.decode() if device else None

    @classmethod
    def open(
        cls, path: Path, rank: int, size: int, folder: str, interface: str | None, seconds: float,
        check: int, device: int = -1,
    ) -> World:  # fmt: skip
        """Joins all processes; every one of `size` calls it. device: that of this rank; -1: the
        engine chooses."""
        place = _Place(
            c.sizeof(_Place), rank, size, 0, folder.encode(),
            None if interface is None else interface.encode(), int(seconds * 1000), device, 0,
        )  # fmt: skip
        handle = c.c_void_p()
        status = library().lib.tn_world_open(
            str(path).encode(), c.byref(place), check, c.byref(handle)
        )
        library().check(status)
        # Python may wait in the very call that waits for what was lost: C's own functions end it.
        own = c.CDLL(None)
        ends = [c.cast(f, c.c_void_p) for f in (own.perror, own.abort)]
        library().lib.tn_world_on_loss(handle, *ends)
        return cls(handle)

    def part(self, ranks: list[int], seconds: float, number: int = 0) -> World | None:
        """The group of some ranks of this one; None on those that do not belong to it. With a
        number of its own only those call it that do."""
        numbers = (c.c_int32 * len(ranks))(*ranks)
        handle = c.c_void_p()
        status = library().lib.tn_world_part(
            self._handle, numbers, len(ranks), number, int(seconds * 1000), c.byref(handle)
        )
        try:
            library().check(status)
        except OSError as err:
            late = DistBackendError(
                f"new_group: a group of {len(ranks)} ranks was not made within {seconds:g} s: {err}"
            )
            raise told_who_is_gone(late) from None
        return World(handle) if handle else None

    def start(
        self,
        kind: int,
        seconds: float,
        *,
        input: Tensor | None = None,
        output: Tensor | None = None,
        count: int = 0,
        dtype: int = 1,
        element: int = 1,
        op: int = SUM,
        peer: int = 0,
        tag: int = 0,
        in_counts: list[int] | None = None,
        out_counts: list[int] | None = None,
        later: bool = False,
        after: Callable[[], None] | None = None,
        senders: list[int] | None = None,
        device: Any = None,
    ) -> Operation:
        """Starts an operation on packed tensors, of the CPU or of a device that the engine takes;
        count is that of one rank's part."""
        lists = [None if n is None else (c.c_int64 * len(n))(*n) for n in (in_counts, out_counts)]
        exchange = _Exchange(
            kind, op, dtype, peer, tag, element, count,
            None if input is None else input.data_ptr(),
            None if output is None else output.data_ptr(), *lists, int(seconds * 1000),
        )  # fmt: skip
        handle, event = c.c_void_p(), None
        if device is None:
            status = library().lib.tn_world_start(
                self._handle, c.byref(exchange), int(later), c.byref(handle)
            )
        else:
            if capture.is_current_stream_capturing():
                raise RuntimeError(f"{_NAMES[kind]}(): exchanges are not recorded in graphs")
            event = streams.Event(device)
            event.record()
            ready = library().lib.tn_event_handle(event._event)
            there = _There(c.sizeof(_There), device.index, ready)
            status = library().lib.tn_world_start_there(
                self._handle, c.byref(exchange), c.byref(there), c.byref(handle)
            )
        library().check(status)
        operation = Operation(handle, (input, output, event), after, senders, device, self)
        _sweep()
        if later or device is not None:
            _running.add(operation)
        return operation

    def takes(self, kind: int, op: int, dtype: int, device: int) -> bool:
        """Whether the engine makes an operation in memory of a device."""
        exchange = _Exchange(kind, op, dtype, 0, 0, dtype, 1)
        return bool(library().lib.tn_world_takes(self._handle, c.byref(exchange), device))

    def settle(self) -> None:
        """Waits until what this process has started has ended, on the device, too."""
        for operation in [o for o in list(_running) if o.world is self]:
            operation.settle()

    def abort(self, code: int) -> None:
        """Ends all processes, where the engine can."""
        library().lib.tn_world_abort(self._handle, code)

    def close(self) -> None:
        """Leaves the group."""
        if self._handle:
            library().lib.tn_world_close(self._handle)
            self._handle = c.c_void_p()
