"""Numbers far from 0 (logits that have drifted, images of 16 bits): operators that take a maximum
or a mean away first must keep the digits of the differences. Beside NumPy in float64."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.nn import functional as F
from test_formulas import formulas

WAYS = {"kernel": nullcontext, "formula": formulas}
OFFSETS = [0.0, 23.0, 1e3, 1e6]
EPS = float(np.finfo(np.float32).eps)


def logits(offset: float, classes: int) -> np.ndarray:
    """(50, classes): float32 numbers about offset, themselves exact."""
    rng = np.random.default_rng(classes)
    return (rng.standard_normal((50, classes)) * 2 + offset).astype(np.float32)


def log_probabilities(z: np.ndarray) -> np.ndarray:
    z = z.astype(np.float64)
    z = z - z.max(1, keepdims=True)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


@pytest.fixture(params=WAYS, ids=str)
def way(request: Any) -> Any:
    """With kernels, and as on a device that has none of an operator that is made of others."""
    with WAYS[request.param]():
        yield


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("classes", [2, 7, 9, 100])
@pytest.mark.parametrize("offset", OFFSETS)
def test_cross_entropy_keeps_its_digits(offset: float, classes: int, dim: int, way: None) -> None:
    z = logits(offset, classes)
    want = log_probabilities(z)
    target = np.arange(50) % classes
    onehot = np.eye(classes)[target]
    if dim == 1:
        x = tn.tensor(z, requires_grad=True)
        loss = F.cross_entropy(x, tn.tensor(target), reduction="none")
    else:  # classes before other dims, as of an image
        x = tn.tensor(z.T[None].copy(), requires_grad=True)
        loss = F.cross_entropy(x, tn.tensor(target[None]), reduction="none")[0]
    np.testing.assert_allclose(loss.detach().numpy(), -(want * onehot).sum(1), rtol=1e-6, atol=1e-6)
    loss.sum().backward()
    grad = x.grad.numpy() if dim == 1 else x.grad.numpy()[0].T
    np.testing.assert_allclose(grad, np.exp(want) - onehot, rtol=0, atol=4 * EPS)


@pytest.mark.parametrize("offset", OFFSETS)
def test_losses_and_log_softmax_keep_their_digits(offset: float, way: None) -> None:
    z = logits(offset, 9)
    want = log_probabilities(z)
    target = np.arange(50) % 9
    weight = np.linspace(0.5, 2, 9)
    picked = -want[np.arange(50), target]
    x, t = tn.tensor(z), tn.tensor(target)
    close = {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(F.cross_entropy(x, t).item(), picked.mean(), **close)
    weighted = F.cross_entropy(x, t, weight=tn.tensor(weight, dtype=tn.float32), reduction="none")
    np.testing.assert_allclose(weighted.numpy(), picked * weight[target], **close)
    smooth = F.cross_entropy(x, t, label_smoothing=0.25, reduction="none").numpy()
    np.testing.assert_allclose(smooth, 0.75 * picked - 0.25 * want.mean(1), **close)
    shares = tn.tensor(np.eye(9)[target], dtype=tn.float32)
    np.testing.assert_allclose(F.cross_entropy(x, shares).item(), picked.mean(), **close)
    np.testing.assert_allclose(F.log_softmax(x, 1).numpy(), want, **close)
    np.testing.assert_allclose(F.log_softmax(x.T.contiguous(), 0).numpy().T, want, **close)
