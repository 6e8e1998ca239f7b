"""What PyTorch refuses is refused, with its class of exception; what it takes at the same places is
taken. The expectations are PyTorch 2.13's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tenon as tn
import tenon.nn.functional as F

f = tn.tensor([[0.5, -1.25, 2.0], [3.0, -0.5, 1.5], [-2.5, 0.25, 1.0]])
i = tn.tensor([[3, 1, 2], [4, 1, 5], [9, 2, 6]])
b = i > 2
c = f * (1 + 0.5j)
at = tn.tensor([2, 0, 1])


def refused(kind: type[Exception], *calls: Callable[[], Any]) -> None:
    """Each call raises this very class, or one derived from it that is no other of PyTorch's."""
    for k, call in enumerate(calls):
        with pytest.raises(kind) as raised:
            call()
        exact = kind is not RuntimeError or not isinstance(raised.value, NotImplementedError)
        assert exact and str(raised.value), k


def test_bools_are_not_subtracted() -> None:
    refused(
        RuntimeError, lambda: b - b, lambda: f - b, lambda: b - f, lambda: i - True, lambda: 1 - b,
        lambda: True - i, lambda: tn.rsub(f, b), lambda: tn.rsub(i, True), lambda: i.sub_(b),
        lambda: tn.sub(f, True), lambda: -b, lambda: tn.neg(b), lambda: b.clone().neg_(),
        lambda: +b, lambda: tn.positive(b), lambda: tn.sub(tn.tensor(True), f),
    )  # fmt: skip
    assert (i - 1).tolist() == [[2, 0, 1], [3, 0, 4], [8, 1, 5]]
    assert (f + True)[0, 0] == 1.5 and (f * b)[0, 0] == 0.5 and (b ^ True).tolist()[0][0] is False


def test_operators_of_real_numbers_refuse_others() -> None:
    refused(
        RuntimeError, lambda: tn.maximum(c, f), lambda: tn.minimum(f, c), lambda: tn.fmax(c, c),
        lambda: tn.fmin(c, c), lambda: tn.max(c, 0), lambda: tn.min(c, 0), lambda: tn.max(f, c),
        lambda: tn.argmax(c), lambda: tn.argmax(b), lambda: tn.argmin(b, 0), lambda: tn.sort(c),
        lambda: tn.argsort(c), lambda: tn.msort(c), lambda: tn.topk(c, 1), lambda: tn.topk(b, 1),
        lambda: tn.nansum(c), lambda: tn.nanmean(i), lambda: tn.nanmean(b),
        lambda: tn.isposinf(c), lambda: tn.isneginf(c), lambda: tn.deg2rad(c),
        lambda: tn.rad2deg(c), lambda: F.relu(b), lambda: F.hardtanh(b), lambda: F.relu6(b),
        lambda: i.clone().exponential_(), lambda: i.clone().cauchy_(), lambda: F.dropout(i),
        lambda: tn.heaviside(c, c), lambda: tn.randint(0, 3, (2,), dtype=tn.complex64),
    )  # fmt: skip
    assert tn.deg2rad(tn.tensor([180])).item() == pytest.approx(3.14159265)
    assert tn.nansum(b).item() == 5 and tn.isposinf(i).any().item() is False


def test_operators_of_one_dtype_do_not_promote() -> None:
    refused(
        RuntimeError, lambda: tn.heaviside(f, i), lambda: tn.heaviside(f, f.double()),
        lambda: tn.polar(f, f.double()), lambda: tn.polar(f, i), lambda: tn.lerp(f, i, 0.5),
        lambda: tn.lerp(f, f.double(), 0.5), lambda: tn.lerp(f, f, f.double()),
        lambda: f.clone().lerp_(f, i), lambda: tn.linalg.cross(f, f.double()),
        lambda: tn.cross(f, i),
    )  # fmt: skip
    assert tn.lerp(f, f, tn.tensor(0.5, dtype=tn.float64)).equal(f)  # a number, so to speak
    assert tn.lerp(f, f, 1).equal(f) and tn.heaviside(f, f).dtype is tn.float32


def test_addcdiv_divides_no_integers() -> None:
    refused(
        RuntimeError, lambda: tn.addcdiv(i, i, i), lambda: tn.addcdiv(f, i, i),
        lambda: f.clone().addcdiv_(i, b), lambda: tn.addcdiv(b, b, b, value=2),
    )  # fmt: skip
    assert tn.addcdiv(f, i, f).equal(f + i / f) and tn.addcdiv(i, f, f).dtype is tn.float32


def test_sums_and_products_of_bools() -> None:
    x = tn.tensor([[0.0, 0.5, 0.0], [0.0, 0.0, 0.0]])
    assert tn.sum(x, dtype=tn.bool).item() is True
    assert tn.sum(x, 1, dtype=tn.bool).tolist() == [True, False]
    assert tn.prod(x, 0, dtype=tn.bool).tolist() == [False, False, False]
    assert tn.prod(x + 1, dtype=tn.bool).item() is True
    assert x.sum((0, 1), True, dtype=tn.bool).tolist() == [[True]]
    assert tn.nansum(x, dtype=tn.bool).item() is True
    assert tn.sum(tn.zeros(0), dtype=tn.bool).item() is False
    assert tn.prod(tn.zeros(0), dtype=tn.bool).item() is True


def test_transforms_of_no_dimension() -> None:
    for made in (tn.fft.fftn(f, dim=()), tn.fft.ifftn(f, dim=()), tn.fft.fftn(f, s=())):
        assert made.dtype is tn.complex64 and made.real.equal(f)
    assert tn.fft.fftshift(f, ()).equal(f)
    refused(
        RuntimeError, lambda: tn.fft.rfftn(f, dim=()), lambda: tn.fft.irfftn(c, dim=()),
        lambda: tn.fft.hfftn(f, dim=()), lambda: tn.fft.ihfftn(f, dim=()),
        lambda: tn.fft.fft(f, -1), lambda: tn.fft.fft(f, 0), lambda: tn.fft.fftfreq(-1),
    )  # fmt: skip
    assert tn.fft.fftn(f, s=(-1, 2)).shape == (3, 2)


@pytest.mark.parametrize("scan", [tn.cumsum, tn.cumprod])
def test_scans_of_bools(scan: Callable[..., tn.Tensor]) -> None:
    refused(
        NotImplementedError, lambda: scan(f, 0, dtype=tn.bool), lambda: scan(b, 0, dtype=tn.bool)
    )
    refused(RuntimeError, lambda: getattr(f.clone(), f"{scan.__name__}_")(0, dtype=tn.int64))
    assert scan(b, 0).dtype is tn.int64 and scan(f, 0, dtype=tn.int32).dtype is tn.int32


def test_indices_of_other_dtypes() -> None:
    wide = at.unsqueeze(0).expand(3, 3)
    refused(
        RuntimeError, lambda: tn.take_along_dim(f, wide.int(), 0),
        lambda: tn.index_copy(f, 0, at.int(), f), lambda: tn.index_copy(f, 0, at, f[:, :2]),
        lambda: tn.index_fill(f, 0, wide, 1.0), lambda: tn.index_reduce(f, 0, f[0], f, "prod"),
        lambda: tn.index_put(i, (at,), tn.tensor(1.5)), lambda: tn.index_put(f, (at,), i),
        lambda: f.clone().__setitem__(at, tn.tensor(1)),
        lambda: f.clone().__setitem__(b, f[b].double()),
        lambda: tn.index_put(f, (b,), tn.tensor([1]), accumulate=True),
    )  # fmt: skip
    refused(
        IndexError, lambda: tn.index_copy(f, 0, at, f[:2]), lambda: tn.index_copy(f, 0, at, f[0]),
        lambda: tn.index_copy(f, 0, at, f[0, 0]), lambda: tn.index_fill(f, 0, at.int(), 1.0),
        lambda: tn.index_fill(f, 0, f[0], 1.0), lambda: tn.put(f, at, f[0, :2]),
    )  # fmt: skip
    assert tn.take_along_dim(f, at.int()).shape == (3,)
    assert tn.index_reduce(f, 0, at.int(), f, "prod")[0, 0] == 1.5
    assert tn.index_fill(f, 0, tn.tensor(1), 1.0)[1].tolist() == [1.0, 1.0, 1.0]
    for one in (tn.tensor(2), tn.tensor([2]), 2.5):  # a mask with one value is filled
        filled = i.clone()
        filled[b] = one
        assert filled[b].tolist() == [2] * 5
    changed = i.clone()
    changed[at] = 1.5
    assert changed.unique().tolist() == [1]


def test_sequences_of_other_dtypes() -> None:
    refused(
        NotImplementedError, lambda: tn.arange(3, dtype=tn.bool),
        lambda: tn.arange(0, 1, dtype=tn.complex64), lambda: tn.linspace(0, 1, 3, dtype=tn.bool),
        lambda: tn.arange(3, out=tn.empty(3, dtype=tn.bool)),
        lambda: tn.logspace(0, 1, 3, dtype=tn.bool), lambda: tn.randperm(3, dtype=tn.bool),
        lambda: tn.randperm(3, dtype=tn.complex64),
    )  # fmt: skip
    refused(
        RuntimeError, lambda: tn.arange(3j), lambda: tn.randperm(300, dtype=tn.uint8),
        lambda: tn.randperm(2050, dtype=tn.float16),
    )  # fmt: skip
    assert tn.randperm(255, dtype=tn.uint8).long().sum() == 255 * 127
    assert tn.linspace(0, 1j, 3).dtype is tn.complex64


def test_cat_into_a_type_that_does_not_hold_the_parts() -> None:
    refused(
        TypeError, lambda: tn.cat([f, f], out=tn.empty(0, dtype=tn.int64)),
        lambda: tn.cat([i, f], out=tn.empty(0, dtype=tn.int64)),
        lambda: tn.cat([f, c], out=tn.empty(0)),
    )  # fmt: skip
    assert tn.cat([i, i], out=tn.empty(0)).dtype is tn.float32


def test_isin_of_bools_and_complex_numbers() -> None:
    refused(
        RuntimeError, lambda: tn.isin(b, b), lambda: tn.isin(f, b), lambda: tn.isin(c, c),
        lambda: tn.isin(i, True),
    )  # fmt: skip


def test_inversion_of_floats_is_a_fault_of_types() -> None:
    refused(TypeError, lambda: ~f, lambda: ~c)
    refused(NotImplementedError, lambda: tn.bitwise_not(f))
    assert (~b).sum() == 4


def test_numbers_in_bytes() -> None:
    assert tn.tensor([-1, -255], dtype=tn.uint8).tolist() == [255, 1]
    assert tn.tensor(-200, dtype=tn.uint8).item() == 56
    nan = float("nan")
    refused(
        RuntimeError, lambda: tn.tensor([-256], dtype=tn.uint8),
        lambda: tn.tensor([-1.0], dtype=tn.uint8), lambda: tn.tensor(nan, dtype=tn.int64),
        lambda: tn.tensor([nan], dtype=tn.uint8), lambda: tn.tensor([1e20], dtype=tn.int64),
    )  # fmt: skip


def test_norms_and_distances() -> None:
    cube, none = tn.zeros(2, 2, 2), tn.zeros(0, 3)
    norm, vector_norm = tn.linalg.norm, tn.linalg.vector_norm
    refused(
        RuntimeError, lambda: norm(cube, "fro"), lambda: norm(cube, 2), lambda: norm(f[0, 0], 2),
        lambda: norm(f, 2, (0, 1, 2)), lambda: norm(f, "fro", 0), lambda: norm(f, dtype=tn.half),
        lambda: vector_norm(f, dtype=tn.int64), lambda: vector_norm(f.double(), dtype=tn.float32),
        lambda: tn.norm(f, dtype=tn.float16), lambda: vector_norm(none, float("inf")),
        lambda: tn.cdist(f, f, -1), lambda: tn.cdist(f, f, float("nan")), lambda: tn.cdist(f, i),
        lambda: tn.cdist(f[0], f), lambda: tn.cdist(f, f.double()), lambda: tn.cdist(i, i),
        lambda: tn.linalg.vecdot(f, i), lambda: tn.linalg.pinv(i), lambda: tn.linalg.lstsq(i, i),
        lambda: tn.linalg.lstsq(f, f.double()), lambda: tn.linalg.svd(f, driver="gesvd"),
    )  # fmt: skip
    refused(TypeError, lambda: tn.linalg.matrix_norm(f, dim=0))
    assert norm(f[0, 0]).item() == 0.5 and norm(cube, 2, 0).shape == (2, 2)
    assert vector_norm(f, dtype=tn.float64).dtype is tn.float64


def test_sums_take_the_dtype_of_out() -> None:
    x = tn.tensor([[0.6, 0.6], [1.5, 1.5]])
    assert tn.sum(x, 1, out=tn.empty(2, dtype=tn.int64)).tolist() == [0, 2]
    assert tn.cumsum(x, 1, out=tn.empty(2, 2, dtype=tn.int64)).tolist() == [[0, 0], [1, 2]]
    assert tn.cumprod(i, 0, out=tn.empty(0, dtype=tn.int8))[2].tolist() == [108, 2, 60]
    assert tn.sum(b, 0, out=tn.empty(0)).tolist() == [3.0, 0.0, 2.0]
    refused(
        RuntimeError, lambda: tn.sum(f, 0, dtype=tn.float64, out=tn.empty(0)),
        lambda: tn.cumsum(f, 0, dtype=tn.float32, out=tn.empty(0, dtype=tn.float64)),
    )  # fmt: skip


def test_searches_splits_and_blocks() -> None:
    refused(
        RuntimeError, lambda: tn.searchsorted(f[0], f, sorter=at.int()),
        lambda: tn.bucketize(f, f), lambda: tn.bucketize(f, f[0, 0]),
        lambda: tn.tensor_split(f, tn.tensor([1.0, 2.0])), lambda: tn.tensor_split(f, at.int()),
        lambda: tn.tensor_split(f, tn.tensor([[1, 2]])), lambda: tn.block_diag(f.unsqueeze(0)),
        lambda: tn.diff(f, prepend=f[0]), lambda: tn.diff(f, append=f.unsqueeze(0)),
        lambda: tn.trapezoid(b), lambda: tn.cumulative_trapezoid(b), lambda: tn.trapezoid(f, b),
        lambda: tn.histogram(f, 3, range=(1.0,)),
    )  # fmt: skip
    refused(
        NotImplementedError, lambda: tn.tril_indices(2, 2, dtype=tn.float32),
        lambda: tn.triu_indices(2, 2, dtype=tn.bool), lambda: tn.histogramdd(i, [3, 3, 3]),
        lambda: tn.histogram(i, 2**31), lambda: tn.histogram(i, 3),
    )  # fmt: skip
    refused(TypeError, lambda: tn.isin(1, 2))
    refused(IndexError, lambda: tn.kthvalue(tn.zeros(3, 0), 1))
    assert tn.block_diag().shape == (1, 0) and tn.topk(tn.tensor(3.0), 0).values.item() == 3.0
    assert tn.kthvalue(tn.zeros(0, 3), 1).values.shape == (0,)
    number = tn.tensor(1 + 2j)
    assert number.mT.item() == 1 + 2j and number.adjoint().item() == 1 - 2j


def test_sequences_are_written_in_a_row() -> None:
    """The kernels of sequences write `numel` elements one after the other: into a view that shares
    or skips elements they would write beyond it."""
    ops = tn._C._ops
    whole = tn.zeros(12, dtype=tn.int64)
    for view in (whole[:1].expand(1000, 1000), whole[::2], whole.reshape(3, 4).t()):
        for call in (
            lambda v: ops._arange_(v, 0, 1), lambda v: ops._linspace_(v, 0, 1), ops._randperm_,
        ):  # fmt: skip
            with pytest.raises(ValueError, match="'self' must be contiguous"):
                call(view)
    assert whole.count_nonzero() == 0
    assert ops._arange_(whole[2:6], 1, 2).tolist() == [1, 3, 5, 7]


def test_offsets_as_far_as_int64() -> None:
    for offset in (-(2**63), 2**63 - 1):
        refused(ValueError, lambda at=offset: tn.diag_embed(f, at))
    assert tn.round(f, decimals=-(2**63)).isnan().all()
