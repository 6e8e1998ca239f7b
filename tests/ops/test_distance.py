"""cdist and pdist: against SciPy in float64, their gradients against finite differences."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.spatial.distance as sp
import tenon as tn
from test_formulas import formulas

RNG = np.random.default_rng(5)
ORDERS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")]


def expected(a: np.ndarray, b: np.ndarray, p: float) -> np.ndarray:
    if p == 0:
        return (a[:, None] != b[None]).sum(-1).astype(float)
    if p == float("inf"):
        return sp.cdist(a, b, "chebyshev")
    return sp.cdist(a, b, "minkowski", p=p)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("shape", [(3, 4, 2), (70, 67, 3), (5, 9, 70), (1, 1, 1)])
def test_values(p: float, shape: tuple[int, int, int]) -> None:
    n, r, m = shape
    a, b = RNG.normal(size=(n, m)), RNG.normal(size=(r, m))
    b[0] = a[0]
    a[-1, -1] = b[-1, -1]
    mode = "donot_use_mm_for_euclid_dist"
    for dtype, tol in ((tn.float64, 1e-13), (tn.float32, 3e-6)):
        x, y = (tn.from_numpy(v).to(dtype) for v in (a, b))
        want = expected(*(v.double().numpy() for v in (x, y)), p)
        got = tn.cdist(x, y, p, compute_mode=mode)
        np.testing.assert_allclose(got.numpy(), want, rtol=tol * max(1, m), atol=tol)
        strided = tn.cdist(x.t().contiguous().t(), y.repeat(2, 1)[r:], p, compute_mode=mode)
        assert tn.equal(strided, got)


@pytest.mark.parametrize("p", [0.7, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_gradients(p: float) -> None:
    x, y = (tn.from_numpy(RNG.normal(size=s)).requires_grad_() for s in ((2, 4, 3), (2, 5, 3)))
    assert tn.autograd.gradcheck(lambda a, b: tn.cdist(a, b, p), (x, y))
    if p >= 1:
        assert tn.autograd.gradgradcheck(lambda a, b: tn.cdist(a, b, p), (x, y))


@pytest.mark.parametrize("p", ORDERS)
def test_the_kernel_and_the_parts_give_the_same_gradient(p: float) -> None:
    """Where numbers and whole rows are equal, too: the derivative is then 0."""
    a, b = RNG.integers(-1, 2, size=(37, 3)).astype(float), RNG.integers(-1, 2, size=(50, 3)) * 1.0
    g = tn.from_numpy(RNG.normal(size=(37, 50)))
    fused, parts = [], []
    for recorded, found in ((False, fused), (True, parts)):
        x, y = (tn.from_numpy(v).requires_grad_() for v in (a, b))
        d = tn.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist")
        found += tn.autograd.grad(d, (x, y), g, create_graph=recorded)
    for got, want in zip(fused, parts, strict=True):
        assert tn.isfinite(got).all()
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), 1e-12, 1e-12)


def test_ends_of_derivatives() -> None:
    """As PyTorch: every number that is the maximum has its whole gradient; equal rows have none."""
    x = tn.tensor([[0.0, 0.0], [3.0, 1.0]], requires_grad=True)
    tn.cdist(x, tn.tensor([[1.0, 1.0]]), float("inf")).sum().backward()
    assert x.grad.tolist() == [[-1.0, -1.0], [1.0, 0.0]]
    y = tn.ones(3, 2, requires_grad=True)
    (tn.cdist(y, y.detach(), 2.0) + tn.cdist(y, y.detach(), 1.5)).sum().backward()
    assert y.grad.tolist() == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("dtype", [tn.float32, tn.float64])
def test_products_of_matrices_have_no_roots_of_what_is_below_0(dtype: tn.dtype) -> None:
    """Squares of rows that are nearly equal and far from zero cancel to a little less than 0."""
    x = tn.from_numpy(1000 + RNG.normal(size=(50, 6)) * 1e-3).to(dtype).requires_grad_()
    near = tn.cdist(x, x, compute_mode="use_mm_for_euclid_dist")
    assert not near.isnan().any() and (near == 0).any() and (near > 0).any()


@pytest.mark.parametrize("dtype", [tn.float32, tn.float64])
def test_products_of_matrices(dtype: tn.dtype) -> None:
    """More than 25 rows: the faster way, which is inexact for rows that are nearly equal."""
    a, b = RNG.normal(size=(2, 40, 6)), RNG.normal(size=(2, 7, 6))
    x, y = (tn.from_numpy(v).to(dtype).requires_grad_() for v in (a, b))
    exact = tn.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    tol = 1e-10 if dtype is tn.float64 else 1e-4
    for mode in (None, "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist"):
        near = tn.cdist(x, y, compute_mode=mode)
        assert tn.allclose(near, exact, rtol=tol, atol=tol)
        weights = tn.arange(near.numel()).view(near.shape).to(dtype).sin()
        for got, want in zip(
            tn.autograd.grad(near, (x, y), weights), tn.autograd.grad(exact, (x, y), weights),
            strict=False,
        ):  # fmt: skip
            assert tn.allclose(got, want, rtol=10 * tol, atol=10 * tol)
        exact = tn.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    few = tn.cdist(x[:, :25], y)
    assert tn.equal(few, tn.cdist(x[:, :25], y, compute_mode="donot_use_mm_for_euclid_dist"))
    z = tn.from_numpy(RNG.normal(size=(30, 2))).requires_grad_()
    assert tn.autograd.gradgradcheck(lambda t: tn.cdist(t, tn.zeros(3, 2).double()), (z,))


def test_batches_broadcast_and_nothing_is_empty() -> None:
    a, b = RNG.normal(size=(2, 1, 4, 3)), RNG.normal(size=(5, 6, 3))
    got = tn.cdist(tn.from_numpy(a), tn.from_numpy(b), 1.0)
    assert got.shape == (2, 5, 4, 6)
    for i in range(2):
        for k in range(5):
            np.testing.assert_allclose(got[i, k].numpy(), expected(a[i, 0], b[k], 1.0), 1e-12)
    x = tn.from_numpy(a).requires_grad_()
    assert tn.autograd.gradcheck(lambda t: tn.cdist(t, tn.from_numpy(b), 1.5), (x,))
    assert tn.cdist(tn.ones(2, 0), tn.ones(3, 0)).tolist() == [[0.0] * 3] * 2
    assert tn.cdist(tn.ones(0, 2), tn.ones(3, 2)).shape == (0, 3)
    assert tn.cdist(tn.ones(4, 0, 2), tn.ones(4, 0, 2)).shape == (4, 0, 0)


@pytest.mark.parametrize("p", ORDERS)
def test_rows_of_no_numbers_are_equal_by_kernel_and_by_formula(p: float) -> None:
    mode = "donot_use_mm_for_euclid_dist"
    a, b = tn.ones(2, 0), tn.ones(3, 0)
    assert tn.cdist(a, b, p, mode).tolist() == [[0.0] * 3] * 2
    with formulas():
        assert tn.cdist(a, b, p, mode).tolist() == [[0.0] * 3] * 2


def test_internal_operators_take_rows_of_one_batch() -> None:
    """cdist broadcasts before it calls them; what a plugin hands them is looked at, too."""
    ops = tn._C._ops
    row, rows, batch = tn.ones(4), tn.ones(3, 4), tn.ones(2, 3, 4)
    for x1, x2 in ((row, row), (row, rows), (rows, row), (rows, batch), (batch, rows)):
        with pytest.raises(RuntimeError, match="rows of matrices, or of batches of one shape"):
            ops._cdist(x1, x2, 2.0)
        with pytest.raises(RuntimeError, match="rows of matrices, or of batches of one shape"):
            ops._cdist_backward(tn.ones(3, 3), x1, x2, 2.0, tn.ones(3, 3))
    for x1, x2 in ((rows, tn.ones(3, 5)), (batch, tn.ones(3, 3, 4)), (rows, rows.double())):
        with pytest.raises(RuntimeError):
            ops._cdist(x1, x2, 2.0)
    for grad, distance in ((tn.ones(3, 2), tn.ones(3, 5)), (tn.ones(3, 5), tn.ones(2, 5)),
                           (tn.ones(3, 5).double(), tn.ones(3, 5))):  # fmt: skip
        with pytest.raises(RuntimeError):
            ops._cdist_backward(grad, rows, tn.ones(5, 4), 2.0, distance)


def test_nan_is_seen() -> None:
    x = tn.tensor([[float("nan"), 1.0], [2.0, 3.0]])
    for p in (1.0, 1.5, 2.0, float("inf")):
        got = tn.cdist(x, tn.zeros(2, 2), p)
        assert got[0].isnan().all() and got[1].isfinite().all()


def test_memory_is_that_of_the_result() -> None:
    """4000 x 4000 distances of 64 numbers are 64 MB; all differences would be 4 GB. Asked of the
    kernel's page about this process: the peak that getrusage tells begins as the parent's."""
    code = (
        "import re, tenon as tn\n"
        "x = tn.rand(4000, 64, requires_grad=True); tn.cdist(x, x.detach()).sum()\n"
        "tn.cdist(x, x.detach(), 1.0).sum().backward(); tn.nn.functional.pdist(x.detach()[:500])\n"
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1_500_000


def test_refused() -> None:
    f = tn.ones(3, 4)
    with pytest.raises(RuntimeError, match="same number of columns. X1: 4 X2: 1"):
        tn.cdist(f, tn.ones(3, 1))
    with pytest.raises(RuntimeError, match="at least 2D tensors, X2 got: 1D"):
        tn.cdist(f, f[0])
    with pytest.raises(RuntimeError, match="non-negative p"):
        tn.cdist(f, f, -1.0)
    with pytest.raises(ValueError, match="fast is not a valid value for compute_mode"):
        tn.cdist(f, f, compute_mode="fast")
    with pytest.raises(RuntimeError):
        tn.cdist(tn.ones(2, 3, 4), tn.ones(3, 3, 4))


def test_second_derivatives_where_numbers_are_equal() -> None:
    """Equal numbers, and equal rows, give nothing, where a power of 0 has no derivative."""
    for p in (1.5, 2.0, 2.5, 3.0):
        x = tn.tensor([[1.0, 2.0], [1.0, 5.0], [3.0, 5.0]], dtype=tn.float64, requires_grad=True)
        for fn in (lambda t, p=p: tn.nn.functional.pdist(t, p), lambda t, p=p: tn.cdist(t, t, p)):
            (g,) = tn.autograd.grad(fn(x).square().sum(), x, create_graph=True)
            (h,) = tn.autograd.grad(g.sin().sum(), x)
            assert g.isfinite().all() and h.isfinite().all(), p


def test_pdist() -> None:
    a = RNG.normal(size=(9, 4))
    for p in (1.0, 2.0, 3.5, float("inf")):
        name = "chebyshev" if p == float("inf") else "minkowski"
        want = sp.pdist(a, name, **({} if p == float("inf") else {"p": p}))
        np.testing.assert_allclose(tn.nn.functional.pdist(tn.from_numpy(a), p).numpy(), want, 1e-12)
        x = tn.from_numpy(a[:4]).requires_grad_()
        assert tn.autograd.gradcheck(lambda t, p=p: tn.nn.functional.pdist(t, p), (x,))
    assert tn.nn.functional.pdist(tn.ones(1, 3)).shape == (0,)
