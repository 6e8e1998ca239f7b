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


def test_ctc_gradient_where_nothing_aligns():
    log_probs = tenon.randn(2, 2, 3, dtype=tenon.float64).log_softmax(-1).requires_grad_()
    targets, times, lengths = tenon.tensor([[1, 1], [2, 0]]), (2, 1), (2, 1)
    F.ctc_loss(log_probs, targets, times, lengths, reduction="sum", zero_infinity=True).backward()
    grad = log_probs.grad.numpy()
    assert np.all(grad[:, 0] == 0)  # two equal labels need three steps
    want = np.exp(log_probs.detach().numpy()[0, 1]) - np.array([0, 0, 1])
    np.testing.assert_allclose(grad[0, 1], want, atol=1e-12)
    assert np.all(grad[1, 1] == 0)  # behind the end of the second sample


@pytest.mark.parametrize(
    ("targets", "times", "lengths", "message"),
    [
        ([[1, 2]], [5], [2], "input_lengths"),
        ([[1, 2]], [-1], [2], "input_lengths"),
        ([[1, 2]], [4], [3], "target_lengths"),
        ([1, 2], [4], [3], "target_lengths"),
        ([[1, 2]], [4], [-1], "target_lengths"),
        ([[1, 3]], [4], [2], "Target 3 is out of bounds"),
        ([[1, -1]], [4], [2], "Target -1 is out of bounds"),
        ([[1, 2]], [4, 4], [2], "input_lengths"),
    ],
)
def test_ctc_refuses_what_does_not_fit(targets, times, lengths, message):
    log_probs = tenon.zeros(4, 1, 3)
    with pytest.raises((RuntimeError, IndexError), match=message):
        F.ctc_loss(log_probs, tenon.tensor(targets), tenon.tensor(times), tenon.tensor(lengths))


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


LONG, HALF = tenon.tensor([0, 1, 2]), tenon.ones(4, dtype=tenon.float16)
REFUSED = {
    "input of another dtype": (
        ValueError,
        "RNN input dtype",
        lambda nn: nn.GRU(3, 5)(tenon.ones(2, 3, dtype=tenon.float64)),
    ),
    "flags that are numbers": (
        TypeError,
        "bias should be of type bool",
        lambda nn: nn.LSTM(3, 5, bias=1),
    ),
    "batch_first": (TypeError, "batch_first should be", lambda nn: nn.RNN(3, 5, batch_first=0)),
    "a size that is no int": (TypeError, "input_size should be", lambda nn: nn.GRU(3.0, 5)),
    "no input": (ValueError, "input_size must be greater", lambda nn: nn.GRU(0, 5)),
    "no state": (ValueError, "hidden_size must be greater", lambda nn: nn.GRU(3, -1)),
    "weights of another dtype": (
        RuntimeError,
        "expected scalar type Float but found Half",
        lambda nn: nn.functional.nll_loss(tenon.ones(3, 4), LONG, HALF),
    ),
    "ignore_index of probabilities": (
        RuntimeError,
        "ignore_index is not supported",
        lambda nn: nn.CrossEntropyLoss(ignore_index=1)(tenon.ones(3, 4), tenon.ones(3, 4)),
    ),
    "label_smoothing": (
        RuntimeError,
        "label_smoothing must be",
        lambda nn: nn.CrossEntropyLoss(label_smoothing=1.5)(tenon.ones(3, 4), LONG),
    ),
    "eps of a batch": (
        ValueError,
        "positive during training",
        lambda nn: nn.BatchNorm1d(2, eps=0.0)(tenon.ones(3, 2)),
    ),
    "eps below zero": (
        ValueError,
        "non-negative",
        lambda nn: nn.BatchNorm1d(2, eps=-1.0).eval()(tenon.ones(3, 2)),
    ),
    "a complex delta": (TypeError, "delta must be a float", lambda nn: nn.HuberLoss(delta=1j)),
    "rank of a circular pad": (
        ValueError,
        "expected 3D or 4D input",
        lambda nn: nn.CircularPad2d(1)(tenon.ones(2, 3)),
    ),
    "rank of a circular pad, too high": (
        ValueError,
        "expected 2D or 3D input",
        lambda nn: nn.CircularPad1d(1)(tenon.ones(1, 2, 3, 3)),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_layers_refuse(name):
    kind, text, call = REFUSED[name]
    with pytest.raises(kind, match=text):
        call(tenon.nn)


def test_what_layers_do_not_refuse():
    x, p = tenon.ones(3, 4), tenon.full((3, 4), 0.25)
    assert tenon.nn.CrossEntropyLoss(ignore_index=-1)(x, p).isfinite()
    norm = tenon.nn.BatchNorm1d(4, eps=0.0).eval()
    assert tenon.equal(norm(x), x)
    assert tenon.nn.CircularPad2d(1)(tenon.ones(1, 2, 2)).shape == (1, 4, 4)
    with tenon.autocast("cpu"):
        tenon.nn.GRU(4, 5)(x.bfloat16())


def test_weights_of_recurrent_layers_in_one_row():
    """By their names programs initialise them."""
    layer = tenon.nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2)
    assert layer._flat_weights_names[:5] == [
        "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0"
    ]  # fmt: skip
    assert layer._flat_weights_names == [name for name, _ in layer.named_parameters()]
    assert all(a is b for a, b in zip(layer._flat_weights, layer.parameters(), strict=True))
    assert tenon.nn.GRU(3, 4, bias=False)._flat_weights_names == ["weight_ih_l0", "weight_hh_l0"]
