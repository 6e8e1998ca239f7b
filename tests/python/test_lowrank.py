"""svd_lowrank and pca_lowrank, against NumPy's decomposition of matrices of that rank."""

from __future__ import annotations

import numpy as np
import pytest
import tenon


@pytest.mark.parametrize("shape", [(9, 5), (5, 9), (2, 7, 6)])
def test_singular_values_and_vectors(shape):
    rng = np.random.default_rng(2)
    a = rng.normal(size=(*shape[:-1], 3)) @ rng.normal(size=(*shape[:-2], 3, shape[-1]))
    tenon.manual_seed(0)
    U, S, V = tenon.svd_lowrank(tenon.tensor(a), q=4)
    np.testing.assert_allclose(S.numpy(), np.linalg.svd(a)[1][..., :4], atol=1e-10)
    np.testing.assert_allclose((U * S[..., None, :] @ V.mT).numpy(), a, atol=1e-10)
    unit = (U.mT @ U - tenon.eye(4, dtype=tenon.float64)).numpy()
    np.testing.assert_allclose(unit, 0 * unit, atol=1e-10)
    less = a - a.mean(axis=-2, keepdims=True)
    S, V = tenon.pca_lowrank(tenon.tensor(a))[1:]
    np.testing.assert_allclose(S.numpy()[..., :3], np.linalg.svd(less)[1][..., :3], atol=1e-10)
    assert V.shape == (*shape[:-2], shape[-1], min(6, *shape[-2:]))
    S = tenon.svd_lowrank(tenon.tensor(a), 3, M=tenon.tensor(a - less))[1]
    np.testing.assert_allclose(S.numpy(), np.linalg.svd(less)[1][..., :3], atol=1e-10)
    S = tenon.pca_lowrank(tenon.tensor(a), 3, center=False)[1]
    np.testing.assert_allclose(S.numpy(), np.linalg.svd(a)[1][..., :3], atol=1e-10)


def test_the_passes_sharpen_the_values():
    rng = np.random.default_rng(4)
    a = tenon.tensor(rng.normal(size=(40, 30)))
    true = np.linalg.svd(a.numpy())[1][:4]
    errors = []
    for passes in (0, 2, 12):
        tenon.manual_seed(0)
        errors.append(abs(tenon.svd_lowrank(a, 4, passes)[1].numpy() - true).max())
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_refusals():
    with pytest.raises(ValueError, match="not greater than min"):
        tenon.pca_lowrank(tenon.ones(4, 8), q=5)
    with pytest.raises(ValueError, match="niter"):
        tenon.pca_lowrank(tenon.ones(4, 8), niter=-1)
