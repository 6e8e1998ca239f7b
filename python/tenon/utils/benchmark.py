"""Timer: how long a statement takes, by PyTorch's names, measured by the standard `timeit`."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tenon

__all__ = ["Compare", "Measurement", "Timer"]

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def _unit(seconds: float) -> tuple[float, str]:
    return next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])


@dataclass
class Measurement:
    """Times of a statement: `raw_times` are seconds for `number_per_run` runs each."""

    number_per_run: int
    raw_times: list[float]
    label: str = "stmt"
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def times(self) -> list[float]:
        """Seconds of one run, for each measurement."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def mean(self) -> float:
        """Seconds."""
        return statistics.fmean(self.times)

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.times)

    @property
    def iqr(self) -> float:
        """Between the first and the third quartile, in seconds."""
        if len(self.times) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.times, n=4, method="inclusive")
        return third - first

    @property
    def title(self) -> str:
        """Label and sub-label."""
        return f"{self.label}: {self.sub_label}" if self.sub_label else self.label

    def __repr__(self) -> str:
        size, unit = _unit(self.median)
        lines = [f"<tenon.utils.benchmark.Measurement object>\n{self.title}"]
        if self.description:
            lines.append(self.description)
        lines.append(f"  Median: {self.median / size:.2f} {unit}")
        lines.append(f"  IQR:    {self.iqr / size:.2f} {unit}")
        runs = f"{len(self.times)} measurements, {self.number_per_run} runs per measurement"
        threads = f"{self.num_threads} thread" + ("s" if self.num_threads > 1 else "")
        return "\n".join([*lines, f"  {runs}, {threads}"])


@contextmanager
def _threads(number: int) -> Iterator[None]:
    kept = tenon.get_num_threads()
    tenon.set_num_threads(number)
    try:
        yield
    finally:
        tenon.set_num_threads(kept)


class Timer:
    """Times `stmt`. It runs on `num_threads` threads, one unless said, and devices are waited for
    where `timer` is left as it is."""

    def __init__(
        self,
        stmt: str | Callable[[], Any] = "pass",
        setup: str | Callable[[], Any] = "pass",
        global_setup: str = "",
        timer: Callable[[], float] | None = None,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Any = "python",
    ) -> None:
        if str(getattr(language, "name", language)).lower() not in ("python", "py"):
            raise ValueError(f"Timer: only Python statements are timed, not {language!r}")
        if global_setup:
            raise ValueError("Timer: global_setup is for C++ statements; setup is for Python")
        # As in PyTorch, a statement finds the package by its name.
        scope = {"torch": tenon, "tenon": tenon, **(globals or {})}
        self._timer = timeit.Timer(stmt, setup, timer or self._now, scope)
        text = stmt if isinstance(stmt, str) else getattr(stmt, "__name__", "stmt")
        self._about = {
            "label": label or text, "sub_label": sub_label, "description": description,
            "env": env, "num_threads": num_threads,
        }  # fmt: skip
        self._num_threads = num_threads

    @staticmethod
    def _now() -> float:
        if tenon.accelerator.is_available():
            tenon.accelerator.synchronize()
        return timeit.default_timer()

    def _measured(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, **self._about)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One measurement of `number` runs, after a warm-up of a hundredth."""
        with _threads(self._num_threads):
            self._timer.timeit(max(number // 100, 2))
            return self._measured(number, [self._timer.timeit(number)])

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Measurements until `min_run_time` seconds have gone by, of as many runs each as make the
        clock's own time small."""
        with _threads(self._num_threads):
            number = self._block_size(min_run_time)
            times: list[float] = []
            while sum(times) < min_run_time:
                times.append(self._timer.timeit(number))
                if callback is not None:
                    callback(number, times[-1])
            return self._measured(number, times)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Measurements until the spread (IQR / median) is below `threshold`."""
        with _threads(self._num_threads):
            number = self._block_size(min_run_time)
            times: list[float] = []
            while sum(times) < max_run_time:
                times.append(self._timer.timeit(number))
                if callback is not None:
                    callback(number, times[-1])
                found = self._measured(number, times)
                if len(times) >= 4 and sum(times) >= min_run_time:
                    if found.iqr / found.median < threshold:
                        break
            return self._measured(number, times)

    def _block_size(self, min_run_time: float) -> int:
        number = 1
        while self._timer.timeit(number) < min_run_time / 1000 and number < 10**9:
            number *= 10
        return number


class Compare:
    """A table of measurements: a row for each sub-label, a column for each description."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results = list(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Adds measurements."""
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Taken for the name's sake: two digits after the point are shown."""

    def colorize(self, rowwise: bool = False) -> None:
        """Taken for the name's sake: the table has no colours."""

    def __str__(self) -> str:
        if not self._results:
            return "(no measurements)"
        size, unit = _unit(min(m.median for m in self._results))
        labels = dict.fromkeys(m.label for m in self._results)
        tables = [self._table(label, size, unit) for label in labels]
        return "\n\n".join([*tables, f"Times are in {unit}."])

    def _table(self, label: str, size: float, unit: str) -> str:
        mine = [m for m in self._results if m.label == label]
        columns = list(dict.fromkeys(m.description or "" for m in mine))
        cells: dict[tuple[int, str], dict[str, str]] = {}
        for m in mine:
            row = cells.setdefault((m.num_threads, m.sub_label or m.label), {})
            row[m.description or ""] = f"{m.median / size:.2f}"
        lines = [[f"{n} threads: {name}", *(row.get(c, "") for c in columns)]
                 for (n, name), row in cells.items()]  # fmt: skip
        lines.insert(0, [label, *columns])
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns) + 1)]
        return "\n".join(
            " | ".join(
                [line[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(line[1:], widths[1:])]
            )
            for line in lines
        )

    def print(self) -> None:
        """Prints the table."""
        print(self)
