"""Layers whose results can be told by counting, without another library."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tenon
from tenon.nn import functional as F


def alignments(labels: list[int], steps: int, classes: int, blank: int):
    """All ways to write the labels in so many steps, as CTC understands it."""
    for path in itertools.product(range(classes), repeat=steps):
        merged = [k for k, _ in itertools.groupby(path)]
        if [k for k in merged if k != blank] == labels:
            yield path


@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_sums_over_all_alignments(blank):
    rng = np.random.default_rng(3)
    steps, classes = 5, 3
    log_probs = tenon.from_numpy(rng.standard_normal((steps, 4, classes))).log_softmax(-1)
    a, b = [k for k in range(classes) if k != blank]
    targets = [[a, b], [a, a], [], [b, b, b]]
    lengths, times = [2, 2, 0, 3], [5, 4, 3, 4]
    padded = tenon.full((4, 3), a, dtype=tenon.int64)
    for row, target in enumerate(targets):
        padded[row, : len(target)] = tenon.tensor(target, dtype=tenon.int64)
    p = log_probs.exp().numpy()
    want = []
    for n, (target, t) in enumerate(zip(targets, times)):
        paths = alignments(target, t, classes, blank)
        total = sum(np.prod([p[i, n, k] for i, k in enumerate(path)]) for path in paths)
        want.append(-np.log(total) if total > 0 else np.inf)
    assert np.isinf(want[3])
    args = (tenon.tensor(times), tenon.tensor(lengths), blank)
    loss = F.ctc_loss(log_probs, padded, *args, reduction="none")
    np.testing.assert_allclose(loss.numpy(), want, rtol=1e-9)
    flat = tenon.tensor([k for target in targets for k in target])
    loss = F.ctc_loss(log_probs, flat, *args, zero_infinity=True)
    finite = np.where(np.isinf(want), 0, want) / np.maximum(lengths, 1)
    np.testing.assert_allclose(float(loss), finite.mean(), rtol=1e-9)


def test_ctc_gradient():
    x = tenon.randn(4, 2, 3, dtype=tenon.float64, requires_grad=True)
    targets, times, lengths = tenon.tensor([[1, 2], [1, 1]]), (4, 3), (2, 2)

    def loss(x):
        return F.ctc_loss(x.log_softmax(-1), targets, times, lengths, reduction="sum")

    assert tenon.autograd.gradcheck(loss, (x,))


def test_pooling_of_volumes():
    x = np.random.default_rng(0).standard_normal((2, 5, 6, 7))
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3, 2), (1, 2, 3))
    t = tenon.from_numpy(x)
    largest, places = F.max_pool3d(t, (2, 3, 2), 1, return_indices=True)
    np.testing.assert_array_equal(largest.numpy(), windows.max((-3, -2, -1)))
    np.testing.assert_array_equal(t.flatten(1).gather(1, places.flatten(1)), largest.flatten(1))
    mean = F.avg_pool3d(t, (2, 3, 2), 1)
    np.testing.assert_allclose(mean.numpy(), windows.mean((-3, -2, -1)), rtol=1e-12)
    back = F.max_unpool3d(*F.max_pool3d(t, 2, return_indices=True), 2, output_size=(5, 6, 7))
    blocks = x[:, :4, :, :6].reshape(2, 2, 2, 3, 2, 3, 2).max((2, 4, 6))
    np.testing.assert_allclose(float(back.sum()), blocks.sum(), rtol=1e-12)


def test_fold_adds_what_unfold_took_apart():
    x = tenon.arange(30.0).view(1, 1, 5, 6)
    windows = F.unfold(x, (2, 3), padding=1, stride=(2, 1))
    counts = F.fold(F.unfold(tenon.ones_like(x), (2, 3), padding=1, stride=(2, 1)), (5, 6), (2, 3),
                    padding=1, stride=(2, 1))  # fmt: skip
    again = F.fold(windows, (5, 6), (2, 3), padding=1, stride=(2, 1))
    np.testing.assert_allclose(again.numpy(), (x * counts).numpy())
    with pytest.raises(RuntimeError, match="sliding blocks"):
        F.fold(windows, (5, 7), (2, 3), padding=1, stride=(2, 1))


def test_cubic_resizing_keeps_what_a_cubic_filter_keeps():
    ramp = tenon.arange(12.0).view(1, 1, 3, 4)
    same = F.interpolate(ramp, size=(3, 4), mode="bicubic")
    np.testing.assert_allclose(same.numpy(), ramp.numpy(), atol=1e-5)
    flat = F.interpolate(tenon.full((1, 1, 3, 4), 2.5), scale_factor=3, mode="bicubic")
    np.testing.assert_allclose(flat.numpy(), 2.5, rtol=1e-6)
