"""Factors of matrices and what is solved with them, on the device without the CPU's help, against
NumPy and SciPy in double precision; sizes below, at and beyond the columns factored at a time."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

START = """
import numpy as np
rng = np.random.default_rng(7)
LA = tn.linalg

def numbers(shape, dtype):
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)

def far_of(dtype):
    return 1e-11 if dtype in ("float64", "complex128") else 2e-3

def close(got, want, dtype, *name):
    got = got.cpu().resolve_conj().numpy() if isinstance(got, tn.Tensor) else got
    assert got.dtype == np.asarray(want).dtype or dtype in ("float32", "complex64"), name
    scale = 1 + np.abs(want).max(initial=0)
    assert got.shape == want.shape, (name, got.shape, want.shape)
    assert np.abs(got - want).max(initial=0) <= far_of(dtype) * scale, (name, dtype,
        np.abs(got - want).max(initial=0))

DTYPES = ("float64", "float32", "complex128", "complex64")
SIZES = (1, 2, 7, 32, 33, 70)
"""


def test_inverses_determinants_and_systems() -> None:
    harness.script(
        START
        + """
for dtype in DTYPES:
    for n in SIZES if dtype in ("float64", "complex128") else (5, 40):
        for front in ((), (3,)):
            x = numbers((*front, n, n), dtype) + 4 * np.eye(n, dtype=dtype)
            a = tn.tensor(x, device="cuda")
            wide = x.astype("complex128" if "c" in dtype else "float64")
            close(LA.inv(a), np.linalg.inv(wide), dtype, "inv", n)
            sign, size = LA.slogdet(a)
            want_sign, want_size = np.linalg.slogdet(wide)
            close(sign, want_sign, dtype, "sign", n)
            close(size, want_size, dtype, "size", n)
            size = np.exp(want_size.max())
            close(LA.det(a) / size, np.linalg.det(wide) / size, dtype, "det", n)
            b = numbers((*front, n, 5), dtype)
            c = tn.tensor(b, device="cuda")
            close(LA.solve(a, c), np.linalg.solve(wide, b), dtype, "solve", n)
            want = np.linalg.solve(wide.swapaxes(-1, -2), b[..., ::-1])
            close(LA.solve(a.mT, c.flip(-1)), want, dtype, "turned", n)
x = tn.zeros(2, 0, 0, device="cuda")
assert LA.det(x).tolist() == [1, 1] and LA.slogdet(x)[1].tolist() == [0, 0]
assert LA.det(tn.zeros(0, 3, 3, device="cuda")).shape == (0,)
assert LA.inv(x).shape == (2, 0, 0) and LA.inv(tn.zeros(0, 3, 3, device="cuda")).shape == (0, 3, 3)
assert LA.solve(tn.eye(3, device="cuda"), tn.zeros(3, 0, device="cuda")).shape == (3, 0)
x = tn.tensor([[1.0, 2.0], [2.0, 4.0]], device="cuda")
assert LA.det(x).item() == 0 and LA.slogdet(x)[1].item() == -float("inf")
x = tn.tensor([[0.0, 2.0], [3.0, 4.0]], dtype=tn.float64, device="cuda")
assert LA.det(x).item() == -6 and LA.det(x.to(tn.complex64)).angle().item() > 3
assert LA.det(tn.full((3, 3), float("nan"), device="cuda")).isnan().item()
""",
        TENON_FALLBACK="error",
        TENON_MEMORY_CACHE="0",
    )


def test_lu() -> None:
    harness.script(
        START
        + """
from scipy.linalg import lu_factor
for dtype in DTYPES:
    for shape in ((6, 6), (40, 40), (70, 33), (33, 70), (2, 5, 3), (3, 1, 4), (2, 64, 64)):
        x = numbers(shape, dtype)
        a = tn.tensor(x, device="cuda")
        lu, pivots, info = LA.lu_factor_ex(a)
        assert info.abs().sum().item() == 0
        if len(shape) == 2 and dtype == "float64":
            want, at = lu_factor(x)
            close(lu, want, dtype, shape)
            assert (pivots.cpu().numpy() - 1 == at).all()
        p, l, u = tn.lu_unpack(lu, pivots)
        close(p.to(lu.dtype) @ l @ u, x, dtype, shape)
        assert (l.abs() <= 1.5).all().item()
x = tn.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 1.0, 1.0]], device="cuda")
assert LA.lu_factor_ex(x)[2].item() == 3
assert LA.lu_factor_ex(tn.zeros(2, 4, 4, device="cuda"))[2].tolist() == [1, 1]
n = 9000  # more rows than shared memory holds the order of
pivots = tn.randint(1, n + 1, (n,), dtype=tn.int32)
near, far = (tn._C._ops._lu_permutation(x, n) for x in (pivots, pivots.to("cuda")))
assert tn.equal(near, far.cpu())
""",
        TENON_FALLBACK="error",
        TENON_MEMORY_CACHE="0",
    )


def test_triangular_systems() -> None:
    harness.script(
        START
        + """
from scipy.linalg import solve_triangular
for dtype in DTYPES:
    for n, k in ((1, 1), (5, 3), (32, 40), (33, 2), (70, 300)):
        x = (numbers((n, n), dtype) / n ** 0.5 + 3 * np.eye(n)).astype(dtype)
        b = numbers((n, k), dtype)
        for upper in (False, True):
            for unit in (False, True):
                want = solve_triangular(x, b, lower=not upper, unit_diagonal=unit)
                t = np.triu(x) if upper else np.tril(x)
                a, c = tn.tensor(t, device="cuda"), tn.tensor(b, device="cuda")
                got = LA.solve_triangular(a, c, upper=upper, unitriangular=unit)
                close(got, want, dtype, n, k, upper, unit)
                got = LA.solve_triangular(a.mH.resolve_conj(), c, upper=not upper)
                want = solve_triangular(t.conj().T, b, lower=upper)
                close(got, want, dtype, "turned", n, k, upper)
""",
        TENON_FALLBACK="error",
        TENON_MEMORY_CACHE="0",
    )


def test_cholesky() -> None:
    harness.script(
        START
        + """
for dtype in DTYPES:
    for shape in ((1, 1), (5, 5), (32, 32), (3, 33, 33), (2, 100, 100)):
        x = numbers(shape, dtype)
        x = x @ x.conj().swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1], dtype=dtype)
        a = tn.tensor(x.astype(dtype), device="cuda")
        close(LA.cholesky(a), np.linalg.cholesky(x), dtype, shape)
        close(LA.cholesky(a, upper=True), np.linalg.cholesky(x).conj().swapaxes(-1, -2), dtype)
    again = LA.cholesky(a)
    assert tn.equal(again, LA.cholesky(a))
x = tn.eye(70, device="cuda").repeat(3, 1, 1)
x[0, 50, 50], x[2, 3, 3] = -1.0, 0.0
assert LA.cholesky_ex(x)[1].tolist() == [51, 0, 4]
assert LA.cholesky_ex(tn.full((2, 2), float("nan"), device="cuda"))[1].item() == 1
assert LA.cholesky(tn.zeros(2, 0, 0, device="cuda")).shape == (2, 0, 0)
""",
        TENON_FALLBACK="error",
        TENON_MEMORY_CACHE="0",
    )


def test_what_cannot_be_done_is_an_error() -> None:
    """In the words of the CPU, which are PyTorch's."""
    harness.script(
        START
        + """
single, good = tn.tensor([[1.0, 2.0], [2.0, 4.0]]), tn.eye(2)
both = tn.stack([good, single])
for call in (LA.inv, LA.lu_factor, lambda x: LA.solve(x, tn.ones_like(x)),
             lambda x: LA.cholesky(-x - 9 * tn.eye(2, device=x.device))):
    for x in (single, both):
        said = []
        for device in ("cpu", "cuda"):
            try:
                call(x.to(device))
            except RuntimeError as e:
                said.append((type(e).__name__, str(e)))
        assert len(said) == 2 and said[0] == said[1], said
assert LA.inv_ex(single.to("cuda"))[1].item() == 2
assert LA.inv_ex(single.to("cuda"))[0].isinf().all().item()
assert not LA.inv_ex(both.to("cuda"))[0][0].isinf().any().item()
try:
    pivots = tn.tensor([1, 5], dtype=tn.int32, device="cuda")
    tn.lu_unpack(tn.eye(2, device="cuda"), pivots)[0].cpu()
except RuntimeError as e:
    assert "index 5 is out of range for size 3" in str(e), e
else:
    raise AssertionError
"""
    )


def test_gradients_as_the_cpu() -> None:
    harness.script(
        START
        + """
a = numbers((2, 6, 6), "float64") + 4 * np.eye(6)
b = numbers((2, 6, 3), "float64")
def run(device):
    x, y = (tn.tensor(t, device=device, requires_grad=True) for t in (a, b))
    s = x @ x.mT + tn.eye(6, device=device, dtype=x.dtype)
    z = LA.solve(x, y).sum() + LA.slogdet(x)[1].sum() + LA.cholesky(s).pow(2).sum()
    z = z + LA.inv(x).sum() + LA.solve_triangular(x.tril(), y, upper=False).cos().sum()
    z = z + LA.lu(x)[2].sin().sum()
    z.backward()
    return x.grad.cpu().numpy(), y.grad.cpu().numpy()
for got, want in zip(run("cuda"), run("cpu")):
    close(got, want, "float64")
""",
        TENON_FALLBACK="error",
    )


def test_gradients_of_determinants() -> None:
    """Cofactors: of the factors, and where these say too little, of singular values, which the CPU
    has."""
    harness.script(
        START
        + """
for dtype in DTYPES:
    for shape in ((1, 1), (3, 5, 5), (40, 40)):
        x = numbers(shape, dtype) / shape[-1] ** 0.5 + np.eye(shape[-1], dtype=dtype)
        a = tn.tensor(x.astype(dtype), device="cuda", requires_grad=True)
        LA.det(a).abs().sum().backward()
        det = np.linalg.det(x)[..., None, None]
        want = (np.abs(det) * np.linalg.inv(x).swapaxes(-1, -2).conj()).astype(dtype)
        close(a.grad, want, dtype, shape)
assert tn.cuda.fallback_count("_cofactors") == (0, 0)
x = tn.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=tn.float64, device="cuda", requires_grad=True)
LA.det(x).backward()
assert tn.allclose(x.grad.cpu(), tn.tensor([[4.0, -2.0], [-2.0, 1.0]], dtype=tn.float64))
assert tn.cuda.fallback_count("_cofactors") != (0, 0)
"""
    )
