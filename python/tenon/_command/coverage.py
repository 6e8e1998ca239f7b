"""What a device computes by itself: for every operator and dtype of the table the way that a call
takes, kernel, wider dtype, composite or CPU."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tenon._plugin import native

# What stands in a report for each way, best first.
_MEANING = {
    "kernel": "a kernel of the device",
    "wider": "a kernel of the device, in a wider dtype",
    "composite": "other operators, each in its own way",
    "cpu": "the CPU, with copies both ways",
    "none": "cannot run",
}


def measure(device: str) -> dict[str, Any]:
    """The way of every operator and dtype, and how often each occurs. Views need no device."""
    library = native.Library()
    rows = json.loads((native.PACKAGE / "ops.json").read_text(encoding="utf-8"))
    every = library.dtypes()
    ops: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["kind"] != "view":
            dtypes = row["dtypes"] or every
            ops[row["name"]] = {d: library.way(row["name"], device, d) for d in dtypes}
    totals = Counter(way for ways in ops.values() for way in ways.values())
    return {
        "device": device,
        "describe": library.describe(device),
        "totals": {way: totals[way] for way in _MEANING},
        "ops": ops,
    }


def text(report: dict[str, Any]) -> str:
    """The report for people: one line per operator, totals below."""
    lines = [f"{report['device']}: {report['describe']}"]
    width = max(len(name) for name in report["ops"])
    for name, ways in report["ops"].items():
        parts = []
        for way in _MEANING:
            dtypes = [dtype for dtype, found in ways.items() if found == way]
            if len(dtypes) == len(ways):
                parts = [f"{way}: all"]
            elif dtypes:
                parts.append(f"{way}: {' '.join(dtypes)}")
        lines.append(f"{name:<{width}}  {'; '.join(parts)}")
    total = sum(report["totals"].values())
    lines.append("")
    for way, meaning in _MEANING.items():
        n = report["totals"][way]
        lines.append(f"{n:6} of {total}, {100 * n / total:5.1f} %  {way:<10} {meaning}")
    return "\n".join(lines)
