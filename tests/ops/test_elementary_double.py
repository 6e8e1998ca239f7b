"""Elementary functions of float64 against extended precision: how many units in the last place they
are off at most, what they make of the ends, and Bessel functions against numbers of mpmath."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import os

import numpy as np
import pytest
import scipy.special as sp
import tenon as tn

SAMPLES = 1 << 14
FUSED = os.environ.get("TENON_CPU_ISA") != "baseline"  # products and sums are rounded once
LONG = np.finfo(np.longdouble).nmant >= 63
ENDS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 2e-308,
    1.7e308, -1.7e308, 709.7, 709.8, 710.4, 710.5, -745.2, 1023.5, 1024.0, -1074.5, -1076.0,
    1 - 2.0**-53, -1 + 2.0**-53, 1 + 2.0**-52, 8.0, 38.5, -38.5,
]  # fmt: skip
UNARY = {
    "exp2": (np.exp2, 0.95), "log1p": (np.log1p, 0.9), "log2": (np.log2, 0.75),
    "log10": (np.log10, 0.75), "sinh": (np.sinh, 1.7), "cosh": (np.cosh, 1.2),
    "asinh": (np.arcsinh, 1.6), "acosh": (np.arccosh, 2.6), "atanh": (np.arctanh, 2.0),
    "asin": (np.arcsin, 2.0), "acos": (np.arccos, 1.2), "atan": (np.arctan, 1.8),
    "tan": (np.tan, 2.2), "exp": (np.exp, 1.1), "log": (np.log, 0.8), "expm1": (np.expm1, 1.5),
    "tanh": (np.tanh, 2.3), "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 1.9),
    "sqrt": (np.sqrt, 0.51), "rsqrt": (lambda x: 1 / np.sqrt(x), 1.6),
    "reciprocal": (lambda x: 1 / x, 0.51),
}  # fmt: skip
BINARY = {"hypot": (np.hypot, 1.1), "atan2": (np.arctan2, 1.8), "fmod": (np.fmod, 0.0)}


library_lgamma = ctypes.CDLL(ctypes.util.find_library("m") or None).lgamma
library_lgamma.restype, library_lgamma.argtypes = ctypes.c_double, [ctypes.c_double]


def numbers(seed: int) -> np.ndarray:
    """Of every exponent, and as many of usual sizes."""
    draw = np.random.default_rng(seed)
    any_size = np.ldexp(draw.uniform(-1, 1, SAMPLES), draw.integers(-1070, 1024, SAMPLES))
    near = 1 + draw.uniform(-1, 1, SAMPLES) * 10.0 ** draw.uniform(-15, 0, SAMPLES)
    parts = [draw.uniform(-1, 1, SAMPLES), draw.uniform(-750, 750, SAMPLES), near, any_size]
    return np.concatenate([ENDS, *parts])


def worst(got: np.ndarray, want: np.ndarray) -> tuple[float, int]:
    """The largest error in units of the last place; special values have to be the same."""
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float64)
        size = np.clip(np.abs(rounded), 2.0**-1022, 1e308)
        off = (np.abs(got.astype(np.longdouble) - want) / np.spacing(size)).astype(np.float64)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    plain = np.isfinite(got) & np.isfinite(rounded)
    # what leaves the range may do so one place early
    end = ~plain & (np.abs(rounded) > 1.797693e308) & (np.abs(got) > 1.797693e308)
    off = np.where(plain, off, np.where(same | end, 0.0, np.inf))
    at = int(np.argmax(off))
    return float(off[at]), at


@pytest.mark.skipif(not LONG, reason="no extended precision to compare")
@pytest.mark.parametrize("name", UNARY)
def test_of_one_number(name: str) -> None:
    oracle, most = UNARY[name]
    x = numbers(1)
    with np.errstate(all="ignore"):
        want = oracle(x.astype(np.longdouble))
    got = getattr(tn, name)(tn.from_numpy(x)).numpy()
    off, at = worst(got, want)
    assert off <= most + (0 if FUSED else 1), (x[at], got[at], want[at], off)
    zeros = (want == 0) & (x == 0)
    assert (np.signbit(got[zeros]) == np.signbit(want[zeros])).all()


@pytest.mark.skipif(not LONG, reason="no extended precision to compare")
@pytest.mark.parametrize("name", BINARY)
def test_of_two_numbers(name: str) -> None:
    oracle, most = BINARY[name]
    x, y = numbers(2), np.random.default_rng(3).permutation(numbers(2))
    pairs = np.array(ENDS)
    x = np.concatenate([x, np.repeat(pairs, pairs.size), y / 3, y * 0.7])
    y = np.concatenate([y, np.tile(pairs, pairs.size), y, y])
    with np.errstate(all="ignore"):
        want = oracle(x.astype(np.longdouble), y.astype(np.longdouble))
    got = getattr(tn, name)(tn.from_numpy(x), tn.from_numpy(y)).numpy()
    off, at = worst(got, want)
    assert off <= most + (0 if FUSED else 1), (x[at], y[at], got[at], want[at], off)


@pytest.mark.skipif(not LONG, reason="no extended precision to compare")
def test_powers() -> None:
    """To 0.8 of a place, however large the exponent, and every pair of ends as C has it."""
    draw = np.random.default_rng(4)
    x = np.concatenate([np.exp(draw.uniform(-700, 700, SAMPLES)), draw.uniform(-3, 3, SAMPLES)])
    y = np.concatenate([draw.uniform(-1, 1, SAMPLES), np.round(draw.uniform(-400, 400, SAMPLES))])
    near = 1 + draw.uniform(-1, 1, SAMPLES) * 10.0 ** draw.uniform(-14, -1, SAMPLES)
    x = np.concatenate([x, near, x[:SAMPLES] * 0 + 5e-320])
    y = np.concatenate([y, 10.0 ** draw.uniform(0, 15, SAMPLES), draw.uniform(-1, 1, SAMPLES)])
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    got = tn.pow(tn.from_numpy(x), tn.from_numpy(y)).numpy()
    off, at = worst(got, want)
    assert off <= 0.85, (x[at], y[at], got[at], want[at], off)
    ends = np.array([*ENDS, 3.0, -3.0, 1e300, 2.0**53 + 2, 2.0**53 + 1])
    x, y = np.repeat(ends, ends.size), np.tile(ends, ends.size)
    with np.errstate(all="ignore"):
        want = np.power(x, y)
    got = tn.pow(tn.from_numpy(x), tn.from_numpy(y)).numpy()
    np.testing.assert_allclose(got, want, rtol=3e-16, atol=1e-323)
    known = ~np.isnan(want)
    assert (np.signbit(got[known]) == np.signbit(want[known])).all()


def test_of_the_normal_distribution_and_the_factorial() -> None:
    """Against the C library, whose errors are below one place."""
    x = np.concatenate([np.linspace(-6, 27.2, 30001), numbers(5)])
    want = np.array([math.erfc(v) for v in x])
    off, at = worst(tn.erfc(tn.from_numpy(x)).numpy(), want.astype(np.longdouble))
    assert off <= 7, (x[at], off)
    x = np.concatenate([np.linspace(0, 30, 30001)[1:], np.geomspace(1e-300, 1e300, 5001)])
    x = np.concatenate([x, 1 + np.linspace(-0.1, 0.1, 4000), 2 + np.linspace(-0.1, 0.1, 4000)])
    x = np.concatenate([x, -np.linspace(0, 2, 4001)[1:-1]])
    want = np.array([library_lgamma(v) for v in x])
    off, at = worst(tn.lgamma(tn.from_numpy(x)).numpy(), want.astype(np.longdouble))
    assert off <= 8, (x[at], off)
    left = -np.linspace(0.01, 40, 20001)
    left = left[left != np.floor(left)]
    want = np.array([library_lgamma(v) for v in left])
    np.testing.assert_allclose(tn.lgamma(tn.from_numpy(left)).numpy(), want, rtol=1e-15)
    got = tn.lgamma(tn.from_numpy(left.astype(np.float32))).numpy()
    want = np.array([library_lgamma(v) for v in left.astype(np.float32).astype(np.float64)])
    np.testing.assert_allclose(got, want, rtol=3e-7)
    ends = tn.lgamma(tn.tensor([0.0, -0.0, -3.0, math.inf, -math.inf, math.nan]))
    assert str(ends.tolist()) == "[inf, inf, inf, inf, inf, nan]"
    x = np.concatenate([np.linspace(-38, 10, 20001), ENDS])
    with np.errstate(all="ignore"):
        want = x * sp.ndtr(x)
    got = tn.nn.functional.gelu(tn.from_numpy(x)).numpy()
    plain = np.isfinite(x)
    np.testing.assert_allclose(got[plain], want[plain], rtol=4e-13, atol=1e-300)  # SciPy's tail
    near = plain & (x > -6)
    np.testing.assert_allclose(got[near], want[near], rtol=1e-14, atol=1e-323)


WAVES = {"j0": sp.j0, "j1": sp.j1, "y0": sp.y0, "y1": sp.y1}


@pytest.mark.parametrize("name", WAVES)
def test_bessel_functions(name: str) -> None:
    """Beside SciPy's, relative to the wave's height; the same numbers whoever stands beside."""
    wide = np.geomspace(8, 2.0**20, 3001)
    x = np.concatenate([np.linspace(0.01, 30, 9001), wide, [2e6, 1e9]])
    height = np.maximum(np.abs(WAVES[name](x)), np.sqrt(2 / (np.pi * x)))
    got = getattr(tn.special, f"bessel_{name}")(tn.from_numpy(x)).numpy()
    lost = 4e-15 + x * 2e-16  # SciPy's angle
    assert (np.abs(got - WAVES[name](x)) <= height * lost).all()
    f = getattr(tn.special, f"bessel_{name}")
    alone = [f(tn.tensor(v, dtype=tn.float64)).item() for v in x[::97]]
    assert (np.array(alone) == got[::97]).all()
    ends = f(tn.tensor([0.0, math.inf, math.nan])).tolist()
    first = {"j0": 1.0, "j1": 0.0}.get(name, -math.inf)
    assert ends[:2] == [first, 0.0] and math.isnan(ends[2])


# Of mpmath with 40 digits.
EXACT = [
    ("bessel_j0", 1.0, 0.76519768655796655), ("bessel_j0", 7.9, 0.19436184484127824),
    ("bessel_j1", 8.1, 0.24760776698159288), ("bessel_y0", 0.3, -0.80727357780451949),
    ("bessel_y1", 2.5, 0.14591813796678579),
]  # fmt: skip


@pytest.mark.parametrize(("name", "x", "want"), EXACT)
def test_bessel_functions_of_many_digits(name: str, x: float, want: float) -> None:
    got = getattr(tn.special, name)(tn.tensor([x], dtype=tn.float64)).item()
    assert abs(got - want) <= 6e-16


@pytest.mark.parametrize("dtype", [tn.float16, tn.bfloat16], ids=str)
def test_half_precision_is_rounded_once(dtype: tn.dtype) -> None:
    """Every number of the type, to half a place and a hundredth of it."""
    bits = tn.arange(-(1 << 15), 1 << 15).to(tn.int16).view(dtype)
    bits = bits[bits.isfinite()]
    x = bits.double()
    eps = {tn.float16: 2.0**-11, tn.bfloat16: 2.0**-8}[dtype]
    for name in ("sin", "cos", "asin", "acos", "atan", "log2", "log10"):
        got, want = getattr(tn, name)(bits).double(), getattr(tn, name)(x)
        assert (got.isnan() == want.isnan()).all(), name
        kept = want.isfinite() & (want.abs() > 2.0**-13)
        off = ((got - want).abs() / want.abs())[kept]
        assert off.max() <= eps * 1.01, (name, off.max().item())
        assert (got.signbit() == want.signbit())[want == 0].all(), name
