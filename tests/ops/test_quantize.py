"""Values on a grid and products of whole numbers, against NumPy's integers, and PyTorch's results
where it is there."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon._C import _ops

RNG = np.random.default_rng(8)


def bytes_of(*shape: int, low: int = -128, high: int = 127) -> np.ndarray:
    return RNG.integers(low, high, shape, dtype=np.int64, endpoint=True).astype(np.int8)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(x: np.ndarray, scale: float, zero: int, low: int, high: int) -> np.ndarray:
    """The numbers that stand for x, as int64."""
    inverse = np.float32(1) / np.float32(scale)
    return (np.clip(np.rint(x * inverse) + zero, low, high)).astype(np.int64)


def on_grid(x: np.ndarray, scale: float, zero: int, low: int, high: int) -> np.ndarray:
    return ((whole(x, scale, zero, low, high) - zero) * np.float32(scale)).astype(np.float32)


def near(got: tn.Tensor, want: np.ndarray, scale: float = 1.0) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=3e-6, atol=3e-6 * scale)


# ---- Values on a grid --------------------------------------------------------------------------


def test_fake_quantize_per_tensor_affine() -> None:
    x = floats(7, 9) * 4
    want = on_grid(x, 0.25, 3, 0, 15)
    got = tn.fake_quantize_per_tensor_affine(tn.tensor(x), 0.25, 3, 0, 15)
    assert np.array_equal(got.numpy(), want)
    got = tn.fake_quantize_per_tensor_affine(
        tn.tensor(x), tn.tensor([0.25]), tn.tensor([3], dtype=tn.int32), 0, 15
    )
    assert np.array_equal(got.numpy(), want)
    for text, numbers in (("quant_min", (0, 5, 4)), ("zero_point", (9, 0, 4))):
        with pytest.raises(RuntimeError, match=text):
            tn.fake_quantize_per_tensor_affine(tn.tensor(x), 1.0, *numbers)


def test_fake_quantize_per_channel_affine() -> None:
    x, scale, zero = floats(4, 3, 5) * 3, np.array([0.5, 0.1, 0.25], np.float32), [0, 2, -1]
    got = tn.fake_quantize_per_channel_affine(
        tn.tensor(x), tn.tensor(scale), tn.tensor(zero, dtype=tn.int32), 1, -8, 7
    )
    want = np.stack([on_grid(x[:, i], scale[i], zero[i], -8, 7) for i in range(3)], 1)
    assert np.array_equal(got.numpy(), want)
    with pytest.raises(RuntimeError, match="not consistent"):
        tn.fake_quantize_per_channel_affine(
            tn.tensor(x), tn.ones(4), tn.zeros(4, dtype=tn.int32), 1, -8, 7
        )


def test_the_gradient_passes_where_nothing_is_cut_off() -> None:
    x = tn.tensor([-1.0, -0.1, 0.3, 0.76, 0.8, 9.0], requires_grad=True)
    tn.fake_quantize_per_tensor_affine(x, 0.25, 0, 0, 3).backward(tn.arange(1.0, 7.0))
    assert x.grad.tolist() == [0, 2, 3, 4, 5, 0]


# ---- Products ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 1), (3, 7, 5), (2, 32, 4), (17, 33, 9), (65, 64, 67), (130, 100, 3), (1, 300, 200),
     (0, 4, 3), (3, 0, 2)],
)  # fmt: skip
def test_int_mm(m: int, k: int, n: int) -> None:
    a, b = bytes_of(m, k), bytes_of(k, n)
    want = a.astype(np.int64) @ b.astype(np.int64)
    for other in (tn.tensor(b), tn.tensor(np.ascontiguousarray(b.T)).t()):
        got = tn._int_mm(tn.tensor(a), other)
        assert got.dtype == tn.int32
        assert np.array_equal(got.numpy(), want)
    got = tn._int_mm(tn.tensor(np.ascontiguousarray(a.T)).t(), tn.tensor(b))
    assert np.array_equal(got.numpy(), want)


def test_sums_are_exact_at_their_ends() -> None:
    """All at -128 * -128, and more of them than an int32 holds products of nine bits."""
    k = 100_000
    a = tn.full((2, k), -128, dtype=tn.int8)
    assert tn._int_mm(a, a.t()).tolist() == [[k << 14] * 2] * 2
    x = tn.full((1, k), 255.0)
    w = tn.full((1, k), -128, dtype=tn.int8)
    got = _ops._linear_int8(x, w, tn.ones(1), None, 1.0, 0, 0, 255)
    assert got.item() == np.float32(-128 * 255 * k)
    x = tn.zeros(1, k)
    got = _ops._linear_int8(x, w, tn.ones(1), None, 1.0, 255, 0, 255)
    assert got.item() == 0


def test_int_mm_refuses() -> None:
    a = tn.zeros(3, 4, dtype=tn.int8)
    with pytest.raises(RuntimeError):
        tn._int_mm(a, a)
    with pytest.raises((RuntimeError, TypeError)):
        tn._int_mm(a, tn.zeros(4, 2))


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize(
    ("shape", "n"), [((5, 12), 7), ((2, 3, 64), 70), ((129, 40), 1), ((9,), 4)]
)
def test_linear_int8(shape: tuple[int, ...], n: int, each: bool) -> None:
    x, w, bias = floats(*shape), bytes_of(n, shape[-1]), floats(n)
    scale = (0.01 + RNG.random(n if each else 1)).astype(np.float32)
    for grid in ((0.02, 60, 0, 127), (0.05, -3, -128, 127), (0.011, 130, 0, 255)):
        sums = (whole(x, *grid) - grid[1]) @ w.astype(np.int64).T
        want = sums * (grid[0] * scale.astype(np.float64)) + bias
        args = [tn.tensor(v) for v in (x, w, scale, bias)]
        near(_ops._linear_int8(*args, *grid), want, np.abs(want).max())
        step = float(np.abs(want).max()) / 50
        got = _ops._linear_int8(*args, *grid, step, 40, 0, 127).numpy()
        levels = got / np.float32(step)
        assert np.abs(levels - np.rint(levels)).max() < 1e-4
        assert (np.abs(got - np.clip(want, -40 * step, 87 * step)) <= step * 0.501).all()


def test_linear_int8_finds_the_range() -> None:
    x, w = floats(6, 50) * 3 - 1, bytes_of(8, 50)
    got = _ops._linear_int8(tn.tensor(x), tn.tensor(w), tn.ones(1), None, 0.0, 0, 0, 127)
    low, high = min(float(x.min()), 0), max(float(x.max()), 0)
    scale = np.float32((high - low) / 127)
    zero = int(np.clip(np.rint(-low / float(scale)), 0, 127))
    want = ((whole(x, scale, zero, 0, 127) - zero) @ w.astype(np.int64).T) * np.float64(scale)
    near(got, want, np.abs(want).max())
    for bad in (np.nan, np.inf):
        x[2, 3] = bad
        with pytest.raises(ValueError, match="finite"):
            _ops._linear_int8(tn.tensor(x), tn.tensor(w), tn.ones(1), None, 0.0, 0, 0, 127)
    zeros = tn.zeros(2, 50)
    got = _ops._linear_int8(zeros, tn.tensor(w), tn.ones(1), tn.ones(8), 0.0, 0, 0, 127)
    assert got.tolist() == [[1.0] * 8] * 2


def linear(**other: Any) -> tn.Tensor:
    """A call of _linear_int8 that is fine but for the arguments given."""
    args = {
        "input": tn.zeros(2, 4), "weight": tn.zeros(3, 4, dtype=tn.int8), "scale": tn.ones(1),
        "bias": None, "input_scale": 1.0, "input_zero": 0, "low": 0, "high": 127,
    }  # fmt: skip
    return _ops._linear_int8(**args | other)


def conv(**other: Any) -> tn.Tensor:
    """The same of _conv_int8, with two groups."""
    args = {
        "input": tn.zeros(1, 4, 5, 5), "weight": tn.zeros(6, 2, 3, 3, dtype=tn.int8),
        "scale": tn.ones(6), "bias": None, "stride": [1, 1], "padding": [0, 0],
        "dilation": [1, 1], "groups": 2, "input_scale": 1.0, "input_zero": 0, "low": 0,
        "high": 127,
    }  # fmt: skip
    return _ops._conv_int8(**args | other)


GRIDS = [
    ({"high": 256}, "whole numbers from 0 to 256 with zero at 0 are not of 8 bits"),
    ({"low": -129, "high": 100}, "whole numbers from -129 to 100"),
    ({"low": -100, "high": 156}, "whole numbers from -100 to 156"),
    ({"low": 127}, "whole numbers from 127 to 127"),
    ({"input_zero": 128}, "with zero at 128 are not of 8 bits"),
    ({"input_zero": -1}, "with zero at -1 are not of 8 bits"),
    ({"input_scale": float("nan")}, "a scale must be finite and not negative"),
    ({"input_scale": float("inf")}, "a scale must be finite and not negative"),
    ({"input_scale": -1.0}, "a scale must be finite and not negative"),
    ({"output_scale": -1.0}, "a scale must be finite and not negative"),
    ({"output_zero": 300}, "with zero at 300 are not of 8 bits"),
]
ROWS: list[tuple[Any, dict[str, Any], str]] = [
    *((f, *case) for f in (linear, conv) for case in GRIDS),
    *(
        (f, {"input": tn.zeros(1, 4, 5, 5).double()}, "input must be float32, got float64")
        for f in (linear, conv)
    ),
    (linear, {"weight": tn.zeros(3, 4)}, "weight must be int8, got float32"),
    (linear, {"weight": tn.zeros(4, dtype=tn.int8)}, "a weight of size [4] does not take input"),
    (linear, {"input": tn.zeros(2, 5)}, "does not take input of size [2, 5]"),
    (linear, {"input": tn.zeros(())}, "does not take input of size []"),
    (linear, {"scale": tn.ones(2)}, "scale must have 3 elements, got size [2]"),
    (linear, {"scale": tn.ones(3).double()}, "scale must be float32, got float64"),
    (linear, {"bias": tn.ones(1, 3)}, "bias must have 3 elements, got size [1, 3]"),
    (linear, {"bias": tn.ones(1)}, "bias must have 3 elements, got size [1]"),
    (conv, {"input_scale": 0.0}, "input_scale must be positive"),
    (conv, {"weight": tn.zeros(6, 2, 3, 3)}, "weight must be int8, got float32"),
    (conv, {"groups": 0}, "and 0 groups does not take input"),
    (conv, {"groups": -2}, "and -2 groups does not take input"),
    (conv, {"groups": 1}, "and 1 groups does not take input"),
    (conv, {"groups": 2**62}, "groups does not take input"),
    (conv, {"groups": 4, "weight": tn.zeros(6, 1, 3, 3, dtype=tn.int8)}, "and 4 groups does not"),
    (conv, {"input": tn.zeros(4, 5, 5)}, "does not take input [4, 5, 5]"),
    (conv, {"weight": tn.zeros(6, 2, 3, dtype=tn.int8)}, "with weight [6, 2, 3] and 2 groups"),
    (conv, {"scale": tn.ones(5)}, "scale must have 6 elements, got size [5]"),
    (conv, {"bias": tn.ones(1)}, "bias must have 6 elements, got size [1]"),
    (conv, {"padding": [0, -1]}, "padding"),
    (conv, {"stride": [0, 1]}, "stride"),
    (conv, {"dilation": [1, 0]}, "dilation"),
    (conv, {"dilation": [1, 3]}, "Kernel size can't be greater than actual input size"),
    (conv, {"weight": tn.zeros(6, 2, 6, 3, dtype=tn.int8)}, "Kernel size can't be greater than"),
]


@pytest.mark.parametrize("case", range(len(ROWS)))
def test_layers_of_bytes_refuse(case: int) -> None:
    call, other, words = ROWS[case]
    with pytest.raises((RuntimeError, ValueError), match=re.escape(words)):
        call(**other)
    assert linear(high=255).shape == (2, 3) and conv(low=-128, high=127).shape == (1, 6, 3, 3)


def test_conv_int8() -> None:
    for shape, weight, stride, pad, dilation, groups in (
        ((2, 3, 9, 8), (5, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
        ((1, 4, 12, 11), (6, 2, 3, 2), (2, 1), (0, 1), (1, 2), 2),
        ((2, 8, 7, 7), (8, 1, 3, 3), (1, 1), (1, 1), (1, 1), 8),
        ((1, 16, 20, 20), (70, 16, 1, 1), (1, 2), (0, 0), (1, 1), 1),
    ):
        x, w, bias = floats(*shape), bytes_of(*weight), floats(weight[0])
        scale = (0.01 + RNG.random(weight[0])).astype(np.float32)
        grid = (0.03, 70, 0, 127)
        q = tn.tensor((whole(x, *grid) - grid[1]).astype(np.float64))
        sums = tn.nn.functional.conv2d(
            q, tn.tensor(w).double(), None, stride, pad, dilation, groups
        )
        columns = (slice(None), None, None)
        want = sums.numpy() * (0.03 * scale.astype(np.float64))[columns] + bias[columns]
        args = [tn.tensor(v) for v in (x, w, scale, bias)]
        got = _ops._conv_int8(*args, [*stride], [*pad], [*dilation], groups, *grid)
        near(got, want, np.abs(want).max())


@pytest.mark.parametrize("shape", [(1, 1, 2**31 + 1, 1), (1, 1, 1, 2**31 + 1)])
def test_images_of_conv_int8_have_an_end(shape: tuple[int, ...]) -> None:
    args = (tn.zeros(1, 1, 1, 1).expand(shape), tn.zeros(1, 1, 1, 1, dtype=tn.int8), tn.ones(1))
    with pytest.raises(ValueError, match=r"at most 2\^31"):
        _ops._conv_int8(*args, tn.ones(1), [1, 1], [0, 0], [1, 1], 1, 0.03, 70, 0, 127)


def test_weights_of_whole_numbers() -> None:
    for m, n, k in ((1, 5, 64), (3, 70, 32), (9, 130, 96)):
        x = floats(m, k)
        w, scale = bytes_of(n, k), floats(n)
        got = tn._weight_int8pack_mm(tn.tensor(x), tn.tensor(w), tn.tensor(scale))
        near(got, x.astype(np.float64) @ (w * scale[:, None].astype(np.float64)).T, 300)
        packed = RNG.integers(0, 256, (n, k // 2), dtype=np.uint8)
        scale, zero = floats(n, k // 16), floats(n, k // 16) * 8
        each = np.stack([packed & 15, packed >> 4], -1).reshape(n, k // 16, 16)
        full = ((each - zero[..., None].astype(np.float64)) * scale[..., None]).reshape(n, k)
        args = [tn.tensor(v) for v in (x, packed, scale, zero)]
        near(_ops._linear_int4(*args), x.astype(np.float64) @ full.T, 300)
    with pytest.raises(RuntimeError):
        _ops._linear_int4(*args[:2], args[2][:, :1], args[3])


# ---- PyTorch's numbers -------------------------------------------------------------------------


def test_as_pytorch_computes() -> None:
    torch = pytest.importorskip("torch")
    x, scale, zero = floats(5, 40) * 3, np.float32(0.13), 4
    for dtype in ("float32", "float64"):
        a = torch.tensor(x).to(getattr(torch, dtype)).requires_grad_()
        b = tn.tensor(x).to(getattr(tn, dtype)).requires_grad_()
        want = torch.fake_quantize_per_tensor_affine(a, float(scale), zero, -8, 7)
        got = tn.fake_quantize_per_tensor_affine(b, float(scale), zero, -8, 7)
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=2e-7)
        want.sum().backward()
        got.sum().backward()
        assert np.array_equal(b.grad.numpy(), a.grad.numpy())
    w = torch.quantize_per_tensor(torch.tensor(floats(6, 40)), 0.02, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(w, torch.ones(6))
    want = torch.ops.quantized.linear_dynamic(torch.tensor(x), packed, True).numpy()
    weight = tn.tensor(w.int_repr().numpy())
    got = _ops._linear_int8(
        tn.tensor(x), weight, tn.tensor([0.02]), tn.ones(6), 0.0, 0, 0, 127
    ).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
