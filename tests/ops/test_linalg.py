"""Factorisations and what is made of them: values by NumPy or by reconstruction, gradients of both
orders by finite differences, empty matrices, and matrices that have no factorisation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import stored
import tenon as tn

LA = tn.linalg
RNG = np.random.default_rng(11)
SHAPES = [(3, 3), (5, 3), (3, 5), (2, 4, 3), (2, 3, 4), (0, 3, 2), (0, 0), (3, 0), (0, 3), (70, 40)]
DTYPES = [(tn.float32, 2e-4), (tn.float64, 1e-11)]


def matrix(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def positive(*shape: int) -> np.ndarray:
    a = matrix(*shape)
    return a @ np.swapaxes(a, -1, -2) + 2 * np.eye(shape[-1])


def near(got: tn.Tensor, want: Any, tol: float = 1e-10) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got.detach().double().numpy(), want, rtol=tol, atol=tol)


@pytest.mark.parametrize(("dtype", "tol"), DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_qr(shape: tuple[int, ...], dtype: tn.dtype, tol: float) -> None:
    a = matrix(*shape)
    for mode in ("reduced", "complete"):
        q, r = LA.qr(tn.from_numpy(a).to(dtype), mode)
        want = [np.zeros(s.shape) for s in (q, r)]
        if a.size:
            want = list(np.linalg.qr(a, mode))
        assert (q.dtype, q.shape, r.shape) == (dtype, want[0].shape, want[1].shape)
        near(q @ r, a, tol)
        near(q.mT @ q, np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], *[q.shape[-1]] * 2)), tol)
        np.testing.assert_array_equal(r.numpy(), np.triu(r.numpy()))
    assert LA.qr(tn.from_numpy(a).to(dtype), "r").R.shape == np.linalg.qr(a, "r").shape


@pytest.mark.parametrize(("dtype", "tol"), DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_svd(shape: tuple[int, ...], dtype: tn.dtype, tol: float) -> None:
    a = matrix(*shape)
    x = tn.from_numpy(a).to(dtype)
    for full in (False, True):
        u, s, vh = LA.svd(x, full)
        wants = np.linalg.svd(a, full)
        assert [t.shape for t in (u, s, vh)] == [w.shape for w in wants]
        near(s, wants[1], tol)
        k = s.shape[-1]
        near(u[..., :k] * s.unsqueeze(-2) @ vh[..., :k, :], a, tol)
        for side in (u.mT @ u, vh @ vh.mT):
            near(side, np.broadcast_to(np.eye(side.shape[-1]), side.shape), tol)
    near(LA.svdvals(x), wants[1], tol)
    u, s, v = x.svd()
    near(u * s.unsqueeze(-2) @ v.mT, a, tol)
    near(LA.pinv(x), np.linalg.pinv(a), 100 * tol)
    near(LA.pinv(x, rtol=x.new_full((), 1e-6)), np.linalg.pinv(a, 1e-6), 100 * tol)
    if 0 not in shape:
        np.testing.assert_array_equal(LA.matrix_rank(x).numpy(), np.linalg.matrix_rank(a))


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (0, 0), (0, 2, 2), (40, 40)])
def test_symmetric(shape: tuple[int, ...]) -> None:
    a = positive(*shape)
    for upper in (False, True):
        # the other triangle must not be read
        x = tn.from_numpy(np.triu(a) if upper else np.tril(a))
        values, vectors = LA.eigh(x, "U" if upper else "L")
        near(values, np.linalg.eigvalsh(a))
        near(vectors * values.unsqueeze(-2) @ vectors.mT, a)
        near(LA.eigvalsh(x, "u" if upper else "l"), np.linalg.eigvalsh(a))
        factor = LA.cholesky(x, upper=upper)
        want = np.linalg.cholesky(a)
        near(factor, np.swapaxes(want, -1, -2) if upper else want)
        b = matrix(*shape[:-1], 2)
        near(tn.cholesky_solve(tn.from_numpy(b), factor, upper), np.linalg.solve(a, b))
        near(tn.cholesky_inverse(factor, upper), np.linalg.inv(a))
    assert LA.cholesky_ex(tn.from_numpy(a)).info.dtype == tn.int32


def test_solve() -> None:
    a, b = matrix(4, 4), matrix(4, 3)
    x, y = tn.from_numpy(a), tn.from_numpy(b)
    near(LA.solve(x, y), np.linalg.solve(a, b))
    near(LA.solve(x, y.mT, left=False), np.linalg.solve(a.T, b).T)
    near(LA.solve(x, y[:, 0]), np.linalg.solve(a, b[:, 0]))
    many, rows = matrix(2, 1, 4, 4), matrix(3, 4, 2)
    near(LA.solve(tn.from_numpy(many), tn.from_numpy(rows)), np.linalg.solve(many, rows))
    vectors = matrix(2, 4)
    near(LA.solve(tn.from_numpy(many[:, 0]), tn.from_numpy(vectors)),
         np.linalg.solve(many[:, 0], vectors[..., None])[..., 0])  # fmt: skip
    assert LA.solve(tn.ones(0, 0), tn.ones(0, 2)).shape == (0, 2)
    assert LA.solve(tn.ones(0, 2, 2), tn.ones(0, 2, 3)).shape == (0, 2, 3)
    for upper in (False, True):
        for unit in (False, True):
            want = scipy.linalg.solve_triangular(a, b, lower=not upper, unit_diagonal=unit)
            near(LA.solve_triangular(x, y, upper=upper, unitriangular=unit), want)
            want = scipy.linalg.solve_triangular(a.T, b, lower=upper, unit_diagonal=unit)
            got = LA.solve_triangular(x, y.mT, upper=upper, left=False, unitriangular=unit)
            near(got, want.T)
            near(tn.triangular_solve(y, x, upper, True, unit).solution, want)


def same(got: tn.Tensor, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("real", [True, False])
def test_solve_of_many_rows(real: bool) -> None:
    a, b = matrix(2, 37, 37), matrix(2, 37, 5)
    if not real:
        a, b = a + 1j * matrix(2, 37, 37), b - 1j * matrix(2, 37, 5)
    x, y = tn.from_numpy(a), tn.from_numpy(b)
    same(LA.solve(x, y), np.linalg.solve(a, b))
    same(LA.solve(x.mT, y[..., 1]), np.linalg.solve(a.swapaxes(1, 2), b[..., 1:2])[..., 0])
    assert LA.solve(x, y[..., :0]).shape == (2, 37, 0)


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize(("m", "n"), [(40, 12), (12, 40), (30, 30)])
def test_lstsq_without_singular_values(m: int, n: int, real: bool) -> None:
    """The smallest of the solutions, and the rank, by the drivers that have no singular values."""
    a, b = matrix(2, m, n), matrix(2, m, 3)
    if not real:
        a, b = a + 1j * matrix(2, m, n), b - 1j * matrix(2, m, 3)
    for driver in (None, "gelsy", "gels"):
        got = LA.lstsq(tn.from_numpy(a), tn.from_numpy(b), driver=driver)
        same(got.solution, np.linalg.pinv(a) @ b)
        assert got.singular_values.shape == (0,)
    a[1, :, -1] = a[1, :, 2] - a[1, :, 0]  # rank is lost
    got = LA.lstsq(tn.from_numpy(a), tn.from_numpy(b))
    same(got.solution, np.linalg.pinv(a, 1e-12) @ b)
    assert got.rank.tolist() == np.linalg.matrix_rank(a).tolist()


@pytest.mark.parametrize(("m", "n"), [(5, 3), (3, 5), (4, 4)])
def test_lstsq(m: int, n: int) -> None:
    a, b = matrix(m, n), matrix(m, 2)
    a[:, -1] = a[:, 0]  # rank is lost
    got = LA.lstsq(tn.from_numpy(a), tn.from_numpy(b), driver="gelsd")
    want = np.linalg.lstsq(a, b, rcond=max(m, n) * np.finfo(float).eps)
    near(got.solution, want[0], 1e-9)
    assert int(got.rank) == want[2]
    near(got.singular_values, want[3])
    full = matrix(2, m, n)
    got = LA.lstsq(tn.from_numpy(full), tn.from_numpy(np.stack([b, b])), driver="gelsd")
    near(got.solution, np.linalg.pinv(full) @ b, 1e-9)
    if m > n:
        near(got.residuals, np.square(full @ (np.linalg.pinv(full) @ b) - b).sum(-2), 1e-9)


def test_lstsq_has_a_rank_for_each_matrix_that_was_given() -> None:
    a, b = tn.rand(3, 1, 4, 3), tn.rand(3, 2, 4, 2)
    got = LA.lstsq(a, b, driver="gelsd")
    assert got.solution.shape == (3, 2, 3, 2)
    assert got.rank.shape == (3, 1) and got.rank.eq(3).all()
    assert tn.allclose(got.singular_values, LA.svdvals(a), rtol=1e-4)
    assert LA.lstsq(a[0, 0], b[0, 0]).rank.shape == ()
    into = tuple(tn.empty(0) for _ in range(4))
    into = (into[0], into[1], tn.empty(0, dtype=tn.int64), into[3])
    assert LA.lstsq(a, b, driver="gelsd", out=into).rank is into[2]


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_norms(ord: Any) -> None:
    a = matrix(4, 3)
    near(LA.matrix_norm(tn.from_numpy(a), ord), np.linalg.norm(a, ord))
    near(LA.norm(tn.from_numpy(a), ord), np.linalg.norm(a, ord))
    got = LA.matrix_norm(tn.from_numpy(matrix(3, 2, 4)), ord, (0, 2), True)
    assert got.shape == (1, 2, 1)
    square = matrix(3, 3)
    near(LA.cond(tn.from_numpy(square), ord), np.linalg.cond(square, ord), 1e-8)


def test_products() -> None:
    a, b, c, v = matrix(2, 9), matrix(9, 3), matrix(3, 7), matrix(7)
    near(LA.multi_dot([tn.from_numpy(t) for t in (a, b, c, v)]), a @ b @ c @ v)
    near(tn.chain_matmul(*[tn.from_numpy(t) for t in (a, b, c)]), a @ b @ c)
    s = matrix(2, 3, 3)
    for n in (-2, 0, 1, 5):
        near(tn.from_numpy(s).matrix_power(n), np.linalg.matrix_power(s, n), 1e-8)


def symmetrised(fn: Callable[[tn.Tensor], Any]) -> Callable[[tn.Tensor], Any]:
    return lambda x: fn(x @ x.mT + tn.eye(x.shape[-1], dtype=x.dtype))


def squares(fn: Callable[[tn.Tensor], Any]) -> Callable[[tn.Tensor], Any]:
    """Products of results that do not depend on the signs of singular and eigenvectors."""
    return lambda x: tuple(t * t for t in fn(x))


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "inv_ex": (lambda x: LA.inv_ex(x)[0], ((2, 3, 3),)),
    "solve": (LA.solve, ((3, 3), (3, 2))),
    "solve, batches": (LA.solve, ((2, 1, 2, 2), (3, 2, 2))),
    "solve, vector, right": (lambda a, b: LA.solve(a, b, left=False), ((2, 2), (3, 2))),
    "solve_triangular": (
        lambda a, b: LA.solve_triangular(a + 3 * tn.eye(3, dtype=a.dtype), b, upper=True),
        ((3, 3), (3, 2)),
    ),
    "solve_triangular, unit": (
        lambda a, b: LA.solve_triangular(a, b, upper=False, unitriangular=True), ((3, 3), (3, 2)),
    ),
    "cholesky": (symmetrised(LA.cholesky), ((3, 3),)),
    "cholesky, upper": (symmetrised(lambda x: LA.cholesky(x, upper=True)), ((3, 3),)),
    "eigh": (symmetrised(lambda x: squares(LA.eigh)(x)), ((3, 3),)),
    "eigvalsh": (symmetrised(LA.eigvalsh), ((2, 3, 3),)),
    "qr": (LA.qr, ((4, 3),)),
    "qr, wide": (LA.qr, ((2, 4),)),
    "qr, batch": (LA.qr, ((2, 3, 3),)),
    "svd": (squares(lambda x: LA.svd(x, False)), ((3, 3),)),
    "svd, tall": (squares(lambda x: LA.svd(x, False)), ((4, 2),)),
    "svd, wide": (squares(lambda x: LA.svd(x, False)), ((2, 4),)),
    "svdvals": (LA.svdvals, ((2, 3, 2),)),
    "pinv": (LA.pinv, ((4, 2),)),
    "pinv, wide": (LA.pinv, ((2, 3),)),
    "lstsq": (lambda a, b: LA.lstsq(a, b).solution, ((4, 2), (4, 2))),
    "matrix_power": (lambda x: tn.matrix_power(x, -2), ((3, 3),)),
    "nuclear norm": (lambda x: LA.matrix_norm(x, "nuc"), ((3, 2),)),
    "spectral norm": (lambda x: LA.matrix_norm(x, 2), ((3, 2),)),
    "cond": (LA.cond, ((3, 3),)),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    fn, shapes = GRADIENTS[name]
    rng = np.random.default_rng(3)
    inputs = tuple(tn.from_numpy(rng.normal(size=s)).requires_grad_() for s in shapes)
    assert tn.autograd.gradcheck(fn, inputs)
    assert tn.autograd.gradgradcheck(fn, inputs)


def test_singular_values_of_equal_size_have_gradients() -> None:
    x = tn.eye(3, dtype=tn.float64).requires_grad_()
    LA.svdvals(x).sum().backward()
    near(x.grad, np.eye(3))


def test_det_of_singular_matrices_has_gradients() -> None:
    a = np.array([[[1.0, 2, 3], [2, 4, 6], [1, 0, 1]], [[1, 2, 3], [1, 2, 3], [1, 2, 3]]])
    x = tn.from_numpy(a).requires_grad_()
    y = tn.det(x)
    near(y, [0, 0])
    near(LA.slogdet(x.detach())[1].exp(), [0, 0])
    y.sum().backward()
    minors = np.zeros_like(a)
    for i, r, c in np.ndindex(a.shape):
        rest = np.delete(np.delete(a[i], r, 0), c, 1)
        minors[i, r, c] = (-1) ** (r + c) * np.linalg.det(rest)
    near(x.grad, minors)


def cofactors(a: np.ndarray) -> np.ndarray:
    """The derivative of the determinant of a 3 by 3 matrix, without a division."""
    rows = np.roll(a, -1, 0), np.roll(a, -2, 0)
    return np.cross(*rows, axis=1)


SINGULAR = [
    [[2.0, 0, 0], [0, 0, 0], [0, 0, 3]],
    [[1.0, 2, 3], [2, 4, 6], [1, 1, 1]],
    [[1.0, 2, 3], [1, 2, 3], [1, 2, 3]],  # of rank 1
    [[0.0, 0, 0], [0, 0, 0], [0, 0, 0]],
    [[1.0, 2, 3], [4, 5, 6], [7, 8, 9 + 1e-9]],
    [[2.0, 1, 0], [1, 3, 1], [0, 1, 4]],  # with an inverse
]


@pytest.mark.parametrize("turned", [1.0, np.exp(0.7j)])
def test_det_of_singular_matrices_has_second_derivatives(turned: complex) -> None:
    """Cofactors of 3 by 3 matrices are of the second degree, so that differences are exact."""
    a = np.array(SINGULAR) * turned
    weights = np.sin(np.arange(9.0) + 1).reshape(3, 3) * turned.conjugate() ** 2
    x = tn.from_numpy(a).requires_grad_()
    y = tn.det(x)
    (first,) = tn.autograd.grad(y, x, tn.ones_like(y), create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), [cofactors(m).conj() for m in a], atol=1e-9)
    scaled = first * tn.from_numpy(np.broadcast_to(weights, a.shape).copy()).conj()
    (second,) = tn.autograd.grad((scaled.real if scaled.is_complex() else scaled).sum(), x)
    want = np.zeros_like(a)
    for i, r, c in np.ndindex(a.shape):
        step = np.zeros((3, 3))
        step[r, c] = 1
        change = (cofactors(a[i] + step) - cofactors(a[i] - step)) / 2
        want[i, r, c] = (change * weights).sum().conj()
    np.testing.assert_allclose(second.numpy(), want, atol=1e-9)


def test_the_third_derivative_of_det_is_made_without_nan_on_the_way() -> None:
    a, weights = np.array(SINGULAR[-1]), np.sin(np.arange(9.0) + 1).reshape(3, 3)

    def second(m: np.ndarray) -> np.ndarray:
        steps = np.eye(9).reshape(9, 3, 3)
        changes = [((cofactors(m + s) - cofactors(m - s)) / 2 * weights).sum() for s in steps]
        return np.reshape(changes, (3, 3))

    x, w = tn.from_numpy(a).requires_grad_(), tn.from_numpy(weights)
    with tn.autograd.detect_anomaly():
        (first,) = tn.autograd.grad(tn.det(x), x, create_graph=True)
        (got,) = tn.autograd.grad((first * w).sum(), x, create_graph=True)
        near(got.detach(), second(a))
        (third,) = tn.autograd.grad((got * w).sum(), x)
    want = [
        ((second(a + s) - second(a - s)) / 2 * weights).sum() for s in np.eye(9).reshape(9, 3, 3)
    ]
    near(third, np.reshape(want, (3, 3)))


def test_the_second_derivative_of_det_of_one_number_is_zero() -> None:
    x = tn.tensor([[0.0]], dtype=tn.float64, requires_grad=True)
    (first,) = tn.autograd.grad(tn.det(x), x, create_graph=True)
    (second,) = tn.autograd.grad(first.sum(), x)
    near(first, [[1]])
    near(second, [[0]])


def bad(position: int) -> tn.Tensor:
    """Three matrices, one of them without an inverse."""
    x = tn.eye(2).repeat(3, 1, 1)
    x[position] = 0
    return x


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda: LA.inv(tn.zeros(2, 2)), r"linalg.inv: The diagonal element 1 is zero"),
        (lambda: LA.inv(bad(2)), r"linalg.inv: \(Batch element 2\): The diagonal"),
        (lambda: LA.solve(bad(1), tn.ones(3, 2)), r"\(Batch element 1\): The solver failed"),
        (lambda: tn.cholesky(-tn.eye(2)), r"\(the leading minor of order 1 is not"),
        (lambda: LA.svd(tn.full((2, 2), float("nan"))), "contained non-finite values"),
        (lambda: LA.eigh(tn.full((2, 2), float("inf"))), "contained non-finite values"),
        (lambda: LA.lstsq(tn.full((2, 2), float("nan")), tn.ones(2, 1)), "contained non-finite"),
    ],
)
def test_matrices_without_factorisation(fn: Callable[[], Any], words: str) -> None:
    with pytest.raises(LA.LinAlgError, match=words):
        fn()
    assert issubclass(LA.LinAlgError, RuntimeError)


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda: tn.det(tn.ones(2, 3)), "must be batches of square matrices, but they are 2 by 3"),
        (lambda: LA.inv(tn.ones(3)), "must have at least 2 dimensions"),
        (lambda: LA.inv(tn.ones(2, 2, dtype=tn.int64)), "Expected a floating point"),
        (lambda: LA.solve(tn.ones(2, 2), tn.ones(3, 1)), "Incompatible shapes"),
        (lambda: LA.solve(tn.ones(2, 2), tn.ones(2, 1).double()), "same dtype"),
        (lambda: LA.qr(tn.ones(2, 2), "odd"), "unrecognized mode 'odd'"),
        (lambda: LA.eigh(tn.ones(2, 2), "X"), "UPLO"),
        (lambda: LA.matrix_norm(tn.ones(2, 2), 3), "not supported"),
        (lambda: LA.multi_dot([tn.ones(2, 2)]), "at least 2 tensors"),
    ],
)
def test_refusals(fn: Callable[[], Any], words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        fn()


def test_codes_instead_of_errors() -> None:
    assert LA.inv_ex(bad(1)).info.tolist() == [0, 1, 0]
    factor, info = LA.cholesky_ex(tn.stack([tn.eye(2), -tn.eye(2)]))
    assert info.tolist() == [0, 1]
    near(factor[0], np.eye(2))
    with pytest.raises(LA.LinAlgError):
        LA.inv_ex(bad(0), check_errors=True)


@pytest.mark.parametrize("dtype", [tn.float32, tn.float64])
def test_determinants_of_empty_matrices(dtype: tn.dtype, capfd: pytest.CaptureFixture[str]) -> None:
    """They are 1, and LAPACK has nothing to complain about on standard error."""
    a = tn.zeros(2, 0, 0, dtype=dtype)
    near(LA.det(a), np.linalg.det(np.zeros((2, 0, 0))))
    sign, log = LA.slogdet(a)
    near(sign, np.ones(2))
    near(log, np.zeros(2))
    assert "illegal" not in "".join(capfd.readouterr())


def test_functions_of_python_write_where_they_are_told() -> None:
    """`_given` is what gives a function of tenon.linalg its out=."""
    A = tn.tensor([[2.0, 1.0], [1.0, 3.0]])
    out = tn.empty(0)
    assert tn.linalg.norm(A, out=out) is out
    assert out.item() == pytest.approx(np.sqrt(15.0))
    pair = tn.empty(2), tn.empty(2, 2)
    got = tn.linalg.eigh(A, out=pair)
    assert all(a is b for a, b in zip(got, pair, strict=True))
    np.testing.assert_allclose(pair[0].numpy(), np.linalg.eigvalsh(A.numpy()), rtol=1e-6)
    with pytest.raises(RuntimeError, match="can't be cast"):
        tn._C._ops._given(A, out=tn.empty(0, dtype=tn.int64))


def test_norms_of_matrices_without_elements() -> None:
    for shape in ((0, 0), (0, 2), (2, 0), (3, 0, 2)):
        for order in (1, 2, math.inf, "nuc", "fro"):
            got = tn.linalg.matrix_norm(tn.zeros(shape), order)
            assert got.equal(tn.zeros(shape[:-2])), (shape, order)
    with pytest.raises(IndexError):
        tn.linalg.matrix_norm(tn.zeros(0, 2), -2)


def test_norms_of_the_main_module() -> None:
    x = tn.tensor([[3.0, 0.0], [0.0, -4.0]])
    assert tn.nuclear_norm(x).item() == pytest.approx(7)
    assert tn.frobenius_norm(x).item() == pytest.approx(5)
    assert tn.frobenius_norm(x, (1,), True).tolist() == [[3], [4]]


def test_gradients_of_symmetric_input_are_pytorchs() -> None:
    """Of eigenvectors only what turns them counts, of a Hermitian pseudo-inverse all of A, and a
    triangular factor stands for its whole product."""
    a, c = np.random.default_rng(4).normal(size=(2, 4, 4))
    a = a + a.T

    def answers(lib: Any) -> list[Any]:
        x, g = lib.from_numpy(a).requires_grad_(), lib.from_numpy(c)
        out = []
        for function in (
            lambda x: lib.linalg.eigh(x)[1].abs(),
            lambda x: lib.linalg.eigh(x, UPLO="U")[1].abs(),
            lambda x: lib.linalg.pinv(x, hermitian=True),
            lambda x: lib.cholesky_solve(g, x),
            lambda x: lib.cholesky_solve(g, x, upper=True),
            lambda x: lib.cholesky_inverse(x),
            lambda x: lib.linalg.svd(x[:3])[0].abs() @ lib.linalg.svd(x[:3])[2][:3].abs(),
        ):
            y = function(x)
            (first,) = lib.autograd.grad(y, x, g[: len(y)], create_graph=True)
            (second,) = lib.autograd.grad(first, x, g)
            out += [first.detach().numpy(), second.numpy()]
        return out

    theirs = stored.of_torch(lambda torch: answers(torch))
    stored.same(answers(tn), theirs, rtol=1e-8)


def test_singular_vectors_have_lapacks_signs() -> None:
    for shape in ((3, 3), (5, 3), (2, 6, 4), (1, 1)):
        a = np.random.default_rng(5).normal(size=shape)
        for full in (False, True):
            for mine, theirs in zip(
                tn.linalg.svd(tn.from_numpy(a), full), np.linalg.svd(a, full), strict=True
            ):
                np.testing.assert_allclose(mine.numpy(), theirs, atol=1e-12)


def test_what_out_takes_a_wider_dtype() -> None:
    """PyTorch's functions by one result each; the others want the result's own dtype."""
    A = tn.tensor([[2.0, 1.0], [1.0, 3.0]])
    wide = tn.empty(2, 2, dtype=tn.float64)
    assert tn.linalg.pinv(A, out=wide) is wide
    assert tn._C._ops._given_as(A, out=wide) is wide and wide.tolist() == A.tolist()
    for function in (tn.linalg.inv, tn.linalg.cholesky, tn._C._ops._given):
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype Float"):
            function(A, out=wide)


def test_a_contracted_size_of_one_stands_for_many() -> None:
    a, b = np.ones((1, 1, 2)) * 3, np.arange(6.0).reshape(2, 1, 3)
    got = tn.tensordot(tn.tensor(a), tn.tensor(b), dims=([0], [0]))
    np.testing.assert_allclose(got.numpy(), np.tensordot(a, b.sum(0, keepdims=True), ([0], [0])))


def test_matrix_rank_with_a_tolerance_for_each() -> None:
    A = np.stack([np.diag([1.0, 0.1, 0.01])] * 2)
    t = tn.tensor(A)
    assert tn.linalg.matrix_rank(t, rtol=tn.tensor([0.5, 0.05])).tolist() == [1, 2]
    assert tn.linalg.matrix_rank(t, atol=tn.tensor([0.005, 0.5])).tolist() == [3, 1]


def test_logsumexp_of_complex_numbers() -> None:
    x = np.array([1 + 1j, 2 - 1j, -3j, 400 + 2j])
    got = tn.logsumexp(tn.tensor(x), 0).item()
    assert got == pytest.approx(400 + np.log(np.exp(x - 400).sum()))


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("addmv", [(3, 4), (4,)]), ("addmm", [(3, 4), (4, 2)]), ("addr", [(3,), (4,)]),
     ("baddbmm", [(2, 3, 4), (2, 4, 5)]), ("addbmm", [(2, 3, 4), (2, 4, 5)])],
)  # fmt: skip
def test_what_beta_zero_hides(name: str, shapes: list[tuple[int, ...]]) -> None:
    """With beta 0 the summand is not read, so that its NaN do not matter."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s) for s in shapes)
    want = np.outer(a, b) if name == "addr" else a @ b
    want = want.sum(0) if name == "addbmm" else want
    summand = tn.full(want.shape, np.nan, dtype=tn.float64)
    got = getattr(tn, name)(summand, tn.from_numpy(a), tn.from_numpy(b), beta=0, alpha=2.5)
    np.testing.assert_allclose(got.numpy(), 2.5 * want, rtol=1e-13)


def test_products_of_bytes_are_summed_as_integers() -> None:
    a = np.arange(-60, 60, dtype=np.int8).reshape(10, 12)
    got = tn._int_mm(tn.from_numpy(a), tn.from_numpy(np.ascontiguousarray(a.T)))
    assert got.dtype == tn.int32
    assert got.tolist() == (a.astype(np.int32) @ a.T.astype(np.int32)).tolist()
