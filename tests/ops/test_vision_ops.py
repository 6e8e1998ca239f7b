"""Images through grids and distances of pairs: against PyTorch, sums written out, differences."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F  # noqa: N812
from both import both, both_fail

RNG = np.random.default_rng(12)
START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Of each test, whichever ran before it: stored answers are for these."""
    RNG.bit_generator.state = START


MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
def test_grid_sample_as_pytorch(mode: str, padding: str, corners: bool) -> None:
    """Places inside and far outside; values, gradients and second gradients."""

    def run(m: Any, x: Any, grid: Any) -> Any:
        return m.nn.functional.grid_sample(x, grid, mode, padding, corners)

    image, grid = RNG.normal(size=(2, 3, 4, 5)), RNG.uniform(-1.9, 1.9, (2, 3, 7, 2))
    both(run, image, grid)
    both(run, RNG.normal(size=(1, 10, 9, 8)), RNG.uniform(-1.2, 1.2, (1, 9, 11, 2)))
    both(run, RNG.normal(size=(2, 2, 1, 3)), RNG.uniform(-1.2, 1.2, (2, 2, 2, 2)))
    if mode != "bicubic":
        both(run, RNG.normal(size=(2, 2, 3, 4, 5)), RNG.uniform(-1.5, 1.5, (2, 2, 3, 3, 3)))


def test_grid_sample_by_hand() -> None:
    image = RNG.normal(size=(1, 1, 3, 4))
    y, x = 1.25, 2.5
    grid = np.array([2 * x / 3 - 1, 2 * y / 2 - 1]).reshape(1, 1, 1, 2)
    got = F.grid_sample(tn.tensor(image), tn.tensor(grid), align_corners=True).item()
    low, high = image[0, 0, 1], image[0, 0, 2]
    want = 0.75 * (low[2] + low[3]) / 2 + 0.25 * (high[2] + high[3]) / 2
    assert got == pytest.approx(want, abs=1e-12)
    assert F.grid_sample(tn.ones(1, 1, 3, 3), tn.full((1, 1, 1, 2), 3.0)).item() == 0


def bilinear(image: np.ndarray, grid: np.ndarray, border: bool) -> np.ndarray:
    """Written out, in double precision; what is outside is not looked at."""
    n, c, *sizes = image.shape
    out = np.zeros((n, c, *grid.shape[1:3]))
    place = ((grid.astype(float) + 1) * [sizes[1], sizes[0]] - 1) / 2
    if border:
        place = np.clip(np.nan_to_num(place, nan=0), 0, [sizes[1] - 1, sizes[0] - 1])
    for batch, row, column in np.ndindex(n, *grid.shape[1:3]):
        x, y = place[batch, row, column]
        if not (np.isfinite(x) and np.isfinite(y)):
            out[batch, :, row, column] = np.nan
        if not (-2 < x < sizes[1] + 1 and -2 < y < sizes[0] + 1):
            continue
        left, top = int(np.floor(x)), int(np.floor(y))
        for i, j in np.ndindex(2, 2):
            if 0 <= left + i < sizes[1] and 0 <= top + j < sizes[0]:
                weight = (1 - abs(x - left - i)) * (1 - abs(y - top - j))
                out[batch, :, row, column] += weight * image[batch, :, top + j, left + i]
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("border", [False, True])
def test_grid_sample_of_many_places(border: bool, dtype: str) -> None:
    """More than are prepared at once, of steps in memory, some nowhere; on many threads."""
    image = RNG.normal(size=(3, 67, 9, 13)).astype(dtype)
    grid = RNG.uniform(-1.3, 1.3, (3, 61, 2 * 59, 2)).astype(dtype)
    grid[0, 0, ::4] = np.nan, 0.5
    grid[1, 3, ::6] = 1e30, -np.inf
    grid[2, :, :20] /= 2  # blocks without anything outside
    x, places = tn.tensor(image)[:, ::2], tn.tensor(grid)[:, :, ::2]
    padding = "border" if border else "zeros"
    call = partial(F.grid_sample, x, places, padding_mode=padding, align_corners=False)
    got, before = call(), tn.get_num_threads()
    want = bilinear(image[:, ::2], grid[:, :, ::2], border)
    np.testing.assert_allclose(got.numpy(), want, atol=3e-5 if dtype == "float32" else 1e-13)
    try:
        for threads in (1, 3):
            tn.set_num_threads(threads)
            np.testing.assert_array_equal(call().numpy(), got.numpy())
    finally:
        tn.set_num_threads(before)


def test_grid_sample_does_not_look_outside() -> None:
    image = np.full((1, 2, 3, 3), 1.0)
    image[..., 0, 0] = np.inf
    grid = np.full((1, 1, 70, 2), 3.0)
    grid[0, 0, 7] = 2 / 3, 2 / 3
    got = F.grid_sample(tn.tensor(image), tn.tensor(grid), align_corners=False).numpy()
    want = np.zeros((1, 2, 1, 70))
    want[..., 7] = 1
    np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_grid_sample_numerically(mode: str) -> None:
    x = tn.tensor(RNG.normal(size=(1, 2, 4, 5)), requires_grad=True)
    grid = tn.tensor(RNG.uniform(-0.95, 0.95, (1, 2, 3, 2)), requires_grad=True)
    call = lambda x, g: F.grid_sample(x, g, mode, align_corners=False)  # noqa: E731
    assert tn.autograd.gradcheck(call, (x, grid))
    assert tn.autograd.gradgradcheck(call, (x, grid))


def test_strange_places() -> None:
    """Numbers that no integer holds are far outside, or at the border; others are nowhere."""
    image = RNG.normal(size=(1, 1, 3, 3)).astype("float32")
    grid = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.5], "float32")
    grid = np.stack([grid, np.full(6, 0.5, "float32")], -1).reshape(1, 1, 6, 2)
    for mode in MODES:
        image[0, 0, 0, 0] = 0 if mode == "bicubic" else np.inf
        out = F.grid_sample(tn.tensor(image), tn.tensor(grid), mode, "zeros", True)
        assert out[0, 0, 0, 3:5].tolist() == [0] * 2
        assert out[0, 0, 0, :3].isfinite().all() == (mode == "nearest")
        assert out[0, 0, 0, 5].isfinite()
        out = F.grid_sample(tn.tensor(image), tn.tensor(grid), mode, "border", True)
        assert out[0, 0, 0, 3 if mode == "bicubic" else 1 :].isfinite().all()


def test_blocks_and_threads() -> None:
    """More places than a block holds, strided images; the same bits on any number of threads."""
    x = tn.randn(3, 20, 17, 9).permute(0, 2, 3, 1).requires_grad_()
    grid = (tn.rand(3, 33, 21, 2) * 2.2 - 1.1).requires_grad_()
    before, seen = tn.get_num_threads(), []
    try:
        for threads in (1, 3):
            tn.set_num_threads(threads)
            out = F.grid_sample(x, grid, align_corners=False)
            seen.append([out, *tn.autograd.grad(out.square().sum(), (x, grid))])
    finally:
        tn.set_num_threads(before)
    assert all(tn.equal(a, b) for a, b in zip(*seen, strict=True))
    one = F.grid_sample(x[1:2, 4:5], grid[1:2, 30:31], align_corners=False)
    np.testing.assert_allclose(seen[0][0][1, 4, 30].tolist(), one[0, 0, 0].tolist(), atol=1e-6)


def test_affine_grid() -> None:
    for corners in (True, False):
        for size in ((2, 1, 3, 4), (2, 1, 1, 4), (2, 3, 2, 3, 4)):
            spatial = len(size) - 2
            theta = RNG.normal(size=(2, spatial, spatial + 1))
            both(
                lambda m, t, size=size, corners=corners: m.nn.functional.affine_grid(
                    t, size, align_corners=corners
                ),
                theta,
            )
    theta = tn.tensor([[[2.0, 0, 1], [0, 3, -1]]])
    got = F.affine_grid(theta, [1, 1, 2, 2], align_corners=True)
    assert got.tolist() == [[[[-1, -4], [3, -4]], [[-1, 2], [3, 2]]]]


def first(m: Any, fn: Any, x: Any, *rest: Any) -> Any:
    """The first gradient alone."""
    x = x.detach().requires_grad_()
    return m.autograd.grad(fn(x, *rest).cos().sum(), x)[0]


def test_pdist() -> None:
    x = RNG.normal(size=(5, 3))
    x[3] = x[1]
    for p in (0.0, 1.0, 2.0, 3.5, float("inf")):
        both(lambda m, x, p=p: m.nn.functional.pdist(x, p), x, grad=False)
        both(lambda m, x, p=p: first(m, m.pdist, x, p), x, grad=False)
    far = tn.tensor(x[:3], requires_grad=True)
    assert tn.autograd.gradgradcheck(lambda x: F.pdist(x, 2.5), far)
    assert F.pdist(tn.ones(1, 3)).shape == (0,)


def test_errors() -> None:
    x, grid = np.ones((2, 1, 3, 3)), np.zeros((2, 2, 2, 2))
    for shape, words in (((1, 2, 2, 2), "same batch size"), ((2, 2, 2, 3), "size 2 in last"),
                         ((2, 2, 2), "same number of dimensions")):  # fmt: skip
        both_fail(
            lambda m, x, g: m.nn.functional.grid_sample(x, g, align_corners=False),
            x, np.zeros(shape), words=words,
        )  # fmt: skip
    sample = lambda m, x, g: m.nn.functional.grid_sample(x, g, align_corners=False)  # noqa: E731
    both_fail(sample, np.ones((2, 1, 0, 3)), grid, words="non-empty")
    both_fail(sample, x.astype("float32"), grid)
    both_fail(lambda m, x, g: m.nn.functional.grid_sample(x, g, "cubic"), x, grid, words="cubic")
    both_fail(
        lambda m, x, g: m.nn.functional.grid_sample(x, g, padding_mode="no"), x, grid, words="no"
    )
    both_fail(
        lambda m, x, g: m.nn.functional.grid_sample(x, g, "bicubic", align_corners=True),
        np.ones((1, 1, 2, 2, 2)), np.zeros((1, 2, 2, 2, 3)), words="4D input",
    )  # fmt: skip
    both_fail(lambda m, x: m.pdist(x), x, words="2D")
    with pytest.raises(ValueError, match="interpolation_mode"):
        tn.grid_sampler(tn.tensor(x), tn.tensor(grid), 3, 0, False)
    for theta, size in ((np.ones((2, 3, 3)), (2, 1, 2, 2)), (np.ones((2, 2, 3)), (2, 1, 2)),
                        (np.ones((2, 2, 3)), (2, 1, 0, 2))):  # fmt: skip
        both_fail(
            lambda m, t, s=size: m.nn.functional.affine_grid(t, s, align_corners=False), theta
        )
    for size in ((1, 1, 2, 2), (2, 1, 2), (2, 1, 0, 2)):
        with pytest.raises((RuntimeError, ValueError), match=r"affine|inputs|positive"):
            tn.affine_grid_generator(tn.ones(2, 2, 3), size, False)


def test_fractional_max_pool_by_hand() -> None:
    """Windows begin at int((i + u) alpha) - int(u alpha), the last one at the end."""
    x = RNG.normal(size=(2, 7, 9))
    samples = np.array([[[0.3, 0.8], [0.9, 0.1]]])
    got, places = tn.fractional_max_pool2d(tn.tensor(x), (2, 3), (4, 3), tn.tensor(samples))

    def begins(size: int, kernel: int, n: int, u: float) -> list[int]:
        alpha = (size - kernel) / (n - 1)
        return [int((i + u) * alpha) - int(u * alpha) for i in range(n - 1)] + [size - kernel]

    for c in range(2):
        u, v = samples[0, c]
        for i, y in enumerate(begins(7, 2, 4, v)):
            for k, left in enumerate(begins(9, 3, 3, u)):
                window = x[c, y : y + 2, left : left + 3]
                assert got[c, i, k].item() == window.max()
                assert x[c].reshape(-1)[places[c, i, k].item()] == window.max()


def test_fractional_max_pool_as_pytorch() -> None:
    flat = (RNG.normal(size=(2, 3, 8, 9)).astype("float32"), RNG.random((2, 3, 2), "float32"))
    deep = (RNG.normal(size=(2, 3, 5, 8, 7)), RNG.random((2, 3, 3)))
    for arrays, size in ((flat, 2), (deep, 3)):
        name = f"fractional_max_pool{size}d"
        for kwargs in ({"output_size": 3}, {"output_ratio": (0.5, 0.6, 0.5)[:size]},
                       {"output_size": (1, 2, 3)[-size:], "return_indices": True}):  # fmt: skip

            def run(m: Any, x: Any, u: Any, name: str = name, kwargs: Any = kwargs) -> Any:
                pool = getattr(m.nn.functional, name)
                return pool(x, 2, **kwargs, _random_samples=u.detach())

            both(run, *arrays)
    layer = tn.nn.FractionalMaxPool2d(2, output_ratio=0.5)
    assert layer(tn.randn(1, 2, 8, 6)).shape == (1, 2, 4, 3)
    assert tn.nn.FractionalMaxPool3d(2, 3)(tn.randn(2, 5, 6, 7)).shape == (2, 3, 3, 3)


def test_fractional_max_pool_refuses() -> None:
    layer = tn.nn.FractionalMaxPool2d
    for call in (
        lambda: layer(2), lambda: layer(2, 3, 0.5), lambda: layer(2, output_ratio=1.5),
        lambda: F.fractional_max_pool2d(tn.ones(1, 4, 4), 2),
        lambda: F.fractional_max_pool3d(tn.ones(1, 4, 4, 4), 2),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"output|between 0 and 1"):
            call()
    x, u = tn.ones(1, 2, 4, 4), tn.rand(1, 2, 2)
    for call in (
        lambda: tn.fractional_max_pool2d(x, 3, 3, u),
        lambda: tn.fractional_max_pool2d(x[0, 0], 2, 2, u),
        lambda: tn.fractional_max_pool2d(x, 2, 2, u[:, :1]),
        lambda: tn.fractional_max_pool2d(x, 2, 2, u.double()),
        lambda: tn.fractional_max_pool2d(x[:, :, :0], 2, 2, u),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"too large|Expect"):
            call()


def test_linear_cross_entropy() -> None:
    """The loss of the map's results, whatever the shapes."""
    x, w = tn.randn(5, 3, requires_grad=True), tn.randn(4, 2, 3, requires_grad=True)
    b = tn.randn(4, 2)
    target, one = tn.randint(0, 4, (5, 2)), tn.randint(0, 4, (5,))
    want = F.cross_entropy(tn.einsum("nf,cpf->ncp", x, w) + b, target, ignore_index=1)
    got = F.linear_cross_entropy(x, w, target, linear_bias=b, ignore_index=1)
    np.testing.assert_allclose(got.item(), want.item(), rtol=1e-6)
    for a, c in zip(tn.autograd.grad(got, (x, w)), tn.autograd.grad(want, (x, w)), strict=True):
        np.testing.assert_allclose(a.numpy(), c.numpy(), atol=1e-6)
    tn.manual_seed(0)
    loss = tn.nn.LinearCrossEntropyLoss(3, 4, bias=True, label_smoothing=0.1)
    want = F.cross_entropy(loss.linear(x), one, label_smoothing=0.1)
    assert loss(x, one).item() == want.item()
    options = tn.nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    alone = F.linear_cross_entropy(x[0], w[:, 0], one[0], options=options)
    assert alone.item() == pytest.approx(F.cross_entropy(x[:1] @ w[:, 0].t(), one[:1]).item())
    for match, call in {
        "dimensionality 1 or 2": lambda: F.linear_cross_entropy(x[None], w, target),
        "at least 2": lambda: F.linear_cross_entropy(x, w[0, 0], target),
        "in_features": lambda: F.linear_cross_entropy(x[:, :2], w, target),
        "linear_bias shape": lambda: F.linear_cross_entropy(x, w, target, linear_bias=b[0]),
        "requires batched": lambda: F.linear_cross_entropy(x[0], w, target),
        "contains probabilities": lambda: F.linear_cross_entropy(
            x, w[:, 0], tn.ones(5, 4), ignore_index=0
        ),
        "weight shape": lambda: tn.nn.LinearCrossEntropyLoss(3, 4, weight=tn.ones(3)),
        "range": lambda: tn.nn.LinearCrossEntropyLoss(3, 4, label_smoothing=2),
    }.items():
        with pytest.raises(RuntimeError, match=match):
            call()
    for kwargs in ({"acc_policy": "no"}, {"chunking_method": "aspect_ratio:0"},
                   {"batch_chunk_size": 0}, {"acc_dtype": tn.int32}):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(kwargs))):
            tn.nn.LinearCrossEntropyOptions(**kwargs)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_what_lies_outside_of_an_image_is_zero_whatever_its_first_pixel_is(mode: str) -> None:
    x = tn.ones(1, 2, 5, 5)
    x[..., 0, 0] = np.nan
    grid = tn.tensor([[5.0, 5.0], [-9.0, 4.0], [np.nan, 0.0]]).reshape(1, 1, 3, 2)
    grid.requires_grad_()
    y = F.grid_sample(x, grid, mode, align_corners=False)
    assert (y[..., :2] == 0).all() and y[..., 2].isnan().all() == (mode != "nearest")
    y[..., :2].sum().backward()
    assert (grid.grad[..., :2, :] == 0).all()
