"""Mutants of Python: what is changed, and that it is changed where it runs."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mutate"))
import pycode  # noqa: E402

TEXT = '''from __future__ import annotations

import functools

BASE = 3


def least(a: int, b: int = BASE * 2, *rest: int, most: float = 0.0) -> bool:
    """A text."""
    if a is None:
        raise ValueError(f"{a + 1}")
    return a < b


class Kept:
    @functools.lru_cache
    def get(self, key: str, count: int = 1) -> int:
        return count + 1
'''


def test_what_is_changed() -> None:
    found = [(e.name, e.of_default, e.note) for e in pycode.edits(TEXT)]
    assert found == [
        ("least", True, "BASE * 2 -> (BASE / 2) (b)"),
        ("least", True, "0.0 -> 0.01 (most)"),
        ("least", False, "a is None -> (a is not None) (line 2)"),
        ("least", False, 'raise ValueError(f"{a + 1}") -> pass (line 3)'),
        ("least", False, "a < b -> (a <= b) (line 4)"),
        ("Kept.get", True, "1 -> (1 + 1) (count)"),
        ("Kept.get", False, "count + 1 -> (count - 1) (line 1)"),
        ("Kept.get", False, "1 -> (1 + 1) (line 1)"),
    ]


def test_what_runs_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").mkdir()
    path = tmp_path / "python" / "mutated_text.py"
    path.write_text(TEXT, encoding="utf-8")
    monkeypatch.syspath_prepend(str(path.parent))
    seen = []
    for edit in pycode.edits(TEXT):
        sys.modules.pop("mutated_text", None)
        module = importlib.import_module("mutated_text")
        assert pycode.switch_on(path, edit.start, edit.end, edit.new), edit
        try:
            at = (module.least(6), module.least(2), module.least.__kwdefaults__["most"])
        except ValueError:
            at = (False, False, -1.0)
        seen.append((*at, module.Kept().get("a")))
    sys.modules.pop("mutated_text", None)
    same = (False, True, 0.0, 2)
    assert seen == [
        (False, False, 0.0, 2), (False, True, 0.01, 2), (False, False, -1.0, 2), same,
        (True, True, 0.0, 2), (False, True, 0.0, 3), (False, True, 0.0, 0), (False, True, 0.0, 3),
    ]  # fmt: skip
