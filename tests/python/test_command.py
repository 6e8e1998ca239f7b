"""The `tenon` command, as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def tenon(*args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tenon", *args]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )


def test_version() -> None:
    out = tenon("--version")
    assert out.returncode == 0
    assert out.stdout.startswith("tenon 0.")


def test_no_command_shows_help() -> None:
    out = tenon()
    assert out.returncode == 2
    assert "doctor" in out.stdout


def test_doctor_is_content() -> None:
    out = tenon("doctor")
    assert out.returncode == 0, out.stdout + out.stderr
    assert "all is well" in out.stdout
    assert "tenon-cpu" in out.stdout


def test_doctor_names_variables_that_matter() -> None:
    assert "OPENBLAS_CORETYPE=Haswell" in tenon("doctor", OPENBLAS_CORETYPE="Haswell").stdout


def test_plugin_list_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    out = tenon("plugin", "list", TENON_PLUGIN_PATH=str(tmp_path))
    assert out.returncode == 0
    assert "tenon-cpu" in out.stdout
    assert str(tmp_path / "broken.json") in out.stdout


def test_the_current_folder_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "broken.json").write_text("{")
    for path in ("", ".", "plugins", "./plugins"):
        out = tenon("plugin", "list", cwd=tmp_path, TENON_PLUGIN_PATH=path)
        assert "broken" not in out.stdout


def test_op_shows_entry_and_kernels() -> None:
    out = tenon("op", "leaky_relu", "--device", "cpu", "--dtype", "float32")
    assert out.returncode == 0, out.stderr
    for part in ("negative_slope", "dispatch/ops/activation.toml:", "grad.input", "cpu float32"):
        assert part in out.stdout


def test_op_unknown() -> None:
    out = tenon("op", "nosuch")
    assert out.returncode == 1
    assert "nosuch" in out.stderr


def test_config_flags() -> None:
    out = tenon("config", "--include", "--libs").stdout
    assert out.startswith("-I")
    assert "-ltenon" in out


SCRIPT = """
import sys
import torch
import torch.nn.functional as F
from torch import nn

assert sys.argv[1:] == ["--lr", "0.1"]
assert torch is sys.modules["torch"]
torch.manual_seed(3)
x = torch.rand(4, 3)
assert x.shape == (4, 3)
assert F.relu is sys.modules["torch.nn.functional"].relu
assert nn is torch.nn
print("ran", __name__)
"""


def test_run_gives_tenon_to_torch_programs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    out = tenon("run", str(script), "--lr", "0.1")
    assert out.returncode == 0, out.stderr
    assert "ran __main__" in out.stdout


@pytest.mark.parametrize("name", ["torch.nosuch", "torch.nn.nosuch"])
def test_run_reports_missing_modules_by_their_name(tmp_path: Path, name: str) -> None:
    script = tmp_path / "missing.py"
    script.write_text(f"import {name}\n")
    out = tenon("run", str(script))
    assert out.returncode == 1
    assert "ModuleNotFoundError" in out.stderr
    assert name in out.stderr


def test_run_without_a_file() -> None:
    out = tenon("run", "/nonexistent.py")
    assert out.returncode == 1
    assert "nonexistent" in out.stderr
