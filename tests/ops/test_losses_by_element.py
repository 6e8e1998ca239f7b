"""Losses that compare element by element in one pass: lengths around blocks, layouts, weights
and gradients, against NumPy in double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F
from scipy import special
from tenon import _program
from tenon._program import apart

LENGTHS = [1, 31, 32, 33, 511, 512, 513, 4095, 4096, 4097, 20_000]
BOUNDS = {tn.float64: 1e-13, tn.float32: 3e-6, tn.float16: 2e-3, tn.bfloat16: 1.6e-2}


def soft(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


# Term and slope in the direction of x.
LOSSES: dict[str, tuple[Any, Any, Any]] = {
    "mse": (F.mse_loss, lambda x, t: (x - t) ** 2, lambda x, t: 2 * (x - t)),
    "l1": (F.l1_loss, lambda x, t: abs(x - t), lambda x, t: np.sign(x - t)),
    "smooth": (
        lambda x, t, **k: F.smooth_l1_loss(x, t, beta=0.5, **k),
        lambda x, t: np.where(abs(x - t) < 0.5, (x - t) ** 2, abs(x - t) - 0.25),
        lambda x, t: np.clip(2 * (x - t), -1, 1),
    ),
    "huber": (
        lambda x, t, **k: F.huber_loss(x, t, delta=0.75, **k),
        lambda x, t: np.where(abs(x - t) < 0.75, (x - t) ** 2 / 2, 0.75 * (abs(x - t) - 0.375)),
        lambda x, t: np.clip(x - t, -0.75, 0.75),
    ),
    "entropy": (
        F.binary_cross_entropy,
        lambda x, t: -(t * np.log(x) + (1 - t) * np.log1p(-x)),
        lambda x, t: (x - t) / (x * (1 - x)),
    ),
    "logits": (
        F.binary_cross_entropy_with_logits,
        lambda x, t: t * soft(-x) + (1 - t) * soft(x),
        lambda x, t: special.expit(x) - t,
    ),
    "divergence": (F.kl_div, lambda x, t: special.xlogy(t, t) - t * x, lambda x, t: -t),
    "log divergence": (
        lambda x, t, **k: F.kl_div(x, t, log_target=True, **k),
        lambda x, t: np.exp(t) * (t - x),
        lambda x, t: -np.exp(t),
    ),
}


def data(n: int, dtype: tn.dtype, name: str) -> tuple[tn.Tensor, tn.Tensor]:
    draw = np.random.default_rng(n)
    x = draw.uniform(0.05, 0.95, n) if name == "entropy" else draw.normal(0, 2, n)
    return tn.tensor(x).to(dtype), tn.tensor(draw.uniform(0, 1, n)).to(dtype)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_sums_means_and_gradients(name: str, dtype: tn.dtype) -> None:
    loss, term, slope = LOSSES[name]
    for n in LENGTHS:
        x, t = data(n, dtype, name)
        a, b = x.double().numpy(), t.double().numpy()
        for reduction in ("sum", "mean"):
            count = n if reduction == "mean" else 1
            wanted, size = term(a, b).sum() / count, abs(term(a, b)).sum() / count
            if abs(wanted) > 6e4 and dtype == tn.float16:
                continue
            given = x.clone().requires_grad_()
            y = loss(given, t, reduction=reduction)
            assert y.dtype == dtype and abs(y.double().item() - wanted) <= BOUNDS[dtype] * size
            (g,) = tn.autograd.grad(y, given)
            scale = abs(slope(a, b)).max() / count + (1e-7 if dtype == tn.float16 else 0)
            assert abs(g.double().numpy() - slope(a, b) / count).max() <= 4 * BOUNDS[dtype] * scale


@pytest.mark.parametrize("name", LOSSES)
def test_layouts_and_weights(name: str) -> None:
    loss, term, slope = LOSSES[name]
    x, t = (v.view(4, 6, 10, 10) for v in data(2400, tn.float64, name))
    a, b = x.numpy(), t.numpy()
    last = tn.channels_last
    for p, q in (
        (x.contiguous(memory_format=last), t.contiguous(memory_format=last)),
        (x.contiguous(memory_format=last), t),
        (x.permute(3, 1, 0, 2), t.permute(3, 1, 0, 2)),
        (x[:, ::2], t[:, ::2]),
        (x, t[:1].expand(4, 6, 10, 10)),
    ):
        given = p.detach().requires_grad_()
        y = loss(given, q, reduction="sum")
        assert abs(y.item() - term(p.numpy(), q.numpy()).sum()) < 1e-10
        y.backward()
        assert np.allclose(given.grad.numpy(), slope(p.numpy(), q.numpy()), 1e-12, 1e-12)
    if name not in ("entropy", "logits"):
        return
    w = tn.rand(10, dtype=tn.float64)
    given = x.clone().requires_grad_()
    y = loss(given, t, weight=w, reduction="sum")
    assert abs(y.item() - (term(a, b) * w.numpy()).sum()) < 1e-10
    y.backward()
    assert np.allclose(given.grad.numpy(), slope(a, b) * w.numpy(), 1e-12, 1e-12)


def test_positive_weights_and_threads() -> None:
    x, t = data(50_000, tn.float32, "logits")
    x, pos = x.view(-1, 50), tn.rand(50) * 3
    t = t.view(-1, 50)
    threads, found = tn.get_num_threads(), []
    a, b = x.double().numpy(), t.double().numpy()
    wanted = (pos.double().numpy() * b * soft(-a) + (1 - b) * soft(a)).mean()
    for n in (1, 2):
        tn.set_num_threads(n)
        found.append(F.binary_cross_entropy_with_logits(x, t, pos_weight=pos).item())
    tn.set_num_threads(threads)
    assert found[0] == found[1] and abs(found[0] - wanted) < 1e-6


def test_nothing_and_nan() -> None:
    none = tn.zeros(0)
    assert F.mse_loss(none, none).isnan() and F.mse_loss(none, none, reduction="sum") == 0
    x = tn.zeros(600)
    x[599] = float("nan")
    assert F.huber_loss(x, tn.zeros(600)).isnan()


def test_prelu() -> None:
    x = np.random.default_rng(0).normal(size=(3, 5, 700)).astype(np.float32)
    w = np.linspace(-1, 1, 5, dtype=np.float32)
    for weight in (w, w[:1]):
        a, s = tn.tensor(x, requires_grad=True), tn.tensor(weight, requires_grad=True)
        y = F.prelu(a, s)
        wide = weight.reshape(1, -1, 1)
        assert np.array_equal(y.detach().numpy(), np.where(x > 0, x, wide * x))
        y.sum().backward()
        assert np.array_equal(a.grad.numpy(), np.where(x > 0, np.float32(1), wide + 0 * x))
        part = np.where(x > 0, 0, x.astype(float))
        part = part.sum((0, 2)) if weight.size > 1 else part.sum(keepdims=True)[0, 0]
        assert np.allclose(s.grad.numpy(), part, 1e-5)


@pytest.mark.parametrize("how", range(len(LOSSES)))
@pytest.mark.parametrize("weights", (0, 2))
def test_gradients_of_targets_and_weights(how: int, weights: int) -> None:
    """Where programs call the kernel's operator, whatever it is given may want a gradient."""
    x, t = (v[:24].reshape(4, 6) for v in data(31, tn.float64, list(LOSSES)[how]))
    w, pos = tn.rand(2, 4, 6, dtype=tn.float64)
    given = [x, t, w, pos if list(LOSSES)[how] == "logits" else None][: 2 + weights]
    given = [v.clone().requires_grad_() for v in given if v is not None]

    def call(x: tn.Tensor, t: tn.Tensor, *more: tn.Tensor) -> tn.Tensor:
        rest = [*more, None, None][:2]
        return tn.ops.aten._element_loss(x, t, *rest, how, 0.6, 7.0)

    assert tn.autograd.gradcheck(call, given)
    assert tn.autograd.gradgradcheck(call, given)


def test_programs_that_were_recorded_without_gradients_have_them() -> None:
    x, t = (v[:24].reshape(4, 6) for v in data(31, tn.float64, "mse"))
    whole, _ = _program.record(lambda: [F.mse_loss(x, t)], {"x": x, "t": t})
    program = apart.take_apart(whole, None)
    assert "_element_loss" in {n["op"] for n in program.data["nodes"]}
    x, t = x.clone().requires_grad_(), t.clone().requires_grad_()
    program(x, t)[0].backward()
    np.testing.assert_allclose(t.grad.numpy(), (t - x).detach().numpy() / 12)
    assert tn.equal(x.grad, -t.grad)


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("shapes", [((1, 3), (4, 3)), ((4, 3), (1, 3)), ((3,), (4, 3)), ((), (3,))])
@pytest.mark.parametrize("name", ["mse", "l1", "smooth", "huber"])
def test_either_operand_is_spread_over_the_other(name: str, shapes: Any) -> None:
    fn, term, slope = LOSSES[name]
    draw = np.random.default_rng(5)
    a, b = (draw.normal(0, 2, shape) for shape in shapes)
    for reduction, how in (("mean", np.mean), ("sum", np.sum)):
        x, t = tn.tensor(a, requires_grad=True), tn.tensor(b, requires_grad=True)
        with tn.no_grad():
            assert fn(x, t, reduction=reduction).item() == pytest.approx(how(term(a, b)), rel=1e-13)
        loss = fn(x, t, reduction=reduction)
        loss.backward()
        assert loss.item() == pytest.approx(how(term(a, b)), rel=1e-13)
        each = slope(a, b) / (1 if reduction == "sum" else slope(a, b).size)
        for v, want in ((x, each), (t, -each)):
            np.testing.assert_allclose(v.grad.numpy(), tn.tensor(want).sum_to_size(v.shape).numpy())


@pytest.mark.parametrize("dtype", [tn.float32, tn.float64])
@pytest.mark.parametrize("name", LOSSES)
def test_the_target_alone_wants_a_gradient(name: str, dtype: tn.dtype) -> None:
    """Of losses of differences by the kernel, of others by their parts; the input's is left out."""
    fn, _, slope = LOSSES[name]
    x, t = data(3000, dtype, name)
    want = tn.autograd.functional.jacobian(lambda v: fn(x.double(), v), t.double()).numpy()
    t.requires_grad_()
    fn(x, t).backward()
    np.testing.assert_allclose(t.grad.double().numpy(), want, rtol=2e-5, atol=1e-9)
    assert x.grad is None
    if name in ("mse", "l1", "smooth", "huber"):
        exact = -slope(x.double().numpy(), t.detach().double().numpy()) / 3000
        np.testing.assert_allclose(t.grad.double().numpy(), exact, rtol=2e-5, atol=1e-9)
