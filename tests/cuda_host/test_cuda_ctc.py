"""Connectionist temporal classification on the device without the CPU's help: all alignments
written out, the CPU's gradients, and what is said of lengths and labels that do not fit."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

START = """
import itertools
import numpy as np
F = tn.nn.functional
tn.manual_seed(5)
"""


def test_all_alignments() -> None:
    harness.script(
        START
        + """
def by_hand(p, labels, blank):
    total = 0.0
    for path in itertools.product(range(p.shape[1]), repeat=p.shape[0]):
        short = [k for k, _ in itertools.groupby(path) if k != blank]
        if short == list(labels):
            total += np.exp(sum(p[t, k] for t, k in enumerate(path)))
    return -np.log(total) if total else np.inf

x = tn.randn(5, 4, 3, dtype=tn.float64).log_softmax(2)
labels, times, lengths = [[1, 1], [2, 1], [2, 0], [1, 2]], (5, 4, 3, 2), (2, 2, 1, 0)
for dtype, far in ((tn.float64, 1e-12), (tn.float32, 1e-5)):
    for blank, shift in ((0, 0), (2, -1)):
        names = [[k + shift for k in row] for row in labels]
        got = F.ctc_loss(x.to("cuda", dtype), tn.tensor(names, device="cuda"), times, lengths,
                         blank, "none").cpu()
        want = [by_hand(x[:times[i], i].numpy(), names[i][:lengths[i]], blank) for i in range(4)]
        assert np.allclose(got.numpy(), want, atol=far), (got, want)
        flat = sum((row[:n] for row, n in zip(names, lengths)), [])
        again = F.ctc_loss(x.to("cuda", dtype), tn.tensor(flat, device="cuda"), times, lengths,
                           blank, "none").cpu()
        assert tn.equal(got, again)
""",
        TENON_FALLBACK="error",
        TENON_MEMORY_CACHE="0",
    )


def test_gradients_as_the_cpu() -> None:
    """Repeated labels, labels that are the blank, targets without an alignment, empty ones, more
    places than a block has threads."""
    harness.script(
        START
        + """
def run(device, dtype, x, labels, times, lengths, **how):
    x = x.clone().to(device, dtype).detach().requires_grad_()
    loss = F.ctc_loss(x.log_softmax(2), labels.to(device), times, lengths, reduction="none", **how)
    loss.backward(tn.arange(1, x.shape[1] + 1, dtype=dtype, device=device))
    return loss.detach().cpu().double(), x.grad.cpu().double()

x, labels = tn.randn(12, 5, 6, dtype=tn.float64), tn.randint(0, 6, (5, 7))
cases = [(x, labels, (12, 9, 11, 3, 0), (4, 5, 7, 7, 0)), (x, labels, (12,) * 5, (0,) * 5),
         (x[:, :, :2], labels % 2, (12, 1, 12, 5, 7), (2, 1, 3, 2, 3)),
         (tn.randn(300, 2, 3, dtype=tn.float64), tn.randint(1, 3, (2, 140)), (300, 200), (140, 40))]
for case in cases:
    for how in ({}, {"zero_infinity": True}, {"blank": 1})[:1 if len(case[0]) > 99 else 3]:
        want = run("cpu", tn.float64, *case, **how)
        for dtype, far in ((tn.float64, 1e-10), (tn.float32, 1e-3)):
            got = run("cuda", dtype, *case, **how)
            for a, b in zip(got, want):
                assert tn.allclose(a, b, far, far, equal_nan=True), (case[2:], how, a, b)
            again = run("cuda", dtype, *case, **how)
            assert all(tn.equal(a.nan_to_num(9), b.nan_to_num(9)) for a, b in zip(got, again))
""",
        TENON_FALLBACK="error",
        TENON_MEMORY_CACHE="0",
    )


def test_what_does_not_fit_is_reported() -> None:
    harness.script(
        START
        + """
x = tn.randn(4, 2, 3).log_softmax(2).to("cuda")
def call(labels, times, lengths):
    at = [tn.tensor(t, device="cuda") for t in (labels, times, lengths)]
    return F.ctc_loss(x, *at, reduction="none")

def fails(text, *args):
    try:
        call(*args).cpu()
    except RuntimeError as e:
        assert "_ctc_loss" in str(e) and text in str(e), e
    else:
        raise AssertionError(args)

fails("index 5 is out of range for size 5", [[1, 2], [1, 2]], [4, 5], [2, 2])
fails("index 3 is out of range for size 3", [[1, 2], [1, 3]], [4, 4], [2, 2])
fails("index -1 is out of range for size 3", [[-1, 2], [1, 2]], [4, 4], [2, 2])
fails("index 3 is out of range", [[1, 2], [1, 2]], [4, 4], [2, 3])
fails("index 2 is out of range for size 2", [1, 2, 1], [4, 4], [2, 2])
fails("index -1 is out of range", [1, 2, 1], [4, 4], [-1, 2])
assert call([[1, 2], [1, 2]], [4, 4], [2, 2]).isfinite().all()
"""
    )
