"""Kernels for small pieces beside the general ones: single elements written at places, windows of
one pixel, windows of two columns; against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F

BOUNDS = {tn.float64: 1e-13, tn.float32: 2e-6, tn.float16: 2e-3, tn.bfloat16: 1.6e-2}


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "float16", "float32", "int64", "complex64", "complex128"]
)
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 3000])
def test_elements_at_places(dtype: str, n: int) -> None:
    """Of equal places the last one stays; places count from the end, too."""
    draw = np.random.default_rng(n)
    x = draw.integers(0, 2, 500).astype(dtype)
    y = draw.integers(0, 2, n).astype(dtype)
    for low in (0, -500):
        at = draw.integers(low, 500, n)
        want = x.copy()
        for i, v in zip(at, y):
            want[i] = v
        got = tn.from_numpy(x).index_put((tn.from_numpy(at),), tn.from_numpy(y))
        assert np.array_equal(got.numpy(), want)
        got = tn.from_numpy(x.copy())
        got[tn.from_numpy(at)] = tn.from_numpy(y)
        assert np.array_equal(got.numpy(), want)
        assert np.array_equal(
            tn.from_numpy(x).put(tn.from_numpy(at), tn.from_numpy(y)).numpy(), want
        )
    wide = draw.integers(0, 2, (20, 500)).astype(dtype)
    at, rows = draw.integers(0, 500, n), draw.integers(0, 2, (20, n)).astype(dtype)
    want, got = wide.copy(), tn.from_numpy(wide.copy())
    for j, i in enumerate(at):
        want[:, i] = rows[:, j]
    got[:, tn.from_numpy(at)] = tn.from_numpy(rows)
    assert np.array_equal(got.numpy(), want)
    flat = tn.from_numpy(wide.copy()).t()
    flat[tn.from_numpy(at), tn.from_numpy(at % 20)] = tn.from_numpy(y)
    want = wide.T.copy()
    for i, v in zip(at, y):
        want[i, i % 20] = v
    assert np.array_equal(flat.numpy(), want)


@pytest.mark.parametrize("place", [500, -501, 2**62, -(2**63)])
def test_nothing_is_written_outside(place: int) -> None:
    x = tn.zeros(500)
    at = tn.arange(100)
    at[57] = place
    with pytest.raises(IndexError, match="out of bounds"):
        x[at] = tn.ones(100)
    assert x.sum() == 0


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize(
    ("channels", "made", "groups", "size"),
    [(1, 8, 1, (5, 7)), (3, 6, 1, (1, 1)), (3, 17, 1, (4, 4)), (16, 16, 1, (32, 32)),
     (8, 24, 2, (9, 9)), (64, 40, 1, (3, 11)), (300, 9, 1, (6, 6)), (600, 70, 1, (5, 5)),
     (12, 5, 1, (8, 8))],
)  # fmt: skip
def test_windows_of_one_pixel(
    channels: int, made: int, groups: int, size: tuple[int, int], dtype: tn.dtype
) -> None:
    draw = np.random.default_rng(channels)
    x = tn.tensor(draw.normal(size=(2, channels, *size))).to(dtype)
    w = tn.tensor(draw.normal(size=(made, channels // groups, 1, 1))).to(dtype)
    bias = tn.tensor(draw.normal(size=made)).to(dtype)
    a, b = x.double().numpy(), w.double().numpy()[:, :, 0, 0]
    parts = zip(np.split(a, groups, 1), np.split(b, groups, 0))
    want = np.concatenate([np.einsum("nchw,oc->nohw", p, q) for p, q in parts], 1)
    room = np.concatenate(
        [np.einsum("nchw,oc->nohw", abs(p), abs(q))
         for p, q in zip(np.split(a, groups, 1), np.split(b, groups, 0))], 1
    )  # fmt: skip
    for given in (
        x,
        x.contiguous(memory_format=tn.channels_last),
        x.transpose(2, 3).contiguous().transpose(2, 3),
    ):
        got = F.conv2d(given, w, groups=groups).double().numpy()
        assert (abs(got - want) <= BOUNDS[dtype] * (room + 1)).all()
        more = F.conv2d(given, w, bias, groups=groups).double().numpy()
        all_of = want + bias.double().numpy()[:, None, None]
        assert (abs(more - all_of) <= BOUNDS[dtype] * (room + 4)).all()
    line = F.conv1d(x[:, :, 0], w[:, :, 0], groups=groups).double().numpy()
    assert (abs(line - want[:, :, 0]) <= BOUNDS[dtype] * (room[:, :, 0] + 1)).all()


def test_windows_of_one_pixel_are_the_same_on_any_number_of_threads() -> None:
    x, w, threads, found = tn.randn(3, 24, 31, 33), tn.randn(40, 24, 1, 1), tn.get_num_threads(), []
    for n in (1, 2):
        tn.set_num_threads(n)
        found.append(F.conv2d(x, w))
    tn.set_num_threads(threads)
    assert tn.equal(*found)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64"])
@pytest.mark.parametrize("width", [2, 3, 127, 128, 129, 130, 600])
def test_windows_of_two_columns(width: int, dtype: str) -> None:
    draw = np.random.default_rng(width)
    x = draw.integers(-4, 4, (2, 3, 5, width)).astype(dtype)
    if dtype != "int64":
        x[draw.uniform(size=x.shape) < 0.1] = np.nan
    t = tn.from_numpy(x)
    pairs = x[..., : width // 2 * 2].reshape(2, 3, 5, -1, 2)
    want = pairs.max(-1)
    values, at = F.max_pool2d(t, (1, 2), return_indices=True)
    assert np.array_equal(values.numpy(), want, equal_nan=True)
    # The last NaN, or the first of the largest.
    place = np.where(np.isnan(pairs).any(-1), np.isnan(pairs[..., 1]), pairs.argmax(-1))
    column = place + 2 * np.arange(width // 2) + width * np.arange(5)[:, None]
    assert np.array_equal(at.numpy(), column)
    line = F.max_pool1d(t[:, :, 0], 2)
    assert np.array_equal(line.numpy(), want[:, :, 0], equal_nan=True)
    both = F.max_pool2d(t, 2).numpy()
    assert np.array_equal(both, np.maximum(want[:, :, 0:4:2], want[:, :, 1:4:2]), equal_nan=True)
