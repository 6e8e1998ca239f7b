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


def test_growth_is_a_picture_of_sizes_in_their_order(tmp_path):
    pytest.importorskip("tqdm")
    pytest.importorskip("matplotlib")
    picture, record = tmp_path / "growth.png", tmp_path / "figures.json"
    command = [sys.executable, str(BENCH), "add_elements?4?", "add_elements?16?", "sort_of*?64?"]
    command += ["--growth", str(picture), "--json", str(record), "--threads", "1"]
    command += ["--rounds", "1", "--slice", "0.001"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert f"the picture is {picture}" in run.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = json.loads(record.read_text())["rows"]
    assert {r["group"] for r in rows} == {"growth"}
    cases = ["add_elements[4]", "add_elements[16]", "sort_of_elements[64]"]
    assert [r["case"] for r in rows] == cases


@pytest.mark.parametrize("size", ["small", "middle"])
def test_every_call_of_the_scan_is_one(size, tmp_path):
    record = tmp_path / "seconds.json"
    command = [sys.executable, str(BENCH / "scan.py"), size, "--turns", "1", "--json", str(record)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    lines = (BENCH / "calls" / f"{size}.txt").read_text().splitlines()
    taken = json.loads(record.read_text())["tenon"]
    assert taken.keys() == set(lines), run.stderr
    assert all(seconds > 0 for seconds in taken.values())


def test_growth_reads_sizes_out_of_names_and_knees_out_of_bytes():
    pytest.importorskip("tqdm")
    code = """
import cases, growth, registry, report
sizes = [1 << 16, 4, 1 << 20, 1 << 22]
rows = [report.Row(f"add_elements[{n}]", "", "growth", 1, 1.0, 1.0) for n in sizes]
points = growth.panels(rows)["add_elements"]
assert [n for n, _ in points] == sorted(sizes)
# Twelve bytes an element: 4 and 65,536 of them fit the second cache, a million the third.
assert growth.knees(points) == [("l2", 1 << 20), ("l3", 1 << 22)], growth.knees(points)
assert registry.CASES["matmul_of_rows[512]"].flops == 2 * 512**3
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=BENCH, capture_output=True, text=True,
                         timeout=120, check=False)  # fmt: skip
    assert run.returncode == 0, run.stderr


def test_the_check_sees_values_and_places(registry):
    registry.begin()
    values = registry.normal(np, 30, 40)
    registry.begin()
    same = registry.normal(tenon, 30, 40)
    digest = registry.digest(values)
    assert registry.agree(digest, registry.digest(same), 1e-6)
    assert not registry.agree(digest, registry.digest(same * 1.01), 1e-3)
    assert not registry.agree(digest, registry.digest(same.flip(0)), 1e-3)
    assert registry.digest(np.zeros(0)) == [0.0, 0.0]


def test_data_is_distinct_and_has_the_forms_that_kernels_may_mind(registry):
    n = 1 << 16
    registry.begin()
    first, second = registry.normal(np, n), registry.normal(np, n)
    assert np.unique(first).size == n and not np.array_equal(first, second)
    assert abs(first.std() - 1) < 0.02 and np.abs(first).max() > 3.5
    wide, odd = (registry.normal(np, n, form=f) for f in ("wide", "odd"))
    assert abs(wide.std() - 3) < 0.06 and np.isfinite(wide).all()
    assert np.isnan(odd).any() and (odd == np.inf).any() and (odd == -np.inf).any()
    tiny = np.abs(odd[odd != 0])
    assert (tiny < np.finfo(np.float32).tiny).any()
    crowded = np.float32([1.5, 1.5, 1.5, -2.0, -2.0, 0.0])
    assert np.unique(registry.apart(crowded)).size == 6
    assert np.abs(registry.apart(crowded) - crowded).max() < 1e-6
    for draw in (lambda f: registry.normal(np, n, form=f), lambda f: registry.whole(np, n, 50, f)):
        ordered, same, skewed = (draw(f) for f in ("sorted", "constant", "skewed"))
        assert (np.diff(ordered) >= 0).all() and np.unique(same).size == 1
        assert np.unique(skewed, return_counts=True)[1].max() > n / 5


def test_a_case_with_forms_counts_by_its_worst(registry, monkeypatch):
    seen = []
    registry.case("group", forms=("a", "b"), numpy=True, name="x")(lambda T, f: seen.append((T, f)))
    for form in ("a", "b"):
        case = registry.CASES.pop(f"x[{form}]")
        assert case.family == "x"
        case.make(1), case.numpy(2)
    assert seen == [(1, "a"), (2, "a"), (1, "b"), (2, "b")]
    monkeypatch.syspath_prepend(str(BENCH))
    report = importlib.import_module("report")

    def row(name: str, group: str, ours: float, peer: float) -> object:
        made = report.Row(name, name.split("[")[0], group, 1, 0.5, 1.0)
        made.times.update(tenon=ours, torch=peer)
        return made

    rows = [
        row("x[a]", "g", 2, 1),
        row("x[b]", "g", 8, 1),
        row("y", "g", 2, 1),
        row("z", "h", 1, 2),
    ]
    assert [r.case for r in report.worst_forms(rows)] == ["x[b]", "y", "z"]
    means = report.means(report.worst_forms(rows))
    assert means == pytest.approx({"g": 4.0, "h": 0.5, "all": 2.0})
    text = report.standings(rows)
    assert "x[b]" in text and "x[a]" not in text
    old, new = ({"rows": [r.as_dict() for r in rows]} for _ in range(2))
    new["rows"][2]["times"] = {"tenon": 4.0, "torch": 1.0}
    shown = report.compare(old, new)
    assert "2.00x" in shown and "y " in shown and "x[b]" not in shown and "4 cases" in shown


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
