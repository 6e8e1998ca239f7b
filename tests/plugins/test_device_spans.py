"""Spans on a device with "tn.profiler/1": the simulated one writes them into a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated import HAVE_CC, script

pytestmark = pytest.mark.skipif(not HAVE_CC, reason="there is no C compiler")


PROGRAM = """
from tenon.profiler import mark, profile, record_function
x = tn.ones(3, device="sim")
with record_function("outside"):
    x + 1
with profile(), record_function("recorded"):
    x * 2
mark("here")
with record_function("gone"):
    tn.retire_plugin("sim")
"""


def test_spans_reach_the_device(folder: Path, tmp_path: Path) -> None:
    """Named spans always, operators during a recording; what was pushed is popped."""
    script(folder, PROGRAM, LEVEL=3, SPANS=str(tmp_path / "spans"))
    lines = (tmp_path / "spans").read_text(encoding="utf-8").splitlines()
    said = [line.split(" ", 1)[1].strip() for line in lines]
    assert said == [
        "push outside", "pop",
        "push recorded", "push mul", "pop", "pop",
        "mark here",
        "push gone", "pop",
    ]  # fmt: skip
