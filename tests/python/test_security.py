"""docs/security.md: every promise names code and tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
PLACES = ("", "tests/", "tests/python/", "python/tenon/")


def found(name: str) -> list[Path]:
    return [path for path in (TOP / place / name for place in PLACES) if path.is_file()]


def test_what_stands_behind_each_promise() -> None:
    text = (TOP / "docs" / "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE)[1:]
    assert len(rows) >= 15
    for row in rows:
        file, tests = [], 0
        for piece in re.findall(r"`([^`]+)`", row):
            name, _, test = piece.partition("::")
            if re.search(r"\.(py|c|h)$", name):
                file = found(name)
                assert file, f"there is no {name}: {row}"
                tests += "test" in name or "fuzz" in name
                if test:
                    assert any(f"def {test}(" in p.read_text(encoding="utf-8") for p in file), piece
            else:  # a function or class of the file before, or a test of it
                text_of = "".join(p.read_text(encoding="utf-8") for p in file)
                assert piece in text_of, piece
        assert tests or row.strip().endswith("by reading"), row
