"""How results are shown and kept: table rows, units, what machine this is."""

from __future__ import annotations

import hashlib
import math
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from process import Taken

SLOWER = 1.05  # two threads may take this much of one thread's time before it is pointed out


@dataclass
class Row:
    """One case at one number of threads; times in seconds."""

    case: str
    group: str
    threads: int
    goal: float
    limit: float
    share: float = math.nan
    times: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)
    slower_than_one: bool = False

    @property
    def ours(self) -> float:
        return self.times.get("tenon", math.nan)

    @property
    def ratio(self) -> float:
        return self.ours / self.times.get("torch", math.nan)

    @property
    def excess(self) -> float:
        """How many times the goal: by the ratio, or by the share of the limit; the worse of both,
        NaN where there is neither."""
        both = (self.ratio / self.goal, self.share / self.reached)
        return max((x for x in both if not math.isnan(x)), default=math.nan)

    @property
    def over(self) -> bool:
        return self.excess > 1

    @property
    def beyond_limit(self) -> bool:
        """PyTorch is so close to the limit that no one can reach the goal here."""
        return self.goal * self.times.get("torch", math.nan) < self.limit

    @property
    def reached(self) -> float:
        """How much of what the machine can do at most."""
        return self.limit / self.ours

    @property
    def note(self) -> str:
        notes = [f"{name}: {text}" for name, text in self.errors.items()]
        notes += [f"result differs from {name}'s" for name in self.differs]
        if self.slower_than_one:
            notes.append("slower than one thread")
        if self.over:
            notes.insert(0, "over, goal beyond the limit" if self.beyond_limit else "over")
        return "; ".join(notes)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "reached": self.reached, "over": self.over}


def duration(s: float) -> str:
    for scale, unit in ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms")):
        if s < 1000 * scale:
            return f"{s / scale:.3g} {unit}"
    return "-" if math.isnan(s) else f"{s:.3g} s"


def size(n: float) -> str:
    return "-" if math.isnan(n) else f"{n / 1e6:.4g} MB"


def number(x: float) -> str:
    return "-" if math.isnan(x) else f"{x:.2f}"


def count(x: float) -> str:
    return "-" if math.isnan(x) else f"{x:.4g}"


def percent(x: float) -> str:
    return "-" if math.isnan(x) else f"{100 * x:.0f} %"


HEAD = ("case", "threads", "tenon", "torch", "numpy", "ratio", "goal", "of limit", "")


def line(cells: tuple[str, ...]) -> str:
    widths = (34, 7, 8, 8, 8, 5, 5, 8, 0)
    return f"| {' | '.join(c.ljust(w) for c, w in zip(cells, widths, strict=True))} |"


def head() -> str:
    return f"{line(HEAD)}\n{'| --- ' * len(HEAD)}|"


def row_line(row: Row) -> str:
    times = (duration(row.times.get(f, math.nan)) for f in ("tenon", "torch", "numpy"))
    return line(
        (row.case, str(row.threads), *times, number(row.ratio),
         number(row.goal) if math.isnan(row.share) else percent(row.share),
         percent(row.reached), row.note)
    )  # fmt: skip


def taken_line(taken: Taken) -> str:
    figure = taken.figure
    show = {"s": duration, "B": size, "x": number, "count": count}[figure.unit]
    values = (show(taken.values.get(f, math.nan)) for f in ("tenon", "torch", "numpy"))
    notes = ["over"] if taken.over else []
    if not math.isnan(figure.most):
        notes.append(f"at most {show(figure.most)}")
    notes += [f"{name}: {text}" for name, text in taken.errors.items()]
    return line(
        (figure.name, "-", *values, number(taken.ratio), number(figure.goal), "-", "; ".join(notes))
    )


def machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        model = next((x.split(":")[1].strip() for x in lines if "model name" in x), model)
    ident = Path("/etc/machine-id")
    name = ident.read_text() if ident.exists() else platform.node()
    driver = Path("/sys/module/nvidia/version")
    return {
        "id": hashlib.sha256(name.encode()).hexdigest()[:12],
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "nvidia_driver": driver.read_text().strip() if driver.exists() else None,
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def finite(value: Any) -> Any:
    """The same without NaN, which JSON lacks."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
