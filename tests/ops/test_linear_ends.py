"""Linear maps that end in an activation (`nn/linear.c`): operators with gradients of their own,
which have the values and derivatives of the parts that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon._C import _nn

F = tn.nn.functional


def gelu(x: Any) -> Any:
    return F.gelu(x, approximate="tanh")


PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "relu": (_nn._linear_relu, lambda x, w, b: F.linear(x, w, b).relu(), 3),
    "gelu": (
        lambda x, w, b: _nn._linear_gelu(x, w, b, False)[0],
        lambda x, w, b: gelu(F.linear(x, w, b)),
        3,
    ),
    "gelu_kept": (
        lambda x, w, b: _nn._linear_gelu(x, w, b, True)[0],
        lambda x, w, b: gelu(F.linear(x, w, b)),
        3,
    ),
    "gelu_linear": (
        lambda *args: _nn._linear_gelu_linear(*args)[0],
        lambda x, w, b, v, c: F.linear(gelu(F.linear(x, w, b)), v, c),
        5,
    ),
}


def tensors(n: int, lead: tuple[int, ...] = (3, 2)) -> list[tn.Tensor]:
    rng = np.random.default_rng(5)
    shapes = [(*lead, 4), (8, 4), (8,), (6, 8), (6,)][:n]
    return [tn.from_numpy(rng.standard_normal(s)).requires_grad_() for s in shapes]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("lead", [(3, 2), (), (0,)])
def test_values_and_derivatives_are_those_of_the_parts(name: str, lead: tuple[int, ...]) -> None:
    got, want, n = PAIRS[name]
    inputs = tensors(n, lead)

    def all_of(fn: Callable[..., Any]) -> list[tn.Tensor]:
        y = fn(*inputs)
        first = tn.autograd.grad(y, inputs, tn.cos(y).detach(), create_graph=True)
        plain = tn.autograd.grad(fn(*inputs), inputs, tn.cos(y).detach())
        second = tn.autograd.grad(sum((g * g).sum() for g in first), inputs, allow_unused=True)
        return [y, *first, *plain, *(tn.zeros(1) if g is None else g for g in second)]

    for a, b in zip(all_of(got), all_of(want)):
        assert a.shape == b.shape and tn.allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_by_differences(name: str) -> None:
    fn, _, n = PAIRS[name]
    assert tn.autograd.gradcheck(fn, tensors(n))
    assert tn.autograd.gradgradcheck(fn, tensors(n))


@pytest.mark.parametrize("wanted", range(5))
def test_one_gradient_at_a_time(wanted: int) -> None:
    got, want, n = PAIRS["gelu_linear"]
    inputs = [t.detach() for t in tensors(n)]
    inputs[wanted].requires_grad_()
    a, b = (tn.autograd.grad(fn(*inputs).sum(), inputs[wanted])[0] for fn in (got, want))
    assert tn.allclose(a, b, rtol=1e-10)


def test_the_result_of_gelu_may_be_changed() -> None:
    x, w, b = tensors(3)
    y, _ = _nn._linear_gelu(x, w, b, True)
    assert _nn._linear_gelu(x, w, b, False)[1] is None
    y.mul_(2).sum().backward()
    assert x.grad is not None
    z = _nn._linear_relu(x, w, b)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.mul_(2).sum().backward()


def test_results_that_only_gradients_read() -> None:
    """What is asked of them alone brings nothing, and harms nothing."""
    x, w, b = tensors(3)
    _nn._linear_gelu(x, w, b, True)[1].sum().backward()
    assert x.grad is None
    assert not tn.native_layer_norm(x, [4], None, None, 1e-5)[1].requires_grad


def test_addmm_activation() -> None:
    rng = np.random.default_rng(5)
    b, x, w = (rng.standard_normal(s) for s in ((5,), (3, 4), (4, 5)))
    tb, tx, tw = (tn.from_numpy(a) for a in (b, x, w))
    y = 2 * b + 0.5 * (x @ w)
    got = tn._addmm_activation(tb, tx, tw, beta=2, alpha=0.5)
    np.testing.assert_allclose(got.numpy(), np.maximum(y, 0), rtol=1e-12)
    erf = tn.from_numpy(y / np.sqrt(2)).erf().numpy()
    want = y * (1 + erf) / 2  # the exact one on the CPU
    got = tn._addmm_activation(tb, tx, tw, beta=2, alpha=0.5, use_gelu=True)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-10)
    out = tn.empty(3, 5, dtype=tn.float64)
    assert tn._addmm_activation(tb, tx, tw, beta=2, alpha=0.5, use_gelu=True, out=out) is out
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-10)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        tn._addmm_activation(tb, tx, tw.t())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: _nn._linear_relu(t, tn.ones(3, 5)), "cannot be multiplied"),
        (lambda t: _nn._linear_gelu(t, t[0], None, True), "weight must be a matrix"),
        (lambda t: _nn._linear_relu(t, t, tn.ones(2, 3)), "expanded size"),
    ],
)
def test_bad_input_is_named(call: Callable[[tn.Tensor], Any], words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        call(tn.ones(3, 4))


@pytest.mark.parametrize("bias", [(), (1,), (5,), (1, 5), (3, 1), (3, 5)])
@pytest.mark.parametrize("dtype", [tn.float32, tn.float64])
def test_a_bias_may_be_whatever_can_be_added(bias: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal(s) for s in [(2, 3, 4), (5, 4), bias, (2, 3, 5)]]
    x, w, b, g = (tn.tensor(a, dtype=dtype, requires_grad=True) for a in arrays)
    y = F.linear(x, w, b)
    want = arrays[0] @ arrays[1].T + arrays[2]
    tol = 1e-5 if dtype == tn.float32 else 1e-12
    np.testing.assert_allclose(y.detach().numpy(), want, rtol=tol, atol=tol)
    gx, gw, gb = tn.autograd.grad(y, (x, w, b), g.detach())
    np.testing.assert_allclose(gx.numpy(), arrays[3] @ arrays[1], rtol=tol, atol=tol)
    rows = arrays[3].reshape(6, 5), arrays[0].reshape(6, 4)
    np.testing.assert_allclose(gw.numpy(), rows[0].T @ rows[1], rtol=tol, atol=tol)
    whole = arrays[3].reshape(2, 3, 5)
    while whole.ndim > len(bias):
        whole = whole.sum(0)
    for d, n in enumerate(bias):
        if n == 1:
            whole = whole.sum(d, keepdims=True)
    np.testing.assert_allclose(gb.numpy(), whole, rtol=tol, atol=tol)
    assert F.linear(x.to("meta"), w.to("meta"), b.to("meta")).shape == (2, 3, 5)


@pytest.mark.parametrize("bias", [(2, 5), (4,), (2, 3, 5)])
def test_a_bias_that_does_not_fit_the_result(bias: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match="expand"):
        F.linear(tn.ones(3, 4), tn.ones(5, 4), tn.ones(bias))


@pytest.mark.parametrize("shape", [(7, 3), (2, 4, 3), (0, 3)])
def test_gradients_of_weight_and_bias_at_once(shape: tuple[int, ...]) -> None:
    """By its parts, on devices that have no kernel of it."""
    draw = np.random.default_rng(2)
    x, g = draw.standard_normal(shape), draw.standard_normal((*shape[:-1], 5))
    weight, bias = tn._C._ops._linear_backward_weight(tn.tensor(g), tn.tensor(x))
    rows = (g.reshape(-1, 5), x.reshape(-1, 3))
    np.testing.assert_allclose(weight.numpy(), rows[0].T @ rows[1], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(bias.numpy(), rows[0].sum(0), rtol=1e-12, atol=1e-14)


def test_what_is_kept_for_gradients() -> None:
    """Beside the result: what gelu was taken of, and gelu of it; of gradients those of both."""
    x, w, b, v, c = tensors(5)
    want = x.detach().numpy() @ w.detach().numpy().T + b.detach().numpy()
    cut = want * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (want + 0.044715 * want**3)))
    _, pre = _nn._linear_gelu(x, w, b, True)
    np.testing.assert_allclose(pre.detach().numpy(), want, rtol=1e-12)
    _, hidden, pre = _nn._linear_gelu_linear(x, w, b, v, c)
    np.testing.assert_allclose(pre.detach().numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(hidden.detach().numpy(), cut, rtol=1e-12)
    pre, g = pre.detach().requires_grad_(), tn.cos(tn.arange(36.0).double()).reshape(3, 2, 6)
    (slope,) = tn.autograd.grad(gelu(pre) @ v.detach().T, pre, g)
    got = tn._C._ops._linear_gelu_backward(g, v.detach(), pre.detach())
    np.testing.assert_allclose(got[0].numpy(), slope.numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(got[1].numpy(), slope.numpy().sum((0, 1)), rtol=1e-10, atol=1e-12)
    y = x.detach() @ w.detach().T
    got = tn._C._ops._linear_backward_weight(y, x.detach())
    weight = np.einsum("abi,abj->ij", y.numpy(), x.detach().numpy())
    np.testing.assert_allclose(got[0].numpy(), weight, rtol=1e-12)
    np.testing.assert_allclose(got[1].numpy(), y.numpy().sum((0, 1)), rtol=1e-12)
