"""Rows of few elements, taken many at a time; runs of bytes close behind their place in a page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F

RNG = np.random.default_rng(11)
DTYPES = ("bool", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex128")


def whole(*shape: int, dtype: str = "float32") -> Any:
    return RNG.integers(0, 2 if dtype == "bool" else 9, shape).astype(dtype)


# What of two arrays goes together: of rows of n elements.
PAIRS = {
    "a row for all": lambda x, n: (x, x[3]),
    "a number for each row": lambda x, n: (x, x[:, :1]),
    "one number": lambda x, n: (x, x[2, 1]),
    "parts of rows": lambda x, n: (x[:, : n - 1], x[:, 1:]),
    "every second": lambda x, n: (x[:, ::2], x[1:2, ::2]),
    "turned": lambda x, n: (x[: n * 5].reshape(5, n, n).swapaxes(1, 2), x[:n]),
    "all with all": lambda x, n: (x[:40, None], x[None, 5:30]),
    "few with all": lambda x, n: (x[:3, None], x[None, 5:30]),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("n", [2, 3, 7, 16, 31, 33])
def test_two_operands(pair: str, n: int) -> None:
    for dtype in DTYPES if n in (3, 33) else ("float32",):
        data = whole(777, n, dtype=dtype)
        x, y = PAIRS[pair](data, n)
        a, b = PAIRS[pair](tn.tensor(data), n)
        np.testing.assert_array_equal((a * b).numpy(), x * y)
        np.testing.assert_array_equal((b == a).numpy(), y == x)


@pytest.mark.parametrize("n", [2, 3, 5, 16])
def test_results_with_gaps(n: int) -> None:
    base = whole(500, n + 2)
    got = tn.tensor(base)
    got[:, 1:-1] *= tn.tensor(base[7, :n])
    got[3:, :n] += tn.tensor(base[3:, -1:])
    base[:, 1:-1] *= base[7, :n].copy()
    base[3:, :n] += base[3:, -1:].copy()
    np.testing.assert_array_equal(got.numpy(), base)
    tn.add(tn.tensor(base[:, :n]), tn.tensor(base[0, :n]), out=got[:, 1:-1])
    np.testing.assert_array_equal(got[:, 1:-1].numpy(), base[:, :n] + base[0, :n])


def test_three_operands_and_zero_divisors() -> None:
    x, y, row = whole(300, 3), whole(300, 1), whole(3)
    got = tn.where(tn.tensor(x > 4), tn.tensor(y), tn.tensor(row))
    np.testing.assert_array_equal(got.numpy(), np.where(x > 4, y, row))
    by = tn.ones(300, 3, dtype=tn.int64)
    by[299, 2] = 0
    with pytest.raises(RuntimeError, match="ZeroDivision"):
        by[:, :1] // by


def test_rows_are_copied() -> None:
    for dtype in ("uint8", "float32", "float64"):
        for n in (5, 8, 16, 32, 64, 100):
            x = whole(6, 40, n + 3, dtype=dtype)
            t = tn.tensor(x)
            np.testing.assert_array_equal(t[..., 1 : n + 1].clone().numpy(), x[..., 1 : n + 1])
            np.testing.assert_array_equal(t[:, 3:, :n].contiguous().numpy(), x[:, 3:, :n])
            both = tn.cat([t[:, 1:, :n], t[:, :-1]], -1)
            np.testing.assert_array_equal(
                both.numpy(), np.concatenate([x[:, 1:, :n], x[:, :-1]], -1)
            )
    x = whole(4099)
    want = np.lib.stride_tricks.sliding_window_view(x, 8)[::4]
    np.testing.assert_array_equal(tn.tensor(x).unfold(0, 8, 4).clone().numpy(), want)


@pytest.mark.parametrize("shift", [1, 2, 15, 16, 63, 64])
def test_runs_close_behind_their_place(shift: int) -> None:
    for size in (2047, 2049, 4500, 70001):
        x = whole(size, dtype="int8")
        padded = F.pad(tn.tensor(x), (shift, 1), value=7).numpy()
        np.testing.assert_array_equal(padded, np.pad(x, (shift, 1), constant_values=7))
        room = tn.zeros(size + 4096 + shift, dtype=tn.int8)
        room[4096 + shift :] = room[:size].copy_(tn.tensor(x)).clone()
        room[4096 + shift :].add_(room[4096 + shift :].clone())
        np.testing.assert_array_equal(room[4096 + shift :].numpy(), x + x)
        rolled = tn.tensor(x).roll(shift)
        np.testing.assert_array_equal(rolled.numpy(), np.roll(x, shift))


# ---- Gradients of averages ----------------------------------------------------------------------


def spread(g: Any, shape: tuple[int, int], k: Any, s: Any, p: Any, count_pad: bool) -> Any:
    (kh, kw), (sh, sw), (ph, pw) = k, s, p
    out = np.zeros((shape[0] + 2 * ph, shape[1] + 2 * pw))
    for oy in range(g.shape[0]):
        for ox in range(g.shape[1]):
            ys = slice(oy * sh, min(oy * sh + kh, out.shape[0]))
            xs = slice(ox * sw, min(ox * sw + kw, out.shape[1]))
            inside = np.zeros_like(out)
            inside[ys, xs] = 1
            real = inside[ph : ph + shape[0], pw : pw + shape[1]].sum()
            out += inside * g[oy, ox] / (inside.sum() if count_pad else real)
    return out[ph : ph + shape[0], pw : pw + shape[1]]


@pytest.mark.parametrize(
    ("k", "s", "p"),
    [((2, 2), (2, 2), (0, 0)), ((3, 3), (1, 1), (1, 1)), ((3, 2), (2, 1), (1, 1)),
     ((4, 5), (3, 2), (2, 2)), ((1, 7), (2, 3), (0, 3)), ((5, 6), (5, 4), (1, 0))],
)  # fmt: skip
def test_gradients_of_averages(k: Any, s: Any, p: Any) -> None:
    for shape in ((7, 6), (9, 40), (5, 131)):
        for ceil in (False, True):
            for count_pad in (False, True):
                x = tn.zeros(2, *shape, dtype=tn.float64, requires_grad=True)
                y = F.avg_pool2d(x, k, s, p, ceil, count_pad)
                g = RNG.standard_normal(tuple(y.shape))
                y.backward(tn.tensor(g))
                want = [spread(one, shape, k, s, p, count_pad) for one in g]
                np.testing.assert_allclose(x.grad.numpy(), want, atol=1e-12)


def test_gradients_of_adaptive_averages() -> None:
    for size, out in ((7, 3), (16, 16), (5, 9), (31, 1)):
        x = tn.zeros(1, size, size + 2, dtype=tn.float64, requires_grad=True)
        g = RNG.standard_normal((1, out, out + 1))
        F.adaptive_avg_pool2d(x, (out, out + 1)).backward(tn.tensor(g))
        want = np.zeros((size, size + 2))
        for i in range(out):
            for j in range(out + 1):
                rows = slice(i * size // out, -(-(i + 1) * size // out))
                cols = slice(j * (size + 2) // (out + 1), -(-(j + 1) * (size + 2) // (out + 1)))
                part = want[rows, cols]
                part += g[0, i, j] / part.size
        np.testing.assert_allclose(x.grad.numpy()[0], want, atol=1e-12)


def test_running_sums_of_rows() -> None:
    for rows, n in ((1, 50), (3, 7), (4, 1), (9, 33), (130, 3)):
        for dtype in ("float32", "int64", "complex64", "bool"):
            x = whole(rows, n, dtype=dtype)
            t = tn.tensor(x)
            np.testing.assert_array_equal(t.cumsum(1).numpy(), np.cumsum(x, 1))
            np.testing.assert_array_equal(t.t().cumsum(0).numpy(), np.cumsum(x.T, 0))
            few = x[:, :4] % 3 if dtype in ("float32", "int64") else x[:, :4]
            np.testing.assert_array_equal(tn.tensor(few).cumprod(1).numpy(), np.cumprod(few, 1))


@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 1, 1), (1, 3, 1), (2, 2, 2), (3, 3, 3), (4, 4, 2), (4, 4, 3)]
)
def test_tiny_products(m: int, k: int, n: int) -> None:
    for dtype in ("float32", "float64"):
        a, b = whole(70, m, k, dtype=dtype), whole(70, k, n, dtype=dtype)
        x, y = tn.tensor(a), tn.tensor(b)
        np.testing.assert_array_equal((x @ y).numpy(), a @ b)
        np.testing.assert_array_equal((y.mT @ x.mT).numpy(), np.swapaxes(a @ b, 1, 2))
        np.testing.assert_array_equal((x[::3] @ y[5]).numpy(), a[::3] @ b[5])
        turned = tn.tensor(np.ascontiguousarray(np.swapaxes(b, 1, 2))).mT
        np.testing.assert_array_equal((x[0] @ turned[0]).numpy(), a[0] @ b[0])
        start = whole(70, m, n, dtype=dtype)
        got = tn.baddbmm(tn.tensor(start), x, turned, beta=2, alpha=3)
        np.testing.assert_array_equal(got.numpy(), 2 * start + 3 * (a @ b))
    np.testing.assert_array_equal(
        (tn.ones(9, m, 0) @ tn.ones(9, 0, n)).numpy(), np.zeros((9, m, n))
    )


@pytest.mark.parametrize("power", [-1.0, 0.5, 1.5, 2.0, 3.0])
def test_slopes_of_powers(power: float) -> None:
    xs = np.array([0.3, 1.0, 7.5, 1e-20, 1e18, np.inf, 0.0, -2.0])
    for dtype in (tn.float64, tn.float32):
        x = tn.tensor(xs, dtype=dtype, requires_grad=True)
        (x**power).backward(tn.full_like(x, 3))
        with np.errstate(all="ignore"):
            given = x.detach().numpy()
            want = 3 * (power * np.power(given.astype(float), power - 1)).astype(given.dtype)
        eps, tiny = np.finfo(given.dtype).eps, np.finfo(given.dtype).tiny
        np.testing.assert_allclose(x.grad.numpy(), want, rtol=4 * eps, atol=tiny)


def test_elements_picked_by_many_short_rows() -> None:
    for shape in ((7, 701, 3), (9001, 3), (3, 4, 2001)):
        x = whole(*shape)
        for dim in range(len(shape)):
            at = RNG.integers(0, shape[dim], shape)
            got = tn.tensor(x).gather(dim, tn.tensor(at)).numpy()
            np.testing.assert_array_equal(got, np.take_along_axis(x, at, dim))


@pytest.mark.parametrize("dtype", ["int16", "float32", "int64"])
@pytest.mark.parametrize("n", [2, 3, 15, 16, 17])
def test_places_within_short_rows(n: int, dtype: str) -> None:
    x, at = whole(300, 2 * n, dtype=dtype), RNG.integers(0, n, (200, n))
    for given in (tn.tensor(x), tn.tensor(x.T.copy()).T):
        got = given[:, :n].gather(1, tn.tensor(at))
        np.testing.assert_array_equal(got.numpy(), np.take_along_axis(x[:200], at, 1))
    for wrong in (-1, n):
        at[123, n - 1] = wrong
        with pytest.raises(RuntimeError, match=f"index {wrong} is out of bounds for dimension 1"):
            tn.tensor(x)[:, :n].gather(1, tn.tensor(at))


def test_lines_of_one_value() -> None:
    at = np.array([0, 7, 3])
    for dtype in ("uint8", "float16", "float32", "float64", "complex128"):
        for n in (5, 17, 300, 1500):
            x = whole(9, n, dtype=dtype)
            want, got = x.copy(), tn.tensor(x)
            want[at] = 3
            np.testing.assert_array_equal(got.index_fill(0, tn.tensor(at), 3).numpy(), want)
            got[tn.tensor(at)] = 3
            np.testing.assert_array_equal(got.numpy(), want)
            got[tn.tensor(at)] = tn.tensor(whole(3, 1, dtype=dtype) + 4)
            assert bool((got[1:3] == tn.tensor(x[1:3])).all())
            assert bool((got[tn.tensor(at)] == got[tn.tensor(at), :1]).all())
