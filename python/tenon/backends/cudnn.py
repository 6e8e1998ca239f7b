"""Settings of cuDNN, which serves convolutions on GPUs; they change nothing on the CPU."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from tenon.backends import _options


def _option(name: str, variable: str, default: int, kind: type, doc: str) -> property:
    return _options.setting(
        lambda: kind(_options.get(variable, default)),
        lambda value: _options.put(name, variable, value),
        doc,
    )


class _Settings(ModuleType):
    """This module: its settings reach the plugin when they are assigned."""

    enabled = _option("cudnn", "TENON_CUDNN", 1, bool, "Whether cuDNN is used where there is one.")
    benchmark = _option(
        "cudnn_benchmark",
        "TENON_CUDNN_BENCHMARK",
        0,
        bool,
        "Whether algorithms are timed when a shape is first met; else cuDNN's heuristics choose.",
    )
    benchmark_limit = _option(
        "cudnn_benchmark_limit",
        "TENON_CUDNN_BENCHMARK_LIMIT",
        10,
        int,
        "How many algorithms are timed at most; 0: all.",
    )
    deterministic = _option(
        "cudnn_deterministic",
        "TENON_CUDNN_DETERMINISTIC",
        0,
        bool,
        "Whether only algorithms are used whose bits are the same every time.",
    )
    allow_tf32 = _option(
        "cudnn_allow_tf32",
        "TENON_CUDNN_TF32",
        1,
        bool,
        "Whether convolutions of float32 may be computed in TF32.",
    )


def is_available() -> bool:
    """Whether there is a GPU, and a cuDNN that serves it."""
    return version() is not None


def version() -> int | None:
    """The version of cuDNN (92800 for 9.28.0), or None where there is none."""
    import tenon

    if not tenon.cuda.is_available():
        return None
    return tenon.cuda._settings().cudnn_version() or None


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
) -> tuple[Any, ...]:
    """Sets those that are given, and gives what all of them were."""
    wanted = _wanted(_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32)
    return _options.assign(__name__, wanted)


def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> AbstractContextManager[None]:
    """A with statement in which the settings are these; afterwards they are what they were."""
    wanted = _wanted(enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    return _options.assigned(__name__, wanted)


def _wanted(*values: Any) -> dict[str, Any]:
    names = "enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32"
    return dict(zip(names, values, strict=True))


sys.modules[__name__].__class__ = _Settings
