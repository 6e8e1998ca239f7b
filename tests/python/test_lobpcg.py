"""tenon.lobpcg against SciPy's eigenvalues of whole matrices."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import tenon as tn

rng = np.random.default_rng(9)


def symmetric(n: int, low: float) -> np.ndarray:
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    return (q * np.linspace(low, 3, n)) @ q.T


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("given", [False, True])
def test_values_and_vectors(largest: bool, given: bool) -> None:
    a, b = symmetric(20, -1), symmetric(20, 0.5) if given else None
    B = None if b is None else tn.tensor(b)
    want = scipy.linalg.eigh(a, b, eigvals_only=True)
    values, X = tn.lobpcg(tn.tensor(a), 3, B, largest=largest, tol=1e-10)
    np.testing.assert_allclose(values.numpy(), want[::-1][:3] if largest else want[:3], atol=1e-9)
    x, across = X.numpy(), np.eye(20) if b is None else b
    np.testing.assert_allclose(x.T @ across @ x, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(a @ x, across @ x * values.numpy(), atol=1e-8)


def test_sparse_batches_and_starts() -> None:
    a = symmetric(12, 1)
    a[np.abs(a) < 0.2] = 0
    want = np.linalg.eigvalsh(a)
    for layout in (tn.sparse_coo, tn.sparse_csr):
        sparse = tn.tensor(a).to_sparse(layout=layout)
        values, _ = tn.lobpcg(sparse, X=tn.randn(12, 4, dtype=tn.float64), k=2)
        np.testing.assert_allclose(values.numpy(), want[::-1][:2], rtol=1e-6)
    both = tn.tensor(np.stack([a, 2 * a])[:, None])
    values, X = tn.lobpcg(both, 2, iK=tn.diag(1 / tn.tensor(np.diag(a))), largest=False)
    assert X.shape == (2, 1, 12, 2)
    np.testing.assert_allclose(values.numpy(), np.stack([want[:2], 2 * want[:2]])[:, None])


def test_gradients() -> None:
    """Of values: x x^T and, with B, -e x x^T."""
    a, b = symmetric(9, -1), symmetric(9, 1)
    A, B = tn.tensor(a, requires_grad=True), tn.tensor(b, requires_grad=True)
    values, X = tn.lobpcg(A, 2, B)
    grads: Any = tn.autograd.grad(values[1], (A, B))
    x = X.detach().numpy()[:, 1:]
    for got, want in zip(grads, (x @ x.T, -values[1].item() * x @ x.T), strict=True):
        total = got.numpy()
        np.testing.assert_allclose((total + total.T) / 2, want, atol=1e-9)


def test_refusals() -> None:
    a = tn.eye(8)
    with pytest.raises(ValueError, match="smaller than 3 x"):
        tn.lobpcg(a, 3)
    with pytest.raises(AssertionError, match="square"):
        tn.lobpcg(a[:7], 1)
    with pytest.raises(NotImplementedError, match="tracker"):
        tn.lobpcg(a, 1, tracker=print)
