"""Running values and places of extremes on the host harness, against NumPy: layouts and cuts."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

START = """
import numpy as np
rng = np.random.default_rng(0)
def layouts(x):
    d = tn.from_numpy(x).to("cuda")
    yield x, d
    if x.ndim > 1:
        yield x.swapaxes(0, -1), d.transpose(0, -1)
    yield x[..., ::2], d[..., ::2]
def ran_natively(*ops):
    for op in ops:
        assert tn.cuda.fallback_count(op)[1] == 0, op
SHAPES = ((1,), (7,), (3, 300), (40, 6), (2, 5000), (9000,), (3000, 40), (2, 33, 5, 3))
"""


def test_running_sums_and_products() -> None:
    """Rows in one turn of a block, in several, in parts of several blocks; the same bits twice."""
    harness.script(
        START
        + """
for shape in SHAPES:
    for x, d in layouts(rng.uniform(-1, 1, shape)):
        for dim in range(x.ndim):
            for y, got in ((np.cumsum(x, dim), d.cumsum(dim)),
                           (np.cumprod(1 + x / 50, dim), (1 + d / 50).cumprod(dim)),
                           (np.logaddexp.accumulate(x, dim), d.logcumsumexp(dim))):
                assert np.allclose(got.cpu().numpy(), y, rtol=1e-11, atol=1e-11), (shape, dim)
            assert tn.equal(d.cumsum(dim).cpu(), d.cumsum(dim).cpu())
for dtype in (tn.uint8, tn.int8, tn.int16, tn.int32, tn.int64, tn.bool):
    x = (tn.arange(4000) % 7 - 3).to(dtype)
    d = x.to("cuda")
    assert tn.equal(d.cumsum(0).cpu(), tn.tensor(np.cumsum(x.numpy().astype(np.int64))))
    assert tn.equal(d.cumprod(0).cpu(), tn.tensor(np.cumprod(x.numpy().astype(np.int64))))
small = tn.full((300,), 100, dtype=tn.int8).to("cuda").cumsum(0, dtype=tn.int8).cpu()
assert small.tolist() == np.cumsum(np.full(300, 100, np.int8), dtype=np.int8).tolist()
for dtype, tolerance in ((tn.float16, 1e-2), (tn.bfloat16, 5e-2), (tn.float32, 1e-5)):
    x = tn.rand(2, 3000).to(dtype)
    got = x.to("cuda").cumsum(1).cpu().double().numpy()
    assert np.allclose(got, np.cumsum(x.double().numpy(), 1), rtol=tolerance)
zeros = tn.full((3,), -0.0, device="cuda").cumsum(0)
assert np.signbit(zeros.cpu().numpy()).all()
odd = tn.tensor([float("-inf"), 1.0, float("inf"), 2.0, float("nan"), 0.0])
with np.errstate(invalid="ignore"):
    want = np.logaddexp.accumulate(odd.numpy())
assert np.allclose(odd.to("cuda").logcumsumexp(0).cpu().numpy(), want, equal_nan=True)
# many rows, which have some threads of a warp each
for dtype, tolerance, shape in ((tn.float16, 1e-2, (65536, 8)), (tn.float64, 1e-11, (16384, 8)),
                                (tn.float32, 1e-5, (2048, 520))):
    x = (tn.rand(*shape) - 0.3).to(dtype)
    got = x.to("cuda").cumsum_(1).cpu().double().numpy()
    assert np.allclose(got, np.cumsum(x.double().numpy(), 1), rtol=tolerance, atol=tolerance)
x = tn.rand(2048, 264)
for view in (lambda t: t[:, 1:261], lambda t: t[:, :259], lambda t: t[:, ::2]):  # rows not of packs
    assert tn.allclose(view(x.to("cuda")).cumsum(1).cpu(), view(x).cumsum(1), rtol=1e-5)
x = tn.randint(-9, 9, (2048, 264)).to(tn.int16)
assert tn.equal(x.to("cuda").cumsum(1, dtype=tn.int16).cpu(), x.cumsum(1, dtype=tn.int16))
zeros = tn.full((16384, 16), -0.0, device="cuda").cumsum(1)
assert np.signbit(zeros.cpu().numpy()).all()
x = tn.rand(5, 2000, dtype=tn.float64).to("cuda").requires_grad_()
g = tn.rand(5, 2000, dtype=tn.float64).to("cuda")
(got,) = tn.autograd.grad(x.cumsum(1), x, g)
want = np.cumsum(g.cpu().numpy()[:, ::-1], 1)[:, ::-1]
assert np.allclose(got.cpu().numpy(), want)
z = tn.ones(4, 900, device="cuda")
z.cumsum_(1)
assert tn.equal(z.cpu(), tn.arange(1.0, 901).expand(4, 900))
assert tn.zeros(3, 0, device="cuda").cumsum(1).shape == (3, 0)
ran_natively("cumsum", "cumprod", "logcumsumexp")
"""
    )


def test_running_extremes() -> None:
    """The last of equal ones, and NaN above all."""
    harness.script(
        START
        + """
def running(x, dim, better):
    x = np.moveaxis(x, dim, -1)
    values, at = np.empty(x.shape, x.dtype), np.empty(x.shape, np.int64)
    for row in np.ndindex(x.shape[:-1]):
        best, k = x[row][0], 0
        for i, v in enumerate(x[row]):
            if v != v or (best == best and better(v, best)):
                best, k = v, i
            values[row][i], at[row][i] = best, k
    return np.moveaxis(values, -1, dim), np.moveaxis(at, -1, dim)
for shape in ((1,), (9,), (3, 300), (40, 6), (4000,), (2, 9, 5)):
    for dtype in (np.float64, np.int16):
        x = rng.integers(-9, 9, shape).astype(dtype)
        if dtype is np.float64 and x.size > 30:
            x.reshape(-1)[20::37] = np.nan
        for x, d in layouts(x):
            for dim in range(x.ndim):
                for f, better in ((d.cummax, np.greater_equal), (d.cummin, np.less_equal)):
                    values, at = running(x, dim, better)
                    got = f(dim)
                    assert np.array_equal(got.values.cpu().numpy(), values, equal_nan=True)
                    assert np.array_equal(got.indices.cpu().numpy(), at), (shape, dim)
b = tn.tensor([False, True, False, True], device="cuda").cummax(0)
assert b.values.tolist() == [False, True, True, True] and b.indices.tolist() == [0, 1, 1, 3]
ran_natively("cummax", "cummin")
"""
    )


def test_places_of_extremes() -> None:
    """The first of equal ones, and NaN above all; along a dimension and of everything."""
    harness.script(
        START
        + """
for shape in (*SHAPES, (70000,)):
    for dtype in (np.float64, np.float32, np.int64, np.int8, np.uint8):
        x = rng.integers(0, 99, shape).astype(dtype)
        for x, d in layouts(x):
            assert d.argmax().item() == x.argmax() and d.argmin().item() == x.argmin()
            for dim in range(x.ndim):
                for want, got, value in ((x.argmax(dim), d.max(dim), x.max(dim)),
                                         (x.argmin(dim), d.min(dim), x.min(dim))):
                    assert np.array_equal(got.indices.cpu().numpy(), want), (shape, dim)
                    assert np.array_equal(got.values.cpu().numpy(), value)
                got = d.argmax(dim, keepdim=True)
                assert np.array_equal(got.cpu().numpy(), x.argmax(dim, keepdims=True))
                assert np.array_equal(d.argmin(dim).cpu().numpy(), x.argmin(dim))
for dtype in (tn.float16, tn.bfloat16, tn.float32):
    x = tn.zeros(3, 5000, dtype=dtype)
    x[0, 4321] = x[0, 4400] = float("nan")
    x[1, 77] = -float("inf")
    d = x.to("cuda")
    assert d.argmax(1).tolist() == [4321, 0, 0] and d.argmin(1).tolist() == [4321, 77, 0]
    assert d.max(1).values.isnan().tolist() == [True, False, False]
    assert d.argmax().item() == 4321
low = tn.full((2, 40), -float("inf"), device="cuda")
assert low.argmax(1).tolist() == [0, 0] and low.max(0).indices.tolist() == [0] * 40
b = tn.tensor([[False, True], [False, False]], device="cuda").max(1)
assert b.values.tolist() == [True, False] and b.indices.tolist() == [1, 0]
assert tn.tensor(3.0, device="cuda").argmax().item() == 0
ran_natively("max_dim", "min_dim", "argmax", "argmin")
"""
    )
