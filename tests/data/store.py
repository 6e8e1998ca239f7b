"""Stores PyTorch's answers for the tests that ask it: `python tests/data/store.py [tests...]`.

Runs those tests where PyTorch is installed and writes the .json files beside this script. Answers
of tests that are gone are forgotten when all are run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def asking() -> list[str]:
    """The test files that use stored answers."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    words = ("import stored", "from both import", "from stored import")
    found = [p for p in files if any(w in p.read_text(encoding="utf-8") for w in words)]
    return [p.relative_to(ROOT).as_posix() for p in found]


def main() -> int:
    tests = sys.argv[1:]
    if not tests:
        for path in Path(__file__).parent.glob("*.json"):
            path.unlink()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(tests or asking())]
    return subprocess.call(command, cwd=ROOT, env={**os.environ, "TENON_TEST_STORE": "1"})


if __name__ == "__main__":
    sys.exit(main())
