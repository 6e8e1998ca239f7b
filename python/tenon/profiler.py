"""What ran when: operator calls and named spans, by the host's clock."""

from __future__ import annotations

import ctypes as c
import gzip
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import ContextDecorator
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any

from tenon import ops, overrides
from tenon._plugin.native import Library

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
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
    XPU = 1
    CUDA = 2
    HPU = 3
    MTIA = 4
    PrivateUse1 = 5


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
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def write(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return write


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """What to do at each step: rounds of steps that wait, warm up and record, after skip_first
    steps. `repeat` is how many rounds there are, 0 for no end; skip_first_wait leaves out the
    waiting of the first round."""
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} "
            f"(need >= 0), active={active} (need > 0), repeat={repeat} (need >= 0), "
            f"skip_first={skip_first} (need >= 0)."
        )
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        step += wait if skip_first_wait else 0
        if repeat and step // length >= repeat:
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == length - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def kineto_available() -> bool:
    """Whether `profile` with its schedules and traces is there."""
    return True


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


def _enter_span(name: str, args: str | None = None) -> record_function:
    """`ops.profiler._record_function_enter`: a span for programs that cannot say `with`, such as
    recorded graphs; _exit_span ends it."""
    return record_function(name, args).__enter__()


def _exit_span(span: record_function) -> Any:
    if overrides.has_torch_function((span,)):  # a graph is being recorded
        return overrides.handle_torch_function(ops.profiler._record_function_exit, (span,), span)
    if not isinstance(span, record_function):
        raise RuntimeError(f"_record_function_exit() expects a span, not {type(span).__name__}")
    span.__exit__(None, None, None)


for _name in ("_record_function_enter", "_record_function_enter_new"):
    ops.define("profiler", _name, _enter_span)
ops.define("profiler", "_record_function_exit", _exit_span)


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
    input_shapes: list[Any] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0

    @property
    def key(self) -> str:
        return self.name

    @property
    def cpu_time(self) -> float:
        """The time of this one call."""
        return self.cpu_time_total

    @property
    def is_user_annotation(self) -> bool:
        """Whether a program named it, by record_function."""
        return self.kind == "range"

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
    input_shapes: list[Any] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0
    is_user_annotation: bool = False

    def add(self, event: FunctionEvent | FunctionEventAvg) -> None:
        self.count += getattr(event, "count", 1)
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total

    @property
    def cpu_time(self) -> float:
        """The mean, in microseconds."""
        return self.cpu_time_total / self.count if self.count else 0.0


_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}


def _time(microseconds: float, unit: str | None = None) -> str:
    if unit is None:
        unit = next((u for u, size in _UNITS.items() if microseconds >= size), "us")
    return f"{microseconds / _UNITS[unit]:.3f}{unit}"


# Columns by which PyTorch's tables can be sorted and that have no clock or counter here.
_UNMEASURED = {
    f"{own}{place}_{what}"
    for own in ("", "self_")
    for place in ("cpu", "cuda", "xpu", "device", "privateuse1")
    for what in ("memory_usage", "time_total", "time")
}
_COLUMNS = ("count", "cpu_time", "cpu_time_total", "self_cpu_time_total")


class EventList(list[FunctionEventAvg]):
    """Averages by name, in the order of first appearance."""

    @property
    def self_cpu_time_total(self) -> float:
        """Times that contain others count once."""
        return sum(average.self_cpu_time_total for average in self)

    def total_average(self) -> FunctionEventAvg:
        """All of them as one; times that contain others count once."""
        total = FunctionEventAvg("Total")
        for average in self:
            total.add(average)
        total.cpu_time_total = total.self_cpu_time_total
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """As text; `sort_by` is count, cpu_time, cpu_time_total or self_cpu_time_total. By a
        column that is not measured, such as the times of a GPU, the order stays. time_unit: s, ms
        or us for all times, else one that fits each."""
        if time_unit is not None and time_unit not in _UNITS:
            raise ValueError(
                f"table: time_unit must be one of {list(_UNITS)}, but got {time_unit!r}"
            )
        del max_src_column_width, max_shapes_column_width, top_level_events_only
        rows = list(self)
        if sort_by is not None and (sort_by in _COLUMNS or sort_by not in _UNMEASURED):
            if sort_by not in _COLUMNS:
                raise ValueError(f"table: there is no column '{sort_by}' to sort by")
            rows.sort(key=lambda average: getattr(average, sort_by), reverse=True)
        total = sum(average.self_cpu_time_total for average in self)
        titles = ("Name", "Self CPU %", "Self CPU", "CPU total", "CPU time avg", "# of Calls")
        cells = [titles]
        for a in rows[: row_limit if row_limit >= 0 else None]:
            share = 100 * a.self_cpu_time_total / total if total else 0.0
            times = [
                _time(t, time_unit) for t in (a.self_cpu_time_total, a.cpu_time_total, a.cpu_time)
            ]
            name = a.key
            if 3 < max_name_column_width < len(name):
                name = name[: max_name_column_width - 3] + "..."
            cells.append((name, f"{share:.2f}%", *times, str(a.count)))
        widths = [max(len(row[i]) for row in cells) for i in range(len(titles))]
        rule = "  ".join("-" * width for width in widths)
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip()
            for row in cells
        ]
        above = [header] if header else []
        text = [*above, rule, lines[0], rule, *lines[1:], rule]
        return "\n".join([*text, f"Self CPU time total: {_time(total, time_unit)}"]) + "\n"

    def __str__(self) -> str:
        return self.table()


def _read() -> list[FunctionEvent]:
    """The last recording, by start."""
    events: list[FunctionEvent] = []
    span = _Span()
    while _lib.tn_profiler_at(len(events), c.byref(span)) == 0:
        start, duration = span.start_ns / 1e3, span.duration_ns / 1e3
        kind, name = _KINDS[span.kind], (span.name or b"").decode()
        if kind == "op" and "::" not in name:  # operators of plugins say their own namespace
            name = f"aten::{name}"
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
    experimental_config: Any = None
    execution_trace_observer: Any = None
    acc_events: bool = False
    use_cuda: bool | None = None
    custom_trace_id_callback: Any = None
    step_num: int = field(default=0, init=False)
    _events: list[FunctionEvent] = field(default_factory=list, init=False, repr=False)
    _metadata: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _action: ProfilerAction = field(default=ProfilerAction.NONE, init=False, repr=False)
    _recording: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        ignored = ("record_shapes", "profile_memory", "with_stack", "with_flops")
        asked = [name for name in ignored if getattr(self, name)]
        if asked:
            warnings.warn(
                f"profile: {', '.join(asked)}: not measured; it records names and times",
                stacklevel=3,
            )

    def _planned(self) -> ProfilerAction:
        """What this step asks for."""
        if self.schedule is None:
            return ProfilerAction.RECORD
        return ProfilerAction(self.schedule(self.step_num))

    def _record(self, wanted: bool) -> None:
        """Starts or ends the recording, of which there is one at a time."""
        if wanted and not self._recording:
            _library.check(_lib.tn_profiler_start())
        elif self._recording and not wanted:
            _library.check(_lib.tn_profiler_stop())
            events = _read()
            _find_self_times(events)
            self._events = [*self._events, *events] if self.acc_events else events
        self._recording = wanted

    def _go_to(self, action: ProfilerAction) -> None:
        """From one step's action to the next one's; a round that ends hands over what it has."""
        if self._action is ProfilerAction.RECORD_AND_SAVE:
            self._record(False)
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        self._record(action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE))
        self._action = action

    def start(self) -> None:
        """Starts with the first step."""
        self._go_to(self._planned())

    def stop(self) -> None:
        """Ends the recording, and calls on_trace_ready where something was being recorded."""
        busy = self._recording
        if not busy and self.schedule is None:
            _library.check(_lib.tn_profiler_stop())
        self._record(False)
        self._action = ProfilerAction.NONE
        if busy and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """Marks the end of a step of the program, and goes on to what the schedule says."""
        if self._recording:
            mark(f"ProfilerStep#{self.step_num}")
        self.step_num += 1
        self._go_to(self._planned())

    def add_metadata(self, key: str, value: str) -> None:
        """Text for the trace."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """What the trace holds under the key, as a text of JSON."""
        self._metadata[key] = json.loads(value)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Stacks are not recorded: raises."""
        raise NotImplementedError("profile.export_stacks: no stacks are recorded")

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

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0
    ) -> EventList:
        """Sums and means by name; shapes and stacks, which are not recorded, make no groups."""
        averages: dict[str, FunctionEventAvg] = {}
        for event in self._events:
            if event.kind != "mark":
                fresh = FunctionEventAvg(event.name, is_user_annotation=event.is_user_annotation)
                averages.setdefault(event.name, fresh).add(event)
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
        text = json.dumps({"traceEvents": trace, "displayTimeUnit": "ms", **self._metadata})
        if os.fspath(path).endswith(".gz"):
            with gzip.open(path, "wt", encoding="utf-8") as packed:
                packed.write(text)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
