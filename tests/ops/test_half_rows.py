"""float16 on the CPU: conversions to the last bit; kernels that widen rows a block at a time."""

import numpy as np
import pytest
import tenon

HALVES = np.arange(65536, dtype=np.uint16).view(np.float16)


def around_every_boundary():
    """Both neighbours of every float16 and of every middle between two; NaN with any payload."""
    finite = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float64)
    finite[-1] = 65536.0
    points = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2]).astype(np.float32)
    up, down = (np.nextafter(points, np.float32(end)) for end in (np.inf, -np.inf))
    odd = np.concatenate(
        [np.arange(0x7F800000, 0x7F800100), np.arange(0x7FFF0000, 0x80000000, 997)]
    )
    values = np.concatenate([points, up, down, odd.astype(np.uint32).view(np.float32)])
    return np.concatenate([values, -values])


def expected_bits(values):
    with np.errstate(all="ignore"):
        bits = values.astype(np.float16).view(np.uint16)
    return np.where(np.isnan(values), (bits & 0x8000) | 0x7E00, bits)


def bits_of(t):
    return t.contiguous().numpy().view(np.uint16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_become_float16_to_the_last_bit(dtype):
    with np.errstate(invalid="ignore"):
        values = around_every_boundary().astype(dtype)
    assert np.array_equal(bits_of(tenon.tensor(values).half()), expected_bits(values))
    assert np.array_equal(bits_of(tenon.tensor(values)[1::3].half()), expected_bits(values[1::3]))


def test_every_float16_stays_itself():
    t = tenon.tensor(HALVES)
    assert np.array_equal(t.float().numpy(), HALVES.astype(np.float32), equal_nan=True)
    want = expected_bits(HALVES.astype(np.float32))
    assert np.array_equal(bits_of(t.float().half()), want)
    assert np.array_equal(bits_of(t.abs()), bits_of(t) & 0x7FFF)
    assert np.array_equal(bits_of(-t), bits_of(t) ^ 0x8000)
    assert np.array_equal(bits_of(tenon.where(t == t, t, t)), want)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 255, 256, 257, 513])
def test_rows_of_any_length(n):
    x, y = np.random.default_rng(n).standard_normal((2, 3 * 513)).astype(np.float16)
    a, b = tenon.tensor(x), tenon.tensor(y)
    for step in (1, 3):
        rows = slice(None, step * n, step)
        with np.errstate(all="ignore"):
            product = (x[rows].astype(np.float32) * y[rows]).astype(np.float16)
            doubled = x[rows] * np.float16(2)
        assert np.array_equal(bits_of(a[rows] * b[rows]), product.view(np.uint16))
        assert np.array_equal(bits_of(a[rows] * 2), doubled.view(np.uint16))
        assert np.array_equal((a[rows] < b[rows]).numpy(), x[rows] < y[rows])
        picked = tenon.where(a[rows] < b[rows], a[rows], b[rows])
        assert np.array_equal(bits_of(picked), np.minimum(x[rows], y[rows]).view(np.uint16))
    kept = a.clone()
    kept[:n].mul_(b[:n])
    assert np.array_equal(bits_of(kept[n:]), x[n:].view(np.uint16))


@pytest.mark.parametrize("dtype", [tenon.float16, tenon.bfloat16])
@pytest.mark.parametrize("more", [{}, {"stride": 2, "padding": 1}, {"groups": 2}, {"dilation": 2}])
@pytest.mark.parametrize("channels", [4, 40])
def test_gradients_of_convolutions_in_half_precision(
    dtype: tenon.dtype, more: dict[str, int], channels: int
) -> None:
    """Of small whole numbers, whose sums half precision holds: they are exactly float64's."""
    rng = np.random.default_rng(7)
    groups = more.get("groups", 1)
    x = rng.integers(-1, 2, (2, 4, 9, 9))
    w = rng.integers(-1, 2, (channels, 4 // groups, 3, 3))

    def gradients(kind: tenon.dtype) -> list[tenon.Tensor]:
        a, b = (tenon.from_numpy(v).to(kind).requires_grad_() for v in (x, w))
        y = tenon.nn.functional.conv2d(a, b, **more)
        seeds = np.random.default_rng(8).integers(-1, 2, tuple(y.shape))
        seeds[np.random.default_rng(9).random(seeds.shape) < 0.5] = 0
        return [y, *tenon.autograd.grad(y, (a, b), tenon.from_numpy(seeds).to(kind))]

    for mine, exact in zip(gradients(dtype), gradients(tenon.float64), strict=True):
        assert exact.abs().max() <= 256 and tenon.equal(mine.double(), exact)
