"""Neighbours of numbers, numbers in the place of tensors, signs of zero."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nextafter_is_numpys(dtype: str) -> None:
    x = np.array([0, 0, 1, 1, -1, np.inf, np.nan, 2, -0.0], dtype)
    y = np.array([1, -1, 2, 0, 0, 0, 1, 2, 0.0], dtype)
    got = tn.nextafter(tn.from_numpy(x), tn.from_numpy(y)).numpy()
    np.testing.assert_array_equal(got, np.nextafter(x, y))


def test_nextafter_of_half_precision_is_one_step_of_its_bits() -> None:
    x = np.array([0, 1, -1, 65504, 2, -0.0], np.float16)
    y = np.array([-1, 2, 0, np.inf, 2, 1], np.float16)
    got = tn.nextafter(tn.from_numpy(x), tn.from_numpy(y)).numpy()
    np.testing.assert_array_equal(got.view(np.int16), np.nextafter(x, y).view(np.int16))
    one = tn.nextafter(tn.ones(1, dtype=tn.bfloat16), tn.full((1,), 2, dtype=tn.bfloat16))
    assert one.item() == 1 + 2**-7


def test_gradient_of_nextafter() -> None:
    x = tn.tensor([1.5, -2.0], dtype=tn.float64, requires_grad=True)
    y = tn.tensor([2.0, -2.0], dtype=tn.float64, requires_grad=True)
    tn.nextafter(x, y).sum().backward()
    assert x.grad.tolist() == [1, 0]
    assert y.grad.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("add", [3, 5]),
        ("sub", [1, -1]),
        ("mul", [2, 6]),
        ("multiply", [2, 6]),
        ("floor_divide", [2, 0]),
        ("remainder", [0, 2]),
        ("bitwise_and", [0, 2]),
        ("bitwise_or", [3, 3]),
        ("bitwise_xor", [3, 1]),
        ("bitwise_left_shift", [4, 16]),
        ("bitwise_right_shift", [1, 0]),
        ("pow", [2, 8]),
        ("float_power", [2, 8]),
        ("div", [2, 2 / 3]),
    ],
)
def test_a_number_may_come_first(name: str, want: list[float]) -> None:
    x = tn.tensor([1, 3])
    np.testing.assert_allclose(getattr(tn, name)(2, x).numpy(), want, rtol=1e-6)


def test_a_first_number_decides_the_category_alone() -> None:
    assert tn.add(2.5, tn.ones(2, dtype=tn.float16)).dtype is tn.float16
    assert tn.mul(2.5, tn.ones(2, dtype=tn.int8)).dtype is tn.float32
    assert tn.sub(2, tn.ones(2, dtype=tn.uint8)).dtype is tn.uint8


def test_gradients_with_a_number_first() -> None:
    x = tn.tensor([1.0, 4.0], requires_grad=True)
    (tn.sub(3, x) * tn.div(2, x)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [-6, -3 / 8], rtol=1e-6)


@pytest.mark.parametrize(
    "name",
    ["maximum", "minimum", "fmax", "fmin", "logical_and", "logical_or", "logical_xor", "atan2"],
)
def test_what_takes_tensors_alone_refuses_numbers(name: str) -> None:
    with pytest.raises(TypeError, match="other"):
        getattr(tn, name)(tn.ones(2), 2)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("n", [1, 3, 40])
def test_the_first_of_equal_zeros_keeps_its_sign(zero: float, n: int) -> None:
    x, other = tn.full((n,), zero), tn.full((n,), -zero)
    want = [np.signbit(zero)] * n
    for name in ("maximum", "minimum", "fmax", "fmin"):
        assert tn.signbit(getattr(tn, name)(x, other)).tolist() == want, name
    for got in (x.clamp(min=-zero), x.clamp(max=-zero), x.clamp(-zero, -zero), x.clamp_min(other),
                tn.nn.functional.softshrink(x)):  # fmt: skip
        assert tn.signbit(got).tolist() == want


def test_extremes_of_numbers_and_nan() -> None:
    x = np.array([1, np.nan, 2, np.nan, -0.0])
    y = np.array([3, 1, np.nan, np.nan, 0.0])
    for name in ("maximum", "minimum", "fmax", "fmin"):
        got = getattr(tn, name)(tn.from_numpy(x), tn.from_numpy(y)).numpy()
        np.testing.assert_array_equal(got, getattr(np, name)(x, y))


def test_frexp() -> None:
    x = tn.tensor([0.0, 5.0, -0.375, 2.0**40], dtype=tn.float64, requires_grad=True)
    mantissa, exponent = tn.frexp(x)
    assert exponent.dtype is tn.int32
    assert exponent.tolist() == [0, 3, -1, 41]
    assert mantissa.tolist() == [0.0, 0.625, -0.75, 0.5]
    mantissa.sum().backward()
    assert x.grad.tolist() == [1.0, 0.125, 2.0, 2.0**-41]
    with pytest.raises(RuntimeError, match="floating-point"):
        tn.frexp(tn.tensor([1, 2]))


def test_float_power_computes_in_double() -> None:
    assert tn.float_power(tn.tensor([2]), 0.5).dtype is tn.float64
    assert tn.float_power(tn.tensor([2.0]), 2j).dtype is tn.complex128
    with pytest.raises(RuntimeError, match="Double"):
        tn.ones(2).float_power_(2)


def test_gcd_and_lcm_of_extremes() -> None:
    low = tn.tensor([-128, -128, 0], dtype=tn.int8)
    assert tn.gcd(low, tn.tensor([0, 12, 0], dtype=tn.int8)).tolist() == [-128, 4, 0]
    assert tn.lcm(tn.tensor([-4, 0]), tn.tensor([6, 0])).tolist() == [12, 0]


def test_of_numbers_alone_only_arithmetic_makes_a_tensor() -> None:
    assert tn.add(2, 3).item() == 5
    assert tn.div(1, 4).item() == 0.25
    for f in (tn.xlogy, tn.float_power, tn.special.zeta, tn.bitwise_and, tn.remainder):
        with pytest.raises(TypeError, match="Tensor"):
            f(2, 3)


def test_integers_beyond_64_bits_beside_floats() -> None:
    got = tn.tensor([1.5, 2**63, -(2**70)], dtype=tn.float64)
    assert got.tolist() == [1.5, 2.0**63, -(2.0**70)]
    assert tn.tensor([1.5, 2**63]).dtype is tn.float32
    assert tn.tensor([[2**64, 1j]]).tolist() == [[2.0**64, 1j]]
    assert tn.tensor([1.5, 2**63 - 1], dtype=tn.float64)[1].item() == 2.0**63
    assert tn.tensor([2**63 - 1, -(2**63)]).tolist() == [2**63 - 1, -(2**63)]
    for bad in (2**63, [2**63], [True, -(2**63) - 1]):
        with pytest.raises(ValueError, match="Overflow"):
            tn.tensor(bad)
    with pytest.raises(OverflowError):
        tn.tensor([1.5, 10**400])


def test_an_extreme_of_nothing() -> None:
    for f in (tn.amax, tn.amin):
        with pytest.raises(RuntimeError, match="to be specified"):
            f(tn.zeros(5, 0, 5))
        with pytest.raises(IndexError, match="dim 1"):
            f(tn.zeros(5, 0, 5), 1)
        with pytest.raises(IndexError, match="dim 0"):
            f(tn.zeros(0), 0)


def test_ldexp_keeps_the_dtype_of_the_number() -> None:
    x = tn.tensor([1.0, 3.0], dtype=tn.float16)
    y = tn.ldexp(x, tn.tensor([2, -1]))
    assert y.dtype is tn.float16 and y.tolist() == [4.0, 1.5]
    assert tn.ldexp(tn.tensor([1, 2]), tn.tensor([1, 1])).dtype is tn.float32


def test_whole_sequences_have_whole_ends_and_wrap() -> None:
    """linspace rounds its ends before it divides; arange counts in 64 bits and wraps."""
    for dtype in (tn.int8, tn.int64):
        got = tn.linspace(4.3, -3.9, 7, dtype=dtype).tolist()
        assert got == [4, 2, 1, 0, 0, -1, -3]
        assert tn.linspace(-2.7, 3, 10, dtype=dtype).tolist() == [-2, -1, 0, 0, 0, 0, 1, 1, 2, 3]
    assert tn.arange(0.0, -8.5, -4.0, dtype=tn.uint8).tolist() == [0, 252, 248]
    assert tn.arange(-1, 3, dtype=tn.uint8).tolist() == [255, 0, 1, 2]
    assert tn.arange(0, 300, 50, dtype=tn.int8).tolist() == [0, 50, 100, -106, -56, -6]


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 16, 17, 33, 1001, 20_000])
def test_sequences_of_any_length_are_rounded_once(n: int) -> None:
    """Whole vectors, what is left over and chunks of threads: each number is that of its place."""
    i = np.arange(n)
    for start, step in ((0.0, 1.0), (-1.7, 0.1), (5.0, -3e-5)):
        want = start + i * step
        for dtype in (np.float32, np.float64):
            got = tn.arange(
                start, start + (n - 0.5) * step, step, dtype=getattr(tn, dtype.__name__)
            )
            np.testing.assert_array_equal(got.numpy(), want.astype(dtype))
    np.testing.assert_array_equal(tn.arange(-3, 7 * n - 3, 7).numpy(), -3 + 7 * i)
    for first, last in ((0.0, 1.0), (-1.0, 1.0), (100.25, -3.5)):
        a, b = np.float32(first), np.float32(last)
        step32 = (b - a) / np.float32(max(n - 1, 1))
        exact = np.longdouble(step32)
        rising, falling = a + exact * i, b - exact * (n - 1 - i)
        want32 = np.where((i < n // 2) | (n == 1), rising, falling).astype(np.float32)
        np.testing.assert_array_equal(tn.linspace(first, last, n).numpy(), want32)


@pytest.mark.parametrize("dtype", [tn.float16, tn.bfloat16])
@pytest.mark.parametrize("shape", [(4, 6, 8), (2, 2, 6, 8)])
def test_attention_in_half_precision_is_rounded_once(
    dtype: tn.dtype, shape: tuple[int, ...]
) -> None:
    tn.manual_seed(3)
    wide = [tn.randn(shape).mul(3).to(dtype).double() for _ in range(3)]
    narrow = [t.to(dtype) for t in wide]
    attend = tn.nn.functional.scaled_dot_product_attention
    mask = tn.randn(6, 6).to(dtype).double()
    for kwargs in ({"is_causal": True}, {"attn_mask": mask}, {}):
        want = attend(*wide, **kwargs)
        given = {k: v.to(dtype) if isinstance(v, tn.Tensor) else v for k, v in kwargs.items()}
        got = attend(*narrow, **given)
        assert got.dtype is dtype
        unit = tn.finfo(dtype).eps * want.abs().max()
        assert ((got.double() - want).abs() <= 0.6 * unit).all()


def test_hermitian_matrices_are_read_from_their_lower_triangle() -> None:
    tn.manual_seed(0)
    x = tn.randn(4, 4, dtype=tn.complex128)
    low = x.tril(-1)
    whole = low + low.mH + x.diagonal().real.diag_embed()
    got = tn.linalg.pinv(x, hermitian=True)
    assert tn.allclose(got, tn.linalg.pinv(whole), rtol=1e-9, atol=1e-9)


def test_hash_tensor_is_the_exclusive_or_of_64_bits() -> None:
    rng = np.random.default_rng(0)
    for name in ("float64", "float32", "float16", "int8", "int64", "uint8", "bool"):
        x = (rng.standard_normal((3, 5, 7)) * 50).astype(name)
        bits = x.astype(np.float64 if x.dtype.kind == "f" else np.int64).view(np.uint64)
        t = tn.from_numpy(x)
        for dim in (None, 0, (0, 2), (1,), (-1, 0, 1)):
            want = np.bitwise_xor.reduce(bits, axis=(0, 1, 2) if dim is None else dim)
            got = tn.hash_tensor(t, dim)
            assert got.dtype is tn.uint64 and got.tolist() == want.tolist()
            assert t.mT.hash_tensor(dim).tolist() == tn.hash_tensor(t.mT.contiguous(), dim).tolist()
    assert tn.hash_tensor(tn.ones(2, 3), dim=(0,), keepdim=True).shape == (1, 3)
    assert tn.hash_tensor(tn.tensor(-3, dtype=tn.int8)).item() == 2**64 - 3
    assert tn.hash_tensor(tn.zeros(0, 3), dim=1).shape == (0,)
    for error, call in (
        (RuntimeError, lambda: tn.hash_tensor(tn.zeros(0))),
        (IndexError, lambda: tn.hash_tensor(tn.zeros(2, 0), dim=1)),
        (RuntimeError, lambda: tn.hash_tensor(tn.zeros(2), mode=1)),
        (NotImplementedError, lambda: tn.hash_tensor(tn.zeros(2, dtype=tn.complex64))),
    ):
        with pytest.raises(error):
            call()


def test_running_sums_of_single_precision_are_as_exact_as_their_results() -> None:
    tn.manual_seed(0)
    x = tn.rand(200_000)
    near_one = 1 + (tn.rand(200_000) - 0.5) * 1e-2
    for f, t in ((tn.cumsum, x), (tn.logcumsumexp, x), (tn.cumprod, near_one)):
        want = f(t.double(), 0)
        assert ((f(t, 0).double() - want) / want).abs().max() < 1e-7
        abreast = tn.stack([t, t.flip(0)], 1)
        want = f(abreast.double(), 0)
        assert ((f(abreast, 0).double() - want) / want).abs().max() < 1e-7


def test_rms_norm_has_the_dtype_of_its_input_and_lies_in_rows() -> None:
    x = tn.randn(2, 7, 4, 8, dtype=tn.float16).transpose(1, 2)
    weight = tn.rand(8)
    y = tn.nn.functional.rms_norm(x, (8,), weight, 1e-5)
    want = tn.nn.functional.rms_norm(x.float(), (8,), weight, 1e-5)
    assert y.dtype is tn.float16 and y.stride() == (224, 56, 8, 1)
    assert tn.allclose(y.float(), want, rtol=1e-3, atol=1e-3)
    for dtype in (tn.float32, tn.float64):
        given = x.float().requires_grad_()
        y = tn.nn.functional.rms_norm(given, (8,), weight.to(dtype))
        assert y.dtype is tn.float32 and y.stride() == (224, 56, 8, 1)
        y.sum().backward()
        assert given.grad is not None and given.grad.shape == x.shape


def test_results_that_lie_in_rows_whatever_the_operands() -> None:
    x = tn.randn(3, 4, 5).transpose(0, 1)
    for y in (
        x.masked_fill(x > 0, 1.0),
        x.renorm(2, 0, 1.0),
        x.masked_fill(x[0] > 0, tn.tensor(2.0)),
    ):
        assert y.stride() == (15, 5, 1)
    assert x.logcumsumexp(0).stride() == (15, 5, 1)
    for f in (tn.cummax, tn.cummin):
        for dim in range(3):
            values, at = f(x, dim)
            assert values.stride() == at.stride() == (15, 5, 1)
            assert tn.equal(values, f(x.contiguous(), dim)[0])
            assert tn.equal(x.gather(dim, at), values)
    assert tn.equal(x.masked_fill(x > 0, 1.0), tn.where(x > 0, 1.0, x))


@pytest.mark.parametrize("dtype", [tn.float16, tn.bfloat16])
def test_trilinear_in_half_precision_is_rounded_once(dtype: tn.dtype) -> None:
    x = tn.rand(1, 2, 3, 4, 5).to(dtype)
    for size in ((5, 6, 7), (2, 3, 3)):
        got = tn.nn.functional.interpolate(x, size, mode="trilinear")
        want = tn.nn.functional.interpolate(x.double(), size, mode="trilinear").to(dtype)
        assert got.dtype is dtype
        assert (got != want).float().mean() < 0.02  # rounded the other way, at a tie


def test_pools_of_an_empty_batch_of_volumes() -> None:
    F, x = tn.nn.functional, tn.zeros(0, 2, 3, 6, 5, requires_grad=True)
    values, places = F.max_pool3d(x, 2, return_indices=True)
    assert values.shape == places.shape == (0, 2, 1, 3, 2) and places.dtype is tn.int64
    values, places = F.adaptive_max_pool3d(x, (1, 2, 3), return_indices=True)
    assert values.shape == places.shape == (0, 2, 1, 2, 3)
    values.sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_ldexp_is_exact(dtype: str) -> None:
    """Powers of two beyond the ends of the dtype, by exponents of every integer type."""
    n = np.arange(-160, 140)
    x = np.random.default_rng(3).uniform(-2, 2, n.size).astype(dtype)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        want = np.ldexp(x.astype("float64"), n).astype(dtype)
    for kind in ("int64", "int32", "int16"):
        got = tn.ldexp(tn.from_numpy(x), tn.from_numpy(n.astype(kind)))
        np.testing.assert_array_equal(got.numpy(), want)
    far = tn.ldexp(tn.ones(2), tn.tensor([2**62, -(2**62)]))
    assert far.tolist() == [np.inf, 0.0]


def test_kron_of_every_shape() -> None:
    """Rows short and long, more or fewer dimensions, values and gradients."""
    draw = np.random.default_rng(4)
    shapes = [(), (3,), (1, 5), (4, 1), (6, 7), (16, 3), (5, 70), (2, 4, 3), (4, 0)]
    for left in shapes:
        for right in shapes:
            a, b = draw.standard_normal(left), draw.standard_normal(right)
            x, y = tn.tensor(a, requires_grad=True), tn.tensor(b, requires_grad=True)
            out = tn.kron(x, y)
            np.testing.assert_array_equal(out.detach().numpy(), np.kron(a, b))
            g = draw.standard_normal(out.shape)
            out.backward(tn.tensor(g))
            n = max(a.ndim, b.ndim)
            pairs = [1] * (n - a.ndim) + list(a.shape)
            others = [1] * (n - b.ndim) + list(b.shape)
            g = g.reshape([s for both in zip(pairs, others, strict=True) for s in both])
            g = g.transpose([*range(0, 2 * n, 2), *range(1, 2 * n, 2)]).reshape(a.size, b.size)
            np.testing.assert_allclose(x.grad.numpy().reshape(-1), g @ b.reshape(-1), atol=1e-12)
            np.testing.assert_allclose(y.grad.numpy().reshape(-1), a.reshape(-1) @ g, atol=1e-12)
