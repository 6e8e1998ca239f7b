"""Places that the samples of operators do not reach: what is drawn, the ends of ranges, points at
which a formula changes. Expected values are NumPy's, or PyTorch 2.13's where it says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn


@pytest.mark.parametrize(
    "draw",
    [
        lambda: tn.bernoulli(tn.full((1000,), 0.3)), lambda: tn.bernoulli(tn.zeros(1000), 0.3),
        lambda: tn.zeros(1000).bernoulli_(0.3),
        lambda: tn.zeros(1000).bernoulli_(tn.full((1000,), 0.3)),
    ],
)  # fmt: skip
def test_bernoulli_draws_zeros_and_ones(draw: Any) -> None:
    drawn = draw()
    assert set(drawn.tolist()) == {0.0, 1.0} and 0.2 < drawn.mean().item() < 0.4


@pytest.mark.parametrize(
    ("draw", "low", "high", "dtype"),
    [
        (lambda: tn.randint(2, 5, (300,)), 2, 5, tn.int64),
        (lambda: tn.randint(5, (300,), dtype=tn.uint8), 0, 5, tn.uint8),
        (lambda: tn.randint(2, (300,), dtype=tn.bool), 0, 2, tn.bool),
        (lambda: tn.randint(-3, 2, (300,), dtype=tn.float32), -3, 2, tn.float32),
        (lambda: tn.randint_like(tn.ones(300), 2, 5), 2, 5, tn.float32),
        (lambda: tn.randint_like(tn.ones(300, dtype=tn.int16), 4), 0, 4, tn.int16),
        (lambda: tn.zeros(300).random_(2, 5), 2, 5, tn.float32),
        (lambda: tn.zeros(300, dtype=tn.int32).random_(5), 0, 5, tn.int32),
    ],
)
def test_whole_numbers_are_drawn_from_the_range_and_all_of_it(draw, low, high, dtype) -> None:
    drawn = draw()
    assert drawn.dtype is dtype and set(drawn.long().tolist()) == set(range(low, high))
    assert drawn.double().equal(drawn.double().floor())


def test_random_of_small_floats_draws_what_they_hold() -> None:
    for dtype, last in ((tn.float16, 2**11), (tn.bfloat16, 2**8), (tn.float32, 2**24)):
        drawn = tn.zeros(2000, dtype=dtype).random_().double()
        assert drawn.max() <= last and drawn.max() > last * 0.9 and drawn.equal(drawn.floor())


@pytest.mark.parametrize("dtype", [tn.float32, tn.float64], ids=str)
def test_numbers_outside_of_int32_convert_as_the_processor_does(dtype) -> None:
    outside = tn.tensor([3e9, -3e9, 1e20, float("nan"), 2.0**31], dtype=dtype)
    assert outside.to(tn.int32).tolist() == [-(2**31)] * 5  # as PyTorch's
    inside = tn.tensor([2.0**30, -(2.0**31), 1.9, -1.9], dtype=dtype)
    assert inside.to(tn.int32).tolist() == [2**30, -(2**31), 1, -1]


def test_angle_at_the_origin_has_no_slope() -> None:
    x = tn.zeros(2, dtype=tn.complex128, requires_grad=True)
    x.angle().sum().backward()
    assert x.grad.tolist() == [0j, 0j]
    x = tn.tensor([3 + 4j], requires_grad=True)
    x.angle().sum().backward()  # (-y + i x) / r**2
    assert np.allclose(x.grad.numpy(), [(-4 + 3j) / 25])


def test_the_gradient_of_eig_of_real_matrices_is_real() -> None:
    a = np.random.default_rng(0).normal(size=(4, 4))
    x = tn.tensor(a, requires_grad=True)
    tn.linalg.eig(x).eigenvalues.abs().sum().backward()
    assert x.grad.dtype is tn.float64
    step, want = 1e-6, np.zeros_like(a)
    for i, j in np.ndindex(4, 4):
        for sign in (1, -1):
            moved = a.copy()
            moved[i, j] += sign * step
            want[i, j] += sign * np.abs(np.linalg.eigvals(moved)).sum() / (2 * step)
    assert np.allclose(x.grad.numpy(), want, atol=1e-6)


def test_maximum_of_two_dtypes_gives_each_its_gradient() -> None:
    a, b = tn.ones(3, requires_grad=True), tn.ones(3, dtype=tn.float64, requires_grad=True)
    tn.maximum(a, b).sum().backward()
    assert a.grad.dtype is tn.float32 and b.grad.dtype is tn.float64
    assert a.grad.tolist() == b.grad.tolist() == [0.5] * 3


def test_zero_points_at_the_ends_of_their_range() -> None:
    x, quantize = tn.tensor([1.0, -5.0]), tn.fake_quantize_per_tensor_affine
    assert quantize(x, 0.5, 7, -8, 7).tolist() == [0.0, -5.0]
    assert quantize(x, 0.5, -8, -8, 7).tolist() == [1.0, 0.0]
    for outside in (8, -9):
        with pytest.raises(RuntimeError, match="zero_point"):
            quantize(x, 0.5, outside, -8, 7)


def test_infos_of_factors_have_the_batch_s_shape() -> None:
    assert tn.linalg.ldl_factor_ex(tn.eye(3)).info.shape == ()
    assert tn.linalg.ldl_factor_ex(tn.eye(3).expand(2, 3, 3)).info.shape == (2,)
    assert tn.linalg.lu_factor_ex(tn.eye(3).expand(2, 1, 3, 3)).info.shape == (2, 1)


def test_products_name_the_argument_that_does_not_fit() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)size mismatch|vec"):
        tn.ones(2, 3).mv(tn.ones(2))
    with pytest.raises(RuntimeError, match=r"1D|vector|1-D"):
        tn.ones(2, 3).mv(tn.ones(3, 1))
