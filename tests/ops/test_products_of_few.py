"""Products of few rows by a matrix, and sums of rows that indices name: rows and widths about the
ends of a tile, every layout, against NumPy in double."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F
from products import DTYPES, check, check_added, check_batches, drawn

ROWS = [2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 33, 64, 65]
SIZES = [(257, 300), (40, 1653), (67, 1100), (1030, 71), (300, 229), (16, 4100)]  # k, n


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["rows", "columns", "part", "long", "apart"])
def test_products(layout: str, dtype: tn.dtype) -> None:
    rng = np.random.default_rng(3)
    eps = DTYPES[dtype]
    for i, m in enumerate(ROWS):
        for k, n in SIZES[i % 3 :: 3]:
            a, b = drawn(rng, (m, k), "rows", dtype), drawn(rng, (k, n), layout, dtype)
            x, y = a.double().numpy(), b.double().numpy()
            size = np.abs(x) @ np.abs(y)
            check(a @ b, x @ y, size, eps)
            check((b.mT @ a.mT), (x @ y).T, size.T, eps)
            check(a.mT.contiguous().mT @ b, x @ y, size, eps)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_what_is_added_and_where_it_goes(layout: str, dtype: tn.dtype) -> None:
    rng = np.random.default_rng(4)
    for m, (k, n) in zip([2, 5, 7, 16, 33], [*SIZES[:4], (300, 301)], strict=True):
        check_added(rng, m, n, k, layout, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batches(dtype: tn.dtype) -> None:
    rng = np.random.default_rng(5)
    check_batches(rng, 6, 400, 300, dtype)


def test_a_row_alone_is_what_it_is_among_others_when_it_is_infinite() -> None:
    a, b = tn.ones(5, 300), tn.ones(300, 500)
    a[3, 299], b[7, 499] = float("inf"), float("nan")
    for right in (b, b.mT.contiguous().mT):
        got = a @ right
        assert got[:, 499].isnan().all() and (got[3, :499] == float("inf")).all()
        assert (got[[0, 1, 2, 4], :499] == 300).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_change_a_bit(threads: int) -> None:
    rng = np.random.default_rng(6)
    before = tn.get_num_threads()
    a, b = drawn(rng, (9, 700), "rows", tn.float32), drawn(rng, (700, 1500), "columns", tn.float32)
    whole, rows = a @ b, a @ b.contiguous()
    tn.set_num_threads(threads)
    try:
        assert tn.equal(a @ b, whole) and tn.equal(a @ b.contiguous(), rows)
    finally:
        tn.set_num_threads(before)


ALL = {**DTYPES, tn.float16: 2.0**-11, tn.bfloat16: 2.0**-8}


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_sums_of_rows(dtype: tn.dtype) -> None:
    """Bags of indices, whose sums are a product with a sparse matrix; empty ones are zero."""
    rng = np.random.default_rng(7)
    for width in [*range(1, 70), 127, 128, 129, 200]:
        table = drawn(rng, (11, width), "rows", dtype)
        index = tn.tensor(rng.integers(0, 11, 23))
        shares = drawn(rng, (23,), "rows", dtype)
        ends = [0, 4, 4, 5, 17, 23]
        got = F.embedding_bag(
            index, table, tn.tensor(ends[:-1]), mode="sum", per_sample_weights=shares
        )
        rows = table.double().numpy()[index.numpy()] * shares.double().numpy()[:, None]
        exact = np.stack([rows[i:j].sum(0) for i, j in zip(ends, ends[1:], strict=False)])
        size = np.stack([np.abs(rows[i:j]).sum(0) for i, j in zip(ends, ends[1:], strict=False)])
        assert (np.abs(got.double().numpy() - exact) <= 6 * ALL[dtype] * size).all()


def test_many_steps_of_recurrent_layers_are_what_few_are() -> None:
    """Long sequences lay the weight out anew; a sequence in parts, each a few steps, does not."""
    tn.manual_seed(0)
    for kind in (tn.nn.LSTM, tn.nn.GRU, tn.nn.RNN):
        layer = kind(5, 7, dtype=tn.float64)
        x = tn.randn(20, 3, 5, dtype=tn.float64)
        y, last = layer(x)
        y.square().sum().backward()
        whole = [p.grad.clone() for p in layer.parameters()]
        layer.zero_grad()
        state, parts = None, []
        for part in x.split(4):
            out, state = layer(part, state)
            parts.append(out)
        tn.cat(parts).square().sum().backward()
        tn.testing.assert_close(tn.cat(parts), y)
        tn.testing.assert_close(state, last)
        tn.testing.assert_close([p.grad for p in layer.parameters()], whole)
