"""Whole programs that say `import torch`: run on Tenon, and next to PyTorch where it is installed.

Text must agree exactly, and so must digests of initial weights; numbers may differ in the places
that the order of additions decides.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")


@functools.cache
def output(program: Path, real: bool) -> str:
    runner = [] if real else ["-m", "tenon", "run"]
    command = [sys.executable, "-W", "ignore", *runner, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_runs(program):
    lines = output(program, real=False).splitlines()
    assert len(lines) > 5
    assert not any("nan" in line for line in lines)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no PyTorch to compare with")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_prints_what_pytorch_prints(program):
    ours, theirs = (output(program, real).splitlines() for real in (False, True))
    for left, right in zip(ours, theirs, strict=True):
        shape = [" ".join(NUMBER.sub("#", line).split()) for line in (left, right)]
        assert shape[0] == shape[1]
        numbers = [[float(n) for n in NUMBER.findall(line)] for line in (left, right)]
        assert numbers[0] == pytest.approx(numbers[1], rel=2e-4, abs=2e-4), (left, right)
