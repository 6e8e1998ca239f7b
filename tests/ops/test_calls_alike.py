"""Calls as programs make them and samples do not: numbers alone, second dtypes, results that are
given, layouts with gaps, nothing at all. What is expected follows from the definition, or is what
PyTorch 2.13 answers where a definition leaves it open."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F

NUMBERS = [True, 2, -3, 2.5, 1 + 1j]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "floor_divide"])
@pytest.mark.parametrize("a", NUMBERS)
@pytest.mark.parametrize("b", NUMBERS)
def test_numbers_alone_are_of_the_default_dtype(name: str, a: Any, b: Any) -> None:
    how = {"div": operator.truediv, "floor_divide": operator.floordiv}.get(name)
    how = how or getattr(operator, name)
    complex_ones = isinstance(a, complex) or isinstance(b, complex)
    truths = isinstance(a, bool) + isinstance(b, bool)
    if (name == "floor_divide" and complex_ones) or (name == "sub" and truths) or truths == 2:
        return
    got, want = getattr(tn, name)(a, b), how(a, b)
    kinds = {complex: tn.complex64, float: tn.float32, int: tn.int64}
    assert got.ndim == 0 and got.dtype is kinds[type(want)]
    assert got.item() == pytest.approx(want, rel=1e-6)
    # it is a tensor, not a number: it has a say beside another one
    if got.is_floating_point():
        assert (got + tn.tensor(1, dtype=tn.float16)).dtype is tn.float32


def test_given_results_that_are_inputs_keep_their_shape() -> None:
    x = tn.ones(10, 5)
    for f in (tn.add, tn.sub, tn.mul, tn.gt, tn.remainder):
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            f(tn.ones(2, 10, 5), x, out=x)
    assert x.shape == (10, 5) and (x == 1).all()


@pytest.mark.parametrize(
    ("name", "first", "rest"),
    [
        ("addmm_", (), ((2, 2), (2, 3))),
        ("addmm_", (3,), ((2, 2), (2, 3))),
        ("baddbmm_", (1, 2, 3), ((4, 2, 2), (4, 2, 3))),
        ("addmv_", (1,), ((2, 3), (3,))),
    ],
)
def test_in_place_products_do_not_grow(name: str, first: Any, rest: Any) -> None:
    x = tn.ones(first)
    with pytest.raises(RuntimeError, match="Bad in-place call"):
        getattr(x, name)(*map(tn.ones, rest))
    assert x.shape == first and (x == 1).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda out: tn.arange(6, out=out),
        lambda out: tn.arange(0, 6, out=out),
        lambda out: tn.range(0, 5, out=out),
        lambda out: tn.linspace(0, 5, 6, out=out),
        lambda out: tn.logspace(0, 5, 6, out=out).log10_(),
    ],
)
def test_sequences_fill_a_given_tensor_of_as_many_elements(make: Any) -> None:
    out = tn.full((2, 3), -1.0)
    got = make(out)
    assert got is out
    assert np.allclose(out.numpy(), np.arange(6.0).reshape(2, 3))
    assert make(tn.zeros(0)).shape == (6,)


def test_power_of_a_number_into_a_given_tensor() -> None:
    out = tn.zeros(3)
    assert tn.pow(2, tn.tensor([1, 2, 3]), out=out) is out
    assert out.tolist() == [2, 4, 8]


def test_truth_is_taken_for_a_float() -> None:
    x = tn.tensor([1.0, 3.0])
    assert tn.quantile(x, True).item() == 3
    assert tn.allclose(x, x + 1, rtol=True, atol=True)


def test_blocks_have_the_dtype_of_those_with_dimensions() -> None:
    u8 = tn.ones(2, dtype=tn.uint8)
    assert tn.block_diag(u8, tn.tensor(5)).dtype is tn.uint8
    assert tn.block_diag(u8, tn.tensor(5.0)).dtype is tn.float32
    assert tn.block_diag(tn.tensor(5), tn.tensor(True)).dtype is tn.int64
    with pytest.raises(TypeError, match="expected Tensor as element 1 in argument 0, but got int"):
        tn.block_diag(u8, 1)


def test_trapezoids() -> None:
    y = tn.tensor([200, 100, 250], dtype=tn.uint8)
    # The sum less half of the ends, whose own sum wraps.
    assert tn.trapezoid(y).item() == 550 - ((200 + 250) % 256) / 2
    assert tn.trapezoid(tn.tensor([1.0, 2.0, 4.0]), dx=2.0).item() == 9
    for shape, dim in (((0,), 0), ((0, 3), 0), ((3, 0), -1)):
        rest = np.delete(np.array(shape), dim)
        got = tn.trapezoid(tn.zeros(shape), dim=dim)
        assert got.shape == tuple(rest) and (got == 0).all()
        assert tn.trapezoid(tn.zeros(shape), tn.zeros(shape), dim=dim).shape == tuple(rest)
        assert tn.cumulative_trapezoid(tn.zeros(shape), dim=dim).shape == shape
    with pytest.raises(IndexError):
        tn.trapezoid(tn.tensor(1.0))


def test_counts_of_nothing_are_whole() -> None:
    none = tn.zeros(0, dtype=tn.int64)
    assert tn.bincount(none, weights=tn.zeros(0), minlength=2).dtype is tn.int64


def test_nothing_is_filled() -> None:
    x = tn.tensor(3.0)
    assert x.index_fill_(0, tn.zeros(0, dtype=tn.int64), 7.0) is x and x.item() == 3


def test_variance_of_nothing_is_nan() -> None:
    assert math.isnan(tn.var(tn.zeros(0), correction=-5).item())
    assert tn.var(tn.zeros(0, 3), dim=0, correction=-1).isnan().all()


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss])
def test_losses_of_other_dtypes(loss: Any) -> None:
    x, truths = tn.tensor([0.5, 2.0]), tn.tensor([True, False])
    for reduction in ("none", "mean"):
        want = loss(x, truths.float(), reduction=reduction)
        assert tn.equal(loss(x, truths, reduction=reduction), want)
    dtype = tn.bfloat16 if loss is F.huber_loss else tn.float32
    assert loss(x.bfloat16(), tn.tensor(1.0), reduction="sum").dtype is dtype


def test_cosines_of_two_dtypes() -> None:
    x, n = tn.tensor([[1.0, 2.0]]), tn.tensor([[3, 4]])
    want = 11 / math.sqrt(5 * 25)
    assert F.cosine_similarity(x, n).item() == pytest.approx(want, rel=1e-6)
    assert tn.cosine_similarity(n, x.double()).dtype is tn.float64
    assert tn.cosine_similarity(n, x.half()).dtype is tn.float16
    x.requires_grad_()
    tn.cosine_similarity(x, n).sum().backward()
    assert x.grad is not None and abs((x.grad * x).sum().item()) < 1e-6  # of degree 0 in x


def test_everything_dropped_is_of_its_dtype() -> None:
    for dtype in (tn.bool, tn.uint8, tn.int64, tn.float16):
        got = F.dropout(tn.ones(3, dtype=dtype), 1.0)
        assert got.dtype is dtype and not got.any()


@pytest.mark.parametrize("training", [False, True])
def test_statistics_with_gaps(training: bool) -> None:
    x = tn.tensor([[1.0, -2.0, 3.0], [4.0, 0.5, -1.0], [0.0, 2.0, 5.0]], requires_grad=True)
    both = tn.tensor([[0.5, 2.0], [1.0, 3.0], [-1.0, 0.5]])
    mean, var = both[:, 0], both[:, 1]
    whole = mean.clone(), var.clone()
    weight = tn.tensor([1.0, 9.0, 2.0, 9.0, 3.0, 9.0])[::2].requires_grad_()
    got = F.batch_norm(x, mean, var, weight, None, training)
    want = F.batch_norm(x, *whole, weight.contiguous(), None, training)
    assert tn.equal(got, want) and tn.equal(mean, whole[0]) and tn.equal(var, whole[1])
    assert tn.equal(*[tn.autograd.grad(y.square().sum(), weight)[0] for y in (got, want)])


def test_rows_are_asked_for_of_images_alone() -> None:
    t = tn.ones(3, 2).t()
    assert t.to(memory_format=tn.contiguous_format) is t
    assert t.float(memory_format=tn.contiguous_format) is t
    assert t.double(memory_format=tn.contiguous_format).is_contiguous()
    image = tn.ones(1, 2, 3, 3).to(memory_format=tn.channels_last)
    assert image.to(memory_format=tn.contiguous_format).is_contiguous()


def test_whole_numbers_beyond_int64_among_elements() -> None:
    big = 2**63
    assert tn.isin(tn.tensor([1, -(2**63)]), big).tolist() == [False, True]  # the same bits
    assert tn.isin(tn.tensor([1.0, 2.0**63]), big).tolist() == [False, True]


def test_shares_beyond_one_are_refused() -> None:
    for x in (tn.tensor(1.0), tn.tensor([1.0, 2.0])):
        for q in ([-5.0, 0.5], [0.5, 1.5], [math.nan, 0.5]):
            with pytest.raises(RuntimeError, match="must be in the range"):
                tn.quantile(x, tn.tensor(q))


def test_how_grids_are_indexed_is_looked_at() -> None:
    with pytest.raises(RuntimeError, match="indexing"):
        tn.meshgrid(tn.ones(1), indexing="")


def test_sizes_for_another_rank_are_a_value_error() -> None:
    for shape in ((3,), (1, 3), (1, 1, 3)):
        with pytest.raises(ValueError, match="number of spatial dimensions"):
            F.interpolate(tn.ones(shape), size=(2, 2))


def test_differing_elements_are_counted_but_nan() -> None:
    x, y = tn.tensor([[math.nan, 1.0], [math.inf, 0.0]]), tn.zeros(1, 2)
    got = tn.cdist(x, y, 0.0)
    assert got[0].isnan() and got[1].item() == 1


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("dtype", [tn.float64, tn.float16, tn.int64])
def test_biases_of_transposed_convolutions(n: int, dtype: tn.dtype) -> None:
    """Of another dtype in one dimension and two, not in three."""
    x, weight, bias = tn.ones([1, 2] + [4] * n), tn.ones([2, 3] + [1] * n), tn.ones(3, dtype=dtype)
    if n == 3:
        with pytest.raises(RuntimeError, match="bias type"):
            F.conv_transpose3d(x, weight, bias)
        return
    got = getattr(F, f"conv_transpose{n}d")(x, weight, bias)
    assert got.dtype is tn.float32 and (got == 3).all()
