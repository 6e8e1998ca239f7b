"""The benchmark program runs, checks what it times, and keeps a record that can be read."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tenon

BENCH = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture
def registry(monkeypatch) -> ModuleType:
    pytest.importorskip("tqdm")
    spec = importlib.util.spec_from_file_location("bench_registry", BENCH / "registry.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_a_run_prints_a_table_and_keeps_a_record(tmp_path):
    pytest.importorskip("tqdm")
    record = tmp_path / "figures.json"
    command = [sys.executable, str(BENCH), "add_8", "sum_8", "--threads", "1", "--rounds", "1"]
    command += ["--slice", "0.001", "--no-instructions", "--json", str(record)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert "| add_8 " in run.stdout and "within their goals" in run.stdout
    found = json.loads(record.read_text())
    assert [r["case"] for r in found["rows"]] == ["add_8", "sum_8"]
    assert found["versions"]["tenon"]["version"] == tenon.__version__
    for row in found["rows"]:
        assert row["errors"] == {} and row["differs"] == []
        assert row["times"]["tenon"] > 0 and row["times"]["numpy"] > 0


def test_the_check_sees_values_and_places(registry):
    values = registry.ramp(np, 30, 40)
    same = registry.ramp(tenon, 30, 40)
    digest = registry.digest(values)
    assert registry.agree(digest, registry.digest(same), 1e-6)
    assert not registry.agree(digest, registry.digest(same * 1.01), 1e-3)
    assert not registry.agree(digest, registry.digest(same.flip(0)), 1e-3)
    assert registry.digest(np.zeros(0)) == [0.0, 0.0]


def test_a_limit_is_the_slower_of_bytes_and_operations(registry):
    rates = {"memory": 10e9, "l3": 100e9, "l2": 200e9, "flops": 100e9}

    def limit(**counts: float) -> float:
        registry.case("group", 1.0, name="one", **counts)(lambda T: None)
        return registry.CASES.pop("one").limit(rates)

    assert limit(bytes=1e9) == pytest.approx(0.1)  # from memory
    assert limit(bytes=10e6) == pytest.approx(1e-4)  # from the cache that holds it
    assert limit(bytes=1e5) == pytest.approx(5e-7)
    assert limit(bytes=1e9, flops=1e12) == pytest.approx(10.0)
    assert np.isnan(limit())
