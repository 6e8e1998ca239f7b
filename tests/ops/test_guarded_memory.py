"""Kernels do not read beyond their operands, with the instruction set of this machine, which the
sanitizers' builds do not have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("at_the_end.py")
PARTS = 4


@pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded by Linux's calls")
@pytest.mark.skipif("TENON_TEST_SANITIZE" in os.environ, reason="a sanitizer looks by itself")
@pytest.mark.parametrize("part", range(PARTS))
def test_operands_at_the_end_of_memory(part: int, tmp_path: Path) -> None:
    last = tmp_path / "last"
    command = [sys.executable, str(PROGRAM), str(last), str(part), str(PARTS)]
    here = os.pathsep.join([str(PROGRAM.parent), str(PROGRAM.parent.parent)])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), here])}
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    told = last.read_text(encoding="utf-8") if last.exists() else ""
    assert run.returncode == 0, f"{told}{run.stderr[-2000:]}"
    assert int(run.stdout) > 3000


@pytest.mark.skipif(
    "address" not in os.environ.get("TENON_TEST_SANITIZE", ""), reason="needs the sanitizer"
)
@pytest.mark.parametrize(
    "touch",
    [
        "ctypes.memset(t.data_ptr() + 4 * n, 0, 1)",
        "ctypes.string_at(t.data_ptr() + 4 * n - 7, 8)",
        "p = t.data_ptr(); del t; ctypes.memset(p + 64, 0, 1)",
    ],
)
@pytest.mark.parametrize("n", [25, 100_000])
def test_the_sanitizer_knows_where_blocks_end(n: int, touch: str) -> None:
    if "del" in touch and n > 25:
        pytest.skip("large blocks are joined when they are free")
    code = f"import ctypes, tenon as tn\nn = {n}\nt = tn.ones(n)\nassert t.sum() == n\n{touch}\n"
    touch_it = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert touch_it.returncode != 0 and "AddressSanitizer" in touch_it.stderr
