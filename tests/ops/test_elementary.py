"""Elementary functions of float32 over all of float32's range, against float64: how many units in
the last place they are off at most, and what they make of the ends."""

from __future__ import annotations

import math
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
    "asin": (np.arcsin, 0.8), "acos": (np.arccos, 0.8), "atan": (np.arctan, 1.2),
    "sinh": (np.sinh, 1.7), "cosh": (np.cosh, 1.7), "asinh": (np.arcsinh, 0.6),
    "acosh": (np.arccosh, 0.6), "atanh": (np.arctanh, 0.6), "exp2": (np.exp2, 1.1),
    "log1p": (np.log1p, 1.0), "exp": (np.exp, 1.0), "log": (np.log, 1.0), "sin": (np.sin, 1.1),
    "cos": (np.cos, 1.0), "tanh": (np.tanh, 2.0), "erf": (special.erf, 2.0),
    "sigmoid": (special.expit, 2.0), "log2": (np.log2, 1.1), "log10": (np.log10, 1.1),
    "tan": (np.tan, 1.0), "erfc": (special.erfc, 3.4),
    "erfinv": (lambda x: np.copysign(special.erfinv(x), x), 1.05), "round": (np.round, 0.0),
}  # fmt: skip
# Where products are not fused the tail of the normal distribution is off by one unit more.
TAIL = 3.4 if os.environ.get("TENON_CPU_ISA") == "baseline" else 2.3
SPECIAL = {
    "ndtr": (special.ndtr, TAIL), "entr": (special.entr, 1.7), "ndtri": (special.ndtri, 0.7),
}  # fmt: skip
DOUBLE = {"sin": (np.sin, 0.85), "cos": (np.cos, 0.85), "erf": (lambda x: long_erf(x), 1.3)}
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


@pytest.mark.parametrize(("dtype", "lowest"), [(np.float32, 106), (np.float64, 750)])
def test_softmax_down_to_the_smallest_numbers(dtype, lowest):
    """Weights that are subnormal or nothing, in whole vectors and in their rest."""
    x = np.linspace(0, -lowest, 4003).astype(dtype)
    x[[7, 4000]] = -np.inf
    exact = np.exp(x.astype(np.longdouble))
    want = exact / exact.sum()
    got = tn.softmax(tn.from_numpy(x), 0).numpy()
    unit = np.maximum(np.spacing(want.astype(dtype)), np.finfo(dtype).smallest_subnormal)
    assert np.max(np.abs(got - want) / unit) <= 3
    assert (got[[7, 4000]] == 0).all() and (got > 0).sum() < x.size - 2


@pytest.mark.parametrize("name", SPECIAL)
def test_functions_of_statistics(name):
    oracle, most = SPECIAL[name]
    x = numbers(5)
    with np.errstate(all="ignore"):
        want = oracle(x.astype(np.float64))
    off = misses(getattr(tn.special, name)(tn.from_numpy(x)).numpy(), want)
    worst = int(np.argmax(off))
    assert off[worst] <= most, (x[worst], want[worst], off[worst])


def long_erf(x: np.ndarray) -> np.ndarray:
    """By the series of positive terms in extended precision."""
    a = np.minimum(np.abs(x), np.longdouble(7))
    term = 2 / np.sqrt(np.longdouble("3.14159265358979323846264338327950288")) * a * np.exp(-a * a)
    total = term
    for n in range(1, 260):
        term = term * (2 * a * a / (2 * n + 1))
        total = total + term
    return np.copysign(total, x)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no extended precision to compare")
@pytest.mark.parametrize("name", DOUBLE)
def test_functions_of_doubles(name):
    """Of every exponent, next to multiples of pi / 2 and beyond what is reduced by vectors."""
    oracle, most = DOUBLE[name]
    draw = np.random.default_rng(6)
    any_size = np.ldexp(draw.uniform(-1, 1, SAMPLES), draw.integers(-1070, 40, SAMPLES))
    near = np.floor(draw.uniform(-667544, 667544, SAMPLES)) * (np.pi / 2)
    near = near + np.spacing(near) * draw.integers(-2, 3, SAMPLES)
    wide, small = draw.uniform(-(2**20), 2**20, SAMPLES), draw.uniform(-8, 8, SAMPLES)
    ends = [0.0, -0.0, 2.0**20, -(2.0**20), 1.9e22, 5e-324, np.nan, 0.9, 6.0, np.inf, -np.inf]
    x = np.concatenate([ends, any_size, near, wide, small])
    with np.errstate(all="ignore"):
        want = oracle(x.astype(np.longdouble))
    got = getattr(tn, name)(tn.from_numpy(x)).numpy()
    known = np.isfinite(want)
    assert np.isnan(got[~known]).all()
    rounded = np.abs(want[known].astype(np.float64))
    unit = np.where(rounded >= 2.0**-1022, np.spacing(rounded), 5e-324).astype(np.longdouble)
    off = np.abs(got[known].astype(np.longdouble) - want[known]) / unit
    worst = int(np.argmax(off))
    assert off[worst] <= most, (x[known][worst], got[known][worst], want[known][worst])
    zeros = x == 0
    assert (np.signbit(got[zeros]) == np.signbit(want[zeros])).all()


def test_inverses_in_double():
    """Against SciPy, next to 0 and 1 and down to the smallest numbers."""
    draw = np.random.default_rng(12)
    small = 10.0 ** draw.uniform(-17, 0, SAMPLES)
    tiny = 10.0 ** draw.uniform(-320, -1, SAMPLES // 16)
    x = np.concatenate([draw.uniform(-1, 1, SAMPLES), small, -small, 1 - small[small < 0.5], tiny])
    got = tn.erfinv(tn.from_numpy(x)).numpy()
    known = np.abs(x) < 1
    want = special.erfinv(x[known])
    np.testing.assert_allclose(got[known], want, rtol=2e-15, atol=1e-323)
    p = np.concatenate([draw.uniform(0, 1, SAMPLES), small, 1 - small, tiny, [0.1, 0.9, 1e-45]])
    p = p[(p > 0) & (p < 1) & (p != 0.5)]
    got = tn.special.ndtri(tn.from_numpy(p)).numpy()
    np.testing.assert_allclose(got, special.ndtri(p), rtol=3e-15, atol=2e-16)
    ends = tn.special.ndtri(tn.tensor([0.0, 1.0, -0.5, 1.5, math.nan, 0.5], dtype=tn.float64))
    assert str(ends.tolist()) == "[-inf, inf, nan, nan, nan, 0.0]"


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no extended precision to compare")
def test_derivative_of_digamma():
    """Against the sum of 60 terms and the asymptotic series of the rest, in extended precision."""
    draw = np.random.default_rng(13)
    x = np.concatenate(
        [draw.uniform(0, 1, 9999), draw.uniform(0, 40, 9999), 10.0 ** np.arange(-9, 9)]
    )
    v = x.astype(np.longdouble)
    far = v + 60
    z, want = 1 / (far * far), 1 / far + 1 / (2 * far * far)
    want = want + z / far * (1 / np.longdouble(6) - z * (1 / np.longdouble(30) - z / 42))
    for k in range(60):
        want = want + 1 / (v + k) ** 2
    got = tn.polygamma(1, tn.from_numpy(x)).numpy()
    assert (np.abs(got - want) / np.spacing(got)).max() <= 3
    x = x.astype(np.float32)
    got = tn.polygamma(1, tn.from_numpy(x)).numpy()
    assert misses(got, special.zeta(2.0, x.astype(np.float64))).max() <= 0.51
    ends = tn.polygamma(1, tn.tensor([0.0, -1.0, math.inf, math.nan, 1e-30, -0.5]))
    assert str(ends[:5].tolist()) == "[inf, inf, 0.0, nan, inf]"
    np.testing.assert_allclose(ends[5].item(), special.zeta(2.0, 0.5) + 4, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_neighbours_and_parts_are_exact(dtype):
    draw = np.random.default_rng(7)
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    some = draw.integers(0, np.iinfo(bits).max, SAMPLES, dtype=bits).view(dtype)
    tiny = draw.integers(0, 1 << 20, SAMPLES, dtype=bits).view(dtype)
    x = np.concatenate([ENDS.astype(dtype), some, tiny, -tiny])
    y = np.concatenate([draw.permutation(x[: x.size // 2]), x[x.size // 2 :]])
    with np.errstate(all="ignore"):
        want = np.nextafter(x, y)
        mantissa, exponent = np.frexp(x)
    got = tn.nextafter(tn.from_numpy(x), tn.from_numpy(y)).numpy()
    assert np.array_equal(got, want, equal_nan=True)
    keep = ~np.isnan(want)
    assert np.array_equal(np.signbit(got[keep]), np.signbit(want[keep]))
    parts = tn.frexp(tn.from_numpy(x))
    assert np.array_equal(parts[0].numpy(), mantissa, equal_nan=True)
    finite = np.isfinite(x)
    assert np.array_equal(parts[1].numpy()[finite], exponent[finite])
    signed = ~np.isnan(x)
    assert np.array_equal(np.signbit(parts[0].numpy()[signed]), np.signbit(x[signed]))


def test_angles_of_complex_numbers():
    x, y = pairs()
    z = np.empty(x.size, np.complex64)
    z.real, z.imag = x, y
    with np.errstate(all="ignore"):
        want = np.arctan2(z.imag.astype(np.float64), z.real.astype(np.float64))
    off = misses(tn.angle(tn.from_numpy(z)).numpy(), want)
    assert off.max() <= 0.6


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


def complex_numbers(seed: int, dtype: np.dtype) -> np.ndarray:
    """Parts of every size that squares of leave the range with, ends among them."""
    draw = np.random.default_rng(seed)
    real = np.float32 if dtype == np.complex64 else np.float64
    most = 120 if real == np.float32 else 1000
    ends = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 3e38, 1e-45], real)
    parts = np.ldexp(draw.uniform(-1, 1, (2, 4001)), draw.integers(-most, most, (2, 4001)))
    near = draw.standard_normal((2, 4000))
    re, im = (a.reshape(-1) for a in np.meshgrid(ends, ends))
    z = np.empty(re.size + 8001, dtype)
    z.real = np.concatenate([re, parts[0], near[0]]).astype(real)
    z.imag = np.concatenate([im, parts[1], near[1]]).astype(real)
    return z


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_products_of_complex_numbers(dtype):
    """Bit by bit what the products of the parts give, in whole vectors and in their rest."""
    x, y = complex_numbers(8, dtype), complex_numbers(9, dtype)[::-1].copy()
    real = np.zeros(1, dtype).real.dtype
    k = np.array(2.0, real)
    with np.errstate(all="ignore"):
        product = [x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real]
        square = [x.real * x.real - x.imag * x.imag, x.real * x.imag + x.imag * x.real]
        want = {
            "mul": product, "square": square, "conj": [x.real, -x.imag],
            "add": [x.real + y.real, x.imag + y.imag], "sub": [x.real - y.real, x.imag - y.imag],
            "twice": [x.real + k * y.real, x.imag + k * y.imag],
            "turned": [x.real + (0 * y.real - k * y.imag), x.imag + (0 * y.imag + k * y.real)],
        }  # fmt: skip
    for n in (x.size, x.size - 1, 1, 2, 3):
        a, b = tn.from_numpy(x[:n]), tn.from_numpy(y[:n])
        got = {
            "mul": a * b, "square": a.square(), "conj": a.conj().resolve_conj(), "add": a + b,
            "sub": a - b, "twice": tn.add(a, b, alpha=2), "turned": tn.add(a, b, alpha=2j),
        }  # fmt: skip
        for name, z in got.items():
            z = z.numpy()
            for part, exact in zip((z.real, z.imag), want[name], strict=True):
                np.testing.assert_array_equal(part, exact[:n], name)
                known = ~np.isnan(exact[:n])
                assert (np.signbit(part) == np.signbit(exact[:n]))[known].all(), name


def test_quotients_of_complex_numbers():
    """Each part within a unit of what double gives where the quotient is a number, and what
    Smith's method says at zeros and infinities."""
    x, y = complex_numbers(10, np.complex64), complex_numbers(11, np.complex64)[::-1].copy()
    x, y = np.concatenate([x, x]), np.concatenate([y, np.roll(y, 7)])
    with np.errstate(all="ignore"):
        a, b, c, d = (v.astype(np.float64) for v in (x.real, x.imag, y.real, y.imag))
        size = c * c + d * d
        want = (a * c + b * d) / size, (b * c - a * d) / size
    usual = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & np.isfinite(d) & (size > 0)
    assert usual.sum() > 10_000
    near = tn.from_numpy(x) / tn.from_numpy(y)
    # A part that both products nearly cancel in is as good as double is.
    lost = (np.abs(a) + np.abs(b))[usual] / np.sqrt(size[usual]) * 2.0**-50
    for got, exact in zip((near.real.numpy(), near.imag.numpy()), want, strict=True):
        got, exact = got[usual].astype(np.float64), exact[usual]
        unit = np.spacing(np.clip(np.abs(exact), 1.2e-38, 3e38).astype(np.float32)) + lost
        inside, beyond = np.abs(exact) < 3.4e38, np.abs(exact) > 3.41e38
        assert (np.abs(got[inside] - exact[inside]) / unit[inside]).max() <= 0.51
        assert (np.abs(got[beyond]) == np.inf).all()
    one, zero, inf = complex(1, 1), complex(0, 0), complex(math.inf, 0)
    ends = tn.tensor([one, one, inf, zero, one]) / tn.tensor([zero, inf, one, zero, one])
    assert str(ends[1].item()) == "0j" and ends[4].item() == 1
    assert abs(ends[0].item()) == abs(ends[2].item()) == math.inf
    assert math.isnan(ends[3].real.item()) and math.isnan(ends[3].imag.item())
    y = y[np.isfinite(y) & (y != 0)]
    again = tn.from_numpy(np.ones_like(y)) / tn.from_numpy(y)
    same = tn.from_numpy(y).reciprocal()
    for part in (tn.real, tn.imag):
        np.testing.assert_array_equal(part(same).numpy(), part(again).numpy())
