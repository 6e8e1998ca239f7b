"""How results are shown and kept: table rows, units, what machine this is."""

from __future__ import annotations

import hashlib
import math
import os
import platform
from collections.abc import Callable
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
    family: str
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


# -- standings -------------------------------------------------------------------------------------


def worst_forms(rows: list[Row]) -> list[Row]:
    """One row for each family of cases and number of threads: the form with the worst ratio."""
    worst: dict[tuple[str, int], Row] = {}
    for row in rows:
        key = row.family, row.threads
        if key not in worst or not row.ratio <= worst[key].ratio:
            worst[key] = row
    return list(worst.values())


def mean(values: list[float]) -> float:
    """The geometric mean of those that are numbers."""
    logs = [math.log(v) for v in values if v > 0]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def means(rows: list[Row]) -> dict[str, float]:
    """The geometric mean of the ratios by group, and of all."""
    groups = dict.fromkeys(r.group for r in rows)
    by_group = {g: mean([r.ratio for r in rows if r.group == g]) for g in groups}
    return {**by_group, "all": mean([r.ratio for r in rows])}


def standings(rows: list[Row]) -> str:
    """The means by group, and the ten that are furthest from their goals and from the limits."""
    rows = worst_forms(rows)
    lines = ["geometric means of the ratios, by the worst form of each case:"]
    lines += [f"  {group:24} {number(m)}" for group, m in means(rows).items()]

    def ten(title: str, what: str, measure: Callable[[Row], float]) -> None:
        known = sorted((r for r in rows if measure(r) > 0), key=measure, reverse=True)
        lines.append(f"{title}:")
        lines.extend(f"  {r.case:34} {r.threads}T {measure(r):8.3g} {what}" for r in known[:10])

    ten("furthest behind PyTorch", "of its time", lambda r: r.ratio)
    ten("furthest from the goal", "x goal", lambda r: r.excess)
    ten("furthest from the limit", "x limit", lambda r: 1 / r.reached)
    return "\n".join(lines)


MOVED = 1.1  # times that differ by less are weather


def compare(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Two records of --json: what moved, by our time and by the ratio, and the means."""
    before, after = ({(r["case"], r["threads"]): r for r in f["rows"]} for f in (old, new))
    moved: list[tuple[float, str]] = []
    ratios: list[float] = []
    for key in [k for k in after if k in before]:
        a, b = before[key], after[key]
        if not a["times"].get("tenon") or not b["times"].get("tenon"):
            continue
        change = b["times"]["tenon"] / a["times"]["tenon"]
        ratios.append(change)
        if not 1 / MOVED < change < MOVED:
            times = " -> ".join(duration(r["times"]["tenon"]) for r in (a, b))
            beside = " -> ".join(number(r["ratio"] or math.nan) for r in (a, b))
            moved.append((change, f"{key[0]:34} {key[1]}T {times:24} {change:6.2f}x  {beside}"))
    lines = [text for _, text in sorted(moved, reverse=True)]
    lines.append(f"{len(ratios)} cases in both; geometric mean of the changes {mean(ratios):.3f}")
    for what, keys in (
        ("only before", before.keys() - after),
        ("only after", after.keys() - before),
    ):
        if keys:
            lines.append(f"{what}: {', '.join(sorted({k[0] for k in keys}))}")
    return "\n".join(lines)


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
