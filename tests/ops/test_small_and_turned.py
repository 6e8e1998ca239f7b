"""Small matrices without LAPACK, turned tensors in reductions and softmax, the slope of a running
product in linear work, bags and runs of rows as sparse products: against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn

F = tn.nn.functional


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 9])
def test_small_matrices(n: int, dtype: type) -> None:
    draw = np.random.default_rng(n)
    a = draw.standard_normal((64, n, n))
    a[::2, 0, 0] = 0  # another row has to divide
    a[1::4] = a[1::4, ::-1]
    b = draw.standard_normal((64, n, 3))
    if n == 1:
        a[::2] = 2
    a, b = a.astype(dtype), b.astype(dtype)
    wide = a.astype(np.float64)
    level = np.linalg.cond(wide)[:, None, None] * np.finfo(dtype).eps * 8
    t = tn.from_numpy(a)

    def near(got: tn.Tensor, want: np.ndarray) -> None:
        size = np.abs(want).reshape(64, -1).max(1).reshape(64, *(1,) * (want.ndim - 1))
        scale = level.reshape(64, *(1,) * (want.ndim - 1))
        assert (np.abs(got.numpy() - want) <= size * scale).all()

    near(tn.linalg.inv(t), np.linalg.inv(wide))
    near(tn.linalg.solve(t, tn.from_numpy(b)), np.linalg.solve(wide, b.astype(np.float64)))
    det = np.linalg.det(wide)
    assert np.allclose(tn.linalg.det(t).numpy(), det, rtol=float(level.max()), atol=1e-6)
    sign, size = tn.linalg.slogdet(t)
    assert np.array_equal(sign.numpy(), np.sign(det)) and np.allclose(
        size.numpy(), np.log(np.abs(det)), rtol=1e-3, atol=1e-3
    )
    rows, low, high = tn.linalg.lu(t)
    assert np.allclose((rows @ low @ high).numpy(), a, atol=1e-5)
    assert (low.abs() <= 1).all()  # the largest of a column divides it
    plus = wide @ wide.swapaxes(1, 2) + np.eye(n)
    lower = tn.linalg.cholesky(tn.from_numpy(plus.astype(dtype))).numpy()
    assert np.allclose(lower, np.linalg.cholesky(plus), rtol=1e-3, atol=1e-3)
    assert (np.triu(lower, 1) == 0).all()


def test_small_matrices_that_have_no_factors() -> None:
    flat = tn.ones(2, 3, 3)
    flat[0] = tn.eye(3)
    with pytest.raises(RuntimeError, match="Batch element 1.*singular"):
        tn.linalg.inv(flat)
    with pytest.raises(RuntimeError, match="singular"):
        tn.linalg.solve(flat, tn.ones(2, 3, 1))
    assert tn.linalg.det(flat).tolist() == [1.0, 0.0]
    assert tn.linalg.inv_ex(flat)[1].tolist() == [0, 2]
    with pytest.raises(RuntimeError, match="minor of order 2"):
        tn.linalg.cholesky(flat)
    assert tn.linalg.cholesky_ex(flat)[1].tolist() == [0, 2]
    holes = tn.full((3, 3), float("nan"))
    assert tn.linalg.inv(holes).isnan().all() and tn.linalg.det(holes).isnan()


TURNS = [(0, 1, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0), (0, 2, 1)]
REDUCTIONS = {
    "sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min, "prod": np.prod, "var": None,
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("turn", TURNS)
def test_reductions_of_turned_tensors(turn: tuple[int, ...], name: str) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, (7, 20, 33))
    y, t = x.transpose(turn), tn.from_numpy(x).permute(turn)
    for view, other in ((y, t), (y[:, 1:], t[:, 1:]), (y[..., ::2], t[..., ::2])):
        for dim in (0, 1, 2):
            want = (REDUCTIONS[name] or (lambda v, d: v.var(d, ddof=1)))(view, dim)
            got = getattr(other, name)(dim)
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-13)
    for dims in ((0, 1), (0, 2), (1, 2)):
        if name != "prod":
            want = (REDUCTIONS[name] or (lambda v, d: v.var(d, ddof=1)))(y, dims)
            np.testing.assert_allclose(getattr(t, name)(dims).numpy(), want, rtol=1e-13)


@pytest.mark.parametrize("turn", TURNS)
def test_softmax_of_turned_tensors(turn: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal((5, 18, 35))
    for dim in (0, 1, 2):
        t = tn.from_numpy(x).requires_grad_()
        y = x.transpose(turn)
        e = np.exp(y - y.max(dim, keepdims=True))
        want = e / e.sum(dim, keepdims=True)
        got = t.permute(turn).softmax(dim)
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-13)
        g = np.random.default_rng(2).standard_normal(x.shape).transpose(turn)
        got.backward(tn.from_numpy(g))
        slope = want * (g - (g * want).sum(dim, keepdims=True))
        np.testing.assert_allclose(t.grad.permute(turn).numpy(), slope, rtol=1e-9, atol=1e-14)


def test_slope_of_long_running_products() -> None:
    """With zeros in all places, against the sum over all later products; slopes of slopes too."""
    draw = np.random.default_rng(3)
    x, g = draw.uniform(0.8, 1.2, (4, 37)), draw.standard_normal((4, 37))
    x[1, 5], x[2, [0, 9]], x[3, -1] = 0, 0, 0
    want = np.zeros_like(x)
    for k in range(37):
        for i in range(k, 37):
            others = np.delete(x[:, : i + 1], k, 1)
            want[:, k] += g[:, i] * others.prod(1)
    t = tn.from_numpy(x).requires_grad_()
    t.cumprod(1).backward(tn.from_numpy(g))
    np.testing.assert_allclose(t.grad.numpy(), want, rtol=1e-11, atol=1e-12)
    assert tn.autograd.gradgradcheck(lambda v: v.cumprod(0), (t[2, :6].detach().requires_grad_(),))


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "prod"])
def test_runs_of_rows(reduce: str) -> None:
    lengths = np.array([0, 3, 1, 0, 6, 2])
    x = np.random.default_rng(4).standard_normal((12, 3))
    got = tn.segment_reduce(tn.from_numpy(x), reduce, lengths=tn.from_numpy(lengths), initial=0)
    parts = np.split(x, lengths.cumsum()[:-1])
    with np.errstate(all="ignore"):
        for row, part in zip(got.numpy(), parts, strict=True):
            start = np.zeros((0 if reduce == "mean" else 1, 3))
            both = np.concatenate([start, part]) if len(part) else np.zeros((1, 3))
            np.testing.assert_allclose(row, getattr(np, reduce)(both, 0), rtol=1e-14, atol=0)
    t = tn.from_numpy(x).requires_grad_()
    tn.segment_reduce(t, "mean", lengths=tn.from_numpy(lengths), initial=0).sum().backward()
    want = np.repeat(1 / np.maximum(lengths, 1), lengths)[:, None] * np.ones((1, 3))
    np.testing.assert_allclose(t.grad.numpy(), want, rtol=1e-14)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_are_the_same_with_and_without_gradients(mode: str) -> None:
    draw = np.random.default_rng(5)
    table = tn.from_numpy(draw.standard_normal((20, 37)).astype(np.float32))
    index, starts = tn.from_numpy(draw.integers(0, 20, 50)), tn.tensor([0, 0, 7, 8, 30])
    shares = tn.from_numpy(draw.standard_normal(50).astype(np.float32)) if mode == "sum" else None
    leaf = table.clone().requires_grad_()
    for given in ((index, starts), (index.view(10, 5), None)):
        part = shares.view(given[0].shape) if shares is not None else None
        plain = F.embedding_bag(given[0], table, given[1], mode=mode, per_sample_weights=part)
        taped = F.embedding_bag(given[0], leaf, given[1], mode=mode, per_sample_weights=part)
        tn.testing.assert_close(plain, taped.detach(), rtol=1e-5, atol=1e-6)
    last = tn.cat([starts, tn.tensor([50])])
    again = F.embedding_bag(index, table, last, mode=mode, include_last_offset=True)
    assert tn.equal(again, F.embedding_bag(index, table, starts, mode=mode))
    with pytest.raises(RuntimeError, match="found idx to be 20"):
        F.embedding_bag(tn.tensor([20]), table, tn.tensor([0]), mode=mode)
