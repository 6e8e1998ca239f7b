"""Sorting, selecting and searching on the CUDA host harness, next to NumPy and the CPU."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")


def test_sorted_rows_of_every_length() -> None:
    """One tile, several, many: stable, along any dim, of every dtype; NumPy's order."""
    harness.script("""
import numpy as np
rng = np.random.default_rng(0)
for n in (1, 2, 3, 33, 2047, 2048, 2049, 9000):
    x = rng.integers(-40, 40, (2, n)).astype(np.int32)
    values, indices = tn.from_numpy(x).to("cuda").sort(1)
    want = np.argsort(x, axis=1, kind="stable")
    assert (indices.cpu().numpy() == want).all(), n
    assert (values.cpu().numpy() == np.take_along_axis(x, want, 1)).all()
    down = tn.from_numpy(x).to("cuda").sort(1, descending=True).indices.cpu().numpy()
    assert (down == np.argsort(-x, axis=1, kind="stable")).all()
assert tn.cuda.fallback_count("sort") == (0, 0)
""")


def test_order_of_every_type_and_layout() -> None:
    harness.script("""
tn.manual_seed(0)
real = (tn.uint8, tn.int8, tn.int16, tn.int32, tn.int64, tn.float16, tn.bfloat16, tn.float32,
        tn.float64)
def same(got, want):
    for g, w in zip(got, want):
        assert tn.equal(g.cpu().isnan(), w.isnan())
        assert tn.equal(g.cpu().nan_to_num(), w.nan_to_num())
for dtype in (tn.bool, *real):
    x = (tn.randn(6, 70, 5) * 20).to(dtype)
    if dtype.is_floating_point:
        x[1, 3] = float("nan")
        x[2, :, 1] = float("nan")
        x[3, 4:8] = float("inf")
        x[4, ::2] = 0.0
        x[4, 1::2] = -0.0
    d = x.to("cuda")
    for a, b in ((x, d), (x.transpose(0, 1), d.transpose(0, 1)), (x.flip(1)[:, ::3], None)):
        b = d.flip(1)[:, ::3] if b is None else b
        for dim in range(3):
            for down in (False, True):
                same(b.sort(dim, descending=down), a.sort(dim, descending=down))
            same(b.mode(dim), a.mode(dim))
            if dtype == tn.bool:
                continue
            for largest in (False, True):
                same(b.topk(4, dim, largest), a.topk(4, dim, largest))
            same(b.kthvalue(2, dim), a.kthvalue(2, dim))
            same(b.median(dim, keepdim=True), a.median(dim, keepdim=True))
            same(b.nanmedian(dim), a.nanmedian(dim))
for op in ("sort", "topk", "kthvalue", "median_dim", "nanmedian_dim", "mode"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
""")


def test_long_rows_are_selected_from() -> None:
    harness.script("""
import numpy as np
rng = np.random.default_rng(1)
x = rng.standard_normal((2, 30000)).astype(np.float32)
x[:, 5::7] = x[:, 3:4]
d = tn.from_numpy(x).to("cuda")
order = np.argsort(-x, axis=1, kind="stable")
for k in (1, 50, 512, 700, 30000):
    got = d.topk(k, 1)
    assert (got.indices.cpu().numpy() == order[:, :k]).all(), k
rising = np.sort(x, axis=1)
assert (d.kthvalue(12345, 1).values.cpu().numpy() == rising[:, 12344]).all()
assert (d.median(1).values.cpu().numpy() == rising[:, 14999]).all()
assert (d.mode(1).values.cpu().numpy() == x[:, 3]).all()
assert d.flatten().median().item() == np.sort(x, axis=None)[29999]
""")


SAME = """
def launches(call):
    before = tn.cuda.counters()["launches"]
    made = call()
    return made, tn.cuda.counters()["launches"] - before
def spread(dtype, *shape):
    x = (tn.randn(*shape) * 300).to(dtype)
    if dtype.is_floating_point:
        x[..., ::11] = float("nan")
        x[..., 1::7] = 0.0
        x[..., 2::7] = -0.0
        x[..., 3::13] = float("-inf")
    return x
def same(got, want):
    for g, w in zip(got, want):
        assert tn.equal(g.cpu().isnan(), w.isnan())
        assert tn.equal(g.cpu().nan_to_num(), w.nan_to_num())
"""


@pytest.mark.parametrize("dtype", ["uint8", "int16", "bfloat16", "int32", "float32", "float64"])
def test_long_rows_go_by_digits(dtype: str) -> None:
    """Three launches a byte; stable, as on the CPU; what is picked from a row; layouts."""
    harness.script(
        SAME
        + f"""
tn.manual_seed(0)
dtype = tn.{dtype}
size = tn.empty(0, dtype=dtype).element_size()
x = spread(dtype, 2, 16500)
d = x.to("cuda")
got, n = launches(lambda: d.sort(1))
same(got, x.sort(1))
assert n == 3 * size, n
if size == 2:
    same(d.sort(1, descending=True), x.sort(1, descending=True))
    same(d.t()[:, ::2].sort(0), x.t()[:, ::2].sort(0))
if size <= 2:
    one = spread(dtype, 530001 if size == 1 else 66001)  # more tiles than a thread, a warp sums up
    same(one.to("cuda").sort(), one.sort())
    same(d.kthvalue(7001, 1), x.kthvalue(7001, 1))
    same(d.median(1), x.median(1))
    same(d.mode(1), x.mode(1))
    same(d.topk(9000, 1), x.topk(9000, 1))
assert tn.cuda.fallback_count("sort") == (0, 0)
"""
    )


@pytest.mark.parametrize("dtype", ["uint8", "int16", "bfloat16", "float32", "int64", "float64"])
def test_a_few_are_picked_without_sorting(dtype: str) -> None:
    """In one launch, two where parts of a row are picked from first; whatever stands where, and
    however many are alike."""
    harness.script(
        SAME
        + f"""
tn.manual_seed(1)
dtype = tn.{dtype}
for n, least in ((1024, 1), (4096, 1), (4097, 2), (9000, 2)):
    x = spread(dtype, 2, n)
    if dtype.is_floating_point:
        x[1] = tn.arange(n) % 250
    for k in (1, 10, 128):
        for largest in (True, False):
            got, count = launches(lambda: x.to("cuda").topk(k, 1, largest))
            same(got, x.topk(k, 1, largest))
            assert count == least, (n, k, count)
    same(x.t().to("cuda")[::3].topk(5, 0), x.t()[::3].topk(5, 0))
alike = tn.ones(3, 5000).to(dtype)  # more of them than a block holds
alike[1, 4990:] = 2
alike[2] = (tn.arange(5000) % 256 == 3).to(dtype)  # of one thread
for k in (1, 100):
    for largest in (True, False):
        got = alike.to("cuda").topk(k, 1, largest)
        want = alike.sort(1, descending=largest, stable=True)
        same(got, (want.values[:, :k], want.indices[:, :k]))
assert tn.cuda.fallback_count("topk") == (0, 0)
"""
    )


def test_gradients_go_where_elements_stood() -> None:
    harness.script("""
x = tn.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]], device="cuda").requires_grad_()
(x.sort(1).values * tn.tensor([1.0, 10.0, 100.0], device="cuda")).sum().backward()
assert x.grad.tolist() == [[100, 1, 10], [1, 100, 10]]
""")


def test_where_numbers_belong() -> None:
    harness.script("""
import numpy as np
rng = np.random.default_rng(0)
nan = float("nan")
for dtype in ("uint8", "int16", "int64", "float32", "float64"):
    rows = np.sort(rng.integers(0, 50, (3, 40)).astype(dtype), axis=1)
    x = rng.integers(0, 50, (3, 17)).astype(dtype)
    if dtype.startswith("float"):
        x[1, 3] = nan
    a, b = tn.from_numpy(rows).to("cuda"), tn.from_numpy(x).to("cuda")
    for side in ("left", "right"):
        got = tn.searchsorted(a, b, side=side).cpu().numpy()
        assert (got == [np.searchsorted(r, v, side) for r, v in zip(rows, x)]).all(), dtype
        got = tn.searchsorted(a[0], b.t(), side=side).cpu().numpy()
        assert (got == np.searchsorted(rows[0], x.T, side)).all()
assert tn.bucketize(b, a[0]).shape == (3, 17)
assert tn.cuda.fallback_count("_searchsorted") == (0, 0)
""")


def test_unique_elements() -> None:
    harness.script("""
import numpy as np
rng = np.random.default_rng(0)
for n in (0, 1, 5, 1024, 1025, 9000):
    for dtype in ("bool", "uint8", "int64", "float32", "float64"):
        x = (rng.integers(0, 40, n) // (1 if n < 9000 else 39)).astype(dtype)
        d = tn.from_numpy(x).to("cuda")
        got = tn.unique(d, return_inverse=True, return_counts=True)
        want = np.unique(x, return_inverse=True, return_counts=True)
        for g, w in zip(got, want):
            assert (g.cpu().numpy() == w).all() and g.shape == w.shape, (n, dtype)
        values, inverse, counts = tn.unique_consecutive(d, return_inverse=True, return_counts=True)
        starts = np.flatnonzero(np.r_[True, x[1:] != x[:-1]]) if n else np.zeros(0, int)
        assert (values.cpu().numpy() == x[starts]).all()
        assert (counts.cpu().numpy() == np.diff(np.r_[starts, n])).all()
        assert tn.equal(values[inverse].cpu(), d.cpu())
nan = tn.tensor([1.0, float("nan"), float("nan")], device="cuda")
assert tn.unique(nan).shape == (3,)
assert tn.cuda.fallback_count("_unique_consecutive") == (0, 0)
""")


def test_histograms() -> None:
    """PyTorch has none on CUDA; here they are made of what has kernels."""
    harness.script(
        """
tn.manual_seed(0)
x, w = tn.randn(60, 2, dtype=tn.float64), tn.rand(60, dtype=tn.float64)
near = [tn.histogram(x, 5), tn.histogram(x[:, 0], 3, range=(-1.0, 0.5), weight=w, density=True),
        tn.histogram(x, tn.tensor([-2.0, 0.0, 0.5, 3.0]).double()), x.histogram(2, range=(0, 0)),
        tn.histogramdd(x, [2, 3]), tn.histogramdd(x, 2, weight=w, density=True)]
x, w = x.cuda(), w.cuda()
far = [tn.histogram(x, 5), tn.histogram(x[:, 0], 3, range=(-1.0, 0.5), weight=w, density=True),
       tn.histogram(x, tn.tensor([-2.0, 0.0, 0.5, 3.0]).double().cuda()),
       x.histogram(2, range=(0, 0)),
       tn.histogramdd(x, [2, 3]), tn.histogramdd(x, 2, weight=w, density=True)]
for got, want in zip(far, near):
    edges = [got[1]] if isinstance(got[1], tn.Tensor) else got[1]
    wanted = [want[1]] if isinstance(want[1], tn.Tensor) else want[1]
    for g, v in zip([got[0], *edges], [want[0], *wanted], strict=True):
        assert g.is_cuda and tn.allclose(g.cpu(), v, rtol=1e-12, atol=1e-12)
""",
        TENON_FALLBACK="error",
    )
