"""./dev bench --cuda, tried on the host harness, whose times mean nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")


def bench(*args: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("tqdm")
    return harness.run("tests/bench", "--cuda", "--rounds", "1", "--slice", "0.001", *args)


@pytest.mark.slow
def test_the_goals_of_a_gpu_are_run_and_recorded(tmp_path: Path) -> None:
    record = tmp_path / "figures.json"
    done = bench("--small", "--tokens", "8", "--json", str(record))
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(record.read_text())
    rows = {row["case"]: row for row in found["rows"]}
    steps = {"launch_add_8", "digits_step_captured", "gpt2_bf16_step", "cuda_adamw_fused"}
    assert steps < set(rows) and all(row["group"] == "cuda" for row in rows.values())
    for row in rows.values():
        assert row["errors"] == {} and row["differs"] == [] and row["times"]["tenon"] > 0, row
    assert rows["cuda_sum_f32"]["reached"] > 0 and rows["cuda_sum_f32"]["share"] == 0.85
    assert found["processes"]["cuda_waits_per_step"]["tenon"] == 0
    if shutil.which("cc"):
        assert found["processes"]["cuda_first_fused_kernel"]["tenon"] > 0
    assert found["sizes"]["tokens"] == 8 and found["machine"]["date"]
    assert found["versions"]["tenon"]["gpu"] == harness.device()[0]


@pytest.mark.slow
def test_other_cases_run_on_the_gpu_by_name() -> None:
    done = bench("--small", "sum_8", "adamw_200x64_fused")
    assert done.returncode == 0, done.stderr[-4000:]
    assert "| sum_8 " in done.stdout and "| adamw_200x64_fused " in done.stdout
    assert "failed" not in done.stdout and "launch_add_8" not in done.stdout


def test_sizes_are_for_a_gpu_and_positive() -> None:
    assert "must be 1 or more" in bench("--batch", "0").stderr
    assert "are for --cuda" in harness.run("tests/bench", "--small").stderr
