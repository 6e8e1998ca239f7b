"""Sparse tensors and the values that they were made of."""

from __future__ import annotations

import pytest
import tenon as tn


def test_gradients_reach_the_values_a_tensor_was_made_of():
    places, values = tn.tensor([[0, 1, 1], [2, 0, 2]]), tn.tensor([3.0, 4.0, 5.0])
    values.requires_grad_()
    dense = tn.arange(6.0).view(3, 2)
    tn.spmm(tn.sparse_coo_tensor(places, values * 2, (2, 3)), dense).sum().backward()
    assert values.grad.tolist() == [18.0, 2.0, 18.0]
    made = tn.sparse_coo_tensor(places, values, (2, 3), dtype=tn.float64)
    assert made.requires_grad and made.dtype == tn.float64


def test_without_dimensions():
    x = tn.tensor(3.0).to_sparse()
    assert (x * 2).to_dense() == 6 and (x + x).to_dense() == 6
    with pytest.raises(NotImplementedError, match="sparse_coo"):
        tn.where(tn.tensor(True), x, x)


def test_many_dimensions_in_front():
    """The temporaries of one call grow with the dimensions."""
    crow, col = tn.tensor([0, 2, 4]), tn.tensor([0, 1, 0, 1])
    for front in ((2, 3, 4), (1,) * 16):
        values = tn.arange(4.0).expand(*front, 4)
        x = tn.sparse_csr_tensor(
            crow.expand(*front, 3), col.expand(*front, 4), values, (*front, 2, 2)
        )
        assert tn.equal(x.to_dense(), values.reshape(*front, 2, 2))
