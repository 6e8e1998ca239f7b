"""Gradients at the edges of their formulas: lists longer than the bits of a mask, tensors whose
elements share places, draws, gradients that lie in another order, nothing to sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
from table import call, make_case, rows, tensor_args
from tenon.nn import functional as F

f64 = tn.float64


def weights(*shape: int) -> tn.Tensor:
    return (tn.arange(int(np.prod(shape)), dtype=f64).cos() + 1.5).reshape(shape)


@pytest.mark.parametrize("join", [tn.cat, tn.stack])
@pytest.mark.parametrize("asked", [[64], [65, 3], [0, 69], [63, 64, 65]])
def test_more_tensors_than_a_word_has_bits(join: Any, asked: list[int]) -> None:
    parts = [tn.full((2,), float(i), dtype=f64) for i in range(70)]
    for i in asked:
        parts[i].requires_grad_()
    w = weights(140)
    grads = tn.autograd.grad((join(parts).reshape(-1) * w).sum(), [parts[i] for i in asked])
    for i, g in zip(asked, grads, strict=True):
        assert g.tolist() == w[2 * i : 2 * i + 2].tolist()


def places_of(shape: tuple[int, ...], stride: tuple[int, ...]) -> np.ndarray:
    steps = [np.arange(n) * s for n, s in zip(shape, stride, strict=True)]
    return np.asarray(sum(np.ix_(*steps)))


@pytest.mark.parametrize(
    ("shape", "stride", "view", "steps", "offset"),
    [
        ((3, 4), (1, 0), (3, 4), (1, 0), 0),  # a column, expanded
        ((2, 3, 4), (4, 0, 1), (2, 4), (4, 1), 0),  # between two others
        ((3, 3), (1, 1), (5,), (1,), 0),  # windows that overlap
        ((3, 3), (1, 1), (2, 2), (1, 2), 1),
        ((4,), (1,), (3, 2), (1, 1), 0),  # the result's elements share places
        ((4,), (1,), (2, 3, 2), (1, 0, 2), 0),
    ],
)
def test_elements_that_share_places(
    shape: tuple[int, ...], stride: tuple[int, ...], view: tuple[int, ...],
    steps: tuple[int, ...], offset: int,
) -> None:  # fmt: skip
    """Moving one place moves all elements of it; each element of the input has its equal part."""
    base = tn.arange(16.0, dtype=f64)
    x = base.as_strided(shape, stride).requires_grad_()
    w = weights(*view)
    (g,) = tn.autograd.grad((x.as_strided(view, steps, offset) * w).sum(), x)
    places, many = np.zeros(16), np.zeros(16)
    at = places_of(shape, stride)
    np.add.at(places, places_of(view, steps) + offset, w.numpy())
    np.add.at(many, at, 1)
    np.testing.assert_allclose(g.numpy(), (places / np.maximum(many, 1))[at], rtol=1e-14)


DRAWS = {
    "bernoulli": lambda x: tn.bernoulli(x),
    "bernoulli of p": lambda x: tn.bernoulli(x, 0.5),
    "bernoulli_": lambda x: (x * 1).bernoulli_(x.detach()),
    "bernoulli_ by x": lambda x: tn.zeros(3, 4, dtype=f64).bernoulli_(x),
    "binomial, count": lambda x: tn.binomial(x, tn.full((3, 4), 0.5, dtype=f64)),
    "binomial, prob": lambda x: tn.binomial(tn.full((3, 4), 7.0, dtype=f64), x),
    "poisson": lambda x: tn.poisson(x),
    "normal, mean": lambda x: tn.normal(x, 1.0),
    "normal, std": lambda x: tn.normal(0.0, x),
}


@pytest.mark.parametrize("name", DRAWS)
def test_no_gradient_passes_a_draw(name: str) -> None:
    x = tn.full((3, 4), 0.5, dtype=f64, requires_grad=True)
    y = DRAWS[name](x)
    if y.requires_grad:
        (g,) = tn.autograd.grad(y.sum(), x, allow_unused=True)
        assert g is None or not g.any()


def test_gradients_of_complex_parts_in_another_order() -> None:
    z = tn.complex(weights(3, 4), weights(3, 4).flip(0)).requires_grad_()
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        back = [order.index(d) for d in range(3)]
        seed = weights(*(z.shape + (2,))).permute(order).contiguous().permute(back)
        (g,) = tn.autograd.grad(tn.view_as_real(z), z, seed)
        np.testing.assert_array_equal(tn.view_as_real(g).numpy(), seed.numpy())


def test_sinc_of_complex_numbers() -> None:
    z = tn.complex(weights(5), weights(5).flip(0)).requires_grad_()
    assert tn.autograd.gradcheck(tn.sinc, (z,)) and tn.autograd.gradgradcheck(tn.sinc, (z,))


@pytest.mark.parametrize("at", [0.0, 1.0])
def test_entropy_at_the_ends(at: float) -> None:
    """PyTorch holds what the gradient is divided by at 1e-12, and logarithms at -100."""
    x = tn.tensor([at], dtype=f64, requires_grad=True)
    y = tn.tensor([0.25], dtype=f64, requires_grad=True)
    for entropy in (tn._C._ops._binary_cross_entropy, F.binary_cross_entropy):
        gx, gy = tn.autograd.grad(entropy(x, y).sum(), [x, y])
        assert gx.item() == (at - 0.25) / 1e-12
        assert gy.item() == (100 if at == 0 else -100)


def test_sign_of_nothing() -> None:
    x = tn.tensor([0.0, -0.0, 1.0, -1.0, 2.0], dtype=f64, requires_grad=True)
    sign = tn.tensor([-1.0, 1.0, -1.0, -3.0, 4.0], dtype=f64)
    (g,) = tn.autograd.grad(tn.copysign(x, sign).sum(), x)
    assert g.tolist() == [0, 0, -1, 1, 1]


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_of_nothing(training: bool) -> None:
    x = tn.zeros(0, 3, 4, dtype=f64, requires_grad=True)
    w, b = (tn.ones(3, dtype=f64, requires_grad=True) for _ in "wb")
    mean, var = tn.zeros(3, dtype=f64), tn.ones(3, dtype=f64)
    y = tn._C._ops.native_batch_norm(x, w, b, mean, var, training, 0.1, 1e-5)[0]
    for t, g in zip((x, w, b), tn.autograd.grad(y.sum(), (x, w, b)), strict=True):
        assert g.shape == t.shape and not g.any()


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_in_place_pass_no_gradient(name: str) -> None:
    a = tn.tensor([1.0, 2.0, 3.0], requires_grad=True)
    b = tn.tensor([1.0, 3.0, 2.0], requires_grad=True)
    y = a * 2
    getattr(y, f"{name}_")(b)
    y.sum().backward()
    assert a.grad is not None and a.grad.tolist() == [0] * 3
    assert b.grad is not None and b.grad.tolist() == [0] * 3


@pytest.mark.parametrize("name", ["eq_", "ne_", "lt_", "le_", "gt_", "ge_"])
def test_comparisons_in_place_have_no_slope(name: str) -> None:
    for other in (tn.tensor([0.5, 1.5, 2.5], requires_grad=True), 1.5):
        x = tn.arange(3.0, requires_grad=True)
        y = getattr(x * 1, name)(other)
        assert y.requires_grad
        y.sum().backward()
        assert x.grad is not None and x.grad.tolist() == [0, 0, 0]
        if isinstance(other, tn.Tensor):
            assert other.grad is not None and other.grad.tolist() == [0, 0, 0]


def drawn_over() -> list[dict[str, Any]]:
    """The methods that write what they draw over their tensor."""
    return [r for r in rows() if r["random"] and "(Tensor! self" in r["sig"]
            and r["where"] == ["method"]]  # fmt: skip


@pytest.mark.parametrize("row", drawn_over(), ids=lambda row: row["name"])
def test_what_was_drawn_over_has_no_slope(row: dict[str, Any]) -> None:
    for sample in row["samples"]:
        args = tensor_args(make_case(row, sample, "float64"))
        leaf = args["self"].detach().clone().requires_grad_()
        args["self"] = leaf * 1
        got = call(row, args)
        assert got is args["self"] and got.requires_grad and got.dtype is tn.float64
        got.sum().backward()
        assert leaf.grad is not None and not leaf.grad.any()


@pytest.mark.parametrize("upper", [False, True])
def test_slopes_of_both_sides_of_cholesky_solve(upper: bool) -> None:
    draw = np.random.default_rng(2)
    factor = np.tril(draw.standard_normal((3, 3))) + 3 * np.eye(3)
    a = tn.tensor(factor.T if upper else factor, requires_grad=True)
    b = tn.tensor(draw.standard_normal((3, 2)), requires_grad=True)

    def solved(b: tn.Tensor, a: tn.Tensor) -> tn.Tensor:
        return tn.cholesky_solve(b, a.triu() if upper else a.tril(), upper)

    assert tn.autograd.gradcheck(solved, (b, a))
    assert tn.autograd.gradgradcheck(solved, (b, a))
