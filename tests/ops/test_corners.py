"""Places that the samples of operators do not reach: what is drawn, the ends of ranges, points at
which a formula changes. Expected values are NumPy's, or PyTorch 2.13's where it says so."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tenon as tn
from scipy.special import gammainc
from scipy.stats import gamma
from test_formulas import formulas


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


def test_gradient_of_a_gamma_draw() -> None:
    """With the draw's place among all draws held: -(dF/da) / (dF/dz)."""
    a = tn.tensor([0.4, 1.0, 1.3, 4.0, 20.0], dtype=tn.float64, requires_grad=True)
    z = tn._standard_gamma(a)
    (got,) = tn.autograd.grad((z * tn.arange(1.0, 6.0)).sum(), a)
    at, where, step = a.detach().numpy(), z.detach().numpy(), 1e-5
    slope = gammainc(at + step, where) - gammainc(at - step, where)
    want = -slope / (2 * step) / gamma.pdf(where, at) * np.arange(1, 6)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4)


def test_what_is_put_into_has_no_second_slope_there() -> None:
    x, v = tn.rand(5, dtype=tn.float64), tn.rand(2, dtype=tn.float64)
    inputs, index = (x.requires_grad_(), v.requires_grad_()), (tn.tensor([3, 1]),)
    assert tn.autograd.gradgradcheck(lambda a, b: a.index_put(index, b) ** 3, inputs)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.7])
def test_what_dropout_keeps_is_divided_in_its_own_dtype(p: float) -> None:
    for dtype, one in ((tn.float32, np.float32(1)), (tn.float64, np.float64(1))):
        kept = tn.nn.functional.dropout(tn.ones(200, dtype=dtype), p).numpy()
        assert set(kept.tolist()) == {0.0, float(one / type(one)(1 - p))}


def test_unflatten_up_to_the_most_dimensions() -> None:
    assert tn.ones(2).unflatten(0, [2] + [1] * 63).ndim == 64
    with pytest.raises(RuntimeError, match="at most 64"):
        tn.ones(2).unflatten(0, [2] + [1] * 64)


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (2, 1), (1, 3), (0.5, -2)])
def test_factors_of_a_product_with_an_activation(beta: float, alpha: float) -> None:
    rng = np.random.default_rng(2)
    bias, x, w = rng.normal(size=4), rng.normal(size=(3, 5)), rng.normal(size=(5, 4))
    got = tn._addmm_activation(*map(tn.from_numpy, (bias, x, w)), beta=beta, alpha=alpha)
    np.testing.assert_allclose(got.numpy(), np.maximum(beta * bias + alpha * (x @ w), 0))


def test_one_class_of_what_has_no_data() -> None:
    places = tn.zeros(3, dtype=tn.int64, device="meta")
    assert tn.nn.functional.one_hot(places, 1).shape == (3, 1)


def test_kth_of_an_empty_row() -> None:
    with pytest.raises(IndexError, match="non-zero size"):
        tn.zeros(0).kthvalue(1)


def test_a_cell_whose_input_is_fixed_passes_its_state_s_gradient() -> None:
    sizes = ((2, 3), (2, 4), (2, 4), (16, 3), (16, 4))
    for fixed in ((), (0, 3), (1, 4)):
        made = [tn.sin(tn.arange(float(a * b)).reshape(a, b)) for a, b in sizes]
        x, h, c, w, u = (t.requires_grad_(i not in fixed) for i, t in enumerate(made))
        new_h, new_c = tn.lstm_cell(x, (h, c), w, u)
        (new_h.sum() + (new_c**2).sum()).backward()
        if not fixed:
            whole = [t.grad for t in made]
        for i, t in enumerate(made):
            assert (t.grad is None) == (i in fixed)
            assert t.grad is None or tn.allclose(t.grad, whole[i])


@pytest.mark.parametrize("decimals", [-2, -1, 1, 2])
@pytest.mark.parametrize("dtype", [tn.float32, tn.float64], ids=str)
def test_round_to_tens_and_tenths(dtype: tn.dtype, decimals: int) -> None:
    x = np.array([1234.0, -1251.0, 15.0, 25.0, -4.0, 0.126, 51.0])
    got = tn.tensor(x, dtype=dtype).round(decimals=decimals)
    np.testing.assert_allclose(got.double().numpy(), np.round(x, decimals), rtol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_with_probabilities_and_smoothing(smoothing: float, weighted: bool) -> None:
    rng = np.random.default_rng(4)
    x, p = rng.normal(size=(5, 3)), rng.dirichlet(np.ones(3), 5)
    w = np.array([0.5, 1.0, 2.0])
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    each = -(logs * (p * (1 - smoothing) + smoothing / 3) * (w if weighted else 1)).sum(1)
    t = [tn.from_numpy(v) for v in (x, p, w)]
    for hidden in (nullcontext, formulas):
        with hidden():
            got = tn.nn.functional.cross_entropy(
                t[0], t[1], t[2] if weighted else None, label_smoothing=smoothing
            )
        np.testing.assert_allclose(got.item(), each.mean(), rtol=1e-12)


@pytest.mark.parametrize("edge_order", [1, 2])
def test_slopes_at_places_of_unequal_distances(edge_order: int) -> None:
    rng = np.random.default_rng(6)
    x, places = rng.normal(size=(6, 5)), [np.cumsum(rng.uniform(0.2, 2, n)) for n in (6, 5)]
    got = tn.gradient(
        tn.from_numpy(x), spacing=tuple(map(tn.from_numpy, places)), edge_order=edge_order
    )
    for slope, want in zip(got, np.gradient(x, *places, edge_order=edge_order), strict=True):
        np.testing.assert_allclose(slope.numpy(), want, rtol=1e-9)
    (column,) = tn.gradient(tn.from_numpy(x), spacing=(tn.from_numpy(places[1]),), dim=1)
    np.testing.assert_allclose(column.numpy(), np.gradient(x, places[1], axis=1), rtol=1e-9)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_rounded_quotients_of_integers_and_fractions(mode: str) -> None:
    whole, broken = np.array([7, -7, 3, 0]), np.array([2.5, 2.5, -0.5, 1.5])
    rounded = {"trunc": np.trunc, "floor": np.floor}[mode]
    for a, b in ((whole + 0, broken), (broken, whole + 1)):
        got = tn.div(tn.from_numpy(a), tn.from_numpy(b), rounding_mode=mode)
        np.testing.assert_array_equal(got.numpy(), rounded(a / b))


def test_gradient_of_dropout_by_kernels_and_formulas() -> None:
    for hidden in (nullcontext, formulas):
        x = tn.arange(1.0, 200.0, dtype=tn.float64).requires_grad_()
        y = tn.nn.functional.dropout(x, 0.3)
        with hidden():
            (slope,) = tn.autograd.grad(y.sum(), x, create_graph=True)
        np.testing.assert_allclose(slope.detach().numpy(), (y / x).detach().numpy(), rtol=1e-15)
        assert 0 < slope.count_nonzero() < 199


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize(
    ("dims", "shape", "size"),
    [(1, (2, 3, 7), 0), (2, (2, 3, 7, 6), (0, 2)), (3, (2, 3, 4, 5, 6), (2, 0, 2))],
)
def test_pools_to_nothing_have_a_gradient_of_zeros(
    kind: str, dims: int, shape: tuple[int, ...], size: Any
) -> None:
    x = tn.ones(shape, requires_grad=True)
    y = getattr(tn.nn.functional, f"adaptive_{kind}_pool{dims}d")(x, size)
    assert y.numel() == 0
    y.sum().backward()
    assert x.grad is not None and x.grad.equal(tn.zeros(shape))


@pytest.mark.parametrize("dtype", [tn.complex64, tn.complex128])
def test_expm1_at_infinity_is_as_exp_in_annex_g(dtype: tn.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    cases = [
        ((inf, 0.0), (inf, 0.0)), ((inf, -0.0), (inf, -0.0)), ((-inf, inf), (-1, 0)),
        ((-inf, nan), (-1, 0)), ((inf, inf), (inf, nan)), ((inf, nan), (inf, nan)),
        ((nan, 0.0), (nan, 0)), ((-inf, 0.0), (-1, 0)), ((2.0, 0.0), (np.expm1(2.0), 0)),
        ((inf, 1.0), (inf, inf)),
    ]  # fmt: skip
    got = tn.expm1(tn.tensor([complex(*z) for z, _ in cases], dtype=dtype)).numpy()
    for z, (_, (re, im)) in zip(got, cases, strict=True):
        np.testing.assert_allclose((z.real, z.imag), (re, im), rtol=1e-6)
        assert im != 0 or np.signbit(z.imag) == np.signbit(im)


@pytest.mark.parametrize("name", ["upsample_nearest2d", "upsample_bilinear2d"])
@pytest.mark.parametrize("dtype", [tn.float32, tn.float64])
def test_resizing_by_tiny_scales_stays_in_the_image(name: str, dtype: tn.dtype) -> None:
    """Positions are infinite: the last element is named, or the first where they are no number."""
    x = tn.ones(1, 1, 1, 1, dtype=dtype, requires_grad=True)
    corners = {"align_corners": False} if "bilinear" in name else {}
    y = getattr(tn._C._ops, name)(x, [3, 3], scales_h=1e-320, scales_w=1e-320, **corners)
    y.backward(tn.ones_like(y))
    nearest = "nearest" in name
    assert y.shape == (1, 1, 3, 3) and (not nearest or (y == 1).all())
    assert not nearest or x.grad.item() == 9


def test_a_dilation_beyond_int64_is_refused() -> None:
    with pytest.raises(RuntimeError, match="dilation .* is too large"):
        tn.conv1d(tn.ones(1, 1, 4), tn.ones(1, 1, 3), padding="same", dilation=2**63 - 1)


@pytest.mark.parametrize("dtype", [tn.float16, tn.bfloat16], ids=str)
def test_large_bags_in_half_precision(dtype: tn.dtype) -> None:
    """Sums and means of thousands of rows, as of the same numbers in double, rounded once."""
    w = tn.full((4, 2), 0.01, dtype=dtype).requires_grad_()
    index, starts = tn.zeros(5000, dtype=tn.int64), tn.tensor([0, 10])
    one = w[0, 0].item()
    for mode, want in (("mean", [one, one]), ("sum", [10 * one, 4990 * one])):
        got = tn.nn.functional.embedding_bag(index, w, starts, mode=mode)
        assert got.dtype == dtype
        expected = tn.tensor(want).to(dtype)[:, None].expand(2, 2)
        tn.testing.assert_close(got, expected)
    shares = tn.full((5000,), 0.5, dtype=dtype)
    got = tn.nn.functional.embedding_bag(index, w, starts, mode="sum", per_sample_weights=shares)
    tn.testing.assert_close(got, tn.tensor([5 * one, 2495 * one]).to(dtype)[:, None].expand(2, 2))
    got.sum().backward()
    assert w.grad.dtype == dtype
    assert (w.grad[1:] == 0).all()


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"])
@pytest.mark.parametrize("wide", [(3, 4), (2, 1, 4)])
@pytest.mark.filterwarnings("ignore")
def test_targets_of_a_shape_that_the_input_is_spread_over(name: str, wide: tuple[int, ...]) -> None:
    x = tn.arange(4.0, dtype=tn.float64)[None].requires_grad_()
    y = tn.rand(wide, dtype=tn.float64)
    loss = getattr(tn.nn.functional, name)
    got, want = (loss(a, b) for a, b in ((x, y), (x.expand(wide), y)))
    assert got.item() == pytest.approx(want.item(), rel=1e-12)
    [one], [other] = (tn.autograd.grad(r, [x]) for r in (got, want))
    np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)


def test_bins_of_the_widest_ranges() -> None:
    x = tn.tensor([0.0, 0.25e308, 1.5e308], dtype=tn.float64)
    hist, edges = tn.histogram(x, 2, range=(0.0, 1.5e308))
    assert hist.tolist() == [2, 1] and edges.tolist() == [0.0, 0.75e308, 1.5e308]
    assert tn.histogram(x, 2).hist.tolist() == [2, 1]
    assert tn.histc(x, 1, 0, 1.5e308).tolist() == [3]
    for refused in (
        lambda: tn.histogram(x, 2, range=(-1e308, 1e308)), lambda: tn.histc(x, 2, -1e308, 1e308)
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="is not finite"):
            refused()
