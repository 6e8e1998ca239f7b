"""Settings of cuDNN, which serves convolutions on GPUs; they change nothing on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from tenon.backends import _options


def _option(name: str, variable: str, default: int, kind: type, doc: str) -> property:
    def get(_self: ModuleType) -> int:
        return kind(_options.get(variable, default))

    def put(_self: ModuleType, value: int) -> None:
        _options.put(name, variable, value)

    return property(get, put, doc=doc)


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


@contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> Iterator[None]:
    """A with statement in which the settings are these; afterwards they are what they were."""
    wanted = {
        "enabled": enabled,
        "benchmark": benchmark,
        "benchmark_limit": benchmark_limit,
        "deterministic": deterministic,
        "allow_tf32": allow_tf32,
    }
    module = sys.modules[__name__]
    before = {name: getattr(module, name) for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


sys.modules[__name__].__class__ = _Settings
