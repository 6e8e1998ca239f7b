"""Streams and events: queues of work on a device, and marks in them."""

from __future__ import annotations

import ctypes as c
from types import TracebackType
from typing import Any

from tenon import _C
from tenon._plugin.native import Library, _Device

__all__ = ["Event", "Stream", "current_stream", "stream"]

_library = Library()
_lib = _library.lib
_lib.tn_stream_new.argtypes = [_Device, c.c_int32, c.POINTER(c.c_void_p)]
_lib.tn_stream_default.argtypes = [_Device, c.POINTER(c.c_void_p)]
_lib.tn_stream_ref.argtypes = [c.c_void_p]
_lib.tn_stream_ref.restype = c.c_void_p
_lib.tn_stream_unref.argtypes = [c.POINTER(c.c_void_p)]
_lib.tn_stream_unref.restype = None
_lib.tn_stream_handle.argtypes = [c.c_void_p]
_lib.tn_stream_handle.restype = c.c_void_p
_lib.tn_stream_sync.argtypes = [c.c_void_p]
_lib.tn_stream_done.argtypes = [c.c_void_p, c.POINTER(c.c_int)]
_lib.tn_stream_wait.argtypes = [c.c_void_p, c.c_void_p]
_lib.tn_stream_current.argtypes = [_Device]
_lib.tn_stream_current.restype = c.c_void_p
_lib.tn_stream_set_current.argtypes = [_Device, c.c_void_p]
_lib.tn_event_new.argtypes = [_Device, c.c_int, c.POINTER(c.c_void_p)]
_lib.tn_event_unref.argtypes = [c.POINTER(c.c_void_p)]
_lib.tn_event_unref.restype = None
_lib.tn_event_record.argtypes = [c.c_void_p, c.c_void_p]
_lib.tn_event_sync.argtypes = [c.c_void_p]
_lib.tn_event_done.argtypes = [c.c_void_p, c.POINTER(c.c_int)]
_lib.tn_event_elapsed.argtypes = [c.c_void_p, c.c_void_p, c.POINTER(c.c_double)]


def _device_of(device: Any) -> _C.device:
    """A device with an index, the current one if none is given; no device given: the CPU."""
    found = _C.device("cpu" if device is None else device)
    if found.index is not None or found.type == "cpu":
        return _C.device(found.type, found.index or 0)
    return _C.device(found.type, _library.device(found.type).index)


class Stream:
    """A queue of work on a device.

    Kernels and copies of a thread go to its current stream of their device: to its default one
    unless `with stream:` says otherwise. On a device without streams all of them are the one queue
    that it has.
    """

    def __init__(self, device: Any = None, *, priority: int = 0) -> None:
        self._start(device, priority)
        _library.check(_lib.tn_stream_new(self._where, priority, c.byref(self._stream)))

    def _start(self, device: Any, priority: int = 0) -> None:
        self.device = _device_of(device)
        self.priority = priority
        self._before: list[Stream] = []
        self._stream = c.c_void_p()
        self._where = _library.device(str(self.device))

    @classmethod
    def _default(cls, device: Any) -> Stream:
        """The queue that the device has by itself."""
        stream = cls.__new__(cls)
        stream._start(device)
        _library.check(_lib.tn_stream_default(stream._where, c.byref(stream._stream)))
        return stream

    @classmethod
    def _current(cls, device: Any) -> Stream:
        """The stream in force for the calling thread."""
        stream = cls.__new__(cls)
        stream._start(device)
        pointer = _lib.tn_stream_current(stream._where)
        if not pointer:
            return cls._default(stream.device)
        stream._stream = c.c_void_p(_lib.tn_stream_ref(pointer))
        return stream

    def __del__(self) -> None:
        if getattr(self, "_stream", None):
            _lib.tn_stream_unref(c.byref(self._stream))

    @property
    def stream_id(self) -> int:
        """The device's own handle; 0: its default queue."""
        return _lib.tn_stream_handle(self._stream) or 0

    def synchronize(self) -> None:
        """Waits for the work in the queue, and raises what went wrong in it."""
        _library.check(_lib.tn_stream_sync(self._stream))

    def query(self) -> bool:
        """Whether all work in the queue is done."""
        done = c.c_int()
        _library.check(_lib.tn_stream_done(self._stream, c.byref(done)))
        return done.value != 0

    def record_event(self, event: Event | None = None) -> Event:
        """Puts a mark into the queue."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Work that is queued from now on starts when the event has come up."""
        _library.check(_lib.tn_stream_wait(self._stream, event._event))

    def wait_stream(self, stream: Stream) -> None:
        """Work that is queued from now on starts when the other queue's work so far is done."""
        self.wait_event(stream.record_event())

    def __enter__(self) -> Stream:
        self._before.append(current_stream(self.device))
        self._set()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._before.pop()._set()

    def _set(self) -> None:
        """Makes it the thread's stream of its device."""
        stream = self._stream if self.stream_id else None  # None: the default, and no look-up
        _library.check(_lib.tn_stream_set_current(self._where, stream))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return self.device == other.device and self.stream_id == other.stream_id

    def __hash__(self) -> int:
        return hash((self.device, self.stream_id))

    def __repr__(self) -> str:
        return f"tenon.Stream device={self.device}, stream_id={self.stream_id:#x}"


class Event:
    """A mark in a queue of work, to wait for and to measure time with."""

    def __init__(self, device: Any = None, *, enable_timing: bool = False) -> None:
        self.device = _device_of(device)
        self._event = c.c_void_p()
        where = _library.device(str(self.device))
        _library.check(_lib.tn_event_new(where, enable_timing, c.byref(self._event)))

    def __del__(self) -> None:
        if getattr(self, "_event", None):
            _lib.tn_event_unref(c.byref(self._event))

    def record(self, stream: Stream | None = None) -> None:
        """Puts the mark into a queue, the current one if none is given."""
        _library.check(_lib.tn_event_record(self._event, stream._stream if stream else None))

    def wait(self, stream: Stream | None = None) -> None:
        """Lets a queue, the current one if none is given, wait for the mark."""
        (stream or current_stream(self.device)).wait_event(self)

    def query(self) -> bool:
        """Whether the mark has come up."""
        done = c.c_int()
        _library.check(_lib.tn_event_done(self._event, c.byref(done)))
        return done.value != 0

    def synchronize(self) -> None:
        """Waits until the mark has come up."""
        _library.check(_lib.tn_event_sync(self._event))

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this mark to another one."""
        ms = c.c_double()
        _library.check(_lib.tn_event_elapsed(self._event, end_event._event, c.byref(ms)))
        return ms.value

    def __repr__(self) -> str:
        return f"tenon.Event device={self.device}"


def stream(stream: Stream) -> Stream:
    """`with stream(s):` sends the thread's work on s's device to s."""
    return stream


def current_stream(device: Any = None) -> Stream:
    """The stream that the calling thread's work on a device goes to."""
    return Stream._current(device)
