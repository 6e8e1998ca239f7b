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
    family: str  # the name without the form of the data

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
    numpy: bool | Callable[..., Run] = False,
    bytes: float = 0.0,
    flops: float = 0.0,
    threads: tuple[int, ...] = (1, 2),
    rtol: float = 1e-3,
    quick: bool = False,
    name: str = "",
    share: float = math.nan,
    host: bool = False,
    forms: tuple[str, ...] = (),
) -> Callable[[Callable[..., Run]], Callable[..., Run]]:
    """Adds a function to the list, by its own name unless another is given. `numpy` is the NumPy
    form, True where the function itself serves NumPy too; `rtol` is how far digests may differ.
    With `forms` there is a case for each, `name[form]`, and the functions take the form, too."""

    def add(make: Callable[..., Run]) -> Callable[..., Run]:
        family = name or make.__name__
        peer = make if numpy is True else numpy or None
        for form in forms or ("",):
            key = f"{family}[{form}]" if form else family
            assert key not in CASES, key
            ours, theirs = (
                (lambda T, f=f, form=form: f(T, form)) if form and f else f for f in (make, peer)
            )
            CASES[key] = Case(
                key, group, ours, goal, theirs, bytes, flops, threads, rtol,
                quick and form in ("", *forms[:1]), share, host, family,
            )  # fmt: skip
        return make

    return add


# -- data --------------------------------------------------------------------------------------
#
# All frameworks get the same bytes: every draw of a case has a seed of its own, its place in the
# case. Data that repeats, lies in a narrow range or is easy to predict hides what a kernel does
# with other data; cases whose time may depend on it have several forms, and the worst counts.

VALUES = ("normal", "wide", "odd")  # of an elementwise function
ORDERS = ("random", "sorted", "constant", "skewed")  # of keys and indices
FEW = 1 << 22  # so many values are all distinct

_draws = 0


def begin() -> None:
    """A case starts: its draws are counted anew."""
    global _draws
    _draws = 0


def generator() -> np.random.Generator:
    global _draws
    _draws += 1
    return np.random.default_rng(_draws)


def apart(x: np.ndarray) -> np.ndarray:
    """The same values, moved as far as it takes for no two to be equal."""
    order = np.argsort(x, kind="stable")
    bits = x[order].view(np.int32).astype(np.int64)
    keys = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)  # in the order of the numbers
    steps = np.arange(x.size)
    keys = np.maximum.accumulate(keys - steps) + steps
    bits = np.where(keys < 0, 0x80000000 - keys, keys).astype(np.uint32)
    result = np.empty_like(x)
    result[order] = bits.view(np.float32)
    return result


def given(T: Any, values: np.ndarray) -> Any:
    return values if T is np else T.tensor(values)


def normal(T: Any, *shape: int, form: str = "normal") -> Any:
    """Normally distributed float32. `wide` ones have a deviation of three, and `odd` ones have NaN,
    infinities and denormals among them; the orders are those of keys."""
    draw = generator()
    n = math.prod(shape)
    x = draw.standard_normal(n, np.float32)
    if n <= FEW:
        x = apart(x)
    match form:
        case "wide" | "odd":
            x *= np.float32(3)
        case "sorted":
            x.sort()
        case "constant":
            x[:] = x[0]
        case "skewed":  # nine of ten are equal
            x[draw.random(n) < 0.9] = 0.5
    if form == "odd":
        x[draw.integers(0, n, n // 64)] = np.float32(1e-41)
        x[draw.integers(0, n, n // 256)] = np.inf
        x[draw.integers(0, n, n // 256)] = -np.inf
        x[draw.integers(0, n, n // 256)] = np.nan
    return given(T, x.reshape(shape))


def whole(T: Any, n: int, below: int, form: str = "random") -> Any:
    """int64 values in [0, below), in one of the orders; skewed ones are mostly small."""
    draw = generator()
    x = draw.integers(0, below, n)
    match form:
        case "sorted":
            x.sort()
        case "constant":
            x[:] = x[0]
        case "skewed":
            x = (below * draw.random(n) ** 4).astype(np.int64)
    return given(T, x)


def fill(T: Any, module: Any, scale: float = 0.05) -> Any:
    """Gives the parameters of a module the same values in every framework."""
    with T.no_grad():
        for p in module.parameters():
            p.copy_(normal(T, *p.shape) * scale)
    return module


def digest(x: Any) -> list[float]:
    """The mean size of the elements and a mean weighted by position; of a tuple, its first."""
    while isinstance(x, tuple | list):
        x = x[0]
    if isinstance(x, int | float | np.generic):
        x = np.float64(x)
    elif not isinstance(x, np.ndarray):
        x = x.detach().cpu()
        x = (x if x.is_complex() else x.double()).contiguous().numpy()
    if np.iscomplexobj(x):
        x = np.stack([x.real, x.imag], -1)
    flat = np.nan_to_num(np.asarray(x, np.float64).reshape(-1), nan=3.0, posinf=5.0, neginf=-5.0)
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
