"""Forward-mode differentiation: dual tensors through every operator, against finite differences
and gradients; func.jvp, jacfwd, linearize; gradcheck's forward check."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.autograd.forward_ad as fwd
from tenon import func
from tenon.autograd import gradcheck

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ops"))
import table  # noqa: E402


def tangent_of(f: Callable[..., Any], *pairs: Any) -> Any:
    with fwd.dual_level():
        return fwd.unpack_dual(f(*(fwd.make_dual(x, v) for x, v in pairs))).tangent


def difference(f: Callable[..., Any], x: tn.Tensor, v: tn.Tensor, eps: float = 1e-6) -> tn.Tensor:
    return (f(x + eps * v) - f(x - eps * v)) / (2 * eps)


def in_place(x: tn.Tensor) -> tn.Tensor:
    y = x.clone()
    y.mul_(3).add_(x)
    y += x * x
    y[0] = x[1] * 2
    return y


FUNCTIONS: dict[str, Callable[[tn.Tensor], tn.Tensor]] = {
    "chain": lambda x: (x.sin() * 2 + 1).exp() / (x * x + 1),
    "attributes": lambda x: x.T @ x + (x.mT @ x).T,
    "index": lambda x: x[1:] * x[:2] + x[tn.tensor([0, 1])],
    "numbers": lambda x: (1 - x) * (2 / (x + 9)) + 2**x - (-x) ** 3,
    "in place": in_place,
    "lists": lambda x: tn.cat([x, x * x]) + tn.stack(x.split(2, 1), 1).sum(1).repeat(2, 2),
    "results": lambda x: x.max(1).values * x.sort(1)[0].sum(1) + x.topk(2, 1)[0].sum(1),
    "loop": lambda x: sum(row.sum() * i for i, row in enumerate(x)),
    "layers": lambda x: tn.nn.functional.layer_norm(x, (4,)).softmax(-1).logsumexp(1),
    "where": lambda x: tn.where(x > 0, x, x * x).prod(1),
    "convolution": lambda x: tn.nn.functional.conv1d(x[None], x[None, :, :2].clone()),
    "linear algebra": lambda x: tn.linalg.inv(x @ x.T + tn.eye(3, dtype=x.dtype)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_differences(name: str) -> None:
    tn.manual_seed(1)
    x, v = tn.randn(3, 4, dtype=tn.float64), tn.randn(3, 4, dtype=tn.float64)
    f = FUNCTIONS[name]
    got, want = tangent_of(f, (x, v)), difference(f, x, v)
    assert got.shape == want.shape
    assert tn.allclose(got, want, rtol=1e-6, atol=1e-7)
    with tn.no_grad():  # which is about the other mode
        assert tn.equal(tangent_of(f, (x, v)), got)


def differentiable() -> list[dict[str, Any]]:
    return [
        row for row in table.entries()
        if row["differentiable"] and "float64" in row["dtypes"] and not row["inplace_only"]
        and not row["random"] and ("torch" in row["where"] or "nn.functional" in row["where"])
    ]  # fmt: skip


@pytest.mark.parametrize("row", differentiable(), ids=lambda row: row["name"])
def test_every_operator_pushes_what_it_pulls(row: dict[str, Any]) -> None:
    """u . J v is the same, whether the tangent v was pushed or the gradient u was pulled."""
    for sample in row["samples"]:
        args = table.tensor_args(table.make_case(row, sample, "float64"))
        named = set(row["differentiable"])
        chosen = {
            n: t for n, t in args.items()
            if n in named and isinstance(t, tn.Tensor) and t.is_floating_point() and t.numel()
        }  # fmt: skip
        written = any("!" in a["type"] for a in row["args"])
        if not chosen or written:
            continue
        tn.manual_seed(2)
        tangents = {n: tn.randn_like(t) for n, t in chosen.items()}
        leaves = {n: t.detach().clone().requires_grad_() for n, t in chosen.items()}
        results = table.call(row, {**args, **leaves})
        results = [results] if isinstance(results, tn.Tensor) else list(results)
        results = [r for r in results if r.requires_grad]
        seeds = [tn.randn_like(r) for r in results]
        try:
            grads = tn.autograd.grad(results, list(leaves.values()), seeds, allow_unused=True)
        except RuntimeError as error:
            assert "derivative" in str(error)
            continue
        pulled = sum(
            (g * t).sum().item() for g, t in zip(grads, tangents.values()) if g is not None
        )
        with fwd.dual_level():
            duals = {n: fwd.make_dual(t, tangents[n]) for n, t in chosen.items()}
            out = table.call(row, {**args, **duals})
            parts = [fwd.unpack_dual(r) for r in ([out] if isinstance(out, tn.Tensor) else out)]
        pushed = [p.tangent for p in parts if p.tangent is not None]
        assert len(pushed) == len(seeds), sample
        got = sum((s * t).real.sum().item() for s, t in zip(seeds, pushed))
        assert got == pytest.approx(float(pulled), rel=1e-7, abs=1e-9), sample


def test_levels_and_errors() -> None:
    x = tn.ones(2)
    with pytest.raises(RuntimeError, match="no level exists"):
        fwd.make_dual(x, x)
    assert fwd.unpack_dual(x).tangent is None
    with fwd.dual_level():
        with pytest.raises(RuntimeError, match="Nested"):
            fwd.enter_dual_level()
        with pytest.raises(ValueError, match="floating point or complex"):
            fwd.make_dual(x.long(), x)
        with pytest.raises(RuntimeError, match="different size"):
            fwd.make_dual(x, tn.ones(3))
        with pytest.raises(RuntimeError, match="dtype"):
            fwd.make_dual(x, x.double())
        dual = fwd.make_dual(x, x * 3)
        assert fwd.unpack_dual(dual).tangent.tolist() == [3, 3]
        assert fwd.unpack_dual(x).tangent is None
        assert fwd.unpack_dual(dual.detach()).primal.tolist() == [1, 1]
        assert fwd.unpack_dual(dual > 0).tangent is None
        with pytest.raises(RuntimeError, match="out="):
            tn.add(dual, 1, out=tn.empty(2))
        view = dual * 1
        part = view[:1]
        assert fwd.unpack_dual(part).tangent.tolist() == [3]
        part.mul_(2)
        assert fwd.unpack_dual(view).tangent.tolist() == [6, 3]
    assert fwd.unpack_dual(dual).tangent is None
    with pytest.raises(RuntimeError, match="exit"):
        fwd.exit_dual_level()


def test_forward_over_reverse_and_back() -> None:
    tn.manual_seed(3)
    x = tn.randn(4, dtype=tn.float64, requires_grad=True)
    v = tn.randn(4, dtype=tn.float64)
    with fwd.dual_level():
        tangent = fwd.unpack_dual((fwd.make_dual(x, v) ** 3).sum()).tangent
        (grad,) = tn.autograd.grad(tangent, x)
    assert tn.allclose(grad, 6 * x * v)


def test_complex() -> None:
    tn.manual_seed(4)
    z, v = tn.randn(5, dtype=tn.complex128), tn.randn(5, dtype=tn.complex128)
    for f in (lambda t: t * t.conj(), lambda t: t.exp() / (t + 5), lambda t: t.abs()):
        assert tn.allclose(tangent_of(f, (z, v)), difference(f, z, v), rtol=1e-6)


def test_gradcheck_forward() -> None:
    tn.manual_seed(5)
    x = tn.randn(2, 3, dtype=tn.float64, requires_grad=True)
    y = tn.randn(3, dtype=tn.float64, requires_grad=True)
    assert gradcheck(lambda a, b: (a * b).tanh(), (x, y), check_forward_ad=True)
    assert gradcheck(
        lambda a, b: (a @ b, a.sum()), (x, y), check_forward_ad=True, check_backward_ad=False
    )
    z = tn.randn(3, dtype=tn.complex128, requires_grad=True)
    assert gradcheck(lambda a: a * a.conj() + a.real, (z,), check_forward_ad=True)

    class Wrong(tn.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: tn.Tensor) -> tn.Tensor:
            ctx.save_for_backward(t)
            return t * t

        @staticmethod
        def backward(ctx: Any, g: tn.Tensor) -> tn.Tensor:
            return g * 3 * ctx.saved_tensors[0]

    with pytest.raises(RuntimeError, match="mismatch"):
        gradcheck(Wrong.apply, (x,), check_forward_ad=True)


def test_functions() -> None:
    tn.manual_seed(6)
    x, v = tn.randn(3, dtype=tn.float64), tn.randn(3, dtype=tn.float64)

    def f(t: tn.Tensor) -> tn.Tensor:
        return tn.stack([t.sin(), t * t]).sum(1) * t[0]

    out, tangent = func.jvp(f, (x,), (v,))
    assert tn.allclose(tangent, difference(f, x, v), rtol=1e-6)
    value, push = func.linearize(f, x)
    assert tn.equal(value, out) and tn.allclose(push(v), tangent)
    assert tn.allclose(push(2 * v), 2 * tangent)
    assert tn.allclose(func.jacfwd(f)(x), func.jacrev(f)(x))
    assert tn.allclose(func.jacfwd(func.jacrev(f))(x), func.jacrev(func.jacrev(f))(x))
    both = func.jacfwd(lambda a, b: a @ b, argnums=(0, 1))(tn.eye(3, dtype=x.dtype), x)
    assert tn.equal(both[1], tn.eye(3, dtype=x.dtype)) and both[0].shape == (3, 3, 3)
    jac, aux = func.jacfwd(lambda t: (t * t, t.sum()), has_aux=True)(x)
    assert tn.allclose(jac, tn.diag(2 * x)) and tn.allclose(aux, x.sum())
    value, tangent, aux = func.jvp(lambda t: (t * t, t), (x,), (v,), has_aux=True)
    assert tn.allclose(tangent, 2 * x * v) and tn.equal(aux, x)


def test_a_level_that_is_not_entered_has_no_tangents() -> None:
    with fwd.dual_level() as level:
        x = fwd.make_dual(tn.ones(2), tn.full((2,), 3.0))
        for inside in (None, 0, level):
            assert fwd.unpack_dual(x, level=inside).tangent.tolist() == [3, 3]
        assert fwd.unpack_dual(x, level=1).tangent is None
        assert fwd.unpack_dual(tn.ones(2)).tangent is None
    assert fwd.unpack_dual(x).tangent is None


@pytest.mark.parametrize("start", [0, 2])
def test_a_write_to_a_dual_tensor_is_one_to_the_tangent_that_it_was_given(start: int) -> None:
    x, v = tn.ones(3), tn.arange(6.0)[start : start + 3]
    old = v.clone()
    with fwd.dual_level():
        dual = fwd.make_dual(x, v)
        dual *= 2
        assert tn.equal(v, old * 2) and tn.equal(fwd.unpack_dual(dual).tangent, v)
        dual[1:] *= 2
        assert tn.equal(v, old * tn.tensor([2.0, 4.0, 4.0]))
        fwd.unpack_dual(dual).tangent.mul_(3)
        assert tn.equal(v, old * tn.tensor([6.0, 12.0, 12.0]))


def test_a_tangent_that_cannot_be_written_is_left_alone() -> None:
    leaf = tn.ones(3, requires_grad=True)
    for v in (leaf, tn.ones(1).expand(3), tn.ones(3, 2)[:, 0]):
        with fwd.dual_level():
            dual = fwd.make_dual(tn.ones(3), v)
            dual *= 3
            assert fwd.unpack_dual(dual).tangent.tolist() == [3.0] * 3 and v.tolist() == [1.0] * 3


RESHAPED: dict[str, tuple[Callable[[tn.Tensor], Any], list[Any]]] = {
    "t_": (lambda d: d.t_(), [[0, 3], [1, 4], [2, 5]]),
    "transpose_": (lambda d: d.transpose_(0, 1), [[0, 3], [1, 4], [2, 5]]),
    "unsqueeze_": (lambda d: d.unsqueeze_(0).squeeze_(0), [[0, 1, 2], [3, 4, 5]]),
    "as_strided_": (lambda d: d.as_strided_((2,), (1,), 1), [1, 2]),
}


@pytest.mark.parametrize("name", RESHAPED)
def test_other_sizes_in_place_are_those_of_the_tangent(name: str) -> None:
    change, expected = RESHAPED[name]
    with fwd.dual_level():
        dual = fwd.make_dual(tn.ones(2, 3), tn.arange(6.0).reshape(2, 3)).clone()
        change(dual)
        assert fwd.unpack_dual(dual).tangent.tolist() == expected
        dual *= 2
        assert tn.equal(fwd.unpack_dual(dual).tangent, tn.tensor(expected) * 2.0)


def test_detached_in_place_there_is_no_tangent() -> None:
    with fwd.dual_level():
        dual = fwd.make_dual(tn.ones(3), tn.ones(3)).clone()
        dual *= 2
        dual.detach_()
        assert fwd.unpack_dual(dual * 2).tangent is None
        dual *= 3
        assert fwd.unpack_dual(dual).tangent is None and dual.tolist() == [6.0] * 3
        with pytest.raises(RuntimeError, match="Can't detach views in-place. Use detach"):
            fwd.make_dual(tn.ones(3), tn.ones(3))[1:].detach_()


@pytest.mark.parametrize(
    "change", [lambda d: d.resize_(2, 2), lambda d: d.resize_as_(tn.ones(2)),
               lambda d: d.set_(tn.ones(3))]
)  # fmt: skip
def test_other_memory_of_a_dual_tensor_is_refused(change: Any) -> None:
    with fwd.dual_level(), pytest.raises(RuntimeError, match="cannot resize variables that has a"):
        change(fwd.make_dual(tn.ones(3), tn.ones(3)).clone())


# ---- Gradients that move with dual tensors -------------------------------------------------------

X, T = [1.0, 2.0, -0.5], [1.0, 0.5, -1.0]
B, TB = [2.0, -1.0, 0.3], [0.4, 1.5, -2.0]


def test_gradients_have_tangents() -> None:
    """Against the derivatives of the gradients by hand."""
    x = tn.tensor(X, dtype=tn.float64).requires_grad_()
    t, b, tb = (tn.tensor(v, dtype=tn.float64) for v in (T, B, TB))
    with fwd.dual_level():
        # of a dual tensor that nobody holds
        (g,) = tn.autograd.grad(fwd.make_dual(x, t).pow(3).sum(), x)
        assert not g.requires_grad
        np.testing.assert_allclose(fwd.unpack_dual(g).tangent, 6 * np.array(X) * T)
    with fwd.dual_level():
        # beside one that requires no gradient, and one that was computed of that alone
        a, c = fwd.make_dual(x, t), fwd.make_dual(b, tb)
        (g,) = tn.autograd.grad((a * (c * 3)).sin().sum(), a, create_graph=True)
        inner, moved = 3 * np.array(X) * B, 3 * (np.array(T) * B + np.array(X) * TB)
        want = 3 * (np.array(TB) * np.cos(inner) - np.array(B) * np.sin(inner) * moved)
        found = fwd.unpack_dual(g).tangent
        np.testing.assert_allclose(found.detach(), want)
        # and of second derivatives, 6 x a power
        (h,) = tn.autograd.grad(tn.autograd.grad((a**3).sum(), a, create_graph=True)[0].sum(), a)
        np.testing.assert_allclose(fwd.unpack_dual(h).tangent, 6 * np.array(T))
        # grad_outputs that move: 2 x w
        (g,) = tn.autograd.grad(a**2, a, c)
        want = 2 * (np.array(T) * B + np.array(X) * TB)
        np.testing.assert_allclose(fwd.unpack_dual(g).tangent, want)
        # row by row
        (g,) = tn.autograd.grad(a**3, a, tn.eye(3, dtype=tn.float64), is_grads_batched=True)
        np.testing.assert_allclose(fwd.unpack_dual(g).tangent, np.diag(6 * np.array(X) * T))
        # what has no part in them
        (g,) = tn.autograd.grad((x * b).sum(), x)
        assert fwd.unpack_dual(g).tangent is None


def test_gradients_after_a_write_to_a_dual_tensor_are_refused() -> None:
    x = tn.tensor(X, requires_grad=True) + 0
    with fwd.dual_level():
        d = fwd.make_dual(x, tn.tensor(T))
        before = d.sin()
        d.mul_(2)
        with pytest.raises(NotImplementedError, match="written in place"):
            tn.autograd.grad(before.sum(), d, allow_unused=True)


@pytest.mark.parametrize("create_graph", [False, True])
def test_dual_tensors_that_require_gradients_later(create_graph: bool) -> None:
    """Their gradients move with them as those of variables do."""
    at, v = tn.tensor([0.3, 1.0, 2.0], dtype=tn.float64), tn.tensor([1.0, 2.0, 3.0])
    with fwd.dual_level():
        x = fwd.make_dual(at, v.double()).requires_grad_()
        seed = fwd.make_dual(tn.ones_like(at), v.double()).requires_grad_()
        for g, own in ((tn.ones_like(at), 0.0), (seed, 1.0)):
            (slope,) = tn.autograd.grad(x.sin(), x, g, create_graph=create_graph)
            tangent = fwd.unpack_dual(slope).tangent
            want = -at.sin() * v + own * at.cos() * v
            np.testing.assert_allclose(tangent.detach(), want, rtol=1e-12)
