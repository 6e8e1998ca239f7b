"""Tensors with a mask, against NumPy's masked arrays."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.masked import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(3, 4)) * 3
MASK = np.array([[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 1, 0]], bool)


def ours(requires_grad: bool = False) -> MaskedTensor:
    return masked_tensor(tn.tensor(DATA), tn.tensor(MASK), requires_grad)


def theirs() -> Any:
    return np.ma.masked_array(DATA, ~MASK)


def check(got: Any, want: Any) -> None:
    """Elements that count, and which do."""
    assert type(got) is MaskedTensor
    assert got.shape == np.shape(want)
    counts = ~np.ma.getmaskarray(want)
    assert np.array_equal(got.get_mask().numpy(), counts)
    values = got.get_data().detach().numpy()
    assert np.allclose(values[counts], np.ma.getdata(want)[counts])


@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(
    ("name", "numpy"),
    [("sum", np.ma.sum), ("mean", np.ma.mean), ("prod", np.ma.prod), ("amax", np.ma.max),
     ("amin", np.ma.min)],
)  # fmt: skip
def test_reductions(name: str, numpy: Any, dim: int | None, keepdim: bool) -> None:
    want = numpy(theirs(), axis=dim, keepdims=keepdim)
    if dim is None:
        got = getattr(ours(), name)() if not keepdim else None
    else:
        got = getattr(ours(), name)(dim, keepdim)
        check(getattr(tn, name)(ours(), dim=dim, keepdim=keepdim), want)
    if got is not None:
        check(got, np.ma.asarray(want))


def test_a_slice_of_which_nothing_counts_does_not_count() -> None:
    x = masked_tensor(tn.ones(2, 2), tn.tensor([[True, False], [False, False]]))
    assert x.sum(1).get_mask().tolist() == [True, False]
    assert x.std(1).get_mask().tolist() == [True, False]
    assert x.all(1).get_mask().tolist() == [True, False] and bool(x.all())


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda x: x.exp(), np.ma.exp), (lambda x: -x, np.ma.negative), (abs, np.ma.abs),
        (lambda x: tn.sin(x), np.ma.sin), (lambda x: x**2, lambda x: x**2),
        (lambda x: 2 * x, lambda x: 2 * x), (lambda x: 1 - x, lambda x: 1 - x),
        (lambda x: x + x, lambda x: x + x), (lambda x: x > 0, lambda x: x > 0),
        (lambda x: x + tn.arange(4.0), lambda x: x + np.arange(4.0)),
        (lambda x: x.float().double().round(), lambda x: np.ma.round(x.astype("f4"), 0)),
        (lambda x: x[1:], lambda x: x[1:]), (lambda x: x[2, 1], lambda x: np.ma.asarray(x[2, 1])),
        (lambda x: x.t(), lambda x: x.T), (lambda x: x.reshape(2, 6), lambda x: x.reshape(2, 6)),
        (lambda x: tn.cat([x, x], 1), lambda x: np.ma.concatenate([x, x], 1)),
        (lambda x: x.unsqueeze(0).squeeze(0), lambda x: x), (lambda x: x.T.T, lambda x: x),
        (lambda x: tn.stack([x, x]), lambda x: np.ma.stack([x, x])),
        (lambda x: x.cumsum(0), lambda x: np.ma.cumsum(x, 0)), (lambda x: x.clone(), lambda x: x),
    ],
)  # fmt: skip
def test_elements(make: Any, want: Any) -> None:
    check(make(ours()), want(theirs()))


def test_softmax_counts_what_counts() -> None:
    e = np.ma.exp(theirs())
    check(ours().softmax(1), e / e.sum(1, keepdims=True))
    check(tn.softmax(ours(), 0), e / e.sum(0, keepdims=True))


def test_in_place_writes_the_data() -> None:
    x = ours()
    y = x.mul_(2)
    assert y is x
    x += 1
    check(x, 2 * theirs() + 1)


def test_where_takes_mask_and_data() -> None:
    a, b = ours(), -ours()
    pick = tn.tensor(DATA > 0)
    check(tn.where(pick, a, b), np.ma.where(DATA > 0, theirs(), -theirs()))
    assert tn.where(pick, a, 0.0).get_mask().equal(tn.where(pick, a.get_mask(), tn.tensor(True)))


def test_plain_tensors_come_out() -> None:
    x = ours()
    assert np.array_equal(x.to_tensor(7.0).numpy(), theirs().filled(7.0))
    assert x.get_data().equal(tn.tensor(DATA)) and type(x.get_data()) is tn.Tensor
    assert x.dtype is tn.float64 and x.shape == (3, 4) and len(x) == 3 and is_masked_tensor(x)
    assert x.sum().item() == pytest.approx(float(theirs().sum()))
    assert [row.sum().item() for row in x] == pytest.approx(theirs().sum(1).tolist())
    with pytest.raises(RuntimeError, match="masked out"):
        x[0, 1].item()


def test_gradients_reach_what_counts() -> None:
    x = ours(requires_grad=True)
    (x * x).sum().backward()
    assert isinstance(x.grad, MaskedTensor)
    check(x.grad, 2 * theirs())
    source = tn.tensor(DATA, requires_grad=True)
    as_masked_tensor(source * 3, tn.tensor(MASK)).mean().backward()
    assert np.allclose(source.grad.numpy(), np.where(MASK, 3 / MASK.sum(), 0))
    assert not ours().requires_grad and x.detach().requires_grad is False
    assert ours().requires_grad_().is_leaf


def test_copies_and_files() -> None:
    x = ours()
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        check(again, theirs())
    made = tn.tensor(DATA)
    kept = masked_tensor(made, tn.tensor(MASK))
    made.zero_()
    check(kept, theirs())  # of a copy
    shared = as_masked_tensor(made, tn.tensor(MASK))
    made.fill_(1.0)
    assert shared.sum().item() == MASK.sum()


def test_text() -> None:
    assert repr(masked_tensor(tn.tensor([[1.0, 2.0]]), tn.tensor([[True, False]]))) == (
        "MaskedTensor(\n  [\n    [  1.0000,       --]\n  ]\n)"
    )
    assert str(masked_tensor(tn.tensor([1, 20]), tn.tensor([True, False]))) == (
        "MaskedTensor(\n  [1,       --]\n)"
    )
    wide = masked_tensor(tn.tensor([[1.0, 22026.5], [1.0, 2.0]]), tn.tensor([[False, True]] * 2))
    assert repr(wide) == (
        "MaskedTensor(\n  [\n    [        --, 22026.5000],\n    [      --,   2.0000]\n  ]\n)"
    )
    assert repr(ours().sum()) == f"MaskedTensor({theirs().sum():8.4f}, True)"
    assert repr(ours()[0, 1]) == "MaskedTensor(--, False)"


def test_mistakes() -> None:
    x = ours()
    with pytest.raises(ValueError, match="Input masks must match"):
        x + masked_tensor(tn.tensor(DATA), ~tn.tensor(MASK))
    with pytest.raises(TypeError, match="matmul.* is not there for masked tensors"):
        tn.matmul(x, x)
    with pytest.raises(TypeError, match="data must be a Tensor"):
        masked_tensor([1.0], tn.tensor([True]))
    with pytest.raises(TypeError, match="data must be a Tensor"):
        masked_tensor(x, tn.tensor(MASK))
    with pytest.raises(TypeError, match="must have dtype bool"):
        masked_tensor(tn.ones(2), tn.ones(2))
    with pytest.raises(ValueError, match="must equal mask.size"):
        masked_tensor(tn.ones(2), tn.tensor(True))
    with pytest.raises(TypeError, match="must be strided"):
        masked_tensor(tn.eye(2).to_sparse(), tn.eye(2).bool())
