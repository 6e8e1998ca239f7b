"""`tenon missing`: names that are not there, found without running anything."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import torch
import torch.nn as nn
from torch.nn import functional as F, NoSuchLayer
from torch.absent_module import something
import helper
import json

raise SystemExit("this must not run")
x = torch.relu(torch.ones(2)).no_method_is_looked_at()
y = F.softmax(x) + F.no_such_function(x) + torch.float32.itemsize
class Net(nn.Module):
    def forward(self, x): return nn.functional.gelu(x)
"""
HELPER = """
from typing import TYPE_CHECKING
import torch.optim
if TYPE_CHECKING:
    from torch import OnlyForTypes
def step(): return torch.optim.NoSuchOptimizer
"""


def _run(folder, name="train.py"):
    command = [sys.executable, "-m", "tenon", "missing", name]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_names_of_the_program_and_of_what_it_imports(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "helper.py").write_text(HELPER, encoding="utf-8")
    done = _run(tmp_path)
    assert done.returncode == 1 and not done.stderr
    *rows, last = done.stdout.splitlines()
    found = {row.split()[0]: row.split()[1] for row in rows}
    assert found.keys() == {
        "torch.nn.NoSuchLayer", "torch.absent_module", "torch.nn.functional.no_such_function",
        "torch.optim.NoSuchOptimizer",
    }  # fmt: skip
    assert found["torch.nn.NoSuchLayer"] == "train.py:4"
    assert found["torch.optim.NoSuchOptimizer"].endswith("helper.py:6")
    assert last.startswith("4 of ") and last.endswith("in 2 files are missing")


def test_a_program_that_has_all(tmp_path):
    (tmp_path / "train.py").write_text("import torch\nprint(torch.ones(2))\n", encoding="utf-8")
    done = _run(tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("none of 2 names")


def test_no_program(tmp_path):
    (tmp_path / "train.py").write_text("def (:\n", encoding="utf-8")
    for name, message in (("train.py", "is no Python program"), ("other.py", "there is no file")):
        done = _run(tmp_path, name)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_packages_without_a_file_of_their_own(tmp_path):
    """Namespace packages, and modules inside them."""
    (tmp_path / "parts" / "inner").mkdir(parents=True)
    (tmp_path / "parts" / "inner" / "net.py").write_text(
        "import torch\nx = torch.nothing_here\n", encoding="utf-8"
    )
    (tmp_path / "train.py").write_text("import parts.inner.net\n", encoding="utf-8")
    done = _run(tmp_path)
    assert done.returncode == 1 and not done.stderr
    name, place = done.stdout.split()[:2]
    assert name == "torch.nothing_here" and place.endswith("parts/inner/net.py:2")
