"""Steps that record what they do: the numbers of the kernels, and gradients by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import optim

CASES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}), ("SGD", {"momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"weight_decay": 0.1}), ("Adam", {"amsgrad": True, "maximize": True}), ("AdamW", {}),
    ("RMSprop", {"weight_decay": 0.1}), ("RMSprop", {"momentum": 0.5, "centered": True}),
    ("Adagrad", {"lr_decay": 0.2, "weight_decay": 0.1}), ("Adagrad", {"maximize": True}),
    ("Adadelta", {"weight_decay": 0.1}), ("Adamax", {"weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1}), ("RAdam", {"betas": (0.8, 0.7)}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("ASGD", {"t0": 1.0, "lambd": 0.1, "weight_decay": 0.1}), ("Rprop", {"maximize": True}),
]  # fmt: skip


def drawn(count: int, dtype: Any) -> list[tn.Tensor]:
    tn.manual_seed(3)
    return list(tn.randn(count, 3, 2, dtype=dtype).unbind())


@pytest.mark.parametrize("dtype", [tn.float64, tn.complex128], ids=str)
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_steps_are_those_of_the_kernels(name: str, options: dict[str, Any], dtype: Any) -> None:
    start, *grads = drawn(8, dtype)
    kernel = start.clone().requires_grad_()
    recorded = start.clone().requires_grad_().clone()
    made = getattr(optim, name)
    one = made([kernel], lr=0.1, **options)
    other = made([recorded], lr=0.1, differentiable=True, **options)
    for g in grads:
        kernel.grad = recorded.grad = g
        one.step()
        other.step()
        np.testing.assert_allclose(recorded.detach(), kernel.detach(), rtol=1e-10, atol=1e-12)
    assert recorded.grad_fn is not None
    state, want = other.state[recorded], one.state[kernel]
    assert set(state) == set(want)
    for key, value in want.items():
        assert state[key].dtype is value.dtype
        np.testing.assert_allclose(state[key].detach(), value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_gradients_by_differences(name: str, options: dict[str, Any]) -> None:
    """Through two steps: of the start, both gradients and, where the rule has one at each step, the
    rate."""
    start, *grads = (t.requires_grad_() for t in drawn(3, tn.float64))
    rate = tn.tensor(0.1, dtype=tn.float64, requires_grad=name not in ("ASGD", "Rprop"))

    def run(rate: tn.Tensor, start: tn.Tensor, *grads: tn.Tensor) -> tn.Tensor:
        p = start.clone()
        optimizer = getattr(optim, name)([p], lr=rate, differentiable=True, **options)
        for g in grads:
            p.grad = g
            optimizer.step()
        return p

    assert tn.autograd.gradcheck(run, (rate, start, *grads))


def test_a_step_may_be_learnt() -> None:
    """The gradient of a loss after a step by the rate of the step."""
    rate = tn.tensor(0.1, requires_grad=True)
    p = tn.tensor([1.0, -2.0], requires_grad=True).clone()
    p.grad = 2 * p.detach()
    with tn.no_grad():
        optim.SGD([p], lr=rate, differentiable=True).step()
    p.square().sum().backward()
    np.testing.assert_allclose(p.detach(), [0.8, -1.6], rtol=1e-6)
    np.testing.assert_allclose(rate.grad, -2 * (0.8 * 2 + 1.6 * 4), rtol=1e-6)


def test_gradients_of_the_product_that_nadam_keeps() -> None:
    start, grad = drawn(2, tn.float64)
    product = tn.tensor(0.4, dtype=tn.float64, requires_grad=True)

    def run(product: tn.Tensor) -> tn.Tensor:
        p = start.clone()
        optimizer = optim.NAdam([p], lr=0.1, differentiable=True)
        for _ in range(2):
            p.grad = grad
            optimizer.step()
            optimizer.state[p]["mu_product"] = product
        return p

    assert tn.autograd.gradcheck(run, (product,))


def test_what_cannot_be_recorded() -> None:
    p = tn.ones(2, requires_grad=True)
    p.grad = tn.ones(2)
    with pytest.raises(RuntimeError, match="leaf"):
        optim.SGD([p], lr=0.1, differentiable=True).step()
    p = p.clone()
    p.grad = tn.ones(2).to_sparse()
    with pytest.raises(RuntimeError, match="adagrad: differentiable=True .* sparse gradients"):
        optim.Adagrad([p], lr=0.1, differentiable=True).step()
    assert p.equal(tn.ones(2))
