"""tests/oracle, which asks PyTorch's databases: what it calls equal, and how it counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tenon as tn

torch = pytest.importorskip("torch", reason="PyTorch is not installed: no databases")
ORACLE = Path(__file__).resolve().parents[1] / "oracle"


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ORACLE))


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (tn.ones(3), torch.ones(3, dtype=torch.float64)),
        (tn.ones(3), torch.ones(3, 1)),
        (tn.ones(3), torch.tensor([1.0, 1.0, 1.001])),
        (tn.ones(3), torch.tensor([1.0, 1.0, float("nan")])),
        ((tn.ones(3),), (torch.ones(3), torch.ones(3))),
        (1.0, torch.ones(())),
        (3, 4),
    ],
)
def test_differences_are_seen(oracle: None, mine: object, theirs: object) -> None:
    from compare import Different, check

    with pytest.raises(Different):
        check(mine, theirs)


def test_what_is_equal(oracle: None) -> None:
    from bridge import to_tenon
    from compare import check

    strided = torch.arange(12.0).reshape(3, 4).t()[1:]
    for value in (strided, torch.tensor([1 + 2j]), torch.zeros(0, 2), [torch.ones(2), 3]):
        check(to_tenon(value), value)
    assert to_tenon(strided).stride() == strided.stride()


@pytest.mark.slow
def test_entries_and_totals(tmp_path: Path) -> None:
    pytest.importorskip("expecttest", reason="PyTorch's test modules cannot be imported")
    result = tmp_path / "all.json"
    command = [sys.executable, str(ORACLE), "mul", "SGD", "Linear", "--json", str(result)]
    run = subprocess.run([*command, "--jobs", "1"], capture_output=True, text=True, timeout=300)
    records = json.loads(result.read_text())["records"]
    assert {r["title"] for r in records} == {"mul", "SGD", "Linear"}, run.stderr
    counted = {(r["title"], r["section"]): (len(r["failures"]), r["samples"]) for r in records}
    assert counted["mul", "forward"][0] == 0
    assert counted["mul", "second"][1] > 5
    assert counted["Linear", "gradients"][0] == 0
    assert counted["SGD", "steps"][1] > 5
