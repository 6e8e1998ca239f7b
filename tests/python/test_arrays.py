"""Operators between tensors and NumPy's arrays."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn


@pytest.mark.parametrize("text", ["x + a", "x - a", "x * a", "x / a", "x ** a", "x @ a", "x % a"])
def test_a_tensor_in_front_gives_a_tensor(text):
    values, a = np.array([1.0, 2.0, 4.0]), np.array([3.0, 5.0, 0.5])
    got = eval(text, {"x": tn.tensor(values), "a": a})
    assert isinstance(got, tn.Tensor) and got.dtype is tn.float64
    np.testing.assert_allclose(got.numpy(), eval(text, {"x": values, "a": a}))


@pytest.mark.parametrize("text", ["x == a", "x != a", "x < a", "x <= a", "x > a", "x >= a"])
def test_comparisons_look_at_every_element(text):
    values, a = np.array([1.0, 5.0, 4.0]), np.array([3.0, 5.0, 0.5])
    got = eval(text, {"x": tn.tensor(values), "a": a})
    assert got.dtype is tn.bool and got.tolist() == eval(text, {"x": values, "a": a}).tolist()
    assert (tn.ones(2) == "text") is False and (tn.ones(2) != None) is True  # noqa: E711


def test_in_place_and_functions_of_numpy():
    x = tn.ones(3)
    x += np.arange(3.0)
    assert isinstance(x, tn.Tensor) and x.tolist() == [1, 2, 3]
    assert isinstance(np.sin(x), tn.Tensor) and isinstance(np.add(x, x), tn.Tensor)
    np.testing.assert_allclose(np.sin(x).numpy(), np.sin([1.0, 2.0, 3.0]))
    assert isinstance(np.asarray(x), np.ndarray) and isinstance(np.stack([x, x]), np.ndarray)


def test_arrays_of_tensors_with_gradients_are_those_that_no_backward_follows():
    x = tn.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        x.numpy()
    with tn.no_grad():
        assert x.numpy().tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="requires grad"):
        x.numpy()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_archives_by_numpy(save, tmp_path):
    path = tmp_path / "a.npz"
    want = {"x": tn.arange(6.0).view(2, 3).t(), "n": tn.tensor([1, 2]), "flag": tn.tensor(True)}
    save(path, **want)
    with np.load(path) as found:
        assert set(found) == set(want)
        for name, t in want.items():
            twin = tn.from_numpy(found[name])
            assert twin.dtype is t.dtype and twin.equal(t)


def test_the_protocol_of_arrays_by_hand():
    x = tn.tensor([1.5, 2.0])
    shared = x.__array__()
    assert shared.dtype == np.float32
    assert x.__array__(np.int64).tolist() == x.__array__(dtype="int64").tolist() == [1, 2]
    assert x.__array__(np.float64, copy=True).dtype == np.float64
    own = x.__array__(copy=True)
    own[0] = shared[1] = 7.0
    assert x.tolist() == [1.5, 7.0]
