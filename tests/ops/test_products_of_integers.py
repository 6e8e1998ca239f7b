"""Products of integer matrices, which wrap: sizes about the ends of a panel and a band of rows,
every layout and dtype, against NumPy's in the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn

DTYPES = ["uint8", "int8", "int16", "int32", "int64"]
SIZES = [  # m, k, n
    (1, 1, 1), (1, 70, 33), (1, 33, 200), (2, 7, 129), (3, 5, 3), (3, 64, 1), (65, 9, 1),
    (66, 40, 2), (64, 17, 64), (65, 31, 67), (130, 3, 31), (5, 300, 130), (2, 0, 3),
]  # fmt: skip


def drawn(rng: np.random.Generator, shape: tuple[int, ...], how: str, dtype: str) -> tn.Tensor:
    """Any bits: rows are packed, or columns are, or elements lie apart."""
    ends = np.iinfo(dtype)
    x = tn.tensor(rng.integers(ends.min, ends.max, shape, dtype, endpoint=True))
    if how == "columns":
        return x.mT.contiguous().mT
    if how == "rows":
        return x
    return tn.stack([x, x + 1], -1).flatten(-2)[..., ::2]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["rows", "columns", "apart"])
def test_products(layout: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    for m, k, n in SIZES:
        for other in ("rows", "columns", "apart"):
            a, b = drawn(rng, (m, k), other, dtype), drawn(rng, (k, n), layout, dtype)
            np.testing.assert_array_equal((a @ b).numpy(), a.numpy() @ b.numpy())


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_added_and_batches(dtype: str) -> None:
    rng = np.random.default_rng(2)
    for m, k, n in SIZES:
        a, b = drawn(rng, (3, m, k), "rows", dtype), drawn(rng, (3, k, n), "columns", dtype)
        c = drawn(rng, (3, m, n), "apart", dtype)
        want = 3 * (a.numpy() @ b.numpy()) - 2 * c.numpy()
        np.testing.assert_array_equal(tn.baddbmm(c, a, b, beta=-2, alpha=3).numpy(), want)
        row = drawn(rng, (n,), "rows", dtype)
        out = tn.ones(n, m, dtype=getattr(tn, dtype)).T
        tn.addmm(row, a[1], b[1], out=out)
        np.testing.assert_array_equal(out.numpy(), a[1].numpy() @ b[1].numpy() + row.numpy())
