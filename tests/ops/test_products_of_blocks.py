"""Products of matrices that are large enough to be packed: sizes about the ends of tiles, blocks,
panels and parts of the sum, every layout of operands and results, against NumPy in double."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn
from products import DTYPES, check, check_added, check_batches, drawn

SIZES = [  # m, n, k
    (128, 128, 128),
    (121, 97, 131),
    (65, 300, 70),
    (300, 65, 70),
    (48, 48, 1100),
    (81, 175, 513),
    (41, 640, 257),
    (640, 41, 257),
    (257, 129, 1025),
    (100, 4150, 43),
    (4150, 100, 43),
    (24, 700, 1100),
    (1030, 300, 600),
    (700, 24, 1100),
]
LAYOUTS = ["rows", "columns", "part", "long", "apart"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_products(left: str, right: str, dtype: tn.dtype) -> None:
    rng = np.random.default_rng(3)
    turn = LAYOUTS.index(left) + LAYOUTS.index(right)
    for m, n, k in SIZES[turn % 3 :: 3]:
        a, b = drawn(rng, (m, k), left, dtype), drawn(rng, (k, n), right, dtype)
        x, y = a.double().numpy(), b.double().numpy()
        size = np.abs(x) @ np.abs(y)
        check(a @ b, x @ y, size, DTYPES[dtype])
        out = tn.full((n, m), float("nan"), dtype=dtype).T
        tn.mm(a, b, out=out)
        check(out, x @ y, size, DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_added_and_where_it_goes(dtype: tn.dtype) -> None:
    rng = np.random.default_rng(4)
    for layout, (m, n, k) in zip(LAYOUTS, [SIZES[i] for i in (1, 5, 3, 8, 6)], strict=True):
        check_added(rng, m, n, k, layout, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batches(dtype: tn.dtype) -> None:
    rng = np.random.default_rng(5)
    check_batches(rng, 120, 128, 90, dtype)
    check_batches(rng, 260, 130, 1100, dtype)  # the sum in parts, entry by entry


def test_an_infinite_element_stays_in_its_row_and_column() -> None:
    for columns in (128, 97):
        a, b = tn.ones(121, 128), tn.ones(128, columns)
        a[120, 127], b[7, columns - 1] = float("inf"), float("nan")
        for right in (b, b.mT.contiguous().mT):
            got = a @ right
            assert got[:, -1].isnan().all() and (got[120, :-1] == float("inf")).all()
            assert (got[:120, :-1] == 128).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_do_not_change_a_bit(threads: int) -> None:
    rng = np.random.default_rng(6)
    before = tn.get_num_threads()
    a, b = drawn(rng, (300, 700), "rows", tn.float32), drawn(rng, (700, 900), "rows", tn.float32)
    left, right = drawn(rng, (4, 110, 120), "rows", tn.float32), b[:120, :100]
    products = [lambda: a @ b, lambda: a.T.contiguous().T @ b, lambda: left @ right]
    whole = [product() for product in products]
    tn.set_num_threads(threads)
    try:
        for product, expected in zip(products, whole, strict=True):
            assert tn.equal(product(), expected)
    finally:
        tn.set_num_threads(before)
