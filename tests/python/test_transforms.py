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


# ---- A Function's own jvp ------------------------------------------------------------------------


class Tripled(tn.autograd.Function):
    """sin, whose jvp is three times the derivative, so that it is told from backward's."""

    @staticmethod
    def forward(x: Any, *factor: Any) -> Any:
        return x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        x, _ = ctx.saved_tensors
        return t.mul_(x.cos() * 3)


X = tn.tensor([0.5, 1.0, -2.0])


def test_jvp_asks_a_function_for_its_own() -> None:
    f, t = Tripled.apply, tn.tensor([1.0, -1.0, 2.0])
    slope = 3 * X.cos()
    assert tn.allclose(jvp(f, (X,), (t,))[1], slope * t)
    assert tn.allclose(linearize(f, X)[1](t), slope * t)
    assert tn.allclose(jacfwd(f)(X), slope.diag())
    assert tn.allclose(vmap(lambda x: jvp(f, (x,), (x,))[1])(X), slope * X)
    around = jvp(lambda x: f(x * 2).exp(), (X,), (t,))[1]
    assert tn.allclose(around, (2 * X).sin().exp() * 3 * (2 * X).cos() * 2 * t)
    with tn.autograd.forward_ad.dual_level():
        dual = tn.autograd.forward_ad.make_dual(X, t.clone())
        assert tn.allclose(tn.autograd.forward_ad.unpack_dual(f(dual)).tangent, slope * t)


def test_gradients_beside_and_around_ask_for_backward() -> None:
    f = Tripled.apply
    assert tn.allclose(jacrev(f)(X), X.cos().diag())
    assert tn.allclose(grad(lambda x: jvp(f, (x,), (x,))[0].sum())(X), X.cos())
    tangent = grad(lambda x: jvp(f, (x,), (x,))[1].sum())(X)  # of 3 x cos(x)
    assert tn.allclose(tangent, 3 * X.cos() - 3 * X * X.sin())
    value, slope = jvp(grad(lambda x: f(x).sum()), (X,), (tn.ones(3),))
    assert tn.allclose(value, X.cos()) and tn.allclose(slope, -X.sin())


class OnlyForward(tn.autograd.Function):
    @staticmethod
    def forward(x: Any, y: Any, n: int) -> Any:
        return x * y * n, x + y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_forward(*inputs[:2])
        ctx.n = inputs[2]

    @staticmethod
    def jvp(ctx: Any, s: Any, t: Any, none: None) -> Any:
        assert none is None
        x, y = ctx.saved_tensors
        return (s * y + t * x) * ctx.n, s + t


def test_a_jvp_without_a_backward_will_do() -> None:
    y = X + 3
    a, b = jvp(lambda x, y: OnlyForward.apply(x, y, 4), (X, y), (tn.ones(3), X))[1]
    assert tn.allclose(a, (y + X * X) * 4) and tn.allclose(b, X + 1)
    a, b = jvp(lambda x: OnlyForward.apply(x, y, 4), (X,), (X,))[1]
    assert tn.allclose(a, X * y * 4) and tn.allclose(b, X)
    with pytest.raises(NotImplementedError, match="backward or vjp"):
        grad(lambda x: OnlyForward.apply(x, y, 4)[0].sum())(X)


class Opaque(Tripled):
    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        return tn.tensor((t.detach() * 2).tolist())


def test_a_jvp_that_hides_how_it_computes_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="jvp of Opaque has to be made of diff"):
        jvp(Opaque.apply, (X,), (X,))


# ---- What is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"])
def test_autograd_functional_gives_a_transform_no_constants(name: str) -> None:
    product = getattr(tn.autograd.functional, name)

    def f(x: Any, **options: Any) -> Any:
        more = (x,) if name in ("jvp", "hvp", "vhp") else ()
        found = product(lambda z: z.exp().sum(), x, *more, **options)
        return (found if isinstance(found, tn.Tensor) else found[1]).sum()

    for transform in (*TRANSFORMS.values(), lambda f, x: vmap(f)(x.expand(2, 3))):
        with pytest.raises(RuntimeError, match=r"perhaps using torch.autograd.functional.\* APIs"):
            transform(f, X)
    expected = {"vjp": X.exp(), "jacobian": X.exp()}.get(name, (1 + X) * X.exp())
    if name != "hessian":
        assert tn.allclose(grad(lambda x: f(x, create_graph=True))(X), expected)


def test_backward_and_requires_grad_are_for_outside() -> None:
    w = tn.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"backward\(\) called inside a functorch transform"):
        grad(lambda x: (x.exp().sum().backward(), x.sum())[1])(w)
    assert w.grad is None
    with pytest.raises(RuntimeError, match=r"attempting to call Tensor.requires_grad_\(\)"):
        vmap(lambda x: x.requires_grad_() * 2)(X)


def test_structures_of_tangents_and_cotangents_are_compared() -> None:
    back = vjp(lambda x: (x, {"a": x}), X)[1]
    assert back((X, {"a": X}))[0].equal(2 * X)
    for wrong in ((X, X), (X, {"b": X}), [X, {"a": X}], X, (X, {"a": (X,)})):
        with pytest.raises(RuntimeError, match="structure of cotangents"):
            back(wrong)
    with pytest.raises(RuntimeError, match="same python structure"):
        jvp(lambda d: d["a"], ({"a": X},), ({"b": X},))
    both = {"a": X, "b": X}  # in another order its tangents would go to the wrong arguments
    with pytest.raises(RuntimeError, match=r"Got primals with structure TreeSpec\(tuple"):
        jvp(lambda d: d["a"], (both,), ({"b": X, "a": 0 * X},))


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (lambda x: x, "to have two returns.*Tensor"),
        (lambda x: (x, 0, 0), "to have two returns.*3 returns"),
        (lambda x: (x, (0, 0)), "incompatible .output, out_dims. tuple"),
    ],
)
def test_what_a_vmap_rule_returns(returned: Any, text: str) -> None:
    class Ruled(Tripled):
        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return returned(x)

    with pytest.raises(RuntimeError, match=text):
        vmap(Ruled.apply)(X)


def test_one_rule_is_enough() -> None:
    class Both(Tripled):
        generate_vmap_rule = True

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x, 0

    with pytest.raises(RuntimeError, match="both generate_vmap_rule=True and an overridden vmap"):
        vmap(Both.apply)(X)


def test_a_rule_without_a_history_leaves_gradients_to_the_function() -> None:
    class Numbers(Tripled):
        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return tn.tensor(x.detach().sin().tolist()), 0

    f = Numbers.apply
    assert tn.allclose(vmap(f)(X), X.sin())
    assert tn.allclose(vmap(grad(lambda x: f(x).square()))(X), (2 * X).sin())
    assert tn.allclose(grad(lambda x: vmap(f)(x).sum())(X), X.cos())
    w = X.clone().requires_grad_()
    vmap(f)(w).sum().backward()
    assert tn.allclose(w.grad, X.cos())
    with tn.no_grad():
        assert not vmap(f)(w).requires_grad
