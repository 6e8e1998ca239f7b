"""Which part of a program NVIDIA's profilers record, when they are told to wait for it
(`nsys profile --capture-range=cudaProfilerApi`, `ncu --profile-from-start off`)."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterator
from contextlib import contextmanager

from tenon.cuda import _base

__all__ = ["profile", "start", "stop"]


def _call(name: str) -> None:
    _base.require(f"profiler.{name}")
    _base.module.synchronize()  # the driver asks for a context, and the work before is not meant
    code = getattr(c.CDLL("libcuda.so.1"), name)()
    if code != 0:
        raise RuntimeError(f"{name}: the driver returned error {code}")


def start() -> None:
    """From here on work on the GPU is recorded."""
    _call("cuProfilerStart")


def stop() -> None:
    """Waits for the work so far and ends the recording."""
    _call("cuProfilerStop")


@contextmanager
def profile() -> Iterator[None]:
    """A with statement whose work is recorded."""
    start()
    try:
        yield
    finally:
        stop()
