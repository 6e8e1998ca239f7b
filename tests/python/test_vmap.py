"""vmap and the transforms of tenon.func, against loops, finite differences and PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import func
from tenon.nn import functional as F

try:
    import torch
except ImportError:
    torch = None


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)


def rand(*shape: int) -> Any:
    return tn.randn(*shape, dtype=tn.float64)


def test_dimensions() -> None:
    x, y = rand(3, 4, 5), rand(4, 3)
    close(tn.vmap(lambda t: t.sum(0), in_dims=1)(x), x.sum(0))
    close(tn.vmap(lambda t: t * 2, in_dims=-1, out_dims=1)(x), (x * 2).movedim(-1, 1))
    close(tn.vmap(tn.mv, in_dims=(0, 1))(x.transpose(1, 2), y), tn.stack([
        x[i].t() @ y[:, i] for i in range(3)]))  # fmt: skip
    a, b = tn.vmap(lambda t: (t, t.sum()), out_dims=(1, 0))(y)
    assert a.shape == (3, 4) and b.shape == (4,)
    got = tn.vmap(lambda d, s: {"z": d["x"] + s}, in_dims=({"x": 1, "k": None}, None))(
        {"x": y, "k": 3}, 2.0
    )
    close(got["z"], y.t() + 2)
    close(tn.vmap(lambda t, *, w: t + w)(y, w=y[0]), y + y[0])
    close(tn.vmap(lambda t: tn.ones(2), in_dims=0)(y), tn.ones(4, 2))
    close(tn.vmap(lambda t: y[0], out_dims=None)(x), y[0])


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_chunks(chunk: int) -> None:
    x = rand(7, 3)
    seen: list[int] = []

    def f(t: Any) -> Any:
        seen.append(1)
        return t.cumsum(0), t.sum()

    a, b = tn.vmap(f, out_dims=(1, 0), chunk_size=chunk)(x)
    close(a, x.cumsum(1).t())
    close(b, x.sum(1))
    assert len(seen) == -(-7 // chunk)


def test_nested() -> None:
    x, y = rand(3, 4), rand(5, 4)
    close(tn.vmap(lambda a: tn.vmap(lambda b: tn.dot(a, b))(y))(x), x @ y.t())
    close(tn.vmap(tn.vmap(lambda a: a * a.sum()))(x.reshape(3, 2, 2)),
          (x.reshape(3, 2, 2) * x.reshape(3, 2, 2).sum(-1, keepdim=True)))  # fmt: skip
    got = tn.vmap(lambda a: tn.vmap(lambda b: (a > b).double().cumsum(0).sum())(y))(x)
    want = [[(a > b).double().cumsum(0).sum().item() for b in y] for a in x]
    np.testing.assert_allclose(got.numpy(), want)


def test_in_place() -> None:
    x = rand(3, 4)

    def f(t: Any) -> Any:
        t = t * 1
        t.add_(1)
        t[0] = 7
        t += t[1].clone()
        t.clamp_(max=8)
        return t

    want = tn.stack([f(t) for t in x])
    close(tn.vmap(f)(x), want)
    like = functools.partial(tn.zeros, dtype=tn.float64)
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        tn.vmap(lambda t: like(4).add_(t))(x)
    index = tn.tensor([0, 3, 1, 1])
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        tn.vmap(lambda t: like(4).scatter_add_(0, index, t))(x)


def test_copies_that_are_written_are_the_elements_own() -> None:
    """scatter_add and kin write into a copy of a tensor that is the same for all elements."""
    own, index = rand(3, 2), tn.tensor([[0, 3], [1, 1], [2, 0]])
    same = rand(4)
    calls: list[Any] = [
        lambda i, v: same.scatter_add(0, i, v),
        lambda i, v: same.scatter(0, i, v),
        lambda i, v: same.index_add(0, i, v),
        lambda i, v: same.index_copy(0, i, v),
        lambda i, v: same.index_fill(0, i, 3.0) + v.sum(),
        lambda i, v: same.index_put((i,), v, accumulate=True),
        lambda i, v: same.scatter_reduce(0, i, v, "amax"),
    ]
    for call in calls:
        want = tn.stack([call(i, v) for i, v in zip(index, own)])
        close(tn.vmap(call)(index, own), want)


def test_numbers_do_not_win_promotion() -> None:
    x, s = tn.ones(3, 2), tn.ones(3, dtype=tn.float64)
    assert tn.vmap(lambda a, b: a * b)(x, s).dtype == tn.float32
    assert tn.vmap(lambda a, b: a * b, in_dims=(None, 0))(tn.ones(2).long(), s).dtype == tn.float64


def test_modules_and_control_flow() -> None:
    net = tn.nn.Sequential(
        tn.nn.Conv2d(1, 2, 3), tn.nn.ReLU(), tn.nn.MaxPool2d(2), tn.nn.Flatten(),
        tn.nn.Linear(18, 4), tn.nn.LayerNorm(4), tn.nn.Softmax(-1),
    ).double()  # fmt: skip
    x = rand(3, 2, 1, 8, 8)
    close(tn.vmap(net)(x), tn.stack([net(t) for t in x]))
    with pytest.raises(RuntimeError, match="data-dependent control flow"):
        tn.vmap(lambda t: t if t.sum() > 0 else -t)(x)
    for name in ("item", "tolist", "numpy"):
        with pytest.raises(RuntimeError, match=r"calling .item\(\)"):
            tn.vmap(lambda t, n=name: getattr(t.sum(), n)())(x)


LEAKED: list[Any] = []


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tn.vmap(tn.add)(tn.ones(2), tn.ones(3)), ValueError, "same size in the mapped"),
        (lambda: tn.vmap(tn.add, in_dims=(0,))(tn.ones(2), tn.ones(2)), ValueError, "structure"),
        (lambda: tn.vmap(tn.exp, in_dims=3)(tn.ones(2)), ValueError, "Got in_dim=3"),
        (lambda: tn.vmap(tn.exp, in_dims=None)(tn.ones(2)), ValueError, "at least one input"),
        (lambda: tn.vmap(lambda t: 3)(tn.ones(2)), ValueError, "must only return Tensors"),
        (lambda: tn.vmap(tn.exp, out_dims=None)(tn.ones(2)), ValueError, "out_dim is None"),
        (lambda: tn.vmap(tn.add, in_dims=(0, 0))(tn.ones(2), 3), ValueError, "non-Tensor"),
        (lambda: tn.vmap(tn.bernoulli)(tn.ones(2)), RuntimeError, "randomness error mode"),
        (lambda: tn.vmap(tn.exp, randomness="some"), RuntimeError, "Only allowed values"),
        (lambda: tn.vmap(tn.exp, chunk_size=0), ValueError, "greater than 0"),
        (lambda: (tn.vmap(lambda t: LEAKED.append(t) or t)(tn.ones(2)), LEAKED[0] + 1),
         RuntimeError, "outside of the vmap"),
    ],
)  # fmt: skip
def test_errors(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_randomness() -> None:
    x = tn.full((50, 20), 0.5)
    different = tn.vmap(tn.bernoulli, randomness="different")(x)
    assert len({tuple(r) for r in different.tolist()}) > 40
    same = tn.vmap(tn.bernoulli, randomness="same")(x)
    assert len({tuple(r) for r in same.tolist()}) == 1
    drop = tn.vmap(lambda t: F.dropout(t, 0.5), randomness="same")(x)
    assert len({tuple(r) for r in drop.tolist()}) == 1


# -- gradients ------------------------------------------------------------------------------------


def mlp(p: dict[str, Any], x: Any, y: Any) -> Any:
    h = F.linear(x, p["w"], p["b"]).tanh()
    return F.mse_loss(F.linear(h, p["v"]), y)


def test_gradients_per_sample() -> None:
    p = {"w": rand(5, 3), "b": rand(5), "v": rand(2, 5)}
    x, y = rand(6, 3), rand(6, 2)
    got = tn.vmap(func.grad(mlp), in_dims=(None, 0, 0))(p, x, y)
    for i in range(6):
        q = {k: v.clone().requires_grad_() for k, v in p.items()}
        mlp(q, x[i], y[i]).backward()
        for k in p:
            close(got[k][i], q[k].grad)
    grads, values = tn.vmap(func.grad_and_value(mlp), in_dims=(None, 0, 0))(p, x, y)
    close(grads["w"], got["w"])
    assert not grads["w"].requires_grad and values.shape == (6,)


def test_gradients_flow_through_vmap() -> None:
    x = rand(4, 3).requires_grad_()
    w = rand(3).requires_grad_()
    assert tn.autograd.gradcheck(lambda a, b: tn.vmap(lambda t: (t * b).sin().sum())(a), (x, w))
    assert tn.autograd.gradgradcheck(lambda a, b: tn.vmap(lambda t: tn.dot(t, b))(a), (x, w))


def test_transforms() -> None:
    def f(x: Any) -> Any:
        return (x**3).sum() + x[0] * x[1]

    x = rand(3)
    close(func.grad(f)(x), 3 * x**2 + tn.stack([x[1], x[0], x[2] * 0]))
    want = tn.diag(6 * x)
    want[0, 1] = want[1, 0] = 1
    close(func.hessian(f)(x), want)
    close(func.grad(lambda t: func.grad(f)(t).sum())(x), want.sum(0))
    a = rand(4, 3)
    close(func.jacrev(lambda t: a @ t)(x), a)
    close(func.jacfwd(lambda s, t: a @ t * s, argnums=1)(2.0, x), 2 * a)
    value, back = func.vjp(lambda s, t: (a @ t) * s, tn.tensor(2.0, dtype=tn.float64), x)
    v = rand(4)
    by_s, by_t = back(v)
    close(value, 2 * (a @ x))
    close(by_s, v @ (a @ x))
    close(by_t, 2 * (a.t() @ v))
    out, tangent = func.jvp(lambda t: a @ t, (x,), (x,))
    close(out, tangent)
    close(tn.vmap(func.hessian(f))(tn.stack([x, 2 * x]))[1], func.hessian(f)(2 * x))
    (first, _), aux = func.grad(lambda s, t: (s * t, "more"), argnums=(0, 1), has_aux=True)(
        tn.tensor(2.0), tn.tensor(3.0)
    )
    assert first.item() == 3 and aux == "more"
    with pytest.raises(RuntimeError, match="scalar Tensor"):
        func.grad(lambda t: t)(x)


TRANSFORMED = {
    "grad": lambda f, x: func.grad(f)(x[0]),
    "grad of each": lambda f, x: tn.vmap(func.grad(f))(x),
    "grad of grad": lambda f, x: func.grad(lambda t: func.grad(f)(t).sum())(x[0]),
    "vjp": lambda f, x: func.vjp(f, x[0])[1](tn.tensor(2.0, dtype=tn.float64))[0],
    "value of vjp": lambda f, x: func.vjp(f, x[0])[0],
    "jvp": lambda f, x: func.jvp(f, (x[0],), (x[1],))[1],
    "linearize": lambda f, x: func.linearize(f, x[0])[1](x[1]),
    "jacrev": lambda f, x: func.jacrev(f)(x[0]),
    "jacfwd": lambda f, x: func.jacfwd(f)(x[0]),
    "hessian of each": lambda f, x: tn.vmap(func.hessian(f))(x),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_results_know_what_the_function_looked_at(name: str) -> None:
    """A tensor that reaches the function from outside gets its gradient through a transform."""
    x, w = rand(2, 3), rand(3).requires_grad_()

    def through(w: Any) -> Any:
        return TRANSFORMED[name](lambda t: (t * w).sin().sum() * t.dot(t), x)

    assert tn.autograd.gradcheck(through, (w,))
    with tn.no_grad():
        assert not through(w).requires_grad
    assert not through(w.detach()).requires_grad


def test_inner_gradients_know_outer_variables() -> None:
    fixed = rand(3)

    def outer(a: Any) -> Any:
        return func.grad(lambda b: (a * b**2).sum())(fixed).sum()

    close(func.grad(outer)(rand(3)), 2 * fixed)
    close(tn.vmap(func.grad(outer))(rand(2, 3))[1], 2 * fixed)


def test_functions_of_modules() -> None:
    net = func.replace_all_batch_norm_modules_(tn.nn.Sequential(tn.nn.BatchNorm1d(2)).double())
    assert net[0].running_mean is None and not net[0].track_running_stats
    x = rand(3, 4, 2)
    close(tn.vmap(net)(x), tn.stack([net(t) for t in x]))
    close(func.functionalize(lambda t: t.clone().add_(1))(x), x + 1)
    with pytest.raises(RuntimeError, match="Valid options"):
        func.functionalize(net, remove="views")


def test_ensembles() -> None:
    nets = [tn.nn.Linear(3, 2).double() for _ in range(4)]
    params, buffers = func.stack_module_state(nets)
    x = rand(5, 3)
    got = tn.vmap(lambda p, b: func.functional_call(nets[0], (p, b), (x,)))(params, buffers)
    close(got, tn.stack([net(x) for net in nets]))


def test_own_operators() -> None:
    class Cube(tn.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            assert x.dim() == 1
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 3 * ctx.saved_tensors[0] ** 2 * g

    x = rand(3, 4).requires_grad_()
    close(tn.vmap(Cube.apply)(x), x**3)
    assert tn.autograd.gradcheck(tn.vmap(Cube.apply), (x,))
    calls: list[tuple[int, ...]] = []

    def twice(t: tn.Tensor, by: float = 2.0) -> tn.Tensor:
        calls.append(tuple(t.shape))
        return t * by

    op = tn.library.custom_op("pytest_vmap::twice", twice, mutates_args=())
    with tn.no_grad():
        close(tn.vmap(op)(x), 2 * x)
        assert calls == [(4,)] * 3

        def rule(info: Any, in_dims: Any, t: Any, by: float) -> Any:
            assert info.batch_size == 4 and in_dims == (0, None)
            return op(t, by), 0

        op.register_vmap(rule)
        calls.clear()
        close(tn.vmap(op, in_dims=1, out_dims=1)(x), 2 * x)
        assert calls == [(4, 3)]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "normalise": lambda m, x, w: (x - x.mean(0)) / x.std(0),
    "attention": lambda m, x, w: m.softmax(x @ x.t() / 2, dim=-1) @ x,
    "sorting": lambda m, x, w: m.sort(x.flatten())[0][:3] * x.argmax(),
    "slices": lambda m, x, w: m.cat([x[1:], w[None, :4], x[..., ::2].repeat(1, 2)]),
    "einsum": lambda m, x, w: m.einsum("ij,kj->ik", x, x).diagonal().sum(),
    "masks": lambda m, x, w: m.where(x > 0, x, w[:4]).masked_fill(x < -1, 0.0).tril(),
    "views": lambda m, x, w: x.view(2, -1).permute(1, 0).unsqueeze(1).squeeze().flatten(),
    "norm": lambda m, x, w: m.linalg.norm(x, dim=1) + x.abs().max(dim=1)[0] + x.T.norm(),
}


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("name", PROGRAMS)
def test_against_torch(name: str) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((3, 4, 4)), rng.standard_normal(6)
    program = PROGRAMS[name]
    theirs, ours = (
        m.vmap(lambda a, b, m=m: program(m, a, b), in_dims=(0, None))(
            m.from_numpy(x.copy()), m.from_numpy(w.copy())
        )
        for m in (torch, tn)
    )
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9)


def test_dropout_that_is_off_draws_nothing() -> None:
    x, w = tn.zeros(3, 4), tn.ones(4)
    lstm, attention = tn.nn.LSTM(4, 4), tn.nn.MultiheadAttention(4, 2)
    for quiet in (lambda t: t + F.dropout(w, training=False), lambda t: lstm(t[None])[0][0],
                  lambda t: attention(t[None], t[None], t[None])[0][0]):  # fmt: skip
        close(tn.vmap(quiet)(x), tn.stack([quiet(t) for t in x]))
    with pytest.raises(RuntimeError, match="randomness error mode"):
        tn.vmap(lambda t: F.scaled_dot_product_attention(t[None], t[None], t[None], None, 0.5))(x)


def test_different_mode_draws_for_tensors_that_are_not_mapped() -> None:
    x, w = tn.zeros(3, 40), tn.ones(40)
    draws = [
        lambda t: tn.rand_like(w),
        lambda t: F.dropout(w),
        F.gumbel_softmax,
        lambda t: tn.empty_like(t).normal_(),
        lambda t: t.new_zeros(40).uniform_(),
    ]
    for draw in draws:
        got = tn.vmap(lambda t, draw=draw: t + draw(t), randomness="different")(x)
        assert len({tuple(row) for row in got.tolist()}) == 3
    with pytest.raises(RuntimeError, match="normal_: Cannot ask for different"):
        tn.vmap(lambda t: t + w.clone().normal_(), randomness="different")(x)


def test_each_element_draws_its_own_numbers() -> None:
    """What makes a tensor of random numbers out of sizes, too."""
    x = tn.zeros(3)
    for draw in (lambda: tn.rand(4), lambda: tn.randn(4), lambda: tn.randint(0, 9**9, (4,)),
                 lambda: tn.randperm(50)):  # fmt: skip
        different = tn.vmap(lambda t, draw=draw: t + draw(), randomness="different")(x)
        assert len({tuple(row) for row in different.tolist()}) == 3
        same = tn.vmap(lambda t, draw=draw: t + draw(), randomness="same")(x)
        assert len({tuple(row) for row in same.tolist()}) == 1
        with pytest.raises(RuntimeError, match="randomness error mode"):
            tn.vmap(lambda t, draw=draw: t + draw())(x)
        inner = tn.vmap(lambda t, draw=draw: t + draw(), randomness="different")
        with pytest.raises(RuntimeError, match="randomness error mode"):
            tn.vmap(inner)(x[:, None])
