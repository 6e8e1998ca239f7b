"""Complex numbers on the CUDA host harness: functions against NumPy, casts, reductions, layouts."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")


def test_functions_of_complex_numbers() -> None:
    """On a grid, near the unit circle, on both sides of branch cuts, large and small."""
    harness.script("""
import numpy as np
line = np.array([-3.0, -1.5, -1.0, -0.7, -1e-3, 0.0, 1e-9, 0.4, 1.0, 2.5])
grid = (line[:, None] + 1j * np.array([-2.0, -1.0, -0.3, 1e-6, 0.6, 1.7, 30.0])[None, :]).ravel()
cuts = np.array([complex(x, y) for x in (-2.5, 2.5, 0.0) for y in (0.0, -0.0)])
cuts = np.concatenate([cuts, [complex(x, y) for x in (0.0, -0.0) for y in (-2.5, 2.5)]])
far = np.array([1e8 + 1j, -1e8 + 3e7j, 1e-8 - 1e-9j, 0.6 + 0.8j])
z = np.concatenate([grid, cuts, far])
names = "exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt square".split()
with np.errstate(all="ignore"):
    for dtype, tol in (("complex128", 1e-12), ("complex64", 1e-4)):
        x = z.astype(dtype)
        d = tn.from_numpy(x).to("cuda")
        for name in names:
            f = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
                 "acosh": "arccosh", "atanh": "arctanh"}.get(name, name)
            want, got = getattr(np, f)(x), getattr(tn, name)(d).cpu().numpy()
            fine = np.isfinite(want) & (np.abs(want) < 1e30)
            error = np.abs(got - want)[fine] / (1e-3 + np.abs(want[fine]))
            assert error.max() < tol, (dtype, name, x[fine][error.argmax()], error.max())
        for got, want in ((d.abs(), np.abs(x)), (d.angle(), np.angle(x)), (d.sgn(), np.sign(x)
                           if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else
                           np.where(x == 0, 0, x / np.where(x == 0, 1, np.abs(x))))):
            assert np.allclose(got.cpu().numpy(), want, rtol=tol)
for name in names:
    assert tn.cuda.fallback_count(name) == (0, 0), name
""")


def test_arithmetic_and_gradients_of_complex_numbers() -> None:
    harness.script("""
import numpy as np
rng = np.random.default_rng(0)
x, y = (rng.standard_normal((7, 33)) + 1j * rng.standard_normal((7, 33)) for _ in range(2))
y[0, :4] = 0, 1e200, 1e200j, -1e-200 + 1e-200j
a, b = tn.from_numpy(x).to("cuda"), tn.from_numpy(y).to("cuda")
with np.errstate(all="ignore"):
    for got, want in ((a + b, x + y), (a - b * (2 + 1j), x - y * (2 + 1j)), (a * b, x * y),
                      (a / b, x / y), (2 - a, 2 - x), (a.conj() * 3, x.conj() * 3), (-a, -x),
                      (a.t() + b.t().contiguous(), x.T + y.T), (a[:, ::2] * 1j, x[:, ::2] * 1j)):
        got = got.cpu().numpy()
        fine = np.isfinite(want)
        assert np.allclose(got[fine], want[fine], rtol=1e-13, atol=0), (got - want)
assert (a == a).all().item() and not (a != a).any().item()
w = tn.where(a.abs() > 1, a, b).cpu().numpy()
assert (w == np.where(np.abs(x) > 1, x, y)).all()
one = (tn.ones(3, device="cuda", dtype=tn.complex64) / tn.zeros(3, device="cuda")).cpu()
assert one.real.isinf().all().item()
c, d = (tn.from_numpy(x).to(place).requires_grad_() for place in ("cpu", "cuda"))
for t in (c, d):
    ((t.exp() * t).abs() ** 2).sum().backward()
assert tn.allclose(d.grad.cpu(), c.grad, rtol=1e-10)
for op in ("add", "sub", "mul", "true_divide", "neg", "eq", "where", "abs", "exp", "conj_physical"):
    assert tn.cuda.fallback_count(op)[1] == 0, op
""")


def test_casts_and_sums_of_complex_numbers() -> None:
    harness.script("""
import numpy as np
rng = np.random.default_rng(0)
x = (rng.standard_normal((40, 500)) + 1j * rng.standard_normal((40, 500))) * 5
a = tn.from_numpy(x)
d = a.to("cuda")
for dtype in (tn.bool, tn.uint8, tn.int8, tn.int16, tn.int32, tn.int64, tn.float16, tn.bfloat16,
              tn.float32, tn.float64, tn.complex64, tn.complex128):
    for source, there in ((a, d), (a.t(), d.t())):
        assert tn.equal(there.to(dtype).cpu(), source.to(dtype)), dtype
    back = a.real.to(dtype)
    assert tn.equal(back.to("cuda").to(tn.complex64).cpu(), back.to(tn.complex64)), dtype
for dim in (None, 0, 1):
    for name in ("sum", "mean"):
        got = getattr(d, name)(*([] if dim is None else [dim])).cpu().numpy()
        assert np.allclose(got, getattr(x, name)(axis=dim), rtol=1e-12)
u = np.exp(1j * rng.standard_normal((3, 300)))
assert np.allclose(tn.from_numpy(u).to("cuda").prod(1).cpu().numpy(), u.prod(1), rtol=1e-12)
for op in ("sum", "mean", "_prod", "_cast", "_copy"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
""")


def test_products_of_complex_matrices() -> None:
    harness.script("""
import numpy as np
rng = np.random.default_rng(0)
def pair(*shape):
    x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return x, tn.from_numpy(x).to("cuda")
def check(got, want, tol=1e-12):
    assert np.allclose(got.cpu().numpy(), want, rtol=tol, atol=tol)
(a, da), (b, db), (c, dc), (v, dv) = pair(5, 8), pair(8, 6), pair(5, 6), pair(8)
check(da @ db, a @ b)
check(da.to(tn.complex64) @ db.to(tn.complex64), a @ b, 1e-5)
check(da[:, ::2] @ db.t().contiguous().t()[::2], a[:, ::2] @ b[::2])
check(da.conj() @ db.mH.mH, a.conj() @ b)
check(tn.addmm(dc, da, db, beta=2, alpha=-1), 2 * c - a @ b)
check(tn.addmm(dc, da, db, alpha=1j), c + 1j * (a @ b))
check(da @ dv, a @ v)
check(tn.dot(dv, dv), v @ v)
(x, dx), (y, dy) = pair(3, 4, 5), pair(3, 5, 2)
check(dx @ dy, x @ y)
check(tn.nn.functional.linear(dx, dy[:, :, 0], dv[:3]), x @ y[:, :, 0].T + v[:3])
for op in ("mm", "bmm", "mv", "dot", "linear"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
""")


def test_running_values_spreads_and_places_of_complex_numbers() -> None:
    """Rows in one turn, in several, in parts of several blocks; layouts; NaN counts as not zero."""
    harness.script(
        """
import numpy as np
rng = np.random.default_rng(0)
SHAPES = ((1,), (7,), (3, 300), (40, 6), (2, 5000), (9000,), (3000, 40), (2, 33, 5, 3))
def layouts(x):
    d = tn.from_numpy(x).to("cuda")
    return (x, d), (x.swapaxes(0, -1), d.transpose(0, -1)), (x[..., ::2], d[..., ::2])
def near(got, want, tolerance):
    assert np.allclose(got.cpu().numpy(), want, rtol=tolerance, atol=tolerance)
for dtype, tol in (("complex64", 4e-4), ("complex128", 1e-11)):
    for shape in SHAPES:
        x = (rng.uniform(-1, 1, shape) + 1j * rng.uniform(-1, 1, shape)).astype(dtype)
        holes = np.where(rng.random(shape) < 0.5, 0, x * np.where(rng.random(shape) < 0.5, 1, 1j))
        for x, d in layouts(x):
            wide = x.astype("complex128")
            for dim in range(x.ndim):
                near(d.cumsum(dim), wide.cumsum(dim), tol)
                near((1 + d / 50).cumprod(dim), (1 + wide / 50).cumprod(dim), tol)
                near(d.var(dim, correction=0), wide.var(dim), tol)
                near((d + 100).var(dim, correction=0), wide.var(dim), tol)
                if x.shape[dim] > 1:
                    near(d.std(dim), wide.std(dim, ddof=1), tol)
            near(d.var(correction=0), wide.var(), tol)
            assert d.var().dtype == d.real.dtype
        for x, d in layouts(holes):
            assert (d.nonzero().cpu().numpy() == np.argwhere(x)).all()
odd = np.array([0, 1j, -0.0, np.nan, complex(0, np.nan), 3])
assert tn.from_numpy(odd).to("cuda").nonzero().flatten().tolist() == [1, 3, 4, 5]
assert tn.zeros(0, 3, dtype=tn.complex64, device="cuda").nonzero().shape == (0, 2)
x = tn.rand(4, 5, dtype=tn.complex128, device="cuda", requires_grad=True)
for f in (lambda t: t.cumsum(1), lambda t: t.cumprod(0), lambda t: t.var(1)):
    assert tn.autograd.gradcheck(f, (x,)) and tn.autograd.gradgradcheck(f, (x,))
for op in ("cumsum", "cumprod", "_var", "nonzero"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
""",
        TENON_MEMORY_CACHE="0",
    )
