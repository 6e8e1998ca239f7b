"""Streams and events of GPUs."""

from __future__ import annotations

from contextlib import nullcontext
from types import TracebackType
from typing import Any

from tenon._device import streams
from tenon.cuda import _base

__all__ = [
    "Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream",
]  # fmt: skip


class Stream(streams.Stream):
    """A queue of work on a GPU, the current one if none is given."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        _base.require("Stream")
        super().__init__(_base.module._name(device), priority=priority)

    @property
    def cuda_stream(self) -> int:
        """The driver's handle, for other libraries; 0: the default stream."""
        return self.stream_id

    def __repr__(self) -> str:
        return f"<tenon.cuda.Stream device={self.device} cuda_stream={self.stream_id:#x}>"


class Event(streams.Event):
    """A mark in a queue of work. It belongs to the GPU where it is recorded first."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        _base.require("Event")
        if interprocess:
            raise NotImplementedError("cuda.Event: events are not shared between processes")
        self._timing, self._recorded = enable_timing, False
        super().__init__(_base.module._name(), enable_timing=enable_timing)

    def record(self, stream: streams.Stream | None = None) -> None:
        """Puts the mark into a stream, the current one if none is given."""
        stream = stream if stream is not None else current_stream()
        if stream.device != self.device and not self._recorded:
            self.__del__()
            super().__init__(stream.device, enable_timing=self._timing)
        self._recorded = True
        super().record(stream)


class StreamContext:
    """Work inside goes to a stream, and "cuda" stands for its device."""

    def __init__(self, stream: streams.Stream) -> None:
        self._stream = stream
        self._device = _base.module.device(stream.device)

    def __enter__(self) -> streams.Stream:
        self._device.__enter__()
        return self._stream.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.__exit__(kind, value, trace)
        self._device.__exit__()


def stream(stream: streams.Stream | None) -> Any:
    """A with statement inside which work goes to a stream; None changes nothing."""
    return nullcontext() if stream is None else StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    """The stream that the calling thread's work on a GPU goes to."""
    _base.require("current_stream")
    return Stream._current(_base.module._name(device))


def default_stream(device: Any = None) -> Stream:
    """The stream that a GPU has by itself."""
    _base.require("default_stream")
    return Stream._default(_base.module._name(device))


def set_stream(stream: Stream) -> None:
    """Sends the calling thread's work on the stream's GPU there from now on."""
    _base.module.set_device(stream.device)
    stream._set()
