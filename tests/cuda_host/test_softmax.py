"""Softmax and cross entropy on the CUDA host harness: packed rows of any length and place, next to
NumPy in float64."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

DTYPES = [("float64", 1e-12), ("float32", 3e-6), ("float16", 2e-3), ("bfloat16", 2e-2)]

ROWS = """
import numpy as np
F = tn.nn.functional
LENGTHS = (1, 3, 7, 8, 31, 32, 33, 255, 1000, 1024, 1025, 4097, 9001)
random = np.random.default_rng(0)

def numpy(t):
    return t.detach().cpu().double().numpy()

def put(x, dtype, place, requires_grad=False):
    '''The rows of x on the GPU: packed, packed from an odd element on, apart by an odd number or
    by a multiple of 16 bytes; and what they then are in float64.'''
    rows, n = x.shape
    apart = {"packed": n, "odd": n, "apart": n + 5, "even": (n + 15) // 16 * 16 + 32}[place]
    first = {"packed": 0, "odd": 3, "apart": 1, "even": 16}[place]
    room = tn.zeros(rows * apart + 40, dtype=dtype, device="cuda")
    view = room[first:first + rows * apart].view(rows, apart)[:, :n]
    view.copy_(tn.tensor(x).to(dtype))
    if requires_grad:
        view = view.detach().requires_grad_()
    return view, numpy(view)

def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)

def log_softmax(x):
    d = x - x.max(1, keepdims=True)
    return d - np.log(np.exp(d).sum(1, keepdims=True))

def near(got, want, tol, what):
    error = np.abs(numpy(got) - want).max() / max(1.0, np.abs(want).max())
    assert error <= tol, (what, error)
"""


@pytest.mark.parametrize("dtype, tol", DTYPES)
def test_softmax_of_rows_of_any_length_and_place(dtype: str, tol: float) -> None:
    """Rows shared by a few lanes, a warp and a block; in packs of 16 bytes with edges on either
    side, and where operands lie differently element by element."""
    harness.script(
        ROWS
        + f"""
dtype, tol = tn.{dtype}, {tol}
for n in LENGTHS:
    for place in ("packed", "odd", "apart", "even") if n < 4097 else ("odd",):
        rows = 37 if n < 40 else 3 if n < 4097 else 2
        x, x64 = put(3 * random.standard_normal((rows, n)), dtype, place)
        g, g64 = put(random.standard_normal((rows, n)), dtype, place)
        y = tn.softmax(x, 1)
        near(y, softmax(x64), tol, ("softmax", n, place))
        near(tn.log_softmax(x, 1), log_softmax(x64), tol, ("log_softmax", n, place))
        for at in (place, "packed"):
            y, y64 = put(softmax(x64), dtype, at)
            want = (g64 - (g64 * y64).sum(1, keepdims=True)) * y64
            got = tn._C._ops._softmax_backward(g, y, 1)
            near(got, want, tol, ("softmax", n, place, at))
            y, y64 = put(log_softmax(x64), dtype, at)
            want = g64 - np.exp(y64) * g64.sum(1, keepdims=True)
            got = tn._C._ops._log_softmax_backward(g, y, 1)
            near(got, want, tol, ("log_softmax", n, place, at))
for op in ("softmax", "log_softmax", "_softmax_backward", "_log_softmax_backward"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
"""
    )


@pytest.mark.parametrize("dtype, tol", DTYPES)
def test_cross_entropy_of_rows_of_any_length_and_place(dtype: str, tol: float) -> None:
    harness.script(
        ROWS
        + f"""
dtype, tol = tn.{dtype}, {tol}
for n in LENGTHS + (50257,):
    for place in ("packed", "odd", "apart", "even") if n < 4097 else ("packed", "odd"):
        rows = 300 if n == 3 else 37 if n < 40 else 4
        x, x64 = put(3 * random.standard_normal((rows, n)), dtype, place, True)
        t = random.integers(0, n, rows)
        t[:2] = 0, n - 1  # the ends
        t[3] = -100
        count = (t != -100).sum()
        hit = np.zeros((rows, n))
        hit[np.arange(rows)[t != -100], t[t != -100]] = 1
        loss = -(log_softmax(x64) * hit).sum(1)
        grad = (softmax(x64) - hit) * (t != -100)[:, None]
        for reduction in ("none", "sum", "mean"):
            y = F.cross_entropy(x, tn.tensor(t).cuda(), reduction=reduction)
            g, g64 = put(random.standard_normal((1, y.numel())), dtype, "packed")
            (got,) = tn.autograd.grad(y, x, g.view(y.shape))
            want = loss if reduction == "none" else loss.sum()
            scale = g64.reshape(-1, 1)
            if reduction == "mean":
                want, scale = want / count, scale / count
            near(y, want, tol, (n, place, reduction))
            near(got, grad * scale, tol, (n, place, reduction, "gradient"))
for op in ("_cross_entropy", "_cross_entropy_backward"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
"""
    )


def test_cross_entropy_of_images_and_few_long_rows() -> None:
    """Classes that do not lie side by side; rows whose gradient several blocks share."""
    harness.script(
        ROWS
        + """
for n, shape, dtype in ((5, (3, 4), tn.float64), (21, (40,), tn.float64), (9, (1,), tn.float64),
                        (40000, (), tn.float64), (70001, (), tn.bfloat16)):
    c = tn.randn(2, n, *shape, dtype=tn.float64).to(dtype).double()
    t = tn.randint(0, n, (2, *shape))
    t.view(-1)[0] = -100
    for layout in ("packed", "last", "strided"):
        d = c.cuda().to(dtype)
        if layout == "last":
            d = d.movedim(1, -1).contiguous().movedim(-1, 1)
        elif layout == "strided":
            d = tn.stack([d, d], 0).movedim(0, -1).contiguous()[..., 0]
        d.requires_grad_()
        x = c.clone().requires_grad_()
        tol = 1e-12 if dtype == tn.float64 else 2e-2
        for reduction in ("mean", "none"):
            want = F.cross_entropy(x, t, reduction=reduction)
            got = F.cross_entropy(d, t.cuda(), reduction=reduction)
            assert tn.allclose(got.cpu().double(), want, rtol=tol, atol=tol), (n, layout)
            (want,) = tn.autograd.grad(want.sum(), x)
            (got,) = tn.autograd.grad(got.sum(), d)
            assert tn.allclose(got.cpu().double(), want, rtol=tol, atol=tol), (n, layout)
            weight = tn.rand(n, dtype=tn.float64)
            (want,) = tn.autograd.grad(F.nll_loss(x, t, weight), x)
            (got,) = tn.autograd.grad(F.nll_loss(d, t.cuda(), weight.to(dtype).cuda()), d)
            assert tn.allclose(got.cpu().double(), want, rtol=tol, atol=tol), (n, layout)
for op in ("_cross_entropy", "_cross_entropy_backward", "_nll_loss_backward"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
"""
    )


@pytest.mark.parametrize("dtype, tol", DTYPES)
def test_rows_with_infinities_and_very_large_values(dtype: str, tol: float) -> None:
    """NaN where NumPy's formulas have it, in every element of the row; -inf counts as nothing."""
    harness.script(
        ROWS
        + f"""
dtype, tol = tn.{dtype}, {tol}
inf, big = np.inf, float(tn.finfo(dtype).max)
np.seterr(invalid="ignore", divide="ignore")
for n in (1, 7, 33, 300, 1030, 9001):
    for place in ("packed", "odd"):
        special = ([-inf], [inf], [np.nan], [big], [-big], [big, -big], [inf, np.nan],
                   [-inf, np.nan])
        x = random.standard_normal((2 * len(special), n))
        for k, values in enumerate(special):
            x[k, :] = values[0]  # the whole row
            for i, v in enumerate(values):
                x[k, -1 - i if n > 1 else 0] = v
                x[len(special) + k, (n // 2 + i * 3) % n] = v  # among others
        x, x64 = put(x, dtype, place, True)
        t = tn.arange(len(x64)) % n
        for got, want in (
            (tn.softmax(x, 1), softmax(x64)),
            (tn.log_softmax(x, 1), log_softmax(x64)),
            (F.cross_entropy(x, t.cuda(), reduction="none"),
             -log_softmax(x64)[np.arange(len(x64)), t.numpy()]),
        ):
            got = numpy(got)
            want = numpy(tn.tensor(want).to(dtype))  # which may be infinite
            assert np.array_equal(np.isnan(got), np.isnan(want)), (n, place)
            assert np.allclose(got, want, rtol=tol, atol=tol, equal_nan=True), (n, place)
        (got,) = tn.autograd.grad(F.cross_entropy(x, t.cuda(), reduction="sum"), x)
        hit = np.eye(n)[t.numpy()]
        got, want = numpy(got), softmax(x64) - hit
        assert np.array_equal(np.isnan(got), np.isnan(want)), (n, place)
        assert np.allclose(got, want, rtol=tol, atol=tol, equal_nan=True), (n, place)
"""
    )
