"""LU factors, eigenvalues and exponentials of matrices of no special form: values by SciPy or by
reconstruction in every dtype, gradients of both orders by finite differences, refusals."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import tenon as tn

LA = tn.linalg
RNG = np.random.default_rng(23)
SHAPES = [(3, 3), (5, 3), (3, 5), (2, 4, 3), (2, 3, 4), (0, 3, 2), (0, 0), (3, 0), (0, 3), (40, 30)]
SQUARES = [(3, 3), (2, 4, 4), (2, 3, 2, 2), (1, 1), (0, 0), (0, 2, 2), (30, 30), (8, 8), (9, 9)]
DTYPES = [(tn.float32, 3e-4), (tn.float64, 1e-11), (tn.complex64, 3e-4), (tn.complex128, 1e-11)]


def matrix(shape: tuple[int, ...], dtype: tn.dtype) -> np.ndarray:
    a = RNG.normal(size=shape)
    return a + 1j * RNG.normal(size=shape) if dtype.is_complex else a


def near(got: tn.Tensor, want: Any, tol: float = 1e-10) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got.detach().resolve_conj().numpy(), want, rtol=tol, atol=tol)


def each(fn: Callable[[np.ndarray], np.ndarray], a: np.ndarray) -> np.ndarray:
    """fn of every matrix of a batch."""
    flat = [fn(m) for m in a.reshape(-1, *a.shape[-2:])] if a.size else []
    return np.stack(flat).reshape(a.shape) if flat else np.zeros(a.shape)


@pytest.mark.parametrize(("dtype", "tol"), DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_lu(shape: tuple[int, ...], dtype: tn.dtype, tol: float) -> None:
    a = matrix(shape, dtype)
    x = tn.from_numpy(a).to(dtype)
    k = min(shape[-2:])
    factors, pivots, info = LA.lu_factor_ex(x)
    assert (factors.dtype, pivots.dtype, info.dtype) == (dtype, tn.int32, tn.int32)
    assert (factors.shape, pivots.shape, info.shape) == (shape, (*shape[:-2], k), shape[:-2])
    assert not info.any()
    if len(shape) == 2 and a.size:
        want = scipy.linalg.lapack.get_lapack_funcs("getrf", (a,))(a)
        near(factors, want[0], tol)
        np.testing.assert_array_equal(pivots.numpy(), want[1] + 1)
    for p, lower, upper in (LA.lu(x), tn.lu_unpack(factors, pivots)):
        near(p @ lower @ upper, a, 10 * tol)
        near(lower, np.tril(lower.numpy(), -1) + np.eye(shape[-2], k))
        near(upper, np.triu(upper.numpy()))
        near(p.sum(-1), np.ones(shape[:-1]))
    assert tn.lu_unpack(factors, pivots, unpack_data=False).L.shape == (0,)
    assert tn.lu_unpack(factors, pivots, unpack_pivots=False).P.shape == (0,)


@pytest.mark.parametrize(("dtype", "tol"), DTYPES)
@pytest.mark.parametrize("shape", SQUARES)
def test_lu_solve(shape: tuple[int, ...], dtype: tn.dtype, tol: float) -> None:
    a, b = matrix(shape, dtype) + 3 * np.eye(shape[-1]), matrix((*shape[:-1], 2), dtype)
    x, y = tn.from_numpy(a).to(dtype), tn.from_numpy(b).to(dtype)
    factors, pivots = LA.lu_factor(x)
    adjoint = np.swapaxes(a, -1, -2).conj()
    near(LA.lu_solve(factors, pivots, y), np.linalg.solve(a, b), 100 * tol)
    near(tn.lu_solve(y, factors, pivots), np.linalg.solve(a, b), 100 * tol)
    got = LA.lu_solve(factors, pivots, y, adjoint=True)
    near(got, np.linalg.solve(adjoint, b), 100 * tol)
    for flag in (False, True):
        got = LA.lu_solve(factors, pivots, y.mT, left=False, adjoint=flag)
        near(got @ (x.mH if flag else x), np.swapaxes(b, -1, -2), 100 * tol)


def test_lu_solve_broadcasts() -> None:
    a, b = matrix((3, 3), tn.float64), matrix((2, 3, 2), tn.float64)
    factors, pivots = LA.lu_factor(tn.from_numpy(a))
    near(LA.lu_solve(factors, pivots, tn.from_numpy(b)), np.linalg.solve(a, b))
    near(LA.lu_solve(factors, pivots, tn.from_numpy(b), adjoint=True), np.linalg.solve(a.T, b))


@pytest.mark.parametrize(("dtype", "tol"), DTYPES)
@pytest.mark.parametrize("shape", SQUARES)
def test_eig(shape: tuple[int, ...], dtype: tn.dtype, tol: float) -> None:
    a = matrix(shape, dtype)
    x = tn.from_numpy(a).to(dtype)
    values, vectors = LA.eig(x)
    assert values.dtype == vectors.dtype == dtype.to_complex()
    want = np.linalg.eigvals(a) if a.size else np.zeros(shape[:-1])
    assert values.shape == want.shape
    if a.size:  # in any order
        gaps = np.abs(values.numpy()[..., None] - want[..., None, :])
        assert (gaps.min(-2) < 100 * tol * (1 + np.abs(want))).all()
    np.testing.assert_array_equal(LA.eigvals(x).numpy(), values.numpy())
    near(x.to(vectors.dtype) @ vectors, (vectors * values.unsqueeze(-2)).numpy(), 100 * tol)
    near(vectors.abs().square().sum(-2), np.ones(values.shape), 10 * tol)


@pytest.mark.parametrize(("dtype", "tol"), DTYPES)
@pytest.mark.parametrize("scale", [1e-6, 0.3, 4.0])
@pytest.mark.parametrize("shape", SQUARES)
def test_exponential(shape: tuple[int, ...], scale: float, dtype: tn.dtype, tol: float) -> None:
    a = matrix(shape, dtype) * scale
    got, want = LA.matrix_exp(tn.from_numpy(a).to(dtype)), each(scipy.linalg.expm, a)
    assert got.dtype == dtype
    size = max(1.0, float(np.abs(want).max(initial=0)))
    near(got / size, want / size, 100 * tol)


def test_exponential_that_needs_pivots() -> None:
    """The first element of the matrix that is divided by is zero, but for rounding."""
    a = np.array([[1.0, 2.0, -1.0], [-2.0, 0.0, 1.0], [1.0, -1.0, 1.0]]) * 1.2627837529669748
    near(tn.matrix_exp(tn.from_numpy(a)), scipy.linalg.expm(a))


def test_exponentials_of_huge_matrices_end() -> None:
    """A thousand squarings of each, unless it is seen that they change nothing."""
    a = tn.zeros(4, 4, dtype=tn.float64)
    a[0, 0] = -1e300
    a = a.expand(1 << 18, 4, 4)
    start = time.process_time()
    got = tn.matrix_exp(a)
    assert time.process_time() - start < 5.0
    assert bool((got == tn.diag(tn.tensor([0.0, 1.0, 1.0, 1.0], dtype=tn.float64))).all())


def test_exponential_of_nothing_finite() -> None:
    a = tn.eye(2, dtype=tn.float64).repeat(2, 1, 1)
    a[0, 1, 0] = np.nan
    got = tn.matrix_exp(a)
    assert bool(got[0].isnan().all())
    near(got[1], np.e * np.eye(2))


def planes(x: tn.Tensor) -> tuple[tn.Tensor, ...]:
    """What does not depend on the phases of eigenvectors."""
    values, v = LA.eig(x)
    return values.exp().sum(-1), v.abs() ** 3


def solved(left: bool, adjoint: bool) -> Callable[[tn.Tensor, tn.Tensor], tn.Tensor]:
    def fn(a: tn.Tensor, b: tn.Tensor) -> tn.Tensor:
        factors, pivots = LA.lu_factor(a)
        return LA.lu_solve(factors, pivots, b, left=left, adjoint=adjoint)

    return fn


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "lu": (lambda x: LA.lu(x)[1:], ((2, 3, 3),)),
    "lu, tall": (lambda x: LA.lu_factor(x).LU, ((2, 4, 2),)),
    "lu, wide": (lambda x: LA.lu_factor(x).LU, ((2, 2, 4),)),
    "lu_solve": (solved(True, False), ((2, 3, 3), (2, 3, 2))),
    "lu_solve, adjoint": (solved(True, True), ((3, 3), (3, 2))),
    "lu_solve, right": (solved(False, False), ((3, 3), (2, 3))),
    "eig": (planes, ((3, 3),)),
    "eigvals": (lambda x: LA.eigvals(x).exp().sum(-1), ((2, 3, 3),)),
    "matrix_exp": (LA.matrix_exp, ((2, 3, 3),)),
}


@pytest.mark.parametrize("dtype", [tn.float64, tn.complex128])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str, dtype: tn.dtype) -> None:
    fn, shapes = GRADIENTS[name]
    inputs = tuple(tn.from_numpy(matrix(s, dtype)).requires_grad_() for s in shapes)
    assert tn.autograd.gradcheck(fn, inputs)
    assert tn.autograd.gradgradcheck(fn, inputs)


def pivots_of(*values: int) -> tn.Tensor:
    return tn.tensor(values, dtype=tn.int32)


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda x: LA.lu_factor(x * 0), "diagonal element 1 of U is zero"),
        (lambda x: LA.lu_factor_ex(x * 0, check_errors=True), "diagonal element 1 of U is zero"),
        (lambda x: LA.lu_factor(x, pivot=False), "without pivoting"),
        (lambda x: LA.lu(x[0]), "at least 2 dimensions"),
        (lambda x: LA.lu_solve(x, pivots_of(1, 2, 9), x), "between 1 and"),
        (lambda x: LA.lu_solve(x, pivots_of(1, 2, 0), x), "between 1 and"),
        (lambda x: LA.lu_solve(x, pivots_of(1, 2), x), "Number of pivots"),
        (lambda x: LA.lu_solve(x, tn.ones(3), x), "int32"),
        (lambda x: LA.lu_solve(x, pivots_of(1, 2, 3), x[:2]), "Incompatible shapes"),
        (lambda x: LA.lu_solve(x[:2], pivots_of(1, 2), x), "square"),
        (lambda x: tn.lu_unpack(x, tn.ones(3)), "int32"),
        (lambda x: tn._C._ops._lu_permutation(pivots_of(1, 2, 3), 2), "do not belong to 2 rows"),
        (lambda x: LA.eig(x[:2]), "square"),
        (lambda x: LA.eig(x.int()), "floating point"),
        (lambda x: LA.eig(x.half()), "not implemented for 'Half'"),
        (lambda x: LA.eigvals(x.bfloat16()), "not implemented for 'BFloat16'"),
        (lambda x: LA.eig(x * np.inf), "non-finite"),
        (lambda x: LA.matrix_exp(x[:2]), "square"),
        (lambda x: LA.matrix_exp(x.int()), "floating point"),
    ],
)
def test_refusals(fn: Callable[[tn.Tensor], Any], words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        fn(tn.eye(3))


needs_fma = pytest.mark.skipif(
    os.environ.get("TENON_CPU_ISA") == "baseline", reason="products are rounded there"
)


@needs_fma
@pytest.mark.parametrize("dtype", [tn.float32, tn.float64])
@pytest.mark.parametrize("n", [3, 8, 9, 16])
def test_rounding_leaves_matrices_without_full_rank_a_pivot(n: int, dtype: tn.dtype) -> None:
    """Products are subtracted unrounded, so that what is left is hardly ever exactly zero."""
    rows = tn.from_numpy(np.random.default_rng(n).normal(size=(60, n - 1, n))).to(dtype)
    a = rows.mT @ rows
    assert int(LA.lu_factor_ex(a).info.count_nonzero()) <= 1
    assert int(LA.inv_ex(a).info.count_nonzero()) <= 1
    assert LA.solve(a[:1], tn.ones(1, n, 1, dtype=dtype)).isfinite().all()


@needs_fma
@pytest.mark.parametrize("dtype", [tn.float32, tn.float64])
def test_which_matrices_are_singular(dtype: tn.dtype) -> None:
    """The matrix itself is factored, not its transpose: PyTorch finds the same ones singular."""
    counted, scaled = tn.arange(1, 10, dtype=dtype).view(3, 3), tn.tensor([[0.1, 0.3], [0.2, 0.6]])
    for a, info in ((counted, 0), (counted.mT, 3), (scaled.to(dtype), 2), (scaled.to(dtype).mT, 0)):
        right = tn.ones(len(a), 1, dtype=dtype)
        for x in (a, a.contiguous()):
            assert (
                LA.lu_factor_ex(x).info == LA.inv_ex(x).info == LA.solve_ex(x, right).info == info
            )
            for call in (LA.inv, lambda x, right=right: LA.solve(x, right)):
                if info:
                    with pytest.raises(LA.LinAlgError, match="singular"):
                        call(x)
                else:
                    assert call(x).isfinite().all()


def test_singular_matrices_have_factors() -> None:
    a = np.array([[1.0, 2], [2, 4]])
    p, lower, upper = LA.lu(tn.from_numpy(a))
    near(p @ lower @ upper, a)
    assert LA.lu_factor_ex(tn.from_numpy(a)).info.item() == 2


@pytest.mark.parametrize(("dtype", "tol"), DTYPES[1::2])
def test_tensors_as_matrices(dtype: tn.dtype, tol: float) -> None:
    a = matrix((2, 3, 6), dtype)
    x = tn.from_numpy(a)
    near(LA.tensorinv(x), np.linalg.tensorinv(a), 100 * tol)
    near(LA.tensorinv(x.permute(2, 0, 1), 1), np.linalg.tensorinv(a.transpose(2, 0, 1), 1), 1e-8)
    b = matrix((2, 3), dtype)
    near(LA.tensorsolve(x, tn.from_numpy(b)), np.linalg.tensorsolve(a, b), 100 * tol)
    b = matrix((6,), dtype)
    got = LA.tensorsolve(x, tn.from_numpy(b), (1, 0))
    near(got, np.linalg.tensorsolve(a, b, (1, 0)), 100 * tol)
    with pytest.raises(RuntimeError, match="but got 18 != 2"):
        LA.tensorinv(x, 1)
    with pytest.raises(RuntimeError, match="strictly positive integer for 'ind'"):
        LA.tensorinv(x, 0)
    with pytest.raises(RuntimeError, match="but got 18 != 2"):
        LA.tensorsolve(x, tn.ones(2, dtype=dtype))


def test_vander_of_numpy() -> None:
    a = np.array([2.0, -1.5, 3.0])
    for n in (None, 0, 1, 5):
        for increasing in (False, True):
            got = tn.vander(tn.from_numpy(a), n, increasing)
            assert got.shape == (3, 3 if n is None else n)
            near(got, np.vander(a, n, increasing))
    assert tn.vander(tn.tensor([2, 3]), 3).tolist() == [[4, 2, 1], [9, 3, 1]]
    assert tn.vander(tn.tensor([True]), 2).dtype == tn.int64
    for x, n in ((tn.ones(2, 2), 2), (tn.ones(2), -1)):
        with pytest.raises(RuntimeError, match="vander"):
            tn.vander(x, n)


def test_vander() -> None:
    a = RNG.normal(size=(2, 3))
    want = np.stack([np.vander(row, 5, increasing=True) for row in a])
    near(LA.vander(tn.from_numpy(a), 5), want)
    near(LA.vander(tn.from_numpy(a)), want[..., :3])
    assert LA.vander(tn.tensor([2, 3]), N=4).tolist() == [[1, 2, 4, 8], [1, 3, 9, 27]]
    assert LA.vander(tn.tensor(3.0), N=3).tolist() == [[1, 3, 9]]
    assert LA.vander(tn.tensor([2], dtype=tn.int8), N=2).dtype == tn.int64
    for x, n in ((tn.ones(3), 1), (tn.ones(1), None), (tn.tensor(2.0), None)):
        with pytest.raises(RuntimeError, match="greater than 1"):
            LA.vander(x, n)
    with pytest.raises(RuntimeError, match="but got Bool"):
        LA.vander(tn.tensor([True]), 3)
    x = tn.from_numpy(a).requires_grad_()
    assert tn.autograd.gradcheck(lambda t: LA.vander(t, 4), (x,))


@pytest.mark.parametrize(("dtype", "tol"), DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3), (0, 3), (3, 0), (2, 0, 2)])
def test_reflections(shape: tuple[int, ...], dtype: tn.dtype, tol: float) -> None:
    """geqrf's factors make A again: by their columns, and multiplied from either side."""
    a = matrix(shape, dtype)
    x = tn.from_numpy(a).to(dtype)
    factors, tau = tn.geqrf(x)
    m, k = shape[-2], min(shape[-2:])
    assert tau.shape == (*shape[:-2], k)
    Q = LA.householder_product(factors[..., :k], tau)
    near(Q @ factors.triu()[..., :k, :], a, 10 * tol)
    near(Q.mH @ Q, np.broadcast_to(np.eye(k), (*shape[:-2], k, k)), 10 * tol)
    other = matrix((*shape[:-2], m, 2), dtype)
    B = tn.from_numpy(other).to(dtype)
    whole = tn.ormqr(factors, tau, tn.eye(m, dtype=dtype).expand(*shape[:-2], m, m))
    near(whole[..., :k], Q.resolve_conj().numpy(), 10 * tol)
    near(tn.ormqr(factors, tau, B), (whole @ B).numpy(), 10 * tol)
    near(factors.ormqr(tau, B, transpose=True), (whole.mH @ B).numpy(), 10 * tol)
    near(tn.ormqr(factors, tau, B.mH, left=False), (B.mH @ whole).numpy(), 10 * tol)
    near(tn.ormqr(factors, tau, B.mH, False, True), (B.mH @ whole.mH).numpy(), 10 * tol)


@pytest.mark.parametrize("dtype", [tn.float64, tn.complex128])
def test_reflections_gradients(dtype: tn.dtype) -> None:
    """Of vectors and factors that are anybody's, zero among them."""
    v, tau, b = (tn.from_numpy(matrix(s, dtype)) for s in ((2, 4, 3), (2, 3), (2, 4, 2)))
    tau[0, 1] = 0
    for t in (v, tau, b):
        t.requires_grad_()
    for fn, args in (
        (LA.householder_product, (v, tau)),
        (tn.ormqr, (v, tau, b)),
        (lambda v, t, b: tn.ormqr(v, t, b, transpose=True), (v, tau, b)),
    ):
        assert tn.autograd.gradcheck(fn, args)
        assert tn.autograd.gradgradcheck(fn, args)


def test_reflections_refusals() -> None:
    x, tau = tn.ones(4, 3), tn.ones(3)
    for call, words in (
        (lambda: tn.geqrf(tn.ones(3)), "at least 2 dimensions"),
        (lambda: LA.householder_product(tn.ones(3, 4), tau), "greater than or equal to"),
        (lambda: LA.householder_product(x, tn.ones(4)), "tau.shape"),
        (lambda: LA.householder_product(x, tn.ones(2, 3)), "one dimension less"),
        (lambda: LA.householder_product(x, tau.double()), "does not match"),
        (lambda: tn.ormqr(x, tau, tn.ones(3, 2)), "equal to input.shape"),
        (lambda: tn.ormqr(x, tau, tn.ones(2, 3), left=False), "equal to input.shape"),
        (lambda: tn.ormqr(x, tau, tn.ones(2, 2)), "greater than or equal to"),
        (lambda: tn.ormqr(x, tau[:2], tn.ones(4, 2)), "equal to min"),
        (lambda: tn.ormqr(x, tau[:2], tn.ones(2, 4), left=False), "equal to min"),
        (lambda: tn.ormqr(x, tau, tn.ones(4)), "at least 2 dimensions"),
        (lambda: tn.ormqr(x, tau, tn.ones(2, 4, 2)), "batch dimensions"),
        (lambda: tn.ormqr(x, tau, tn.ones(4, 2).double()), "dtype"),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()
    with pytest.raises((NotImplementedError, RuntimeError), match="geqrf"):
        tn.geqrf(tn.ones(3, 3, requires_grad=True)).a.sum().backward()


@pytest.mark.parametrize(("dtype", "tol"), DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3), (1, 1), (0, 0), (0, 2, 2)])
@pytest.mark.parametrize("hermitian", [False, True])
def test_ldl(shape: tuple[int, ...], dtype: tn.dtype, tol: float, hermitian: bool) -> None:
    a = matrix(shape, dtype)
    a = a + (a.conj() if hermitian else a).swapaxes(-1, -2)
    if shape[-1] > 1:  # a block of two rows
        a[..., range(shape[-1]), range(shape[-1])] = 0
    b = matrix((*shape[:-1], 2), dtype)
    LD, pivots = LA.ldl_factor(tn.from_numpy(a).to(dtype), hermitian=hermitian)
    assert pivots.dtype == tn.int32 and pivots.shape == shape[:-1]
    assert not LD.triu(1).abs().sum()
    X = LA.ldl_solve(LD, pivots, tn.from_numpy(b).to(dtype), hermitian=hermitian)
    near(tn.from_numpy(a).to(dtype) @ X, b, 100 * tol)
    if a.size:
        assert (pivots < 0).any().item() == (shape[-1] > 1)


def test_infos_of_empty_matrices() -> None:
    for factor in (LA.lu_factor_ex, LA.ldl_factor_ex):
        assert factor(tn.zeros(2, 0, 0)).info.tolist() == [0, 0]


def test_ldl_refusals() -> None:
    LD, pivots, info = LA.ldl_factor_ex(tn.zeros(2, 2))
    assert info.item() == 1
    with pytest.raises(RuntimeError, match="diagonal element 1"):
        LA.ldl_factor(tn.zeros(2, 2))
    for bad in ([-1, 1], [3, 1], [0, 1], [1, -2], [-2, -1]):
        with pytest.raises(RuntimeError, match="not those of ldl_factor"):
            LA.ldl_solve(tn.eye(2), tn.tensor(bad, dtype=tn.int32), tn.ones(2, 1))
    with pytest.raises(RuntimeError, match="to be integers"):
        LA.ldl_solve(tn.eye(2), tn.ones(2), tn.ones(2, 1))
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        LA.ldl_solve(LD, pivots, tn.ones(2))
    with pytest.raises(RuntimeError, match="pivots.shape"):
        LA.ldl_solve(LD, pivots[:1], tn.ones(2, 1))


def test_solve_ex_and_lu() -> None:
    a, b = matrix((2, 3, 3), tn.float64), matrix((2, 3), tn.float64)
    x, y = tn.from_numpy(a).requires_grad_(), tn.from_numpy(b)
    X, info = LA.solve_ex(x, y)
    near(X, np.linalg.solve(a, b[..., None])[..., 0])
    assert info.tolist() == [0, 0]
    near(LA.solve_ex(x, x, left=False).result, np.broadcast_to(np.eye(3), (2, 3, 3)))
    assert tn.autograd.gradcheck(lambda t: LA.solve_ex(t, y).result, (x,))
    assert LA.solve_ex(tn.zeros(2, 2), tn.ones(2)).info.item() == 1
    with pytest.raises(RuntimeError, match="singular"):
        LA.solve_ex(tn.zeros(2, 2), tn.ones(2), check_errors=True)
    LU, pivots = x.lu()
    near(LA.lu_solve(LU, pivots, y.unsqueeze(-1)).squeeze(-1), X.detach().numpy())
    assert len(tn.lu(x, get_infos=True)) == 3
