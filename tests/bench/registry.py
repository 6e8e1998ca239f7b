"""What a benchmark case is, and the list of all cases.

A case is a function of a framework module: tenon, torch, or numpy where the case has a NumPy form.
It prepares its data and returns the function to time, whose result is also the check: all
frameworks must agree on a digest of what the third call returns, which for a training step is the
loss after two updates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Run = Callable[[], Any]
Make = Callable[[Any], Run]
Rates = dict[str, float]

# A working set up to this many bytes is taken to stay in the cache of that name.
CACHES = (("l2", 1 << 20), ("l3", 24 << 20))


@dataclass(frozen=True)
class Case:
    """`goal` is the ratio of our time to PyTorch's that the project aims for, `share` the part of
    the machine's limit. `bytes` and `flops` count what the hardware must at least move and do:
    inputs read once, results written once. `host`: only the time of the calls counts, not what a
    GPU does after them."""

    name: str
    group: str
    make: Make
    goal: float
    numpy: Make | None
    bytes: float
    flops: float
    threads: tuple[int, ...]
    rtol: float
    quick: bool
    share: float
    host: bool

    def maker(self, framework: str) -> Make | None:
        return self.numpy if framework == "numpy" else self.make

    def limit(self, rates: Rates) -> float:
        """The least seconds that the machine needs, NaN where nothing was counted."""
        place = next((name for name, size in CACHES if self.bytes <= size), "memory")
        seconds = max(self.bytes / rates[place], self.flops / rates["flops"])
        return seconds or math.nan


CASES: dict[str, Case] = {}


def case(
    group: str,
    goal: float = math.nan,
    *,
    numpy: bool | Make = False,
    bytes: float = 0.0,
    flops: float = 0.0,
    threads: tuple[int, ...] = (1, 2),
    rtol: float = 1e-3,
    quick: bool = False,
    name: str = "",
    share: float = math.nan,
    host: bool = False,
) -> Callable[[Make], Make]:
    """Adds a function to the list, by its own name unless another is given. `numpy` is the NumPy
    form, True where the function itself serves NumPy too; `rtol` is how far digests may differ."""

    def add(make: Make) -> Make:
        key = name or make.__name__
        assert key not in CASES, key
        form = make if numpy is True else numpy or None
        CASES[key] = Case(
            key, group, make, goal, form, bytes, flops, threads, rtol, quick, share, host
        )  # fmt: skip
        return make

    return add


def ramp(T: Any, *shape: int) -> Any:
    """Reproducible float32 values in [-2, 2) that every framework makes bit for bit."""
    n = math.prod(shape)
    if T is np:
        return ((np.arange(n) * 7919 % 1009).astype(np.float32) / np.float32(252.25) - 2).reshape(
            shape
        )
    return ((T.arange(n) * 7919 % 1009).to(T.float32) / 252.25 - 2.0).reshape(*shape)


def whole(T: Any, n: int, below: int) -> Any:
    """Reproducible int64 values in [0, below)."""
    return T.arange(n) * 7919 % below


def fill(T: Any, module: Any, scale: float = 0.05) -> Any:
    """Gives the parameters of a module the same values in every framework."""
    with T.no_grad():
        for p in module.parameters():
            p.copy_(ramp(T, *p.shape) * scale)
    return module


def digest(x: Any) -> list[float]:
    """The mean size of the elements and a mean weighted by position; of a tuple, its first."""
    while isinstance(x, tuple | list):
        x = x[0]
    if isinstance(x, int | float | np.generic):
        x = np.float64(x)
    elif not isinstance(x, np.ndarray):
        x = x.detach().double().cpu().contiguous().numpy()
    flat = np.asarray(x, dtype=np.float64).reshape(-1)
    if flat.size == 0:
        return [0.0, 0.0]
    period = 101
    weights = np.arange(period) / period
    rows = flat.size - flat.size % period
    weighted = (flat[:rows].reshape(-1, period) @ weights).sum()
    weighted += flat[rows:] @ weights[: flat.size - rows]
    return [float(np.abs(flat).mean()), float(weighted / flat.size)]


def agree(a: list[float], b: list[float], rtol: float) -> bool:
    scale = max(abs(a[0]), abs(b[0]), 1e-30)
    return all(abs(x - y) <= rtol * scale for x, y in zip(a, b, strict=True))
