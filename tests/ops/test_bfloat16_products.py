"""Products of bfloat16 matrices of every layout and awkward size against float64, whatever
instruction computes them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import tenon as tn

RNG = np.random.default_rng(11)
SIZES = [
    (1, 1, 1), (1, 64, 100), (3, 33, 5), (8, 31, 7), (9, 2, 49), (17, 7, 48), (33, 65, 97),
    (97, 40, 193), (96, 1025, 47), (5, 2049, 300), (200, 3, 1), (1, 5, 200), (32, 32, 32),
    (48, 286, 529), (290, 257, 80), (16, 512, 257),
]  # fmt: skip


def drawn(*shape: int) -> tuple[tn.Tensor, np.ndarray]:
    t = tn.tensor(RNG.standard_normal(shape).astype(np.float32)).to(tn.bfloat16)
    return t, t.double().numpy()


def laid_out(t: tn.Tensor, how: str) -> tn.Tensor:
    """The same numbers: rows packed, columns packed, or neither."""
    match how:
        case "columns":
            return t.transpose(-1, -2).contiguous().transpose(-1, -2)
        case "neither":
            wide = tn.zeros(*t.shape[:-1], 3 * t.shape[-1], dtype=t.dtype)
            wide[..., ::3] = t
            return wide[..., ::3]
    return t


def check(found: tn.Tensor, exact: np.ndarray, size: np.ndarray) -> None:
    """Within bfloat16's half place and the rounding of float sums; `size` is the sum of sizes."""
    assert found.dtype == tn.bfloat16
    bound = np.abs(exact) * 2.0**-8 + size * 2.0**-20
    assert (np.abs(found.double().numpy() - exact) <= bound).all()


@pytest.mark.parametrize("layout", ["rows", "columns", "neither"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_matmul(size: tuple[int, int, int], layout: str) -> None:
    m, k, n = size
    (a, x), (b, y) = drawn(m, k), drawn(k, n)
    for other in ("rows", "columns"):
        found = laid_out(a, layout) @ laid_out(b, other)
        check(found, x @ y, np.abs(x) @ np.abs(y))
        check(laid_out(a, other) @ laid_out(b, layout), x @ y, np.abs(x) @ np.abs(y))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_what_is_added(size: tuple[int, int, int]) -> None:
    m, k, n = size
    (a, x), (w, y), (bias, z) = drawn(m, k), drawn(n, k), drawn(n)
    weight = np.abs(x) @ np.abs(y.T) + np.abs(z)
    check(tn.nn.functional.linear(a, w, bias), x @ y.T + z, weight)
    c, v = drawn(m, n)
    weight = 2 * np.abs(x) @ np.abs(y.T) + np.abs(v)
    found = tn.addmm(c, a, w.T, beta=-0.5, alpha=2)
    check(found, -0.5 * v + 2 * (x @ y.T), weight)
    out = tn.zeros(n, m, dtype=tn.bfloat16).T
    tn.matmul(a, w.T, out=out)
    check(out, x @ y.T, weight)


def test_batches() -> None:
    (a, x), (b, y) = drawn(5, 20, 33), drawn(5, 33, 50)
    check(a @ b, x @ y, np.abs(x) @ np.abs(y))
    check(a @ b[2], x @ y[2], np.abs(x) @ np.abs(y[2]))
    check(a[1] @ b, x[1] @ y, np.abs(x[1]) @ np.abs(y))
    check(tn.bmm(a[:, :2], b), x[:, :2] @ y, np.abs(x[:, :2]) @ np.abs(y))


def test_infinities_stay_where_they_are() -> None:
    (a, _), (b, _) = drawn(20, 7), drawn(7, 60)
    a[3, 6], b[2, 50] = float("inf"), float("nan")
    found = (a @ b).float().numpy()
    assert np.isnan(found[:, 50]).all() and np.isinf(np.delete(found[3], 50)).all()
    found = np.delete(np.delete(found, 50, 1), 3, 0)
    assert np.isfinite(found).all()


def test_threads_change_no_bit() -> None:
    (a, _), (b, _), (row, _) = drawn(300, 700), drawn(700, 500), drawn(2, 700)
    before = tn.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            tn.set_num_threads(threads)
            results.append([x.float().numpy() for x in (a @ b, row @ b, row @ b.T.contiguous().T)])
    finally:
        tn.set_num_threads(before)
    for other in results[1:]:
        for x, y in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """softmax(q k^T / sqrt(width)) v in float64."""
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys", "width"),
    [(1, 1, 8), (7, 129, 33), (65, 65, 64), (130, 300, 50), (64, 128, 1)],
)
def test_attention(queries: int, keys: int, width: int, causal: bool) -> None:
    """Weights are not rounded to bfloat16 on the way: the result is off by its own rounding."""
    (q, x), (k, y), (v, z) = (drawn(2, n, 3, width) for n in (queries, keys, keys))
    parts = [t.transpose(1, 2) for t in (q, k, v)]
    found = tn.nn.functional.scaled_dot_product_attention(*parts, is_causal=causal)
    exact = attended(*(np.swapaxes(t, 1, 2) for t in (x, y, z)), causal)
    check(found, exact, np.full_like(exact, 40.0))


def test_attention_to_infinite_values() -> None:
    """An infinite value makes its column of the results infinite, and no other."""
    (q, _), (k, _), (v, _) = (drawn(1, 2, 70, 16) for _ in range(3))
    v[0, 1, 3, 5] = -float("inf")
    found = tn.nn.functional.scaled_dot_product_attention(q, k, v).float().numpy()
    assert (found[0, 1, :, 5] == -np.inf).all()
    found[0, 1, :, 5] = 0
    assert np.isfinite(found).all()


@pytest.mark.skipif("TENON_CPU_ISA" in os.environ, reason="the instruction set is given")
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_without_tiles(isa: str) -> None:
    """The same by the instruction for pairs of elements where the machine has it, and without."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", __file__],
        env={**os.environ, "TENON_CPU_ISA": isa}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-2000:]
