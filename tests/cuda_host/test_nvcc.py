"""nvcc's front end takes every kernel source for every element type, where there is an nvcc: what
the host's compiler lets pass is found here. Nothing is optimised, and nothing is run."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import harness
import pytest

BACKEND = harness.ROOT / "backends" / "cuda"


def modules() -> dict[str, list[str]]:
    """Sources with the element types that they are compiled for; -1: none."""
    command = [
        sys.executable,
        str(BACKEND.parent / "families.py"),
        "lists",
        str(BACKEND),
        "baseline",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split(";") for line in done.stdout.splitlines() if line.startswith("module;")]
    found = itertools.groupby(sorted(rows, key=lambda row: row[3]), key=lambda row: row[3])
    return {source: [row[2] for row in group] for source, group in found}


MODULES = modules()


def generated() -> Path:
    """The folder of the headers that the operator table becomes."""
    at = harness.FOLDER.parents[1] / "dispatch" / "include" / "tenon"
    if not (at / "pointwise_ops.inc").exists():
        pytest.skip("this build has no headers for kernels")
    return at


def front_end(source: Path, slot: str) -> subprocess.CompletedProcess[str]:
    command = ["nvcc", "-ptx", "-std=c++17", "-arch=compute_80", "-Xcicc", "-O0", "-o", "/dev/null"]
    command += [] if slot == "-1" else [f"-DTMPL_DTYPE={slot}"]
    for folder in (
        BACKEND / "kernels", BACKEND / "kernels" / "args", BACKEND.parent / "common", generated()
    ):  # fmt: skip
        command += ["-I", str(folder)]
    return subprocess.run([*command, str(source)], capture_output=True, text=True)


@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc")
@pytest.mark.parametrize("source", MODULES)
def test_kernels_are_cuda(source: str) -> None:
    for slot in MODULES[source]:
        done = front_end(BACKEND / source, slot)
        assert done.returncode == 0, f"TMPL_DTYPE={slot}\n{done.stderr}"


@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc")
def test_what_is_not_cuda_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cu"
    source.write_text('#include "device.h"\nKERNEL(f, int) { unknown(a); }\n', encoding="utf-8")
    done = front_end(source, "8")
    assert done.returncode != 0 and "unknown" in done.stderr
