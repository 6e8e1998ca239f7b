"""Slopes of samples and histograms, against NumPy's; edges that PyTorch takes and refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("spacing", [1, 0.25, "list", "at"])
def test_gradient_is_numpys(spacing: Any, edge_order: int) -> None:
    x = data(4, 5, 3)
    at = [np.sort(data(n, 1)[:, 0]) for n in x.shape]
    theirs = {"list": [0.5, 2.0, 3.0], "at": at}.get(spacing, [spacing])
    ours = {"list": theirs, "at": [tn.from_numpy(a) for a in at]}.get(spacing, spacing)
    got = tn.gradient(tn.from_numpy(x), spacing=ours, edge_order=edge_order)
    want = np.gradient(x, *theirs, edge_order=edge_order)
    assert isinstance(got, tuple)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g.numpy(), w, rtol=1e-12, atol=1e-12)


def test_gradient_along_some_dimensions() -> None:
    x = data(4, 5)
    (got,) = tn.gradient(tn.from_numpy(x), dim=-1, spacing=2.0)
    np.testing.assert_allclose(got.numpy(), np.gradient(x, 2.0, axis=1), rtol=1e-12)
    got = tn.gradient(tn.from_numpy(x), dim=(1, 0), spacing=(2.0, 0.5))
    np.testing.assert_allclose(got[1].numpy(), np.gradient(x, 0.5, axis=0), rtol=1e-12)
    assert tn.gradient(tn.arange(5) ** 2)[0].tolist() == [1, 2, 4, 6, 7]
    variable = tn.from_numpy(x).requires_grad_()
    for order in (1, 2):
        at = tn.tensor([0.0, 1.0, 3.0, 4.0, 8.0], dtype=tn.float64, requires_grad=True)
        assert tn.autograd.gradcheck(
            lambda t, c, order=order: tn.gradient(t, dim=1, spacing=(c,), edge_order=order),
            (variable, at),
        )


def test_gradient_refuses_what_does_not_fit() -> None:
    x = tn.zeros(3, 2)
    for bad in ({"edge_order": 3}, {"edge_order": 2}, {"spacing": (1.0,)}, {"dim": (0, 0)},
                {"dim": 0, "spacing": (tn.zeros(2),)}):  # fmt: skip
        with pytest.raises(RuntimeError):
            tn.gradient(x, **bad)
    with pytest.raises(RuntimeError):
        tn.gradient(tn.tensor(1.0), dim=0)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bins", [1, 7, [-1.0, -0.5, 0.25, 3.0]])
def test_histogram_is_numpys(bins: Any, weighted: bool, density: bool) -> None:
    x, w = data(40, 5), np.abs(data(40, 5)) + 0.1
    x[0, 0] = 3.0
    ours = tn.tensor(bins, dtype=tn.float64) if isinstance(bins, list) else bins
    for span in (None, (-1.0, 2.0)) if not isinstance(bins, list) else (None,):
        hist, edges = tn.histogram(
            tn.from_numpy(x), ours, range=span, weight=tn.from_numpy(w) if weighted else None,
            density=density,
        )  # fmt: skip
        want, at = np.histogram(x, bins, span, density=density, weights=w if weighted else None)
        np.testing.assert_allclose(hist.numpy(), want, rtol=1e-12)
        np.testing.assert_allclose(edges.numpy(), at, rtol=1e-12)


def test_histogram_at_its_ends() -> None:
    one = tn.tensor([2.0, 2.0]).histogram(2)
    assert (one.hist.tolist(), one.bin_edges.tolist()) == ([0, 2], [1.5, 2, 2.5])
    empty = tn.histogram(tn.empty(0), 2)
    assert (empty.hist.tolist(), empty.bin_edges.tolist()) == ([0, 0], [0, 0.5, 1])
    out = (tn.empty(2), tn.empty(3))
    assert tn.histogram(tn.tensor([0.0, 1.0]), 2, out=out).hist is out[0]
    assert out[0].tolist() == [1, 1]
    x = tn.zeros(3)
    for bad in ({"bins": 0}, {"bins": tn.zeros(1)}, {"bins": tn.zeros(2, 2)},
                {"bins": tn.zeros(3, dtype=tn.float64)}, {"bins": 2, "range": (1.0, 0.0)},
                {"bins": 2, "weight": tn.ones(2)}):  # fmt: skip
        with pytest.raises(RuntimeError):
            tn.histogram(x, **bad)


def test_batch_norm_of_a_vector_without_elements() -> None:
    mean, var = tn.zeros(0), tn.ones(0)
    got = tn.nn.functional.batch_norm(tn.zeros(0), mean, var, training=True)
    assert got.shape == (0,)
    weight = tn.ones(1, requires_grad=True)
    tn.nn.functional.batch_norm(tn.zeros(0), mean, var, weight, training=True).sum().backward()
    assert weight.grad.tolist() == [0]


def test_out_whose_elements_share_memory_is_refused() -> None:
    shared = tn.zeros(1, 2).expand(4, 2)
    for call in (lambda: tn.cat((tn.ones(2, 2), tn.ones(2, 2)), out=shared),
                 lambda: tn.bernoulli(tn.full((4, 2), 0.5), out=shared)):  # fmt: skip
        with pytest.raises(RuntimeError, match="single memory location"):
            call()
    assert shared.sum().item() == 0


def test_gradient_of_gather_with_an_empty_index_of_bytes() -> None:
    x = tn.ones(5, requires_grad=True)
    x.gather(0, tn.empty(0, dtype=tn.uint8)).sum().backward()
    assert x.grad.tolist() == [0] * 5


def test_unique_slices_without_elements() -> None:
    got, inverse = tn.unique(tn.zeros(2, 0, 3), dim=1, return_inverse=True)
    assert (got.shape, inverse.shape) == ((2, 0, 3), (0,))
