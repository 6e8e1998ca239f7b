"""Gradients from end to end, in seconds: what any change may break. Values against closed forms and
differences of the function itself, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import memory
import numpy as np
import pytest
import tenon as tn
from tenon.nn import functional as F

RNG = np.random.default_rng(11)


def leaf(*shape: int) -> tn.Tensor:
    return tn.tensor(RNG.standard_normal(shape), requires_grad=True)


def slopes(
    fn: Callable[..., tn.Tensor], *inputs: tn.Tensor, step: float = 1e-6
) -> list[np.ndarray]:
    """Central differences of a function with one value."""
    found, step = [], 1e-6
    for t in inputs:
        each = np.zeros(t.numel())
        flat = t.detach().reshape(-1)
        for i in range(t.numel()):
            with tn.no_grad():
                flat[i] += step
                above = fn(*inputs).item()
                flat[i] -= 2 * step
                below = fn(*inputs).item()
                flat[i] += step
            each[i] = (above - below) / (2 * step)
        found.append(each.reshape(t.shape))
    return found


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: (a @ b).tanh().sum(),
        lambda a, b: F.softmax(a @ b, -1).square().sum(),
        lambda a, b: (a * b.t()).cumsum(1).sigmoid().mean(),
        lambda a, b: tn.cat([a[:, 1:], b.t()], 1).logsumexp(1).sum(),
        lambda a, b: F.layer_norm(a, (4,), b[:, 0], b[:, 1]).pow(3).sum(),
        lambda a, b: tn.where(a > 0, a.exp(), a * b.t()).sum(),
    ],
)
def test_gradients_are_slopes(fn: Callable[..., tn.Tensor]) -> None:
    a, b = leaf(3, 4), leaf(4, 3)
    got = tn.autograd.grad(fn(a, b), (a, b))
    for g, want in zip(got, slopes(fn, a, b), strict=True):
        np.testing.assert_allclose(g.numpy(), want, rtol=1e-6, atol=1e-8)


def test_second_derivatives() -> None:
    x = leaf(5)
    (first,) = tn.autograd.grad(x.sin().mul(x).sum(), x, create_graph=True)
    (second,) = tn.autograd.grad(first.sum(), x)
    v = x.detach().numpy()
    np.testing.assert_allclose(first.detach().numpy(), np.sin(v) + v * np.cos(v))
    np.testing.assert_allclose(second.numpy(), 2 * np.cos(v) - v * np.sin(v))


def test_gradients_add_up_and_are_asked_for() -> None:
    x = leaf(3)
    y = x * 2
    assert y.requires_grad
    assert not y.is_leaf
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert x.grad.tolist() == [4, 4, 4]
    assert y.detach().grad is None
    with pytest.raises(RuntimeError, match="second time|freed"):
        (z := (x.exp() * x).sum()).backward()
        z.backward()
    with tn.no_grad():
        assert not (x * 2).requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        (x.detach() * 2).sum().backward()


def test_what_a_gradient_needs_may_not_be_written() -> None:
    x = leaf(3)
    y = x.exp()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_gradients_that_are_kept_add_up_in_memory_of_their_own() -> None:
    x = leaf(3)
    y = x * 2
    y.retain_grad()
    total = y.sum()
    y.register_hook(lambda g: g * 5)
    total.backward(retain_graph=True)
    assert y.grad.tolist() == [5, 5, 5]
    assert y.grad.stride() == (1,)
    y.grad.mul_(2)
    assert x.grad.tolist() == [10, 10, 10]
    total.backward()
    assert y.grad.tolist() == [15, 15, 15]
    assert x.grad.tolist() == [20, 20, 20]
    z = leaf(2).exp()
    z.retain_grad()
    (z**2).sum().backward(create_graph=True)
    assert z.grad.requires_grad


def test_hooks_see_and_change_gradients() -> None:
    x, seen = leaf(2), []
    y = x * 3
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: seen.append(g.tolist()))
    y.sum().backward()
    assert seen == [[30, 30]]
    assert x.grad.tolist() == [30, 30]


@pytest.mark.parametrize(
    "same",
    [
        lambda x: tn.dropout(x, 0.0, True),
        lambda x: tn.dropout(x, 0.5, False),
        tn.nn.Dropout(0.0),
        tn.nn.Dropout(0.5).eval(),
        tn.atleast_2d,
        tn.real,
        tn.conj,
        tn.positive,
        lambda x: x.flatten(0, 0),
    ],
)
def test_a_changed_view_that_is_handed_back_keeps_its_history(
    same: Callable[[tn.Tensor], tn.Tensor],
) -> None:
    """The view's base is held by nothing but the view, whose own node is made when asked for."""
    a, b = leaf(3, 4), leaf(4, 3)
    x = (a * 2).transpose(0, 1)
    x += b
    y = same(x)
    assert y is x and x._base is not None
    y.square().sum().backward()
    want = 2 * (2 * a.detach().numpy().T + b.detach().numpy())
    np.testing.assert_allclose(b.grad.numpy(), want)
    np.testing.assert_allclose(a.grad.numpy(), 2 * want.T)


def test_hooks_are_free_when_nothing_has_them() -> None:
    """Each pass holds the hooks that it runs, and lets go of all of them."""

    def passes(n: int) -> None:
        for _ in range(n):
            x = tn.ones(2, requires_grad=True)
            y = x * 2
            x.register_hook(nothing)
            y.register_hook(nothing)
            x.register_post_accumulate_grad_hook(nothing)
            y.grad_fn.register_hook(nothing)
            y.grad_fn.register_prehook(nothing)
            y.sum().backward()

    def nothing(*args: Any) -> None:
        pass

    passes(1000)
    before = memory.resident()
    passes(8000)
    assert memory.resident() - before < 1 << 20


def test_gradients_of_gradients_are_freed_one_by_one() -> None:
    """As many as would not fit on the stack, each within the one before."""
    first: Any = None
    for _ in range(300_000):
        t = tn.ones(1)
        t.grad, first = first, t
    del t, first
    assert tn.ones(1).grad is None
