"""Powers of single precision against NumPy in double: within an ulp over the whole range, and C's
special cases, in vectors and in what is left of one."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn

RNG = np.random.default_rng(5)
N = 40_000


def bits() -> np.ndarray:
    return RNG.integers(0, 2**32, N, dtype=np.uint32).view(np.float32)


PAIRS = {
    "moderate": (RNG.uniform(0, 10, N), RNG.uniform(-10, 10, N)),
    "near one": (1 + RNG.standard_normal(N) * 1e-3, RNG.standard_normal(N) * 3e4),
    "next to one": (1 + RNG.standard_normal(N) * 1e-6, RNG.standard_normal(N) * 3e7),
    "all sizes": (np.exp2(RNG.uniform(-149, 128, N)), RNG.standard_normal(N)),
    "whole exponents": (-RNG.uniform(0, 5, N), RNG.integers(-30, 30, N)),
    "both signs": (RNG.standard_normal(N), RNG.standard_normal(N) * 3),
    "any bits": (bits(), bits()),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_distance_from_the_power(kind: str) -> None:
    with np.errstate(all="ignore"):
        x, y = (v.astype(np.float32) for v in PAIRS[kind])
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
        single = exact.astype(np.float32)
        got = tn.pow(tn.tensor(x), tn.tensor(y)).numpy()
        np.testing.assert_array_equal(np.isnan(got), np.isnan(single))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(single))
        seen = np.isfinite(single)
        off = np.abs(got[seen].astype(np.float64) - exact[seen]) / np.spacing(np.abs(single[seen]))
        assert off.max() < 1.0


SPECIAL = [
    0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1.5, -1.5,
    2.0**24, 2.0**24 - 1, -(2.0**24), 3.4e38, -3.4e38, 1e-40, -1e-40, 1e-45,
]  # fmt: skip


@pytest.mark.parametrize("n", [1, 3, 16, 17, 40])
def test_special_cases(n: int) -> None:
    """A pair in each place of vectors and of what is left, among others that are ordinary."""
    x, y = (v.ravel().astype(np.float32) for v in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    for i in range(len(x)):
        a, b = np.full(n, 1.25, np.float32), np.full(n, -0.5, np.float32)
        at = i % n
        a[at], b[at] = x[i], y[i]
        got = tn.pow(tn.tensor(a), tn.tensor(b)).numpy()
        rest = np.delete(got, at)
        np.testing.assert_array_equal(rest, np.full(n - 1, 1.25**-0.5, np.float32))
        ulp = np.spacing(np.abs(want[i])) if np.isfinite(want[i]) else 0
        np.testing.assert_allclose(got[at], want[i], rtol=0, atol=ulp, err_msg=f"{x[i]}, {y[i]}")
        assert np.isnan(want[i]) or np.signbit(got[at]) == np.signbit(want[i]), (x[i], y[i])


@pytest.mark.parametrize("dtype", [tn.float16, tn.bfloat16])
def test_half_precision_is_rounded_once(dtype: tn.dtype) -> None:
    x, y = tn.rand(1000).to(dtype) + 0.5, (tn.rand(1000) * 6 - 3).to(dtype)
    got = tn.pow(x, y).double()
    exact = x.double().numpy() ** y.double().numpy()
    assert tn.equal(got.to(dtype), got)
    np.testing.assert_allclose(got.numpy(), exact, rtol=1.01 * tn.finfo(dtype).eps / 2)
