"""Where the CUDA host harness of this build lies, and Python with it as the machine's driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tenon as tn

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(tn.__file__).absolute().parents[2] / "tests" / "cuda_host"


def is_built() -> bool:
    return (FOLDER / "libcuda.so.1").exists()


def run(*args: str, folder: Path | None = FOLDER, **env: str) -> subprocess.CompletedProcess[str]:
    """Python with the harness in the loader's path; `folder` is another one, or None for none."""
    full = {**os.environ, "TENON_FALLBACK": "allow", **env}
    full.setdefault("TENON_CUDA_CACHE", "")
    if folder is not None:
        full["LD_LIBRARY_PATH"] = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    command = [sys.executable, *args]
    return subprocess.run(command, env=full, capture_output=True, text=True, cwd=ROOT)


def script(text: str, **env: str) -> str:
    done = run("-c", "import tenon as tn\n" + text, **env)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout
