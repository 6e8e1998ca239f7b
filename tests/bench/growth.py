"""The picture of `--growth`: time against size, on logarithmic axes, a panel a case."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from registry import CACHES, CASES
from report import Row

COLOURS = {"tenon": "#1f6f8b", "torch": "#d1495b", "numpy": "#8d96a3"}
Point = tuple[int, Row]


def panels(rows: list[Row]) -> dict[str, list[Point]]:
    """What was measured, by kind and in the order of sizes: `name[128]` is of the kind `name`."""
    found: dict[str, list[Point]] = {}
    for row in rows:
        kind, _, size = row.case.partition("[")
        found.setdefault(kind, []).append((int(size.rstrip("]")), row))
    return {kind: sorted(points, key=lambda p: p[0]) for kind, points in found.items()}


def knees(points: list[Point]) -> list[tuple[str, int]]:
    """The first size whose data no longer fits a cache, for each cache."""
    found = []
    for name, room in CACHES:
        beyond = [n for n, row in points if CASES[row.case].bytes > room]
        if beyond and beyond[0] != points[0][0]:
            found.append((name, beyond[0]))
    return found


def draw(rows: list[Row], path: Path) -> str:
    """Writes the picture; what it returns says where, or why there is none."""
    if find_spec("matplotlib") is None:
        return "no picture: matplotlib is not installed"
    import_module("matplotlib").use("Agg")
    plt: Any = import_module("matplotlib.pyplot")
    of_threads = {n: panels([r for r in rows if r.threads == n]) for n in {r.threads for r in rows}}
    kinds = list(dict.fromkeys(kind for one in of_threads.values() for kind in one))
    columns = min(4, len(kinds))
    shape = (-(-len(kinds) // columns), columns)
    figure, axes = plt.subplots(*shape, figsize=(4.4 * columns, 3.6 * shape[0]), squeeze=False)
    for axis in axes.flat[len(kinds) :]:
        axis.set_axis_off()
    for axis, kind in zip(axes.flat, kinds, strict=False):
        for threads, found in of_threads.items():
            panel(axis, found.get(kind, []), threads, threads == min(of_threads))
        axis.set(xscale="log", yscale="log", title=kind.replace("_", " "), ylabel="seconds")
        axis.grid(alpha=0.2)
    axes.flat[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return f"the picture is {path}"


def panel(axis: Any, points: list[Point], threads: int, first: bool) -> None:
    for name, colour in COLOURS.items():
        times = [(n, row.times[name]) for n, row in points if name in row.times]
        if times:
            style = {"color": colour, "marker": ".", "linestyle": "-" if first else ":"}
            style["label"] = f"{name}, {threads} thread{'s' * (threads > 1)}"
            axis.plot(*zip(*times, strict=True), **style)
    if not first:
        return
    limits = [(n, row.limit) for n, row in points if row.limit == row.limit]
    if limits:
        axis.plot(*zip(*limits, strict=True), "k--", linewidth=0.8, label="the machine's limit")
    for name, n in knees(points):
        axis.axvline(n, color="black", alpha=0.25, linewidth=0.8)
        axis.annotate(f"beyond {name}", (n, 0.02), xycoords=("data", "axes fraction"), fontsize=7)
