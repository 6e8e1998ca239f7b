"""The lint's rule about formulas in Python, on a package of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted(ROOT.glob("dispatch/ops/*.toml"))


@pytest.fixture(scope="module")
def rule() -> ModuleType:
    spec = importlib.util.spec_from_file_location("numerics", ROOT / "tests/lint/numerics.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("body", "found"), [
    ("return tenon.exp(x)", set()),
    ("return x.reshape(2).transpose(0, 1) + 1", set()),
    ("return math.exp(x) * math.log(x)", set()),
    ("return x.exp().log1p()", {"exp", "log1p"}),
    ("return x * tenon.sigmoid(x)", {"Mult", "sigmoid"}),
    ("def inner(y):\n        return y.exp()\n    return x.log1p()", set()),
])  # fmt: skip
def test_two_operators_are_a_formula(
    rule: ModuleType, tmp_path: Path, body: str, found: set[str]
) -> None:
    (tmp_path / "case.py").write_text(f"def f(x):\n    {body}\n")
    assert {word for *_, words in rule.formulas(tmp_path, TABLES) for word in words} == found


def test_rooms_and_functions_are_excepted_by_name(rule: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "distributions").mkdir()
    (tmp_path / "distributions" / "own.py").write_text("def f(x):\n    return x.exp().log1p()\n")
    assert not list(rule.formulas(tmp_path, TABLES))
    said = [text for *_, text in rule.complaints(tmp_path, TABLES)]
    assert "nn/functional.py:glu has no formula to allow" in said
    assert "there is no room vision" in said
