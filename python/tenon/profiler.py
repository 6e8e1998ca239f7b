"""What ran when: operator calls and named spans, by the host's clock."""

from __future__ import annotations

import ctypes as c
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ContextDecorator
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any

from tenon._plugin.native import Library

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "supported_activities",
    "tensorboard_trace_handler",
]

_library = Library()
_lib = _library.lib
_KINDS = ("op", "range", "mark")


class _Span(c.Structure):
    _fields_ = [
        ("name", c.c_char_p),
        ("start_ns", c.c_int64),
        ("duration_ns", c.c_int64),
        ("thread", c.c_int64),
        ("kind", c.c_int64),
    ]


_lib.tn_profiler_at.argtypes = [c.c_int64, c.POINTER(_Span)]
_lib.tn_profiler_push.argtypes = [c.c_char_p]
_lib.tn_profiler_mark.argtypes = [c.c_char_p]


class ProfilerActivity(Enum):
    """What is measured: always the host's side of it."""

    CPU = 0
    CUDA = 1
    XPU = 2
    PrivateUse1 = 3


class ProfilerAction(Enum):
    """What a schedule says about a step, by PyTorch's names."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """A function that writes a profile into a folder, as a trace under the worker's name."""
    if use_gzip:
        raise NotImplementedError("tensorboard_trace_handler: traces are not compressed")
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def write(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        name = f"{worker}.{time.time_ns()}.pt.trace.json"
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return write


def supported_activities() -> set[ProfilerActivity]:
    """The activities that have a clock."""
    return {ProfilerActivity.CPU}


class record_function(ContextDecorator):  # noqa: N801 - PyTorch's name
    """A span of time under a name, for the recording and for the tools of a device's vendor."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name

    def __enter__(self) -> record_function:
        _library.check(_lib.tn_profiler_push(self.name.encode()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _library.check(_lib.tn_profiler_pop())


def mark(name: str) -> None:
    """A point in time under a name."""
    _library.check(_lib.tn_profiler_mark(name.encode()))


@dataclass
class FunctionEvent:
    """One operator call or span. Times are microseconds of a clock that starts somewhere."""

    name: str
    kind: str
    thread: int
    start: float
    cpu_time_total: float
    self_cpu_time_total: float = 0.0

    @property
    def key(self) -> str:
        return self.name

    @property
    def end(self) -> float:
        return self.start + self.cpu_time_total


@dataclass
class FunctionEventAvg:
    """All events of one name."""

    key: str
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0

    def add(self, event: FunctionEvent | FunctionEventAvg) -> None:
        self.count += getattr(event, "count", 1)
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total

    @property
    def cpu_time(self) -> float:
        """The mean, in microseconds."""
        return self.cpu_time_total / self.count if self.count else 0.0


def _time(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


class EventList(list[FunctionEventAvg]):
    """Averages by name, in the order of first appearance."""

    def total_average(self) -> FunctionEventAvg:
        """All of them as one; times that contain others count once."""
        total = FunctionEventAvg("Total")
        for average in self:
            total.add(average)
        total.cpu_time_total = total.self_cpu_time_total
        return total

    def table(self, sort_by: str | None = None, row_limit: int = 100, header: str = "") -> str:
        """As text; `sort_by` is count, cpu_time, cpu_time_total or self_cpu_time_total."""
        rows = list(self)
        if sort_by is not None:
            if sort_by not in ("count", "cpu_time", "cpu_time_total", "self_cpu_time_total"):
                raise ValueError(f"table: there is no column '{sort_by}' to sort by")
            rows.sort(key=lambda average: getattr(average, sort_by), reverse=True)
        total = sum(average.self_cpu_time_total for average in self)
        titles = ("Name", "Self CPU %", "Self CPU", "CPU total", "CPU time avg", "# of Calls")
        cells = [titles]
        for a in rows[: row_limit if row_limit >= 0 else None]:
            share = 100 * a.self_cpu_time_total / total if total else 0.0
            times = [_time(t) for t in (a.self_cpu_time_total, a.cpu_time_total, a.cpu_time)]
            cells.append((a.key, f"{share:.2f}%", *times, str(a.count)))
        widths = [max(len(row[i]) for row in cells) for i in range(len(titles))]
        rule = "  ".join("-" * width for width in widths)
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip()
            for row in cells
        ]
        above = [header] if header else []
        text = [*above, rule, lines[0], rule, *lines[1:], rule]
        return "\n".join([*text, f"Self CPU time total: {_time(total)}"]) + "\n"

    def __str__(self) -> str:
        return self.table()


def _read() -> list[FunctionEvent]:
    """The last recording, by start."""
    events: list[FunctionEvent] = []
    span = _Span()
    while _lib.tn_profiler_at(len(events), c.byref(span)) == 0:
        start, duration = span.start_ns / 1e3, span.duration_ns / 1e3
        kind, name = _KINDS[span.kind], (span.name or b"").decode()
        events.append(FunctionEvent(name, kind, span.thread, start, duration))
    events.sort(key=lambda e: (e.start, -e.cpu_time_total))
    return events


def _find_self_times(events: Iterable[FunctionEvent]) -> None:
    """What is left of a span when those inside it are taken off; `events` are in order of start."""
    open_spans: dict[int, list[FunctionEvent]] = {}
    for event in events:
        event.self_cpu_time_total = event.cpu_time_total
        outer = open_spans.setdefault(event.thread, [])
        while outer and outer[-1].end < event.end:
            outer.pop()
        if outer:
            outer[-1].self_cpu_time_total -= event.cpu_time_total
        outer.append(event)


@dataclass
class profile:  # noqa: N801 - PyTorch's name
    """`with profile() as p:` records the operator calls of this thread, and all named spans.

    The clock is the host's: on a device whose work is queued it measures the queueing.
    """

    activities: Iterable[ProfilerActivity] | None = None
    schedule: Callable[[int], Any] | None = None
    on_trace_ready: Callable[[profile], Any] | None = None
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False
    _events: list[FunctionEvent] = field(default_factory=list, init=False, repr=False)
    _steps: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("schedule", "record_shapes", "profile_memory", "with_stack", "with_flops"):
            if getattr(self, name):
                raise NotImplementedError(
                    f"profile: {name} is not there; it records names and times"
                )

    def start(self) -> None:
        """Starts the recording, of which there is one at a time."""
        _library.check(_lib.tn_profiler_start())

    def stop(self) -> None:
        """Ends the recording, and calls on_trace_ready."""
        _library.check(_lib.tn_profiler_stop())
        self._events = _read()
        _find_self_times(self._events)
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """Marks the end of a step of the program."""
        mark(f"ProfilerStep#{self._steps}")
        self._steps += 1

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def events(self) -> list[FunctionEvent]:
        """All events in the order of their start."""
        return self._events

    def key_averages(self, group_by_input_shape: bool = False) -> EventList:
        """Sums and means by name."""
        averages: dict[str, FunctionEventAvg] = {}
        for event in self._events:
            if event.kind != "mark":
                averages.setdefault(event.name, FunctionEventAvg(event.name)).add(event)
        return EventList(averages.values())

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a file for chrome://tracing and Perfetto."""
        process = os.getpid()
        trace = [
            {
                "name": e.name, "cat": e.kind, "pid": process, "tid": e.thread, "ts": e.start,
                **({"ph": "i"} if e.kind == "mark" else {"ph": "X", "dur": e.cpu_time_total}),
            }
            for e in self._events
        ]  # fmt: skip
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": trace, "displayTimeUnit": "ms"}, file)
