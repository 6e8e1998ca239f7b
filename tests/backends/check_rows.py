"""Looks at the rows of a backend: `check_rows.py ROWS OPS_JSON [--complete [--but NAME...]]`.

ROWS is what list_rows prints: what would be registered. No two rows may be for the same operator,
element type and priority in what one device takes; with --complete, every operator that only a
kernel computes has a row, but for those named.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

KINDS = ("pointwise", "reduction", "structured")


def twice(rows: list[list[str]]) -> list[str]:
    """A set is taken with what is in all of them, ANY, which is -1."""
    first: dict[tuple[str, ...], str] = {}
    wrong = []
    for family, chosen, *key in sorted(rows, key=lambda row: row[1] != "-1"):
        for at in ("-1", chosen):
            if (at, *key) in first:
                both = f"in {first[(at, *key)]} and in {family}"
                op, dtype, priority = key
                wrong.append(f"{op} for dtype {dtype}, priority {priority}, is there twice: {both}")
        first[(chosen, *key)] = family
    return wrong


def missing(rows: list[list[str]], table: Path) -> list[str]:
    have = {row[2] for row in rows}
    return [
        f"{op['name']}: {op['kind']}, and no file has a row for it"
        for op in json.loads(table.read_text(encoding="utf-8"))
        if op["kind"] in KINDS and not op["composite"] and op["name"] not in have
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("--complete", action="store_true")
    parser.add_argument("--but", nargs="*", default=[])
    args = parser.parse_args()
    rows = [line.split() for line in args.rows.read_text(encoding="utf-8").splitlines()]
    wrong = twice(rows)
    if args.complete:
        wrong += [s for s in missing(rows, args.table) if s.partition(":")[0] not in args.but]
    print("\n".join(wrong) or f"{len(rows)} rows", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
