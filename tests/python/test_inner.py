"""Functions that PyTorch has for its own use, under their names."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F


def test_copies_into_given_tensors() -> None:
    x = tn.arange(6.0).reshape(3, 2)
    for f, rest in ((tn.unbind_copy, (0,)), (tn.split_with_sizes_copy, ([1, 2], 0))):
        made = f(x, *rest)
        out = [tn.zeros(0) for _ in made]
        assert f(x, *rest, out=out) is None
        assert all(tn.equal(a, b) for a, b in zip(out, made, strict=True))
        with pytest.raises(RuntimeError, match="do not go into"):
            f(x, *rest, out=out[1:])


def test_chunk_cat() -> None:
    a, b = tn.arange(6.0).reshape(1, 2, 3), tn.arange(4.0).reshape(1, 4, 1).expand(1, 4, 3)
    got = tn._chunk_cat([a, b], 1, 3)
    wide = np.pad(a.numpy(), ((0, 0), (0, 1), (0, 0))).reshape(1, 3, -1)
    other = np.pad(b.numpy(), ((0, 0), (0, 2), (0, 0))).reshape(1, 3, -1)
    assert np.array_equal(got.numpy(), np.concatenate([wide, other], 2))
    out = tn.empty(0)
    assert tn._chunk_cat([a, b], -2, 3, out=out) is out and tn.equal(out, got)
    for tensors, dim, n, what in (
        ([a, tn.ones(4)], -1, 2, "non-negative dim"),
        ([a, tn.ones(4)], 1, 2, "dim < ndim"),
        ([a, tn.ones(2, 2, 3)], 1, 2, "same sizes"),
        ([a], 0, 0, "positive num_chunks"),
        ([], 0, 1, "non-empty input tensor list"),
        ([tn.ones(0, 2)], 0, 1, "non-empty tensor"),
    ):
        with pytest.raises(RuntimeError, match=what):
            tn._chunk_cat(tensors, dim, n)
    for dim in (3, -4):
        with pytest.raises(IndexError, match="of tensors of 3"):
            tn._chunk_cat([a], dim, 2)


def test_masked_indices() -> None:
    x = tn.arange(6.0).reshape(2, 3).requires_grad_()
    i, j = tn.tensor([[0], [7]]), tn.tensor([[0, 2, -9]])
    mask = (i < 2) & (j >= 0)
    got = tn._unsafe_masked_index(x, mask, [i, j], -1.0)
    assert got.tolist() == [[0, 2, -1], [-1, -1, -1]]
    got.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[1, 0, 1], [0, 0, 0]]
    values = tn.ones(2, 3)
    put = tn._unsafe_masked_index_put_accumulate(x.detach(), mask, [i, j], values)
    assert put.tolist() == [[1, 1, 3], [3, 4, 5]]
    none = tn.zeros(0, 3)
    assert tn._unsafe_masked_index(none, mask, [i, j], 4.0).tolist() == [[4.0] * 3] * 2
    assert tn._unsafe_masked_index_put_accumulate(none, mask, [i, j], values).shape == (0, 3)


def test_batch_norms() -> None:
    x = tn.tensor([[1.0, -2.0], [3.0, 0.5], [0.0, 2.0]])
    mean, var = tn.tensor([0.5, 1.0]), tn.tensor([2.0, 3.0])
    want = F.batch_norm(x, mean.clone(), var.clone(), training=True)
    y, m, s = tn._native_batch_norm_legit(x, None, None, mean.clone(), var.clone(), True, 0.1, 1e-5)
    assert tn.equal(y, want) and np.allclose(m.numpy(), x.numpy().mean(0)) and s.shape == (2,)
    assert tn.equal(tn._native_batch_norm_legit(x, None, None, True, 0.1, 1e-5)[0], want)
    y, m, s = tn._native_batch_norm_legit(x, None, None, mean, var, False, 0.1, 1e-5)
    assert tn.equal(y, F.batch_norm(x, mean, var)) and m.shape == s.shape == (0,)
    moved = mean.clone()
    y, _, _, room = tn._batch_norm_with_update(x, None, None, moved, var.clone(), 0.5, 1e-5)
    assert tn.equal(y, want) and room.shape == (0,) and room.dtype is tn.uint8
    assert np.allclose(moved.numpy(), (mean.numpy() + x.numpy().mean(0)) / 2)


def test_smoothed_image() -> None:
    x = tn.rand(1, 2, 6, 8)
    want = F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True)
    assert tn.equal(tn._upsample_bilinear2d_aa(x, [3, 4], False), want)
    assert tn.equal(tn._upsample_bilinear2d_aa(x, None, False, [0.5, 0.5]), want)
    assert tn.equal(tn._upsample_bilinear2d_aa(x, None, False, scale_factors=[0.5, 0.5]), want)
    assert tn.equal(tn._upsample_bilinear2d_aa(x, [3, 4], False, 0.5, 0.5), want)
    assert tn.equal(tn._upsample_bilinear2d_aa(x, [3, 4], False, scales_h=None), want)
    with pytest.raises(RuntimeError, match=r"output_size is \[2, 2\], but the scales make"):
        tn._upsample_bilinear2d_aa(x, [2, 2], False, 0.5, 0.5)


def test_what_is_not_finite_reaches_its_neighbours_alone() -> None:
    x = tn.zeros(1, 1, 12, 12)
    x[0, 0, 0, 0] = float("nan")
    got = F.interpolate(x, size=(24, 24), mode="bicubic")[0, 0].isnan()
    assert got[:5, :5].any() and not got[6:].any() and not got[:, 6:].any()


def test_half_precision_is_rounded_once() -> None:
    x = tn.linspace(-3e4, 3e4, 36).reshape(1, 1, 6, 6)
    for dtype, eps in ((tn.float16, 2**-11), (tn.bfloat16, 2**-8)):
        y = x.to(dtype)
        for how in ({"mode": "bicubic"}, {"mode": "bilinear", "antialias": True}):
            want = F.interpolate(y.double(), size=(5, 7), **how)
            got = F.interpolate(y, size=(5, 7), **how).double()
            assert ((got - want).abs() <= eps * want.abs() * 1.01 + 0.02).all()
