"""Whole stories of users, from an empty environment to the end: tests/stories."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import as_user
import pytest

pytestmark = [
    pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler"),
    pytest.mark.skipif(bool(as_user.no_venv()), reason=as_user.no_venv() or "there is one"),
    pytest.mark.slow,
]
STORIES = as_user.ROOT / "tests" / "stories"


@pytest.mark.parametrize(
    "story",
    [["sh", "researcher.sh"], ["sh", "vendor.sh"], [sys.executable, "operations.py"]],
    ids=lambda story: story[1],
)
def test_story(wheelhouse: Path, story: list[str]) -> None:
    program, script = story
    env = {k: v for k, v in os.environ.items() if not k.startswith(as_user.OURS)}
    env["PYTHON"] = sys.executable
    done = subprocess.run(
        [program, str(STORIES / script), str(wheelhouse)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
