"""Kernels that take whole vectors, lines or windows at once, at the edges of where they do: sizes
around a vector's, ties, NaN and infinities, strides, against NumPy in double or the plain way."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as tn_f

HALVES = (tn.float16, tn.bfloat16)
LENGTHS = [*range(1, 40), 63, 64, 65, 127, 129, 300]


def bits(t: tn.Tensor) -> np.ndarray:
    """With any NaN as one."""
    t = t.detach()
    return tn.where(t == t, t, tn.full_like(t, float("nan"))).contiguous().view(tn.int16).numpy()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_half_rows_are_single_ones_rounded_once(dtype: tn.dtype, name: str) -> None:
    fn = getattr(tn, name)
    for n in LENGTHS:
        rng = np.random.default_rng(n)
        x = tn.tensor(rng.normal(0, 3, (4, n)).astype(np.float32)).to(dtype)
        x[1, n // 2] = float("inf")
        x[2, n - 1] = float("nan")
        x[3, : n - 1] = -float("inf")
        g = tn.tensor(rng.normal(0, 1, (4, n)).astype(np.float32)).to(dtype)
        assert np.array_equal(bits(fn(x, 1)), bits(fn(x.float(), 1).to(dtype))), n
        apart = tn.stack([x, x], -1)[..., 0]
        assert np.array_equal(bits(fn(apart, 1)), bits(fn(x, 1))), n
        narrow, wide = x[:1].clone().requires_grad_(), x[:1].float().requires_grad_()
        grad = tn.autograd.grad(fn(narrow, 1), narrow, g[:1])[0]
        y = fn(wide, 1).detach().to(dtype).float()  # gradients read the result as it was kept
        pull, kept = g[:1].double().numpy(), y.double().numpy()
        with np.errstate(all="ignore"):
            if name == "softmax":
                want = kept * (pull - (kept * pull).sum())
            else:
                want = pull - np.exp(kept) * pull.sum()
        worst = np.abs(grad.double().numpy() - want).max()
        assert worst <= tn.finfo(dtype).eps * max(np.abs(want).max(), 1e-2), n


@pytest.mark.parametrize("dtype", [tn.float32, tn.float64], ids=str)
def test_softmax_writes_over_its_input(dtype: tn.dtype) -> None:
    for n in LENGTHS:
        x = tn.tensor(np.random.default_rng(n).normal(0, 2, (3, n)), dtype=dtype)
        for fn in (tn.softmax, tn.log_softmax):
            want, over = fn(x, 1), x.clone()
            assert tn.equal(fn(over, 1, out=over), want)
            assert tn.equal(over, want)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_layer_norm_is_single_rounded_once(dtype: tn.dtype) -> None:
    for n in LENGTHS[1:]:
        x = tn.tensor(np.random.default_rng(n).normal(1, 2, (3, n)).astype(np.float32)).to(dtype)
        want = tn_f.layer_norm(x.float(), (n,)).to(dtype)
        assert np.array_equal(bits(tn_f.layer_norm(x, (n,))), bits(want)), n


def entropy(x: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Losses of (n, c, s) by (n, s), and the probabilities."""
    most = x.max(1, keepdims=True)
    e = np.exp(x - most)
    logs = x - most - np.log(e.sum(1, keepdims=True))
    return -np.take_along_axis(logs, target[:, None], 1)[:, 0], np.exp(logs)


@pytest.mark.parametrize("positions", [2, 7, 8, 15, 16, 17, 31, 33, 48, 255, 256, 257, 520])
@pytest.mark.parametrize("dtype", [tn.float32, tn.float64, tn.bfloat16], ids=str)
def test_cross_entropy_of_positions_side_by_side(positions: int, dtype: tn.dtype) -> None:
    eps = tn.finfo(dtype).eps
    for classes in (1, 2, 19, 64, 65, 200):
        rng = np.random.default_rng(classes)
        x = tn.tensor(rng.normal(0, 3, (2, classes, positions)), dtype=dtype).requires_grad_()
        target = rng.integers(0, classes, (2, positions))
        loss, p = entropy(x.detach().double().numpy(), target)
        left_out = rng.random((2, positions)) < 0.2
        given = tn.tensor(np.where(left_out, -100, target))
        got = tn_f.cross_entropy(x, given, reduction="none")
        want = np.where(left_out, 0, loss)
        assert np.abs(got.detach().double().numpy() - want).max() <= 16 * eps * (1 + want.max())
        weight = rng.normal(0, 1, (2, positions))
        pull = tn.tensor(weight, dtype=dtype)
        grad = tn.autograd.grad(got, x, pull)[0].double().numpy()
        hot = np.arange(classes)[:, None] == target[:, None]
        slope = np.where(left_out[:, None], 0, (p - hot) * pull.double().numpy()[:, None])
        assert np.abs(grad - slope).max() <= 16 * eps * np.abs(slope).max() + 1e-300


def test_cross_entropy_of_positions_without_a_number() -> None:
    x = np.random.default_rng(0).normal(0, 1, (1, 5, 35))
    x[0, :, 3] = -np.inf
    x[0, 2, 9] = np.nan
    x[0, :, 16] = np.nan
    x[0, 1, 17] = -np.inf
    x[0, 1, 20] = np.inf
    target = np.ones((1, 35), np.int64)
    for dtype in (tn.float32, tn.float64):
        whole = tn_f.cross_entropy(
            tn.tensor(x, dtype=dtype), tn.tensor(target), reduction="none"
        ).numpy()
        for k in range(35):
            one = tn_f.cross_entropy(
                tn.tensor(x[:, :, k], dtype=dtype), tn.tensor(target[:, k]), reduction="none"
            )
            assert np.allclose(whole[0, k], one.numpy()[0], rtol=1e-5, equal_nan=True), k
        ignored = tn.tensor(x, dtype=dtype).requires_grad_()
        tn_f.cross_entropy(ignored, tn.full((1, 35), -100), reduction="sum").backward()
        assert not ignored.grad.numpy().any()


def window_means(x: np.ndarray, rows: list, columns: list) -> np.ndarray:
    return np.stack(
        [np.stack([x[..., a:b, c:d].mean((-2, -1)) for c, d in columns], -1) for a, b in rows], -2
    )


def adaptive(size: int, count: int) -> list[tuple[int, int]]:
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


@pytest.mark.parametrize(
    "h, w, oh, ow", [(1, 1, 1, 1), (7, 33, 3, 5), (32, 32, 7, 7), (5, 9, 8, 2)]
)
def test_means_of_windows_that_share_columns(h: int, w: int, oh: int, ow: int) -> None:
    x = np.random.default_rng(h).normal(0, 1, (2, 3, h, w))
    x[0, 0, h // 2, w // 2] = np.nan
    x[1, 2, 0, w - 1] = np.inf
    x[1, 1, h - 1, 0] = -np.inf
    for dtype, eps in ((tn.float32, 1e-6), (tn.float64, 1e-14)):
        t = tn.tensor(x, dtype=dtype)
        got = tn_f.adaptive_avg_pool2d(t, (oh, ow)).numpy()
        want = window_means(t.double().numpy(), adaptive(h, oh), adaptive(w, ow))
        assert np.allclose(got, want, eps, eps, equal_nan=True)
        for k, s in ((2, 1), (3, 2), (1, 3)):
            if min(h, w) < k:
                continue
            got = tn_f.avg_pool2d(t, k, s).numpy()
            rows, columns = ([(i, i + k) for i in range(0, n - k + 1, s)] for n in (h, w))
            want = window_means(t.double().numpy(), rows, columns)
            assert np.allclose(got, want, eps, eps, equal_nan=True)


@pytest.mark.parametrize("pad", [(0, 0), (1, 1), (3, 0), (0, 2), (-1, 2), (2, -3), (-2, -1)])
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pads_of_rows(pad: tuple[int, int], mode: str) -> None:
    kinds = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    for n in (4, 5, 8, 33):
        x = np.random.default_rng(n).normal(0, 1, (2, 3, n))
        cut = x[..., max(-pad[0], 0) : n - max(-pad[1], 0)]
        if mode != "constant" and cut.shape[-1] < n:
            continue
        more = [(0, 0), (0, 0), (max(pad[0], 0), max(pad[1], 0))]
        t = tn.tensor(x, requires_grad=True)
        y = tn_f.pad(t, pad, mode=mode)
        assert np.array_equal(y.detach().numpy(), np.pad(cut, more, mode=kinds[mode]))
        g = np.random.default_rng(1).normal(0, 1, y.shape)
        grad = tn.autograd.grad(y, t, tn.tensor(g))[0].numpy()
        places = np.arange(n)[max(-pad[0], 0) : n - max(-pad[1], 0)] + 1
        places = np.pad(places, more[2], mode=kinds[mode])
        want = np.zeros_like(x)
        for i, place in enumerate(places):
            if place:
                want[..., place - 1] += g[..., i]
        assert np.allclose(grad, want)


@pytest.mark.parametrize("dtype", [tn.float32, tn.float16, tn.int64, tn.uint8], ids=str)
def test_the_first_of_a_sort_is_the_one_of_topk(dtype: tn.dtype) -> None:
    for n in (1, 2, 5, 255, 256, 257, 1000):
        x = tn.tensor(np.random.default_rng(n).integers(0, 40, (3, n, 2))).to(dtype)
        if dtype.is_floating_point:
            x[1, n // 2, 0] = float("nan")
            x[2, n // 3] = -0.0
        for largest in (True, False):
            values, at = x.topk(1, 1, largest=largest)
            order = x.sort(1, descending=largest, stable=True)
            assert tn.equal(at, order.indices[:, :1])
            assert np.array_equal(values.numpy(), order.values[:, :1].numpy(), equal_nan=True)


@pytest.mark.parametrize("dtype", [tn.float32, tn.bfloat16, tn.int8, tn.bool], ids=str)
@pytest.mark.parametrize("width", [1, 7, 8, 33])
def test_lines_that_scatter_to_one_place(dtype: tn.dtype, width: int) -> None:
    rng = np.random.default_rng(width)
    to, x = (tn.tensor(rng.integers(0, 5, (n, width))).to(dtype) for n in (6, 20))
    index = tn.tensor(rng.integers(0, 6, 20))
    for kind in (tn.int64, tn.int32):
        line = index.to(kind)[:, None].expand(20, width)
        plain = line.contiguous()
        for source in (x, tn.stack([x, x], -1)[..., 1]):
            got = to.scatter_add(0, line, source)
            assert tn.equal(got, to.scatter_add(0, plain, source))
            for how in ("prod", "amax", "amin") if dtype != tn.bool else ():
                got = to.scatter_reduce(0, line, source, how)
                assert tn.equal(got, to.scatter_reduce(0, plain, source, how))
    if dtype == tn.float32:
        want = to.numpy().copy()
        np.add.at(want, index.numpy(), x.numpy())
        assert np.allclose(to.scatter_add(0, index[:, None].expand(20, width), x).numpy(), want)
    for wrong in (-7, 6):
        bad = index.clone()
        bad[19] = wrong
        with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
            to.scatter_add(0, bad[:, None].expand(20, width), x)


@pytest.mark.parametrize("dtype", [tn.float32, tn.float16], ids=str)
def test_largest_of_windows_of_one_size(dtype: tn.dtype) -> None:
    rng = np.random.default_rng(0)
    for h, w, oh, ow in ((8, 12, 4, 3), (6, 6, 1, 1), (5, 4, 5, 2), (7, 9, 1, 3)):
        x = rng.integers(0, 4, (2, 3, h, w)).astype(np.float32)
        x[0, 1, h - 1, w // 2] = np.nan
        t = tn.tensor(x).to(dtype).requires_grad_()
        y, at = tn_f.adaptive_max_pool2d(t, (oh, ow), True)
        blocks = x.reshape(2, 3, oh, h // oh, ow, w // ow).transpose(0, 1, 2, 4, 3, 5)
        flat = blocks.reshape(2, 3, oh, ow, -1)
        first = flat.argmax(-1)  # NaN counts as the largest
        rows = np.arange(oh)[:, None] * (h // oh) + first // (w // ow)
        columns = np.arange(ow) * (w // ow) + first % (w // ow)
        assert np.array_equal(at.numpy(), rows * w + columns)
        want = np.take_along_axis(flat, first[..., None], -1)[..., 0]
        assert np.array_equal(y.detach().float().numpy(), want, equal_nan=True)
        assert np.array_equal(
            tn_f.adaptive_max_pool2d(t, (oh, ow)).detach().float().numpy(), want, equal_nan=True
        )
        grad = tn.autograd.grad(y.sum(), t)[0].float().numpy()
        hot = np.zeros((2, 3, h * w), np.float32)
        np.put_along_axis(hot, at.numpy().reshape(2, 3, -1), 1, -1)
        assert np.array_equal(grad, hot.reshape(x.shape))
    t = tn.tensor(rng.normal(0, 1, (3, 12)), requires_grad=True)
    y, at = tn_f.adaptive_max_pool1d(t, 4, True)
    assert np.array_equal(y.detach().numpy(), t.detach().numpy().reshape(3, 4, 3).max(-1))
    assert np.array_equal(t.detach().gather(1, at).numpy(), y.detach().numpy())


@pytest.mark.parametrize("dtype", [tn.int32, tn.int64], ids=str)
def test_elements_repeated_by_counts(dtype: tn.dtype) -> None:
    rng = np.random.default_rng(0)
    ends = ([0], [3], [0, 0, 0], [0, 2, 0, 0, 1, 0], [1, 0, 5], [0, 0, 7], [7, 0, 0])
    for counts in (*ends, rng.integers(0, 4, 1000), np.zeros(40, int), np.ones(40, int)):
        want = np.repeat(np.arange(len(counts)), counts)
        given = tn.tensor(np.asarray(counts)).to(dtype)
        assert np.array_equal(tn.repeat_interleave(given).numpy(), want)
        got = tn.repeat_interleave(given[:, None].expand(-1, 2)[:, 1], output_size=len(want))
        assert np.array_equal(got.numpy(), want)
        assert got.dtype == tn.int64 and got.is_contiguous() and got._base is None
        x = tn.arange(2 * len(counts)).reshape(2, -1)
        assert np.array_equal(x.repeat_interleave(given, 1).numpy(), x.numpy().repeat(counts, 1))
    with pytest.raises(RuntimeError, match="negative"):
        tn.repeat_interleave(tn.tensor([1, -1], dtype=dtype))
    with pytest.raises(RuntimeError, match="does not match"):
        tn.repeat_interleave(tn.tensor([1, 2], dtype=dtype), output_size=4)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_any_length(mode: str) -> None:
    rng = np.random.default_rng(0)
    table, index = rng.normal(0, 1, (9, 5)), rng.integers(0, 9, 12)
    offsets = np.array([0, 0, 3, 4, 4, 11, 12])
    got = tn_f.embedding_bag(tn.tensor(index), tn.tensor(table), tn.tensor(offsets), mode=mode)
    for bag, (begin, end) in enumerate(zip(offsets, [*offsets[1:], 12], strict=True)):
        rows = table[index[begin:end]]
        want = getattr(np, mode)(rows, 0) if len(rows) else np.zeros(5)
        assert np.allclose(got[bag].numpy(), want)
