"""Gradients of each sample that a backward pass leaves, beside those of one sample at a time."""

from __future__ import annotations

import pytest
import tenon as tn
from tenon import nn
from tenon.nn.utils._per_sample_grad import call_for_per_sample_grads

LAYERS = [
    (lambda: nn.Linear(4, 3), (5, 4)),
    (lambda: nn.Linear(4, 3, bias=False), (5, 2, 4)),
    (lambda: nn.Conv1d(2, 4, 3, stride=2, padding=1), (3, 2, 7)),
    (lambda: nn.Conv2d(4, 4, 3, padding="same", dilation=2, groups=2), (3, 4, 5, 6)),
    (lambda: nn.Conv3d(2, 3, 2, bias=False), (2, 2, 3, 3, 3)),
    (lambda: nn.LayerNorm((2, 4)), (5, 2, 4)),
    (lambda: nn.GroupNorm(2, 4), (5, 4, 3)),
    (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (5, 4, 3, 3)),
    (lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 2)), (5, 4)),
]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize(("make", "shape"), LAYERS)
def test_each_sample_has_the_gradient_that_it_has_alone(make, shape, reduction):
    tn.manual_seed(0)
    module, x = make().double(), tn.randn(*shape, dtype=tn.float64)
    want = []
    for sample in x:
        out = module(sample[None]).sin()
        want.append(tn.autograd.grad(out.sum(), list(module.parameters())))
    again = x.clone().requires_grad_()
    out = call_for_per_sample_grads(module, loss_reduction=reduction)(again).sin()
    whole = out.sum() / (len(x) if reduction == "mean" else 1)
    whole.backward()
    for n, p in enumerate(module.parameters()):
        assert p.grad is None
        tn.testing.assert_close(p.grad_sample, tn.stack([w[n] for w in want]))
    alone = x.clone().requires_grad_()
    module(alone).sin().sum().backward()
    tn.testing.assert_close(again.grad * (len(x) if reduction == "mean" else 1), alone.grad)


@pytest.mark.parametrize("padding", [None, 1])
def test_rows_of_padding_have_gradients_too_as_in_pytorch(padding):
    module = nn.Embedding(4, 2, padding_idx=padding)
    call_for_per_sample_grads(module)(tn.tensor([[0, 1], [3, 3]])).sum().backward()
    assert module.weight.grad_sample[:, :, 0].tolist() == [[1, 1, 0, 0], [0, 0, 0, 2]]


def test_what_it_cannot_do_raises_as_in_pytorch():
    module = nn.Linear(4, 3)
    module.bias.requires_grad_(False)
    call_for_per_sample_grads(module, batch_size=2)(tn.ones(2, 4)).sum().backward()
    assert module.weight.grad_sample.shape == (2, 3, 4) and module.bias.grad is None
    for fault, act in (
        ("accumulates the gradients", lambda: call_for_per_sample_grads(module)),
        ("sum or mean", lambda: call_for_per_sample_grads(nn.ReLU(), loss_reduction="max")),
        ("must be nn.Module", lambda: call_for_per_sample_grads(tn.relu)),
        ("must be positive", lambda: call_for_per_sample_grads(nn.ReLU(), batch_size=0)),
        ("matching input", lambda: call_for_per_sample_grads(nn.Linear(4, 3), batch_size=3)(
            tn.ones(2, 4))),
        ("one input with batch size 2 and one with batch size 3",
         lambda: call_for_per_sample_grads(nn.Bilinear(4, 4, 3))(tn.ones(2, 4), tn.ones(3, 4))),
        ("Unable to find a tensor", lambda: call_for_per_sample_grads(nn.ReLU())()),
        ("cannot handle function", lambda: call_for_per_sample_grads(nn.PReLU())(tn.ones(2, 4))),
        ("batch dimension", lambda: call_for_per_sample_grads(nn.Linear(4, 3))(tn.ones(4))),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=fault):
            act()
