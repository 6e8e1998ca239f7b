"""Sorting rows that are long enough for all threads, against NumPy's stable order."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn

# As many elements as go to all threads, and what decides into how many buckets of keys they fall.
VERY_LONG = (1 << 16) + 37
SPREADS = {
    "alike": lambda rng, n: np.zeros(n),
    "two values": lambda rng, n: rng.integers(0, 2, n),
    "near": lambda rng, n: 40 + rng.integers(-3, 3, n),
    "wide": lambda rng, n: rng.integers(-(2**62), 2**62, n) // 2 ** rng.integers(0, 62, n),
    "rising": lambda rng, n: np.arange(n),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16", "int32", "int64"])
def test_very_long_rows_are_sorted(dtype: str, spread: str, threads: int) -> None:
    rng = np.random.default_rng(11)
    x = np.stack([SPREADS[spread](rng, VERY_LONG) for _ in range(2)]).astype(dtype)
    if dtype.startswith("float"):
        x[0, rng.integers(0, VERY_LONG, 500)] = np.nan
        x[1, rng.integers(0, VERY_LONG, 500)] = -0.0
    before = tn.get_num_threads()
    tn.set_num_threads(threads)
    try:
        rows = tn.from_numpy(x).sort(stable=True)
        columns = tn.from_numpy(x.T.copy()).sort(dim=0, stable=True, descending=True)
    finally:
        tn.set_num_threads(before)
    expected = np.argsort(x, axis=1, kind="stable")
    np.testing.assert_array_equal(rows.indices.numpy(), expected)
    np.testing.assert_array_equal(rows.values.numpy(), np.take_along_axis(x, expected, 1))
    # From the largest on, those alike in the order in which they stand: the same from behind.
    behind = VERY_LONG - 1 - np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1]
    np.testing.assert_array_equal(columns.indices.numpy().T, behind)
    np.testing.assert_array_equal(columns.values.numpy().T, np.take_along_axis(x, behind, 1))
