"""Factorisations of complex matrices: values by NumPy and SciPy or by reconstruction, both widths,
gradients of both orders by finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import tenon as tn

LA = tn.linalg
RNG = np.random.default_rng(5)
SHAPES = [(3, 3), (5, 3), (3, 5), (2, 4, 3), (0, 3, 2), (0, 0), (3, 0), (40, 30)]
SQUARES = [(3, 3), (2, 4, 4), (0, 0), (0, 2, 2), (1, 1), (40, 40)]
DTYPES = [(tn.complex64, 3e-4), (tn.complex128, 1e-10)]


def matrix(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


def adjoint(a: Any) -> Any:
    return np.conj(np.swapaxes(a, -1, -2))


def positive(*shape: int) -> np.ndarray:
    a = matrix(*shape)
    return a @ adjoint(a) + 2 * np.eye(shape[-1])


def near(got: tn.Tensor, want: Any, tol: float = 1e-10) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got.detach().resolve_conj().numpy(), want, rtol=tol, atol=tol)


def unit(side: tn.Tensor, tol: float) -> None:
    near(side, np.broadcast_to(np.eye(side.shape[-1]), side.shape), tol)


@pytest.mark.parametrize(("dtype", "tol"), DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_qr_and_svd(shape: tuple[int, ...], dtype: tn.dtype, tol: float) -> None:
    a = matrix(*shape)
    x = tn.from_numpy(a).to(dtype)
    for mode in ("reduced", "complete"):
        q, r = LA.qr(x, mode)
        near(q @ r, a, tol)
        unit(q.mH @ q, tol)
        np.testing.assert_array_equal(r.numpy(), np.triu(r.numpy()))
    for full in (False, True):
        u, s, vh = LA.svd(x, full)
        wants = np.linalg.svd(a, full)
        assert [t.shape for t in (u, s, vh)] == [w.shape for w in wants]
        assert s.dtype == dtype.to_real()
        near(s, wants[1], tol)
        k = s.shape[-1]
        near(u[..., :k] * s.unsqueeze(-2) @ vh[..., :k, :], a, tol)
        unit(u.mH @ u, tol)
        unit(vh @ vh.mH, tol)
    u, s, v = x.svd()
    near(u * s.unsqueeze(-2) @ v.mH, a, tol)
    near(LA.pinv(x), np.linalg.pinv(a), 100 * tol)
    if 0 not in shape:
        np.testing.assert_array_equal(LA.matrix_rank(x).numpy(), np.linalg.matrix_rank(a))


@pytest.mark.parametrize(("dtype", "tol"), DTYPES)
@pytest.mark.parametrize("shape", SQUARES)
def test_hermitian(shape: tuple[int, ...], dtype: tn.dtype, tol: float) -> None:
    a, b = positive(*shape), matrix(*shape[:-1], 2)
    y = tn.from_numpy(b).to(dtype)
    tol *= 10 * max(1, shape[-1])
    for upper in (False, True):
        # the other triangle must not be read
        x = tn.from_numpy(np.triu(a) if upper else np.tril(a)).to(dtype)
        values, vectors = LA.eigh(x, "U" if upper else "L")
        assert (values.dtype, vectors.dtype) == (dtype.to_real(), dtype)
        near(values, np.linalg.eigvalsh(a), tol)
        near(vectors * values.unsqueeze(-2) @ vectors.mH, a, tol)
        near(LA.eigvalsh(x, "u" if upper else "l"), np.linalg.eigvalsh(a), tol)
        factor = LA.cholesky(x, upper=upper)
        want = np.linalg.cholesky(a)
        near(factor, adjoint(want) if upper else want, tol)
        near(tn.cholesky_solve(y, factor, upper), np.linalg.solve(a, b), tol)
        near(tn.cholesky_inverse(factor, upper), np.linalg.inv(a), tol)
    near(LA.pinv(tn.from_numpy(np.tril(a)).to(dtype), hermitian=True), np.linalg.inv(a), tol)


@pytest.mark.parametrize(("dtype", "tol"), DTYPES)
@pytest.mark.parametrize("shape", SQUARES)
def test_square(shape: tuple[int, ...], dtype: tn.dtype, tol: float) -> None:
    a, b = matrix(*shape), matrix(*shape[:-1], 2)
    a = a + 2 * shape[-1] * np.eye(shape[-1]) * 1j
    x, y = tn.from_numpy(a).to(dtype), tn.from_numpy(b).to(dtype)
    near(LA.inv(x), np.linalg.inv(a), tol)
    sign, size = LA.slogdet(x)
    assert (sign.dtype, size.dtype) == (dtype, dtype.to_real())
    for got, want in zip((sign, size), np.linalg.slogdet(a), strict=True):
        near(got, want, 10 * tol)
    if shape[-1] < 10:
        near(LA.det(x), np.linalg.det(a), 10 * tol)
        near(tn.logdet(x), np.log(np.linalg.det(a)), 10 * tol)
    near(LA.solve(x, y), np.linalg.solve(a, b), tol)
    near(LA.solve(x, y.mT, left=False).mT, np.linalg.solve(np.swapaxes(a, -1, -2), b), tol)


@pytest.mark.parametrize(("dtype", "tol"), DTYPES)
def test_equations(dtype: tn.dtype, tol: float) -> None:
    a, b = matrix(4, 4) + 3 * np.eye(4), matrix(4, 3)
    x, y = tn.from_numpy(a).to(dtype), tn.from_numpy(b).to(dtype)
    for upper in (False, True):
        for one in (False, True):
            want = scipy.linalg.solve_triangular(a, b, lower=not upper, unit_diagonal=one)
            near(LA.solve_triangular(x, y, upper=upper, unitriangular=one), want, 10 * tol)
    for m, n in ((5, 3), (3, 5), (4, 4)):
        full = matrix(2, m, n)
        full[..., -1] = full[..., 0]  # rank is lost
        right = matrix(2, m, 2)
        got = LA.lstsq(tn.from_numpy(full).to(dtype), tn.from_numpy(right).to(dtype),
                       rcond=1e-3, driver="gelsd")  # fmt: skip
        near(got.solution, np.linalg.pinv(full, 1e-3) @ right, 10 * tol)
        near(got.singular_values, np.linalg.svd(full, compute_uv=False), 10 * tol)
        assert got.rank.tolist() == [min(m, n - 1)] * 2
    tall, right = matrix(5, 3), matrix(5, 2)
    got = LA.lstsq(tn.from_numpy(tall).to(dtype), tn.from_numpy(right).to(dtype), driver="gelsd")
    rest = np.square(np.abs(tall @ (np.linalg.pinv(tall) @ right) - right)).sum(-2)
    assert got.residuals.dtype == dtype.to_real()
    near(got.residuals, rest, 10 * tol)


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_norms(ord: Any) -> None:
    a, square = matrix(4, 3), matrix(3, 3)
    near(LA.matrix_norm(tn.from_numpy(a), ord), np.linalg.norm(a, ord))
    near(LA.cond(tn.from_numpy(square), ord), np.linalg.cond(square, ord), 1e-8)


def hermitian(fn: Callable[[tn.Tensor], Any]) -> Callable[[tn.Tensor], Any]:
    return lambda x: fn(x @ x.mH + tn.eye(x.shape[-1], dtype=x.dtype))


def projectors(x: tn.Tensor) -> tuple[tn.Tensor, ...]:
    """What does not depend on the phases of singular vectors."""
    u, s, vh = LA.svd(x, False)
    weights = tn.arange(1, s.shape[-1] + 1, dtype=s.dtype)
    return u * weights @ vh, u * weights @ u.mH, s


def planes(x: tn.Tensor) -> tuple[tn.Tensor, ...]:
    values, v = LA.eigh(x)
    return values, v * tn.arange(1, x.shape[-1] + 1, dtype=values.dtype) @ v.mH


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "inv": (LA.inv, ((2, 3, 3),)),
    "det": (tn.det, ((2, 3, 3),)),
    "slogdet": (LA.slogdet, ((2, 3, 3),)),
    "logdet": (tn.logdet, ((3, 3),)),
    "solve": (LA.solve, ((3, 3), (3, 2))),
    "solve, right": (lambda a, b: LA.solve(a, b, left=False), ((2, 2), (3, 2))),
    "solve_triangular": (
        lambda a, b: LA.solve_triangular(a + 3 * tn.eye(3), b, upper=True), ((3, 3), (3, 2)),
    ),
    "cholesky": (hermitian(LA.cholesky), ((3, 3),)),
    "cholesky, upper": (hermitian(lambda x: LA.cholesky(x, upper=True)), ((3, 3),)),
    "cholesky_solve": (
        lambda a, b: tn.cholesky_solve(b, a.tril() + 3 * tn.eye(3)), ((3, 3), (3, 2)),
    ),
    "eigh": (hermitian(planes), ((3, 3),)),
    "qr": (LA.qr, ((4, 3),)),
    "qr, wide": (LA.qr, ((2, 4),)),
    "svd": (projectors, ((3, 3),)),
    "svd, tall": (projectors, ((4, 2),)),
    "svd, wide": (projectors, ((2, 4),)),
    "svdvals": (LA.svdvals, ((2, 3, 2),)),
    "pinv": (LA.pinv, ((4, 2),)),
    "pinv, wide": (LA.pinv, ((2, 3),)),
    "lstsq": (lambda a, b: LA.lstsq(a, b).solution, ((4, 2), (4, 2))),
    "nuclear norm": (lambda x: LA.matrix_norm(x, "nuc"), ((3, 2),)),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    fn, shapes = GRADIENTS[name]
    rng = np.random.default_rng(3)
    inputs = tuple(
        tn.from_numpy(rng.normal(size=s) + 1j * rng.normal(size=s)).requires_grad_() for s in shapes
    )
    assert tn.autograd.gradcheck(fn, inputs)
    assert tn.autograd.gradgradcheck(fn, inputs)


def test_det_of_singular_matrices_has_gradients() -> None:
    a = np.array([[[1.0, 2j, 3], [2, 4j, 6], [1, 0, 1j]], [[1, 2, 3j], [1, 2, 3j], [1, 2, 3j]]])
    x = tn.from_numpy(a).requires_grad_()
    y = tn.det(x)
    near(y, [0, 0])
    y.real.sum().backward()
    minors = np.zeros_like(a)
    for i, r, c in np.ndindex(a.shape):
        rest = np.delete(np.delete(a[i], r, 0), c, 1)
        minors[i, r, c] = (-1) ** (r + c) * np.linalg.det(rest)
    near(x.grad, minors.conj())


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda x: LA.inv(x * 0), "diagonal element 1 is zero"),
        (lambda x: LA.solve(x * 0, x), "singular"),
        (lambda x: LA.cholesky(-x), "order 1 is not positive-definite"),
        (lambda x: LA.svd(x * complex(0, np.inf)), "non-finite"),
        (lambda x: LA.eigh(x * complex(0, np.nan)), "non-finite"),
        (lambda x: LA.lstsq(x, x * complex(1, np.inf)), "non-finite"),
    ],
)
def test_matrices_without_factorisation(fn: Callable[[tn.Tensor], Any], words: str) -> None:
    with pytest.raises(LA.LinAlgError, match=words):
        fn(tn.eye(2, dtype=tn.complex64))
