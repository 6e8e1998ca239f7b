"""Functions whose gradients a transform takes: what they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tenon as tn
from tenon.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

Function = Callable[[Any], Any]
ONE = tn.tensor(1.0)
TRANSFORMS: dict[str, Callable[[Function, Any], Any]] = {
    "grad": lambda f, x: grad(f)(x),
    "grad_and_value": lambda f, x: grad_and_value(f)(x),
    "vjp": lambda f, x: vjp(f, x)[1](ONE),
    "jvp": lambda f, x: jvp(f, (x,), (x,)),
    "linearize": lambda f, x: linearize(f, x),
    "jacrev": lambda f, x: jacrev(f)(x),
    "jacfwd": lambda f, x: jacfwd(f)(x),
    "hessian": lambda f, x: hessian(f)(x),
}
CAPTURED = r"in-place operation \((add|copy)_\) that would mutate a captured Tensor"


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("part", [False, True])
def test_a_captured_tensor_gets_no_history(name: str, part: bool) -> None:
    y = tn.zeros(2, 3)

    def f(x: Any) -> Any:
        if part:
            y[1] = x
        else:
            y.add_(x)
        return (y * x).sum()

    with pytest.raises(RuntimeError, match=CAPTURED):
        TRANSFORMS[name](f, tn.ones(3))
    assert not y.requires_grad and y.equal(tn.zeros(2, 3))
    y.add_(tn.ones(3, requires_grad=True))  # outside of them it is as ever
    assert y.requires_grad


def test_what_a_transform_around_has_made_is_captured_too() -> None:
    def f(x: Any) -> Any:
        y = tn.zeros(())

        def g(z: Any) -> Any:
            y.add_(z)
            return y * z

        return grad(g)(x)

    for transform in (grad, lambda h: h):
        with pytest.raises(RuntimeError, match=CAPTURED):
            transform(f)(tn.tensor(2.0))


def test_what_the_function_has_made_is_written_freely() -> None:
    def g(z: Any) -> Any:
        return tn.zeros(()).add_(z) * z, tn.zeros(())

    def f(x: Any) -> Any:
        y = tn.zeros(3).add_(x)
        z = tn.empty_like(y).copy_(y)
        z[1:] = x[1:]
        w = tn.tensor([1.0, 2, 3]).mul_(x)
        slope, made_inside = grad(g, has_aux=True)(x[0])
        made_inside.add_(x[0]).mul_(slope)  # 2 x0 x0
        return (z * x + w).sum() + made_inside

    x = tn.arange(3.0)
    assert grad(f)(x).tolist() == [1.0, 4.0, 7.0]
    assert hessian(f)(x).equal(tn.diag(tn.tensor([6.0, 2, 2])))


@pytest.mark.parametrize("transform", [grad, jacrev, jacfwd])
def test_an_argument_keeps_what_is_written_and_gets_no_history(transform: Any) -> None:
    def f(x: Any, d: Any) -> Any:
        d["y"][1:].add_(x[1:])
        return (d["y"] * x).sum()

    x, y = tn.arange(3.0), tn.zeros(3)
    assert transform(f)(x, {"y": y}).tolist() == [0.0, 2.0, 4.0]
    assert y.tolist() == [0.0, 1.0, 2.0] and not y.requires_grad
    y.zero_()
    assert transform(lambda d, x: f(x, d), 1)({"y": y}, x).tolist() == [0.0, 2.0, 4.0]
    assert not y.requires_grad


def test_named_and_mapped_arguments_get_no_history() -> None:
    def f(x: Any, y: Any) -> Any:
        y.add_(x)
        return (y * x).sum()

    x, y = tn.arange(6.0).view(2, 3), tn.zeros(2, 3)
    assert grad(f)(x, y=y).equal(2 * x) and y.equal(x) and not y.requires_grad
    y.zero_()
    assert vmap(grad(f))(x, y).equal(2 * x) and y.equal(x) and not y.requires_grad


def test_an_argument_with_a_history_goes_on_with_it() -> None:
    w = tn.ones(3, requires_grad=True)
    y = w * 1
    slope = grad(lambda x, y: (y.add_(x) * x).sum())(tn.arange(3.0), y)
    assert slope.tolist() == [1.0, 3.0, 5.0]
    assert tn.autograd.grad(y.sum(), w)[0].equal(tn.ones(3))


def test_what_is_differentiated_is_not_written() -> None:
    inner = tn.arange(3.0, requires_grad=True) * 2
    for x in (tn.arange(3.0), inner):
        with pytest.raises(RuntimeError, match="leaf Variable|captured Tensor"):
            grad(lambda t: t.mul_(2).sum())(x)
    assert inner.tolist() == [0.0, 2.0, 4.0]


def test_counters_are_captured_and_written() -> None:
    m = tn.nn.BatchNorm1d(3)
    parameters = dict(m.named_parameters())
    x = tn.randn(4, 3)
    grad(lambda p: tn.func.functional_call(m, p, (x,)).square().sum())(parameters)
    assert m.num_batches_tracked == 1 and not m.running_mean.requires_grad


def test_a_function_that_fails_leaves_no_transform_behind() -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    for transform in TRANSFORMS.values():
        with pytest.raises(KeyError):
            transform(f, tn.ones(2))
    y = tn.zeros(2)
    y.add_(tn.ones(2, requires_grad=True))
    assert y.requires_grad
