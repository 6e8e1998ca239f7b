"""The size and the direction of complex numbers, as large and as small as they can be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tenon as tn

SIZES = [0.0, 1e-45, 3e-42, 1.2e-38, 5e-20, 1e-10, 0.3, 1.0, 4.5, 7e15, 1e25, 2e38, 3.4e38]
PARTS = [*SIZES, *(-v for v in SIZES), float("inf"), -float("inf"), float("nan")]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_sizes(dtype: type) -> None:
    pairs = np.array([complex(a, b) for a, b in itertools.product(PARTS, PARTS)]).astype(dtype)
    with np.errstate(all="ignore"):
        exact = np.hypot(pairs.real.astype(np.longdouble), pairs.imag.astype(np.longdouble))
        want = exact.astype(pairs.real.dtype)
        found = tn.tensor(pairs).abs().numpy()
        np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
        known = np.isfinite(want)
        np.testing.assert_array_equal(found[~known & ~np.isnan(want)], np.inf)
        place = np.spacing(want[known])
        assert (np.abs(found[known] - exact[known]) <= 0.51 * place).all()


def test_directions() -> None:
    pairs = np.array([complex(a, b) for a, b in itertools.product(PARTS[:26], PARTS[:26])])
    pairs = pairs.astype(np.complex64)
    found = tn.tensor(pairs).sgn().numpy()
    size = np.abs(pairs.astype(np.complex128))
    usual = (size > 1e-37) & (size < 3.4e38)
    want = np.where(size == 0, 0, pairs.astype(np.complex128) / np.where(size == 0, 1, size))
    np.testing.assert_allclose(found[usual], want[usual], rtol=0, atol=1e-7)
    assert (found[size == 0] == 0).all() and np.isfinite(found[usual]).all()
