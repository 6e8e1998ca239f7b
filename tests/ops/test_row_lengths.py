"""Kernels that read rows by whole vectors: every length up to some vectors of any instruction set,
long rows, and the ends of the exponential's range, against NumPy in double."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as tn_f

LENGTHS = [*range(1, 72), 127, 128, 129, 1000, 4099, 50257]
DTYPES = {tn.float32: 2.0**-24, tn.float64: 2.0**-53}


def same(got: tn.Tensor, expected: np.ndarray, bound: float) -> None:
    """Within `bound` of the largest element, by row."""
    scale = np.abs(expected).max(-1, keepdims=True) + 1e-30
    worst = np.max(np.abs(got.detach().double().numpy() - expected) / scale)
    assert worst <= bound, (worst, bound)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_softmax_and_losses(dtype: tn.dtype) -> None:
    eps = DTYPES[dtype]
    for n in LENGTHS:
        rng = np.random.default_rng(n)
        x, g = rng.normal(0, 3, (3, n)), rng.normal(0, 1, (3, n))
        t, tg = tn.tensor(x, dtype=dtype), tn.tensor(g, dtype=dtype)
        x, g = t.double().numpy(), tg.double().numpy()
        e = np.exp(x - x.max(1, keepdims=True))
        total = e.sum(1, keepdims=True)
        p, logs = e / total, x - x.max(1, keepdims=True) - np.log(total)
        t.requires_grad_()
        for axis in (1, 0):
            a = t if axis else t.detach().T.contiguous().requires_grad_()
            b = tg if axis else tg.T.contiguous()
            y, z = tn.softmax(a, axis), tn.log_softmax(a, axis)
            to_p, to_logs = tn.autograd.grad(y, a, b), tn.autograd.grad(z, a, b)
            turn = (lambda v: v) if axis else (lambda v: v.T)
            same(turn(y), p, 12 * eps)
            same(turn(z), logs, 12 * eps)
            both = np.maximum(np.abs(p * g), 1e-3).max()
            expected = p * (g - (p * g).sum(1, keepdims=True))
            assert np.abs(turn(to_p[0]).numpy() - expected).max() <= 60 * eps * both
            sums = np.abs(g).sum(1).max()
            expected = g - p * g.sum(1, keepdims=True)
            assert np.abs(turn(to_logs[0]).numpy() - expected).max() <= 12 * eps * sums
        target = tn.tensor(rng.integers(0, n, 3))
        loss = tn_f.cross_entropy(t, target, reduction="none")
        expected = -logs[np.arange(3), target.numpy()]
        assert np.abs(loss.detach().numpy() - expected).max() <= 60 * eps


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 2, 5, 17, 300])
def test_softmax_of_columns(n: int, dtype: tn.dtype) -> None:
    """Rows that stand side by side, some of them to a vector, and what lies between them."""
    eps = DTYPES[dtype]
    for width in (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 70):
        rng = np.random.default_rng(width)
        x, g = rng.normal(0, 3, (2, n, width)), rng.normal(0, 1, (2, n, width))
        x, g = (np.asarray(tn.tensor(v, dtype=dtype).double().numpy()) for v in (x, g))
        e = np.exp(x - x.max(1, keepdims=True))
        y = e / e.sum(1, keepdims=True)
        want = {
            tn_f.softmax: (y, y * (g - (g * y).sum(1, keepdims=True))),
            tn_f.log_softmax: (np.log(y), g - y * g.sum(1, keepdims=True)),
        }
        for kind in (lambda t: t, lambda t: t.mT.contiguous().mT, lambda t: t.repeat(1, 1, 2)):
            for fn, (value, slope) in want.items():
                t = kind(tn.tensor(x, dtype=dtype))[..., :width].requires_grad_()
                out = fn(t, 1)
                (grad,) = tn.autograd.grad(out, t, kind(tn.tensor(g, dtype=dtype))[..., :width])
                assert np.abs(out.detach().numpy() - value).max() <= 60 * eps * np.abs(value).max()
                sums = max(1.0, np.abs(g).sum(1).max())
                assert np.abs(grad.numpy() - slope).max() <= 60 * eps * sums


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layer_and_batch_norm(dtype: tn.dtype) -> None:
    eps = DTYPES[dtype]
    for n in LENGTHS[1:]:
        rng = np.random.default_rng(n)
        t, g = (tn.tensor(rng.normal(1, 2, (3, n)), dtype=dtype) for _ in range(2))
        x = t.double().numpy()
        centred = x - x.mean(1, keepdims=True)
        expected = centred / np.sqrt(centred.var(1, keepdims=True) + 1e-5)
        same(tn_f.layer_norm(t, (n,)), expected, 40 * eps)
        # Each row is a channel with n positions.
        planes = t.reshape(1, 3, n).requires_grad_()
        y = tn_f.batch_norm(planes, None, None, training=True)
        same(y[0], expected, 40 * eps)
        rows = t.detach().requires_grad_()
        a = tn.autograd.grad(tn_f.layer_norm(rows, (n,)), rows, g)[0]
        b = tn.autograd.grad(y, planes, g.reshape(1, 3, n))[0][0]
        dy = g.double().numpy()
        spread = np.sqrt(x.var(1, keepdims=True) + 1e-5)
        slope = dy - dy.mean(1, keepdims=True)
        slope = (slope - expected * (dy * expected).mean(1, keepdims=True)) / spread
        bound = 40 * eps * np.max(np.abs(dy) / spread)
        assert np.abs(a.double().numpy() - slope).max() <= bound
        assert np.abs(b.double().numpy() - slope).max() <= bound


def test_exponentials_that_vanish() -> None:
    """Where the results are denormal they keep the places that those have; then they are zero."""
    for dtype, low, least in (
        (tn.float32, 110.0, 2.0**-149),
        (tn.float64, 760.0, 2.0**-1074),
    ):
        x = tn.cat([tn.zeros(1, dtype=dtype), -tn.linspace(low * 0.7, low, 4001, dtype=dtype)])
        for y in (tn.softmax(x, 0), tn.softmax(x.reshape(-1, 1).expand(-1, 32), 0)[:, 7]):
            exact = np.exp(x.numpy().astype(np.longdouble))
            wrong = np.abs(y.numpy() - exact)
            relative = exact * np.longdouble(4 * DTYPES[dtype])
            assert np.all(wrong <= np.maximum(relative, 0.75 * np.longdouble(least)))
            assert y[-1] == 0
        assert tn.isnan(tn.softmax(tn.tensor([1.0, float("nan")] * 20, dtype=dtype), 0)).all()


REDUCED = [*range(1, 72), 127, 128, 129, 255, 256, 257, 1000, 1025, 4099, 6144, 6145]


@pytest.mark.parametrize(
    "dtype", [tn.float32, tn.float64, tn.bfloat16, tn.int32, tn.int64, tn.uint8], ids=str
)
def test_reductions(dtype: tn.dtype) -> None:
    """Of rows and of columns; sums and products of integers wrap, so they are small here."""
    floating = dtype.is_floating_point
    for n in REDUCED:
        rng = np.random.default_rng(n)
        for rows in (3, 21):
            x = rng.normal(0, 1, (rows, n)) if floating else rng.integers(0, 100, (rows, n))
            t = tn.tensor(x).to(dtype)
            x = t.to(tn.float64).numpy() if floating else t.numpy()
            for a, axis in ((t, 1), (t.T.contiguous(), 0), (t.T.contiguous().T, 1)):
                assert np.array_equal(a.amax(axis).double().numpy(), x.max(1))
                assert np.array_equal(a.amin(axis).double().numpy(), x.min(1))
                if not floating:
                    assert np.array_equal(a.sum(axis).numpy(), x.sum(1))
                    continue
                eps = tn.finfo(dtype).eps
                bound = 4 * eps * np.abs(x).sum(1)
                assert np.all(np.abs(a.sum(axis).double().numpy() - x.sum(1)) <= bound)
                if n > 1:
                    got, expected = a.var(axis).double().numpy(), x.var(1, ddof=1)
                    assert np.allclose(got, expected, rtol=8 * eps, atol=4 * eps)
                signs = a.sign().prod(axis).double().numpy()
                assert np.array_equal(signs, np.sign(x).prod(1))


@pytest.mark.parametrize("dtype", [tn.float32, tn.float64, tn.float16], ids=str)
def test_extremes_with_nan(dtype: tn.dtype) -> None:
    """One NaN at any place makes the extreme of its row NaN, and no other's; infinities count."""
    for n in [*range(1, 72), 130, 300, 1100]:
        x = np.full((n + 2, n), -np.inf)
        x[range(n), range(n)] = np.nan
        x[n] = np.inf
        t = tn.tensor(x, dtype=dtype)
        for a, axis in ((t, 1), (t.T.contiguous(), 0)):
            for got in (a.amax(axis), -(-a).amin(axis)):
                rows = got.double().numpy()
                assert np.isnan(rows[:n]).all()
                assert list(rows[n:]) == [np.inf, -np.inf]


INDEXED = [tn.float32, tn.float64, tn.float16, tn.uint8, tn.int8, tn.int64]


@pytest.mark.parametrize("dtype", INDEXED, ids=str)
def test_places_of_extremes(dtype: tn.dtype) -> None:
    """Of equal elements and of NaN the first is named, however many lines are read as one."""
    for n in (1, 2, 5, 20, 63, 126, 127, 128, 129, 300, 1000):
        for width in (1, 2, 3, 7, 16, 33, 64, 65, 130):
            rng = np.random.default_rng(n * width)
            x = rng.integers(0, 30, (n, width)).astype(float)
            if dtype.is_floating_point:
                x[rng.random(x.shape) < 0.3 / n] = np.nan
            t = tn.tensor(x).to(dtype)
            wide = tn.cat([t, t], 1)
            for a in (t, wide[:, :width], t.flip(0).flip(0), t.T.contiguous().T):
                for name in ("max", "min"):
                    want, at = getattr(np, name)(x, 0), getattr(np, "arg" + name)(x, 0)
                    got = getattr(a, name)(0)
                    assert np.array_equal(got.values.double().numpy(), want, equal_nan=True)
                    assert np.array_equal(got.indices.numpy(), at)
                    assert np.array_equal(getattr(a, "arg" + name)(0).numpy(), at)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norms_along_dimensions(dtype: tn.dtype) -> None:
    for n in (1, 3, 16, 31, 64, 65, 500, 4099):
        x = np.random.default_rng(n).normal(0, 3, (5, n))
        t = tn.tensor(x, dtype=dtype)
        bound = 4 * DTYPES[dtype]
        for a, dim in ((t, 1), (t.T.contiguous(), 0), (t, None), (t[:, ::2], 1)):
            size = np.sqrt(np.square(a.double().numpy().astype(np.longdouble)).sum(dim))
            got = tn.linalg.vector_norm(a, dim=dim).double().numpy()
            assert np.all(np.abs(got - size) <= bound * size), (n, dim)
            squares = tn._C._ops._sum_squares(a, [0, 1] if dim is None else [dim], False)
            assert np.all(np.abs(squares.double().numpy() - size**2) <= 2 * bound * size**2)


def test_gradient_of_sums_of_squares() -> None:
    x = tn.tensor(np.random.default_rng(0).normal(0, 3, (3, 4)), requires_grad=True)
    for dim, keep in (([1], True), ([0], False), ([0, 1], False)):
        assert tn.autograd.gradcheck(partial(tn._C._ops._sum_squares, dim=dim, keepdim=keep), x)


# kernel, stride, padding, dilation of windows
WINDOWS = [
    ((1, 2), (1, 2), (0, 0), (1, 1)),
    ((2, 2), (2, 2), (0, 0), (1, 1)),
    ((3, 3), (2, 2), (1, 1), (1, 1)),
    ((3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 5), (3, 3), (1, 2), (2, 1)),
    ((3, 4), (1, 2), (1, 0), (1, 3)),
    ((1, 1), (2, 5), (0, 0), (1, 1)),
]


def largest(x: np.ndarray, window: tuple[tuple[int, ...], ...], out: tuple[int, ...]) -> np.ndarray:
    """Places of the first largest numbers of windows; a NaN is larger than any, and the last one
    counts, as in PyTorch."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = window
    rows = np.arange(out[0])[:, None] * sh - ph + np.repeat(np.arange(kh) * dh, kw)
    cols = np.arange(out[1])[:, None] * sw - pw + np.tile(np.arange(kw) * dw, kh)
    rows, cols = rows[:, None], cols[None]
    inside = (rows >= 0) & (rows < x.shape[-2]) & (cols >= 0) & (cols < x.shape[-1])
    places = np.where(inside, rows * x.shape[-1] + cols, 0)
    ranks = np.where(np.isnan(x), 99, x).reshape(-1, x.shape[-2] * x.shape[-1])
    ranks = np.where(inside, ranks[:, places], -99)
    ranks += np.where(ranks == 99, np.arange(ranks.shape[-1]), 0)
    best = ranks.argmax(-1)
    return np.take_along_axis(places[None], best[..., None], -1)[..., 0]


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int16"]
)
def test_largest_of_windows(dtype: str) -> None:
    """Values and places, among equal ones and NaNs, by rows of all lengths up to some blocks."""
    for w in [*range(5, 40), 63, 64, 65, 66, 127, 128, 129, 130, 131, 200, 400]:
        rng = np.random.default_rng(w)
        x = rng.integers(1, 5, (2, 5, w)).astype("f8")
        if "float" in dtype:
            x = np.where(rng.random(x.shape) < 0.05, np.nan, x - 3)
        t = tn.tensor(x).to(getattr(tn, dtype))
        for window in WINDOWS:
            reach = (window[0][1] - 1) * window[3][1] + 1
            if w + 2 * window[2][1] < reach:
                continue
            y, at = tn_f.max_pool2d(t, *window, return_indices=True)
            places = largest(x, window, y.shape[-2:])
            np.testing.assert_array_equal(at.numpy(), places)
            flat = np.take_along_axis(x.reshape(2, -1), places.reshape(2, -1), 1)
            np.testing.assert_array_equal(y.double().numpy().reshape(2, -1), flat)


# Pairs side by side are a case of their own: they, and windows that are none by one number.
PAIRS = [
    ((2, 2), (2, 2), (0, 0), (1, 1)), ((1, 2), (1, 2), (0, 0), (1, 1)),
    ((2, 2), (2, 2), (0, 0), (1, 2)), ((2, 2), (2, 2), (0, 0), (2, 1)),
    ((2, 2), (2, 2), (1, 0), (1, 1)), ((2, 2), (2, 2), (0, 1), (1, 1)),
    ((2, 2), (1, 2), (0, 0), (1, 1)), ((2, 2), (2, 1), (0, 0), (1, 1)),
    ((2, 2), (2, 3), (0, 0), (1, 1)), ((2, 2), (3, 2), (0, 0), (1, 1)),
    ((2, 3), (2, 2), (0, 0), (1, 1)), ((3, 2), (3, 2), (0, 0), (1, 1)),
    ((2, 1), (2, 2), (0, 0), (1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "uint8"])
@pytest.mark.parametrize("window", PAIRS, ids=str)
def test_largest_of_pairs(window: tuple[tuple[int, int], ...], dtype: str) -> None:
    for h, w in ((4, 4), (5, 5), (6, 33), (5, 66), (4, 131)):
        x = np.random.default_rng(w).integers(1, 5, (2, h, w)).astype("f8")
        for ceil in (False, True):
            y, at = tn_f.max_pool2d(
                tn.tensor(x).to(getattr(tn, dtype)), *window, ceil_mode=ceil, return_indices=True
            )
            places = largest(x, window, y.shape[-2:])
            np.testing.assert_array_equal(at.numpy(), places)
            flat = np.take_along_axis(x.reshape(2, -1), places.reshape(2, -1), 1)
            np.testing.assert_array_equal(y.double().numpy().reshape(2, -1), flat)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "int16"])
def test_largest_of_short_rows(dtype: str) -> None:
    """The first of equal ones and of NaNs: few and many rows, side by side or with gaps."""
    for n in range(1, 52):
        for rows in (1, 3, 64, 65, 150):
            rng = np.random.default_rng(n)
            x = rng.integers(1, 6, (2, rows, n + 1)).astype("f8")
            if "float" in dtype:
                x = np.where(rng.random(x.shape) < 0.05, np.nan, x - 3)
            t = tn.tensor(x).to(getattr(tn, dtype))
            for a, b in ((x[..., 1:], t[..., 1:]), (x[:, ::2, :n].copy(), t[:, ::2, :n].clone())):
                at = np.where(np.isnan(a), 99, a).argmax(-1)
                low = np.where(np.isnan(a), -99, a).argmin(-1)
                for best, got in ((at, b.max(-1)), (low, b.min(-1))):
                    np.testing.assert_array_equal(got.indices.numpy(), best)
                    value = np.take_along_axis(a, best[..., None], -1)[..., 0]
                    np.testing.assert_array_equal(got.values.double().numpy(), value)
                np.testing.assert_array_equal(b.argmax(-1).numpy(), at)


@pytest.mark.parametrize("dtype", [tn.float32, tn.float64, tn.int64, tn.uint8, tn.complex64])
def test_sums_over_rows_that_do_not_follow_each_other(dtype: tn.dtype) -> None:
    """Rows of a result are cut into turns of accumulators: whole turns, ends, many rows."""
    for n in (31, 32, 64, 65, 100, 128, 1000, 1024, 1025, 2049, 4096):
        rng = np.random.default_rng(n)
        x = tn.tensor(rng.integers(-40, 40, (19, 3, n))).to(dtype)
        values = x.numpy()
        for rows, want in ((x, values), (x[2:], values[2:]), (x[:, 1:2], values[:, 1:2])):
            assert np.array_equal(rows.sum((0, 2)).numpy(), want.sum((0, 2)))
            if not dtype.is_complex:
                assert np.array_equal(rows.amax((0, 2)).numpy(), want.max((0, 2)))
