"""Random calls of tenon.distributed that are wrong on some ranks: `tests/fuzz/distributed.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ranks import run

CASES = os.environ.get("TENON_TEST_ROUNDS", "40")


@pytest.mark.slow
@pytest.mark.parametrize(("size", "seed"), [(2, 11), (3, 12)])
def test_wrong_calls_end_on_every_rank(tmp_path: Path, size: int, seed: int) -> None:
    done = run("gloo", size, "../fuzz/distributed.py", str(tmp_path), str(seed), CASES)
    assert done.splitlines().count("ok") == size
