"""Jacobians, Hessians and `is_grads_batched`, whose rows are computed by one pass where they are
many, and singly where something must see each of them: hooks, modes, a program's own functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tenon as tn
from tenon._transform import rows
from tenon.autograd import functional, grad
from tenon.func import hessian, jacfwd, jacrev
from tenon.utils._python_dispatch import TorchDispatchMode

N = 80  # enough to go at once


@pytest.fixture
def passes(monkeypatch):
    """How many rows each pass for all had, -1 for one that was given up."""
    seen = []
    whole = rows._all_at_once

    def counted(*args):
        seen.append(-1)
        found = whole(*args)
        seen[-1] = args[-1]
        return found

    monkeypatch.setattr(rows, "_all_at_once", counted)
    return seen


@pytest.fixture
def matrix():
    return np.random.default_rng(5).standard_normal((N, 5))


def sines(matrix):
    a = tn.tensor(matrix)
    return lambda x: (a @ x).sin()


def slopes(matrix, x):
    """The Jacobian of the sines, by NumPy."""
    return np.cos(matrix @ x)[:, None] * matrix


@pytest.mark.parametrize("few", [False, True])
def test_a_jacobian_is_that_of_numpy(matrix, passes, few):
    matrix = matrix[:3] if few else matrix
    x = np.linspace(-1, 1, 5)
    want = slopes(matrix, x)
    f = sines(matrix)
    for made in (jacrev(f)(tn.tensor(x)), functional.jacobian(f, tn.tensor(x))):
        np.testing.assert_allclose(made.numpy(), want, rtol=1e-12)
    assert passes == ([] if few else [N, N])


def test_a_jacobian_column_by_column_is_that_of_numpy(matrix, passes):
    x = np.linspace(-1, 1, N)
    made = jacfwd(sines(matrix.T))(tn.tensor(x))
    np.testing.assert_allclose(made.numpy(), slopes(matrix.T, x), rtol=1e-12)
    assert passes == [N]


def test_a_hessian_is_that_of_numpy(passes):
    x = np.linspace(-1, 1, N)
    for made in (hessian(lambda v: (v**3).sum() * v[0])(tn.tensor(x)),
                 functional.hessian(lambda v: (v**3).sum() * v[0], tn.tensor(x))):  # fmt: skip
        want = np.diag(6 * x * x[0])
        want[0] += 3 * x**2
        want[:, 0] += 3 * x**2
        np.testing.assert_allclose(made.numpy(), want, rtol=1e-12, atol=1e-12)
    assert passes == [N, N]


def test_chunks_have_the_size_that_is_asked(matrix, passes):
    x = np.linspace(-1, 1, 5)
    made = jacrev(sines(np.concatenate([matrix] * 3)), chunk_size=100)(tn.tensor(x))
    np.testing.assert_allclose(made.numpy(), slopes(np.concatenate([matrix] * 3), x), rtol=1e-12)
    assert passes == [100, 100]  # and 40 singly


def test_a_long_result_goes_in_parts_that_caches_hold(passes):
    n = 2048
    made = jacrev(lambda x: x * x)(tn.arange(float(n)))
    assert made.equal(tn.diag(2 * tn.arange(float(n))))
    assert len(passes) == n * n // rows._ROOM and sum(passes) == n


def test_several_results_and_arguments(passes):
    w = tn.randn(N, 4, dtype=tn.float64)

    def f(a, b):
        return {"prod": (w @ a) * b, "sum": b.sum(), "const": tn.ones(3)}

    a, b = tn.randn(4, dtype=tn.float64), tn.randn(N, dtype=tn.float64)
    made = jacrev(f, argnums=(0, 1))(a, b)
    assert made["prod"][0].allclose(w * b[:, None]) and made["prod"][1].allclose((w @ a).diag())
    assert made["sum"][0].equal(tn.zeros(4, dtype=tn.float64))
    assert made["sum"][1].equal(tn.ones(N, dtype=tn.float64))
    assert made["const"][0].equal(tn.zeros(3, 4)) and made["const"][1].shape == (3, N)
    other = jacfwd(f, argnums=(0, 1))(a, b)
    for key in made:
        assert all(p.allclose(q.to(p.dtype)) for p, q in zip(made[key], other[key], strict=True))
    assert max(passes) == N and min(passes) > 0


def test_gradients_through_a_jacobian(matrix, passes):
    """A penalty on slopes is learnt from: what was captured keeps its history."""
    w = tn.tensor(matrix, requires_grad=True)
    x = tn.linspace(-1, 1, 5, dtype=tn.float64)
    total = (jacrev(lambda v: (w @ v).sin())(x) ** 2).sum()
    (found,) = grad(total, w)
    z = matrix @ x.numpy()
    norms = (matrix**2).sum(1)
    want = (2 * np.cos(z) ** 2)[:, None] * matrix
    want -= (np.sin(2 * z) * norms)[:, None] * x.numpy()
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-10)
    assert passes == [N]


def test_a_jacobian_of_each_element_of_a_map(matrix, passes):
    x = np.random.default_rng(1).standard_normal((3, 5))
    made = tn.vmap(jacrev(sines(matrix)))(tn.tensor(x))
    np.testing.assert_allclose(made.numpy(), [slopes(matrix, v) for v in x], rtol=1e-12)
    assert passes == [N]


def test_batched_gradients(passes):
    x = tn.linspace(0, 1, 6, dtype=tn.float64, requires_grad=True)
    u = tn.ones(2, requires_grad=True)
    y, seeds = x.exp(), tn.randn(N, 6, dtype=tn.float64)
    made, none = grad(
        y, (x, u), seeds, retain_graph=True, is_grads_batched=True, allow_unused=True
    )  # fmt: skip
    assert made.allclose(seeds * y.detach()) and none is None
    filled = grad(
        y, (x, u), seeds, retain_graph=True, is_grads_batched=True, materialize_grads=True
    )[1]
    assert filled.equal(tn.zeros(N, 2))
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        grad(y, (x, u), seeds, retain_graph=True, is_grads_batched=True)
    assert grad(y, x, seeds[:0], retain_graph=True, is_grads_batched=True)[0].shape == (0, 6)
    made = grad([y, y.sum()], x, [seeds, tn.ones(N)], is_grads_batched=True)[0]
    assert made.allclose((seeds + 1) * y.detach())
    with pytest.raises(RuntimeError, match="a second time"):
        grad(y, x, tn.ones_like(y))
    assert passes == [N, N, -1, N - 1]


class Halves(tn.autograd.Function):
    """Its backward looks at numbers."""

    looked = 0

    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, g):
        Halves.looked += 1
        return g / 2 if g.sum().item() > 0 else g * 2


def test_a_function_that_looks_at_numbers_sees_every_row(passes):
    x = tn.ones(N, requires_grad=True)
    seeds = tn.diag(tn.tensor([-1.0, 1.0]).repeat(N // 2))
    before = Halves.looked
    (made,) = grad(Halves.apply(x), x, seeds, is_grads_batched=True)
    assert made.equal(seeds * tn.where(seeds > 0, 0.5, 2.0))
    assert passes == [-1] and Halves.looked - before >= N


class Thirds(tn.autograd.Function):
    """Its backward computes and does not look."""

    passed = 0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3 / 3

    @staticmethod
    def backward(ctx, g):
        Thirds.passed += 1
        assert g.shape == (N,) and "Row" in repr(g)
        return g * ctx.saved_tensors[0] ** 2


def test_a_function_that_only_computes_runs_once(passes):
    before = Thirds.passed
    x = tn.linspace(0, 1, N)
    assert jacrev(Thirds.apply)(x).allclose(tn.diag(x**2))
    assert passes == [N] and Thirds.passed - before == 1


def test_hooks_change_the_rows(passes):
    x = tn.ones(N, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 3)
    (made,) = grad(y.sin(), x, tn.eye(N), is_grads_batched=True)
    assert made.allclose(tn.eye(N) * 6 * math.cos(2.0))
    assert passes == [N - 1]


def test_modes_see_every_row(passes):
    class Counting(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Counting.calls += "mul" in str(func)
            return func(*args, **(kwargs or {}))

    x = tn.ones(N)
    with Counting():
        made = jacrev(lambda v: v * 3)(x)
    assert made.equal(3 * tn.eye(N)) and passes == [] and Counting.calls > N


def test_sums_of_dtypes_and_numbers(passes):
    """Numbers in formulas change no dtype, whichever side of an operator they stand on."""
    for dtype in (tn.float32, tn.bfloat16):
        x = tn.linspace(0.5, 1.5, N, dtype=dtype)
        made = jacrev(lambda v: 2 / v + (2**v) - v.rsqrt() + v.sum().abs())(x)
        singly = tn.stack([
            grad((2 / v + (2**v) - v.rsqrt() + v.sum().abs())[i], v)[0]
            for i, v in enumerate([x.clone().requires_grad_() for _ in range(N)])
        ])  # fmt: skip
        assert made.dtype == dtype and made.allclose(singly)
    assert passes == [N, N]


def test_what_has_no_rule_goes_singly(passes):
    table = tn.randn(7, N)
    made = jacrev(lambda t: tn.nn.functional.embedding(tn.tensor([2]), t).flatten())(table)
    want = tn.zeros(N, 7, N)
    want[:, 2] = tn.eye(N)
    assert made.equal(want) and passes == [-1]
