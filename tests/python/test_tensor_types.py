"""Types of tensors under their old names: FloatTensor and its kin."""

import pytest
import tenon


def test_types_of_tensors():
    """The names from before there were dtypes and devices."""
    x = tenon.ones(2, 3)
    assert isinstance(x, tenon.FloatTensor) and not isinstance(x, tenon.LongTensor)
    assert not isinstance(3, tenon.FloatTensor) and "class 'tenon.IntTensor'" in str(
        tenon.IntTensor
    )
    assert repr(tenon.BoolTensor) == "<class 'tenon.BoolTensor'>"
    assert tenon.LongTensor([[1, 2]]).tolist() == [[1, 2]]
    assert tenon.DoubleTensor(2, 3).shape == (2, 3) == tenon.HalfTensor(x.size()).shape
    assert tenon.ByteTensor().shape == (0,) and tenon.CharTensor(x).dtype is tenon.int8
    assert (
        x.type(tenon.LongTensor).type() == x.type("tenon.LongTensor").type() == "tenon.LongTensor"
    )
    assert x.type("torch.ComplexFloatTensor").dtype is tenon.complex64
    assert x.new(4).dtype is x.dtype and x.long().new([1.0]).tolist() == [1]
    for bad in ("LongTensor", "numpy.LongTensor", "torch.OddTensor"):
        with pytest.raises(ValueError, match="invalid type"):
            x.type(bad)
    with pytest.raises(TypeError, match="must be a type, str, or dtype"):
        x.type(3)
    with pytest.raises(RuntimeError, match="kind 'cpu'"):
        tenon.FloatTensor(2, device="cuda")
    with pytest.raises(AttributeError, match="no attribute 'OddTensor'"):
        tenon.OddTensor  # noqa: B018
    try:
        tenon.set_default_tensor_type("torch.DoubleTensor")
        assert tenon.ones(1).dtype is tenon.float64
        tenon.set_default_tensor_type(tenon.FloatTensor)
        assert tenon.ones(1).dtype is tenon.float32
        for wrong, error in ((3, TypeError), ("torch.LongTensor", TypeError)):
            with pytest.raises(error):
                tenon.set_default_tensor_type(wrong)
    finally:
        tenon.set_default_dtype(tenon.float32)


def test_made_of_a_storage_or_a_tensor_it_shares_their_memory():
    y = tenon.arange(6.0).view(2, 3)
    for made in (tenon.ones(1).new(y.storage()), tenon.FloatTensor(y.untyped_storage())):
        assert made.tolist() == [0, 1, 2, 3, 4, 5] and made.data_ptr() == y.data_ptr()
    same = tenon.ones(1).new(y)
    assert same is not y and same.data_ptr() == y.data_ptr() and same.shape == y.shape
    assert tenon.FloatTensor(y.to_sparse()).layout is tenon.sparse_coo
    with pytest.raises(RuntimeError, match="Expected a Storage of type Float"):
        tenon.ones(1).new(tenon.arange(3).storage())
