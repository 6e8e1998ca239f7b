"""What ninja knows of the files that the build generates."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("TENON_BUILD", "build")


@pytest.mark.skipif(not (BUILD / "build.ninja").exists(), reason="there is no build folder")
def test_generated_files_have_one_name() -> None:
    """What is compiled depends on them as ninja calls them, from the build folder on. By another
    path they are any file's: a changed entry was compiled in the next run only."""
    ninja = shutil.which("ninja")
    assert ninja, "the build was made with it"
    out = subprocess.run(
        [ninja, "-C", str(BUILD), "-t", "deps"], capture_output=True, text=True, check=True
    ).stdout
    needed = {line.strip() for line in out.splitlines() if line.startswith("    ")}
    assert any(path.startswith("dispatch/include/tenon/") for path in needed)
    assert not [path for path in needed if path.startswith(f"{BUILD}{os.sep}")]
