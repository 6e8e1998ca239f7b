"""Totals by tier and section, and what fails, in words."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

TIERS = {
    group: {name: int(tier) for tier, names in tiers.items() for name in names}
    for group, tiers in tomllib.loads(Path(__file__).with_name("tiers.toml").read_text()).items()
}
LAST = 4


def tier(group: str, name: str) -> int:
    return TIERS.get(group, {}).get(name, LAST)


def totals(records: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, list[int]]]]:
    """group -> section -> tier -> [entries all of whose samples pass, entries]."""
    out: Any = defaultdict(lambda: defaultdict(lambda: defaultdict(lambda: [0, 0])))
    for r in records:
        if r["samples"]:
            for key in (str(r["tier"]), "all"):
                cell = out[r["group"]][r["section"]][key]
                cell[0] += not r["failures"]
                cell[1] += 1
    return {g: {s: dict(cells) for s, cells in sections.items()} for g, sections in out.items()}


def table(records: list[dict[str, Any]]) -> str:
    lines = []
    columns = [*map(str, range(1, LAST + 1)), "all"]
    for group, sections in totals(records).items():
        lines += [f"| {group} | " + " | ".join(f"tier {c}" for c in columns[:-1]) + " | all |"]
        lines += ["|---" * (len(columns) + 1) + "|"]
        for section, cells in sections.items():
            row = [f"{a} of {b}" if b else "" for a, b in (cells.get(c, (0, 0)) for c in columns)]
            lines.append(f"| {section} | " + " | ".join(row) + " |")
        lines.append("")
    return "\n".join(lines)


def missing(records: list[dict[str, Any]], per_entry: int = 1) -> str:
    """Every entry and section with failures, and the first of them."""
    lines = []
    for r in sorted(records, key=lambda r: (r["tier"], r["group"], r["title"])):
        if not r["failures"]:
            continue
        head = f"{r['tier']} {r['title']} {r['section']}: {len(r['failures'])} of {r['samples']}"
        lines.append(head)
        lines += [f"    ({what}): {wrong}" for what, wrong in r["failures"][:per_entry]]
    return "\n".join(lines)


def coverage(records: list[dict[str, Any]]) -> str:
    """docs/coverage.md: the totals, then by operator what Tenon does otherwise."""
    parts = ["# What PyTorch's databases say about Tenon", "", table(records)]
    for level in range(1, LAST + 1):
        parts += [
            f"## Tier {level}",
            "",
            "| entry | section | fail | the first |",
            "|---|---|---|---|",
        ]
        for r in sorted(records, key=lambda r: (r["group"], r["title"])):
            if r["tier"] == level and r["failures"]:
                what, wrong = r["failures"][0]
                cause = f"`{what}`: {wrong}".replace("|", "\\|").replace("\n", " ")
                count = f"{len(r['failures'])} of {r['samples']}"
                parts.append(f"| {r['title']} | {r['section']} | {count} | {cause} |")
        parts.append("")
    return "\n".join(parts)
