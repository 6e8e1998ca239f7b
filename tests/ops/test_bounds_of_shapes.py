"""Shapes at the bounds of what operators take: the last that fits and the first that does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F

ops = tn._C._ops
RNG = np.random.default_rng(3)
SHAPE = (RuntimeError, ValueError, IndexError)


def test_transforms_take_dimensions_in_any_order_and_once() -> None:
    z = RNG.standard_normal((3, 4, 5)) + 1j * RNG.standard_normal((3, 4, 5))
    t = tn.from_numpy(z)
    for dims in ([0, 1], [1, 0], [2, 0], [2, 1, 0], [1]):
        got = ops._fft_c2c(t, dims, 0, True).numpy()
        np.testing.assert_allclose(got, np.fft.fftn(z, axes=dims), rtol=1e-12, atol=1e-12)
    for dims in ([0, 0], [2, 1, 2], [3], [-1], []):
        with pytest.raises(ValueError, match="dim"):
            ops._fft_c2c(t, dims, 0, True)


@pytest.mark.parametrize("size", [1, 7, 8, 9])
def test_real_numbers_of_half_a_spectrum(size: int) -> None:
    z = RNG.standard_normal((2, 5)) + 1j * RNG.standard_normal((2, 5))
    got = ops._fft_c2r(tn.from_numpy(z), [1], 2, size).numpy()
    np.testing.assert_allclose(got, np.fft.irfft(z, n=size), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [0, -1, 10, 100])
def test_spectra_that_are_too_short(size: int) -> None:
    with pytest.raises(ValueError, match=f"5 numbers are no transform of {size} real ones"):
        ops._fft_c2r(tn.ones(2, 5, dtype=tn.complex128), [1], 2, size)


@pytest.mark.parametrize("name", ["index_add", "index_copy"])
@pytest.mark.parametrize("shape", [(5, 2, 4), (3, 2, 5), (3, 3, 4), (5, 2, 5)])
def test_added_slices_fit_in_every_dimension(name: str, shape: tuple[int, ...]) -> None:
    x, index = tn.zeros(3, 6, 4), tn.tensor([1, 4])
    assert getattr(x, name)(1, index, tn.ones(3, 2, 4))[:, [1, 4]].eq(1).all()
    with pytest.raises(SHAPE):
        getattr(x, name)(1, index, tn.ones(shape))


def test_all_elements_may_be_asked_for() -> None:
    x = RNG.standard_normal((4, 6))
    t = tn.from_numpy(x)
    np.testing.assert_array_equal(t.topk(6).values.numpy(), -np.sort(-x))
    np.testing.assert_array_equal(t.kthvalue(6).values.numpy(), x.max(1))
    np.testing.assert_array_equal(t.kthvalue(1).values.numpy(), x.min(1))
    assert tn.tensor(2.5).kthvalue(1).values.item() == 2.5
    for k in (7, -1):
        with pytest.raises(SHAPE, match="out of range"):
            t.topk(k)
    for k in (7, 0):
        with pytest.raises(SHAPE, match="out of range"):
            t.kthvalue(k)


def test_rows_are_searched_in_rows_of_their_own() -> None:
    rows = np.sort(RNG.standard_normal((2, 5)))
    sought = RNG.standard_normal((2, 3))
    want = [np.searchsorted(r, s) for r, s in zip(rows, sought, strict=True)]
    a, b = tn.from_numpy(rows), tn.from_numpy(sought)
    np.testing.assert_array_equal(ops._searchsorted(a, b, False).numpy(), want)
    np.testing.assert_array_equal(
        ops._searchsorted(a[0], b, False).numpy(), np.searchsorted(rows[0], sought)
    )
    for x, y in ((a, b[None]), (a, b[0]), (a, b[:, 0]), (a, b[:1]), (a[None], b)):
        with pytest.raises(SHAPE, match="cannot be searched"):
            ops._searchsorted(x, y, False)


def test_a_number_counts_as_one_element_for_gather_and_scatter() -> None:
    x = tn.tensor([1.0, 2.0, 3.0])
    assert x.gather(0, tn.tensor(2)).item() == 3
    assert tn.tensor(5.0).gather(0, tn.tensor([0])).tolist() == [5.0]
    assert x.scatter(0, tn.tensor(1), tn.tensor(7.0)).tolist() == [1, 7, 3]
    with pytest.raises(SHAPE):
        tn.ones(2, 2).gather(0, tn.tensor(1))


@pytest.mark.parametrize(
    ("args", "image", "filter"),
    [
        ({"padding": 0}, "3 x 4", "5 x 5"),
        ({"padding": (0, 1)}, "3 x 6", "5 x 5"),
        ({"dilation": (1, 2)}, "3 x 4", "5 x 9"),
    ],
)
def test_filters_larger_than_images_are_told_by_their_sizes(
    args: Any, image: str, filter: str
) -> None:
    with pytest.raises(RuntimeError) as err:
        F.conv2d(tn.ones(1, 1, 3, 4), tn.ones(1, 1, 5, 5), **args)
    assert f"per channel: ({image}). Kernel size: ({filter}). Kernel" in str(err.value)


def test_sizes_beyond_those_of_images_and_windows() -> None:
    one = tn.ones(1, 1, 1)
    for x, w in ((2**31 + 1, 1), (2**31 + 9, 2**31 + 1)):
        with pytest.raises(ValueError, match=r"at most 2\^31"):
            F.conv1d(one.expand(1, 1, x), one.expand(1, 1, w))


def test_sizes_of_windows_alone() -> None:
    window = tn.ones(1, 1, 1).expand(1, 1, 2**31 + 1)
    with pytest.raises(ValueError, match=r"at most 2\^31"):
        F.conv1d(tn.ones(1, 1, 5), window)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_images_without_channels_or_pixels_have_no_borders(mode: str) -> None:
    for shape in ((1, 0, 4), (0, 4), (2, 3, 0)):
        with pytest.raises(RuntimeError):
            F.pad(tn.ones(shape), (1, 1), mode=mode)
        assert F.pad(tn.ones(shape), (1, 1)).shape == (*shape[:-1], shape[-1] + 2)
    assert F.pad(tn.ones(0, 3, 4), (1, 1), mode=mode).shape == (0, 3, 6)


def test_rows_of_a_batch_are_counted_together() -> None:
    with pytest.raises(RuntimeError, match=r"cannot be multiplied \(6x4 and 6x5\)"):
        F.linear(tn.ones(2, 3, 4), tn.ones(5, 6))


def test_parameters_of_batch_norm_belong_to_the_channels() -> None:
    x = tn.from_numpy(RNG.standard_normal((4, 3, 2)))
    good, apart = tn.ones(3).double(), tn.ones(2).double()[::2]

    def norm(x: Any, weight: Any, bias: Any) -> Any:
        return ops.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)[0]

    assert norm(x, good, good).shape == x.shape
    for bad in (tn.ones(4), tn.ones(3, 1), tn.ones(1, 3), tn.ones(2), tn.ones(())):
        for name, pair in (("weight", (bad.double(), good)), ("bias", (good, bad.double()))):
            with pytest.raises(RuntimeError, match=f"{name} should contain 3 elements") as err:
                norm(x, *pair)
            assert err.value.arg == (1 if name == "weight" else 2)
    assert norm(x[:, :1], apart, apart).shape == (4, 1, 2)  # one number is packed as it lies


def test_windows_need_planes_and_images_may_be_of_one_row() -> None:
    for shape in ((1, 0, 4, 4), (0, 4, 4), (1, 2, 0, 4), (1, 2, 4, 0)):
        with pytest.raises(RuntimeError, match="Expected 3D or 4D"):
            F.max_pool2d(tn.ones(shape), 2)
    x, at = tn.ones(1, 2, 4, 4), tn.zeros(1, 2, 2, 2, dtype=tn.int64)
    assert ops._max_pool2d_gather(x, at).shape == (1, 2, 2, 2)
    for bad in (at.expand(1, 2, 2, 2)[:, :1], tn.zeros(2, 2, 2, 2).long(), at[0], at[None]):
        with pytest.raises(RuntimeError, match="do not belong"):
            ops._max_pool2d_gather(x, bad.contiguous())
    row = tn.arange(4.0).reshape(1, 1, 1, 4)
    wide = F.interpolate(row, size=(2, 8), mode="nearest")
    assert wide.tolist() == [[[[0, 0, 1, 1, 2, 2, 3, 3]] * 2]]
    assert F.interpolate(row, size=(3, 4), mode="bilinear").tolist() == [[[[0, 1, 2, 3]] * 3]]
    for f in (tn.softmax, tn.log_softmax):
        with pytest.raises(RuntimeError):
            f(row, 0, dtype=tn.bool)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (5, 40)])
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_gradients_of_rms_norm_by_hand(shape: tuple[int, ...], wanted: tuple[bool, bool]) -> None:
    x, g = RNG.standard_normal((2, *shape))
    w, n = RNG.standard_normal(shape[-1]), shape[-1]
    scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    want_x = scale * g * w - x * scale**3 / n * (g * w * x).sum(-1, keepdims=True)
    want_w = (g * x * scale).reshape(-1, n).sum(0)
    grad, input, rstd, weight = map(tn.from_numpy, (g, x, scale, w))
    got = ops._rms_norm_backward(grad, input, [n], rstd, weight, *wanted)
    for mine, want, asked in zip(got, (want_x, want_w), wanted, strict=True):
        if asked:
            np.testing.assert_allclose(mine.numpy(), want, rtol=1e-11, atol=1e-12)
    for sizes, made in zip(got, ops._rms_norm_backward(
        *(t.to("meta") for t in (grad, input)), [n], rstd.to("meta"), weight.to("meta"), *wanted
    ), strict=True):  # fmt: skip
        assert sizes is made is None or sizes.shape == made.shape
    for bad in (grad[..., :-1], grad[None]):
        with pytest.raises(RuntimeError, match="argument 'grad' must have shape"):
            ops._rms_norm_backward(bad, input, [n], rstd, weight, *wanted)


def lists(count: int = 2) -> list[tn.Tensor]:
    return [tn.ones(3) for _ in range(count)]


@pytest.mark.parametrize("short", range(6))
def test_lists_of_a_step_of_adam_are_of_one_length(short: int) -> None:
    given = [lists() for _ in range(5)] + [[tn.tensor(1.0) for _ in range(2)]]
    numbers = (0.1, 0.9, 0.99, 1e-8, 0.0, True, False, False, None)
    ops._adam_step(*given, *numbers)
    for other in (given[short][:1], given[short] * 2):
        with pytest.raises(ValueError, match="adam: the lists have different lengths"):
            ops._adam_step(*given[:short], other, *given[short + 1 :], *numbers)


def test_what_scales_a_list_is_one_double() -> None:
    tensors = lists()
    ops._scale_step(tensors, tn.tensor([2.0], dtype=tn.float64))
    assert [t.tolist() for t in tensors] == [[2.0] * 3] * 2
    for bad in (tn.tensor(2.0), tn.ones(2).double(), tn.ones(0).double(), tn.ones(2)):
        with pytest.raises(RuntimeError, match="must be one number of float64"):
            ops._scale_step(tensors, bad)


@pytest.mark.parametrize("dtype", [tn.float16, tn.float32, tn.float64], ids=str)
def test_norms_of_a_list(dtype: tn.dtype) -> None:
    got = ops._norms_step([tn.tensor([3.0, 4.0], dtype=dtype), tn.tensor([6.0], dtype=dtype)], 2.0)
    assert got.tolist() == [5.0, 6.0]
    assert got.dtype is (tn.float64 if dtype is tn.float64 else tn.float32)


def test_changes_of_lists_have_numbers() -> None:
    for how in (-1, 10, 100):
        with pytest.raises(ValueError, match=f"there is no change {how}"):
            ops._lists_step(lists(), [], [], how, 2.0)


@pytest.mark.parametrize(("name", "first"), [("mv", 0), ("addmv", 1)])
def test_products_of_a_matrix_and_a_vector_blame_one(name: str, first: int) -> None:
    ahead = [tn.ones(2)][:first]
    for matrix, vector, at in ((3,), (3,), 0), ((2, 3), (3, 1), 0), ((2, 3), (2,), 1):
        with pytest.raises(RuntimeError) as err:
            getattr(ops, name)(*ahead, tn.ones(matrix), tn.ones(vector))
        assert err.value.op == name and err.value.arg == first + at


SYSTEMS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "_linalg_solve": ((), ()),
    "_linalg_solve_triangular": ((), (True, False)),
    "_linalg_lstsq": ((), (1e-6,)),
    "_linalg_ldl_solve": ((tn.tensor([1, 2, 3], dtype=tn.int32),), (False,)),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_right_side_of_a_system_is_blamed(name: str) -> None:
    ahead, behind = SYSTEMS[name]
    for right in (tn.ones(2, 2), tn.ones(1, 3, 2), tn.ones(3, 2, dtype=tn.float64)):
        with pytest.raises((RuntimeError, TypeError)) as err:
            getattr(ops, name)(tn.eye(3), *ahead, right, *behind)
        assert err.value.op == name and err.value.arg == 1 + len(ahead)


def test_one_row_of_a_gradient_of_a_table_may_be_a_number() -> None:
    got = ops._embedding_sparse_backward(tn.tensor(2.0), tn.tensor(1), 3, -1, False)
    assert got.to_dense().tolist() == [[0], [2], [0]]
    with pytest.raises(RuntimeError, match="one row of grad for each index"):
        ops._embedding_backward(tn.tensor(2.0), tn.tensor(1), 3, -1, False)


@pytest.mark.parametrize(
    ("name", "at"),
    [("_poisson_", 0), ("_standard_gamma_", 0), ("_binomial_", 0), ("_binomial_", 1)],
)
def test_what_is_drawn_by_fits_over_what_is_filled(name: str, at: int) -> None:
    by = [tn.full((3,), 0.5) for _ in range(1 + (name == "_binomial_"))]
    assert getattr(ops, name)(tn.zeros(2, 3), *by).shape == (2, 3)
    for wrong in (tn.full((4, 2, 3), 0.5), tn.ones(3, dtype=tn.int64)):
        with pytest.raises((RuntimeError, TypeError)) as err:
            getattr(ops, name)(tn.zeros(2, 3), *by[:at], wrong, *by[at + 1 :])
        assert err.value.op == name and err.value.arg == 1 + at
