"""Windows whose strides, padding and dilation lie far outside of their images: results are those of
the definition, or an error; no size wraps around. Work follows the elements, not the numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.nn import functional as F

FAR = 2**31
REFUSED = (MemoryError, RuntimeError, ValueError)


def test_padding_that_no_memory_holds() -> None:
    """The padded image has 2^64 bytes, which must not become a small number."""
    with pytest.raises(MemoryError):
        F.conv2d(tn.ones(1, 4, 8, 8), tn.ones(1, 4, 1, 1), padding=2**30 - 8, stride=FAR)


@pytest.mark.parametrize("stride", [3, 2**20, 2**22, FAR])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_a_stride_beyond_the_image(stride: int, groups: int) -> None:
    """Only the first pixel meets the window."""
    x = tn.ones(1, 2, 2, 2, 2, requires_grad=True)
    w = tn.full((2, 2 // groups, 1, 1, 1), 3.0, requires_grad=True)
    y = F.conv3d(x, w, stride=stride, groups=groups)
    np.testing.assert_array_equal(y.detach().numpy().ravel(), [6.0 / groups] * 2)
    y.sum().backward()
    expected = np.zeros((1, 2, 2, 2, 2), np.float32)
    expected[..., 0, 0, 0] = 6.0 / groups
    np.testing.assert_array_equal(x.grad.numpy(), expected)
    np.testing.assert_array_equal(w.grad.numpy(), np.ones(w.shape))


@pytest.mark.parametrize("stride", [1, 2**21, 2**22, 2**30])
def test_transposed_stride_whose_cube_wraps(stride: int) -> None:
    """Every pixel of the result is written, however many kinds of them the stride allows."""
    x, w = tn.full((1, 1, 1, 1, 1), 2.0), tn.full((1, 1, 1, 1, 1), 3.0)
    assert F.conv_transpose3d(x, w, stride=stride).item() == 6.0
    assert F.conv_transpose3d(x, w, tn.ones(1), stride=stride).item() == 7.0
    with pytest.raises(REFUSED):
        F.conv_transpose3d(tn.ones(1, 1, 2, 2, 2), w, stride=stride + FAR)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("stride", [5, 7, 8, 9])
def test_strides_about_the_size_of_the_image(stride: int, groups: int) -> None:
    """Values and gradients against the definition, in float64."""
    rng = np.random.default_rng(stride)
    a, b = rng.standard_normal((2, 4, 8, 7)), rng.standard_normal((4, 4 // groups, 3, 2))
    x = tn.tensor(a, requires_grad=True)
    w = tn.tensor(b, requires_grad=True)
    y = F.conv2d(x, w, stride=stride, padding=2, groups=groups)
    padded = np.pad(a, ((0, 0), (0, 0), (2, 2), (2, 2)))
    expected, gx, gw = np.zeros(y.shape), np.zeros_like(padded), np.zeros_like(b)
    g = rng.standard_normal(y.shape)
    for o in range(4):
        first = o // (4 // groups) * (4 // groups)
        own = slice(first, first + 4 // groups)
        for i in range(y.shape[2]):
            for j in range(y.shape[3]):
                at = (slice(None), own, slice(i * stride, i * stride + 3))
                at = (*at, slice(j * stride, j * stride + 2))
                expected[:, o, i, j] = (padded[at] * b[o]).sum((1, 2, 3))
                gx[at] += g[:, o, i, j][:, None, None, None] * b[o]
                gw[o] += (g[:, o, i, j][:, None, None, None] * padded[at]).sum(0)
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=1e-12)
    y.backward(tn.tensor(g))
    np.testing.assert_allclose(x.grad.numpy(), gx[:, :, 2:-2, 2:-2], atol=1e-12)
    np.testing.assert_allclose(w.grad.numpy(), gw, atol=1e-12)


def test_a_window_that_meets_padding_alone() -> None:
    """Both taps lie outside: there is no maximum, and no place that a gradient could go to."""
    x = tn.full((1, 1, 1, 1), 5.0, requires_grad=True)
    y = F.max_pool2d(x, 2, stride=1, padding=5, dilation=10)
    assert y.item() == -np.inf
    with pytest.raises(IndexError, match="plane"):
        y.sum().backward()


CALLS: dict[str, Callable[[Any], Any]] = {
    "conv1d stride": lambda x: F.conv1d(x[0], tn.ones(1, 2, 1), stride=FAR),
    "conv2d padding": lambda x: F.conv2d(x, tn.ones(1, 2, 1, 1), padding=FAR, stride=FAR),
    "conv2d dilation": lambda x: F.conv2d(x, tn.ones(1, 2, 2, 2), padding=FAR // 2, dilation=FAR),
    "conv_transpose2d stride": lambda x: F.conv_transpose2d(x, tn.ones(2, 1, 1, 1), stride=FAR),
    "conv_transpose2d padding": lambda x: F.conv_transpose2d(
        x, tn.ones(2, 1, 2, 2), stride=FAR, padding=FAR // 2, dilation=FAR
    ),
    "max_pool2d stride": lambda x: F.max_pool2d(x, 2, stride=FAR),
    "max_pool2d ceil": lambda x: F.max_pool2d(x, 2, stride=FAR, ceil_mode=True),
    "max_pool2d dilation": lambda x: F.max_pool2d(x, 2, stride=1, padding=1, dilation=FAR),
    "avg_pool2d window": lambda x: F.avg_pool2d(x, FAR, padding=FAR // 2, stride=FAR),
    "avg_pool2d ceil": lambda x: F.avg_pool2d(x, 2, stride=FAR, ceil_mode=True),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, FAR),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, FAR),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x[0], 2**61),
    "adaptive_max_pool3d": lambda x: F.adaptive_max_pool3d(x, FAR),
    "interpolate": lambda x: F.interpolate(x, size=FAR),
    "interpolate bilinear": lambda x: F.interpolate(x, size=FAR, mode="bilinear"),
    "pad": lambda x: F.pad(x, (FAR, FAR, FAR, FAR)),
    "pad back": lambda x: F.pad(x, (-FAR, 2**62)),
    "unfold": lambda x: F.unfold(x, 2, stride=FAR),
    "unfold padding": lambda x: F.unfold(x, 2, padding=FAR, stride=FAR),
    "fold": lambda x: F.fold(x[:, :, 0], FAR, FAR),
    "median of one element many times": lambda x: x[0, 0, 0, :1].expand(2**59).median(),
    "sum of one element many times": lambda x: F.conv2d(
        x[:1, :, :1, :1].expand(1, 2, 2**30, 2**30), tn.ones(1, 2, 1, 1), stride=2**30
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_refused_or_done_at_once(name: str) -> None:
    """And the gradient as well."""
    x = tn.ones(1, 2, 3, 3, requires_grad=True)
    try:
        y = CALLS[name](x)
        y.sum().backward()
    except REFUSED:
        return
    assert y.numel() < 100 and not y.isnan().any()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [tn.float32, tn.float64, tn.complex64, tn.bfloat16])
@pytest.mark.parametrize("sides", [(5,), (5, 4), (4, 3, 5)])
def test_convolutions_of_no_channels_have_gradients(sides: tuple[int, ...], dtype: Any) -> None:
    """Each place of the result is the bias; weight and input are empty, and so are their
    gradients."""
    conv = getattr(F, f"conv{len(sides)}d")
    x = tn.ones(2, 0, *sides, dtype=dtype, requires_grad=True)
    w = tn.ones(4, 0, *(2 for _ in sides), dtype=dtype, requires_grad=True)
    b = tn.arange(4).to(dtype).requires_grad_()
    y = conv(x, w, b, groups=2)
    assert (y == b.reshape(-1, *(1 for _ in sides))).all()
    y.backward(tn.ones_like(y))
    assert x.grad.shape == x.shape and w.grad.shape == w.shape
    assert (b.grad == y.numel() / 4).all()
    (first,) = tn.autograd.grad(conv(x, w, b), w, tn.ones_like(y), create_graph=True)
    assert first.shape == w.shape
