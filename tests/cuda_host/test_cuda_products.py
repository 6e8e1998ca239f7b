"""Matrix products on the CUDA host harness against NumPy: of integers, and with complex factors."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

START = """
import numpy as np
rng = np.random.default_rng(0)
def there(x):
    return tn.from_numpy(np.ascontiguousarray(x)).to("cuda")
def layouts(x):
    yield there(x)
    yield there(x.swapaxes(-1, -2)).transpose(-1, -2)
    wide = np.zeros([2 * n for n in x.shape], x.dtype)
    every = (slice(None, None, 2),) * x.ndim
    wide[every] = x
    yield there(wide)[every]
def ran_natively(*ops):
    for op in ops:
        assert tn.cuda.fallback_count(op) == (0, 0), op
"""


def test_products_of_integers() -> None:
    """Below, at and beyond a tile's size; single rows and columns, also of many products."""
    harness.script(
        START
        + """
SIZES = ((1, 1, 1), (3, 0, 4), (5, 7, 3), (64, 16, 64), (65, 33, 130), (1, 300, 70), (70, 300, 1),
         (1, 9000, 1))
def same(got, want):
    got = got.cpu().numpy()
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)
for dtype in ("uint8", "int8", "int16", "int32", "int64"):
    ends = np.iinfo(dtype)
    def numbers(*shape):
        return rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)
    three, two = np.array([3], dtype), np.array([2], dtype)
    for m, k, n in SIZES:
        x, y, z = numbers(m, k), numbers(k, n), numbers(m, n)
        for a in layouts(x):
            for b in layouts(y):
                same(a @ b, x @ y)
                same(tn.addmm(there(z), a, b, alpha=3, beta=2), three * (x @ y) + two * z)
                same(tn.addmm(there(z[0]), a, b, beta=0), x @ y)
    x, y, z = numbers(3, 5, 70), numbers(3, 70, 6), numbers(3, 5, 6)
    same(tn.bmm(there(x), there(y)), x @ y)
    same(there(x) @ there(y[1]), x @ y[1])
    same(there(z).baddbmm_(there(x), there(y)), z + x @ y)
    x, v = numbers(9, 70), numbers(70)
    for a in layouts(x):
        same(tn.mv(a, there(v)), x @ v)
        same(tn.addmv(there(three), a, there(v), alpha=3, beta=2), three * two + three * (x @ v))
    v = numbers(100000)
    same(tn.dot(there(v), there(v[::-1])), np.dot(v, v[::-1]))
    same(there(v)[::2].dot(there(v)[1::2]), np.dot(v[::2], v[1::2]))
    same(there(numbers(0, 4)) @ there(numbers(4, 3)), np.zeros((0, 3), dtype))
ran_natively("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot")
""",
        TENON_MEMORY_CACHE="0",
    )


def test_factors() -> None:
    """alpha and beta, which are complex for complex matrices; beta 0 leaves out what is there."""
    harness.script(
        START
        + """
for dtype, tolerance in (("complex64", 1e-4), ("complex128", 1e-12), ("float32", 1e-4),
                         ("float64", 1e-12), ("float16", 5e-2)):
    is_complex = dtype.startswith("complex")
    def numbers(*shape):
        x = rng.uniform(-1, 1, shape)
        return (x + 1j * rng.uniform(-1, 1, shape) if is_complex else x).astype(dtype)
    def near(got, want):
        assert np.allclose(got.cpu().numpy(), want, rtol=tolerance, atol=tolerance), dtype
    alpha, beta = (2 - 1j, 0.5 + 2j) if is_complex else (2.5, -0.5)
    x, y, z, v, w = numbers(9, 70), numbers(70, 4), numbers(9, 4), numbers(70), numbers(9)
    for a in layouts(x):
        near(tn.addmv(there(w), a, there(v), alpha=alpha, beta=beta), beta * w + alpha * (x @ v))
        near(tn.addmv(there(w[:1]), a, there(v)), w[:1] + x @ v)
        near(tn.addmm(there(z), a, there(y), alpha=alpha, beta=beta), beta * z + alpha * (x @ y))
        near(there(w).addmv_(a, there(v), beta=0.5), 0.5 * w + x @ v)
    near(tn.addmv(there(w * np.nan), there(x), there(v), beta=0), x @ v)
    near(tn.addmv(there(w), there(numbers(9, 0)), there(numbers(0)), beta=2), 2 * w)
    batch = numbers(2, 5, 7), numbers(2, 7, 3), numbers(2, 5, 3)
    near(tn.baddbmm(there(batch[2]), there(batch[0]), there(batch[1]), alpha=alpha, beta=beta),
         beta * batch[2] + alpha * (batch[0] @ batch[1]))
ran_natively("addmm", "baddbmm", "addmv")
x = tn.rand(4, 3, dtype=tn.complex128, device="cuda", requires_grad=True)
v = tn.rand(3, dtype=tn.complex128, device="cuda", requires_grad=True)
w = tn.rand(4, dtype=tn.complex128, device="cuda", requires_grad=True)
assert tn.autograd.gradcheck(lambda *a: tn.addmv(*a, alpha=1 - 2j, beta=0.5j), (w, x, v))
assert tn.autograd.gradgradcheck(lambda *a: tn.addmv(*a, alpha=1 - 2j, beta=0.5j), (w, x, v))
""",
    )
