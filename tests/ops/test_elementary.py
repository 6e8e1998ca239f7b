"""Elementary functions of float32 over all of float32's range, against float64: how many units in
the last place they are off at most, and what they make of the ends."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import tenon as tn
from scipy import special

SAMPLES = 1 << 17
ENDS = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38,
     3.4028235e38, -3.4028235e38, 88.7, 89.4, 89.5, -89.5, 127.5, 128.0, -149.0, -149.5, -150.0,
     -151.0, 4.8828e-4, -4.8829e-4, 0.99999994, -0.99999994, 1.0000001, 2.5, 3.5, -2.5, 8388607.5,
     8388609.0],
    np.float32,
)  # fmt: skip
UNARY = {
    "asin": (np.arcsin, 0.6), "acos": (np.arccos, 0.6), "atan": (np.arctan, 0.6),
    "sinh": (np.sinh, 1.7), "cosh": (np.cosh, 1.7), "asinh": (np.arcsinh, 0.6),
    "acosh": (np.arccosh, 0.6), "atanh": (np.arctanh, 0.6), "exp2": (np.exp2, 1.1),
    "erfinv": (lambda x: np.copysign(special.erfinv(x), x), 1.05), "round": (np.round, 0.0),
}  # fmt: skip
REMAINDERS = {"fmod": np.fmod, "remainder": np.remainder, "floor_divide": np.floor_divide}


def numbers(seed: int) -> np.ndarray:
    """Floats of every exponent, and as many within the functions' domains; odd in number, so that
    vectors have a rest."""
    draw = np.random.default_rng(seed)
    any_bits = draw.integers(0, 1 << 32, SAMPLES, dtype=np.uint64).astype(np.uint32)
    small = draw.uniform(-1, 1, SAMPLES).astype(np.float32)
    near = (1 - draw.uniform(0, 1e-3, SAMPLES // 8)).astype(np.float32)
    wide = draw.uniform(-150, 150, SAMPLES).astype(np.float32)
    x = np.concatenate([ENDS, any_bits.view(np.float32), small, near, -near, wide])
    return x[: x.size - 1 + x.size % 2]


def misses(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Units in the last place of the float32 results, 0 where both are the same special value. The
    last number before infinity may become it."""
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        finite = np.isfinite(got) & np.isfinite(rounded)
        size = np.clip(np.abs(rounded), np.float32(1.1754944e-38), np.float32(3e38))
        apart = np.abs(got.astype(np.float64) - want) / np.spacing(size).astype(np.float64)
    ends = (
        (np.abs(want) > 3.40282e38) & (np.abs(got) > 3.40282e38) & (np.sign(got) == np.sign(want))
    )
    return np.where(finite, apart, np.where(same | ends, 0.0, np.inf))


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number(name):
    oracle, most = UNARY[name]
    x = numbers(1)
    with np.errstate(all="ignore"):
        want = oracle(x.astype(np.float64))
    got = getattr(tn, name)(tn.from_numpy(x)).numpy()
    off = misses(got, want)
    worst = int(np.argmax(off))
    assert off[worst] <= max(most, 0.51), (x[worst], got[worst], want[worst], off[worst])
    zeros = (want == 0) & (x == 0)
    assert (np.signbit(got[zeros]) == np.signbit(want[zeros])).all()


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """All ends with one another, random ones, and quotients of every size."""
    x, y = (a.reshape(-1) for a in np.meshgrid(ENDS, ENDS))
    left, right = numbers(2), numbers(3)
    draw = np.random.default_rng(4)
    divisors = draw.uniform(0.1, 10, SAMPLES).astype(np.float32)
    times = np.exp2(draw.uniform(-3, 40, SAMPLES)).astype(np.float32)
    whole = np.floor(draw.uniform(0, 1000, SAMPLES)).astype(np.float32)
    return (
        np.concatenate([x, left, divisors * times, divisors * whole]),
        np.concatenate([y, right, divisors, -divisors]),
    )


@pytest.mark.parametrize("name", ["atan2", "hypot"])
def test_functions_of_two_numbers(name):
    x, y = pairs()
    with np.errstate(all="ignore"):
        want = {"atan2": np.arctan2, "hypot": np.hypot}[name](
            x.astype(np.float64), y.astype(np.float64)
        )
    got = getattr(tn, name)(tn.from_numpy(x), tn.from_numpy(y)).numpy()
    off = misses(got, want)
    worst = int(np.argmax(off))
    assert off[worst] <= 0.6, (x[worst], y[worst], got[worst], want[worst])
    zeros = want == 0
    assert (np.signbit(got[zeros]) == np.signbit(want[zeros])).all()


@pytest.mark.parametrize("name", REMAINDERS)
def test_remainders_are_exact(name):
    x, y = pairs()
    with np.errstate(all="ignore"):
        want = REMAINDERS[name](x, y)
    got = getattr(tn, name)(tn.from_numpy(x), tn.from_numpy(y)).numpy()
    if name == "remainder":  # by infinity: Python's sign of the divisor, which NumPy's has not
        keep = ~np.isinf(y)
        x, y, got, want = x[keep], y[keep], got[keep], want[keep]
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    at = np.flatnonzero(~same)[:5]
    assert same.all(), [(x[i], y[i], got[i], want[i]) for i in at]
    if name == "fmod":
        assert (np.signbit(got[want == 0]) == np.signbit(want[want == 0])).all()


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_keep_nan_and_bounds_hold(name):
    x, y = (a.reshape(-1) for a in np.meshgrid(ENDS, ENDS))
    got = getattr(tn, name)(tn.from_numpy(x), tn.from_numpy(y)).numpy()
    assert np.array_equal(got, getattr(np, name)(x, y), equal_nan=True)
    bounded = tn.from_numpy(x).clamp(tn.from_numpy(y), tn.tensor(1.5)).numpy()
    assert np.array_equal(bounded, np.minimum(np.maximum(x, y), np.float32(1.5)), equal_nan=True)
    assert np.array_equal(
        tn.from_numpy(x).clamp(-1, 2).numpy(),
        np.clip(x, np.float32(-1), np.float32(2)),
        equal_nan=True,
    )


@pytest.mark.skipif("TENON_CPU_ISA" in os.environ, reason="the instruction set is given")
def test_bounds_hold_where_products_are_not_fused():
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", __file__],
        env={**os.environ, "TENON_CPU_ISA": "baseline"}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-2000:]
