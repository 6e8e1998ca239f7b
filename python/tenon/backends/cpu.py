"""The CPU."""

from __future__ import annotations

from tenon import _C

_NAMES = {"avx512": "AVX512", "avx2": "AVX2", "baseline": "DEFAULT"}


def get_cpu_capability() -> str:
    """The instruction set that the kernels were compiled for: DEFAULT, AVX2 or AVX512."""
    text = _C._describe("cpu").lower()
    return next((name for word, name in _NAMES.items() if word in text), "DEFAULT")


def describe() -> str:
    """One line: plugin, instruction set, threads, BLAS."""
    return _C._describe("cpu")
