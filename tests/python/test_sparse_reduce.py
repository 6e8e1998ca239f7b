"""tenon.sparse.mm with reduce: products of a compressed matrix whose rows are reduced otherwise.
Sums of halves."""

import numpy as np
import pytest
import tenon as tn

rng = np.random.default_rng(11)


def dense_array(shape, density=0.4):
    """Mostly zeros."""
    return rng.standard_normal(shape) * (rng.random(shape) < density) + 0.0


def compressed(a):
    return tn.tensor(a).to_sparse_csr()


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin", "max", "min"])
def test_mm_reduce(reduce):
    """What becomes of the products of a row's elements; those that are not there do not count."""
    a, x = dense_array((5, 6)), dense_array((6, 3), density=1)
    a[2], a[:, 1] = 0, 1.5  # a row with one element, ties below
    a[4], x[5] = 0, x[1]
    a[3], a[3, 1], a[3, 5] = 0, 2.0, 2.0
    s = compressed(a).requires_grad_()
    dense = tn.tensor(x, requires_grad=True)
    weight = dense_array((5, 3), density=1)
    want, grad_a, grad_x = np.zeros((5, 3)), np.zeros_like(a), np.zeros_like(x)
    for i, k in np.ndindex(5, 3):
        (at,) = np.nonzero(a[i])
        if not len(at):
            continue
        each = a[i, at] * x[at, k]
        if reduce in ("sum", "mean"):
            share = np.full(len(at), 1.0 if reduce == "sum" else 1 / len(at))
        else:
            first = int(each.argmax() if reduce in ("amax", "max") else each.argmin())
            share = (np.arange(len(at)) == first).astype(float)
        want[i, k] = (each * share).sum()
        grad_a[i, at] += weight[i, k] * share * x[at, k]
        grad_x[at, k] += weight[i, k] * share * a[i, at]
    r = tn.sparse.mm(s, dense, reduce)
    np.testing.assert_allclose(r.detach().numpy(), want)
    r.backward(tn.tensor(weight))
    assert s.grad.layout is tn.sparse_csr
    np.testing.assert_allclose(s.grad.to_dense().numpy(), grad_a)
    np.testing.assert_allclose(dense.grad.numpy(), grad_x)


def test_mm_reduce_edges():
    s, x = compressed(np.eye(3)), tn.ones(3, 2, dtype=tn.float64)
    empty = tn.zeros(3, 3, dtype=tn.float64).to_sparse_csr()
    assert tn.sparse.mm(empty, x, "amax").tolist() == [[0, 0]] * 3
    x[1, 0] = np.nan
    lost = np.isnan(tn.sparse.mm(s, x, "amin").numpy())
    assert lost.tolist() == [[False, False], [True, False], [False, False]]
    with pytest.raises(RuntimeError, match="reduce is sum"):
        tn.sparse.mm(s, x, "prod")
    with pytest.raises(NotImplementedError, match="sparse_coo"):
        tn.sparse.mm(tn.eye(3, dtype=tn.float64).to_sparse(), x, "sum")
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        tn.sparse.mm(s, x[:2], "sum")
    with pytest.raises(RuntimeError, match="Double, but got Float"):
        tn.sparse.mm(s, x.float(), "sum")


def test_slices():
    a = np.random.default_rng(3).integers(-1, 2, (3, 4, 5)).astype(np.float64)
    for t in (tn.tensor(a).to_sparse(), tn.tensor(a).to_sparse(2), tn.tensor(a).to_sparse(1)):
        for dim in (0, 1, -1):
            parts = t.unbind(dim)
            assert isinstance(parts, tuple) and len(parts) == a.shape[dim]
            for i, part in enumerate(parts):
                np.testing.assert_array_equal(part.to_dense().numpy(), a.take(i, dim))
        for row, expected in zip(t, a, strict=True):
            assert row.shape == (4, 5)
            np.testing.assert_array_equal(row.to_dense().numpy(), expected)
    x = tn.tensor(a, requires_grad=True)
    parts = x.to_sparse().unbind(1)
    (parts[1] * 2 + parts[3]).to_dense().sum().backward()
    expected = np.zeros_like(a)
    expected[:, 1], expected[:, 3] = 2, 1
    np.testing.assert_array_equal(x.grad.numpy(), expected * (a != 0))
    assert [v.item() for v in tn.tensor([0.0, 3.0]).to_sparse().unbind()] == [0, 3]
    with pytest.raises(IndexError, match="got 3"):
        x.to_sparse().unbind(3)
    with pytest.raises(IndexError, match="no dimensions"):
        tn.tensor(2.0).to_sparse().unbind()


@pytest.mark.parametrize("dtype", [tn.float16, tn.bfloat16])
def test_many_halves_at_one_place_are_added_in_float32(dtype: tn.dtype) -> None:
    """In bfloat16 a sum of ones stays at 256, in float16 one of quarters at 512."""
    each = 1.0 if dtype is tn.bfloat16 else 0.25
    values = tn.full((4096, 2), each, dtype=dtype)
    s = tn.sparse_coo_tensor(tn.zeros(1, 4096, dtype=tn.int64), values, (3, 2))
    want = [[4096 * each] * 2, [0.0] * 2, [0.0] * 2]
    assert s.coalesce().values().tolist() == want[:1]
    assert s.to_dense().tolist() == want
    assert tn.zeros(3, 2, dtype=dtype).add_(s).tolist() == want
    assert (tn.zeros(3, 2, dtype=dtype) + s).tolist() == want
    row = tn.stack([tn.zeros(4096, dtype=tn.int64), tn.arange(4096)])
    wide = tn.sparse_coo_tensor(row, values[:, 0], (2, 4096))
    assert (wide @ values).tolist() == [[4096 * each * each] * 2, [0.0] * 2]
    weight = tn.zeros(3, 2, dtype=dtype, requires_grad=True)
    places = tn.zeros(4096, dtype=tn.int64)
    tn.nn.functional.embedding_bag(
        places, weight, tn.arange(0, 4096, 4), mode="sum", sparse=True
    ).backward(tn.full((1024, 2), each, dtype=dtype))
    assert weight.grad.to_dense().tolist() == want
