"""Builds example plugins the way a user does: one cc line, the SDK's headers and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tenon as tn

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "plugins" / "examples"
_INSTALLED = Path(tn.__file__).parent / "include"
SDK = _INSTALLED if _INSTALLED.exists() else ROOT / "plugins" / "include"
HAVE_CC = shutil.which("cc") is not None


def build(source: Path, manifest: Path, folder: Path) -> None:
    """Compiles `source` to the library that `manifest`, copied beside it, names."""
    shutil.copy(manifest, folder)
    library = folder / manifest.with_suffix(".so").name
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    command = ["cc", *flags, "-fPIC", "-shared", f"-I{SDK}", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)


def run(folder: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python with the plugins of a folder."""
    env = {**os.environ, "TENON_PLUGIN_PATH": str(folder), **variables}
    return subprocess.run([sys.executable, *args], env=env, capture_output=True, text=True)
