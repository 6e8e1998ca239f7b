"""conj() copies: a write that others' view would hand on to its tensor is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn

WRITES: dict[str, Callable[[tn.Tensor], Any]] = {
    "conj": lambda x: x.conj().mul_(2),
    "function": lambda x: tn.conj(x).add_(1),
    "element": lambda x: x.conj().__setitem__((0, 0), 1),
    "row": lambda x: x.conj()[0].zero_(),
    "real": lambda x: x.conj().real.zero_(),
    "imag": lambda x: x.conj().imag.fill_(2),
    "pairs": lambda x: tn.view_as_real(x.conj()).neg_(),
    "detached": lambda x: x.conj().detach().mul_(2),
    "data": lambda x: x.conj().data.mul_(2),
    "adjoint": lambda x: x.adjoint().mul_(2),
    "mH": lambda x: x.mH.mul_(2),
    "H": lambda x: x.H.zero_(),
    "twice": lambda x: x.conj().conj().mul_(2),
    "of a part": lambda x: x[0].conj().mul_(2),
    "copy_": lambda x: x.conj().copy_(x),
    "out": lambda x: tn.add(x, x, out=x.conj()),
    "list": lambda x: tn._foreach_mul_([x.conj()], 2),
    "contiguous": lambda x: x.conj().contiguous().mul_(2),
    "mapped": lambda x: tn.vmap(lambda row: row.conj().mul_(2))(x),
}


def matrix() -> tn.Tensor:
    return tn.tensor([[1 + 2j, 3 - 1j], [4j, 5]])


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_would_not_reach_the_tensor_is_refused(name: str) -> None:
    x = matrix()
    with pytest.raises(
        (ValueError, RuntimeError), match="conj\\(\\) made of another tensor|read-o"
    ):
        WRITES[name](x)
    assert tn.equal(x, matrix())


@pytest.mark.parametrize(
    "own",
    [lambda x: x.conj().resolve_conj(), lambda x: tn.resolve_conj(x.mH), lambda x: x.conj().clone(),
     lambda x: x.conj_physical(), lambda x: copy.deepcopy(x.conj()), lambda x: x.conj() * 1,
     lambda x: pickle.loads(pickle.dumps(x.conj())), lambda x: x.conj().to(tn.complex128)],
)  # fmt: skip
def test_copies_may_be_written(own: Any) -> None:
    x = matrix()
    y = own(x)
    before = y.clone()
    assert tn.equal(y.mul_(2), before * 2) and tn.equal(x, matrix())


def test_where_the_tensor_is_gone_the_conjugate_is_all_there_is() -> None:
    y = (matrix() * 2).conj()
    y[0, 0] = 1
    y.real.mul_(2)
    y += 1
    want = np.array([[3, 13 + 2j], [1 - 8j, 21]])
    want[0, 0] = 2 * 1 + 1
    assert np.array_equal(y.numpy(), want)
    y.numpy()[1, 1] = 0
    assert y[1, 1] == 0
    x = matrix()
    z, part = x.conj(), x[0]
    with pytest.raises(ValueError, match="conj"):
        z.mul_(2)
    assert not z.numpy().flags.writeable
    del x
    with pytest.raises(ValueError, match="conj"):
        z.mul_(2)  # a part of it is there
    del part
    view = z[0]
    z.mul_(2)
    view.mul_(2)
    assert z.tolist() == [[4 - 8j, 12 + 4j], [-8j, 10]] and z.resolve_conj() is z


def test_real_tensors_are_their_own_conjugates() -> None:
    x = tn.ones(2, 2)
    x.conj().mul_(2)
    x.mH[0].mul_(2)
    assert x.tolist() == [[4, 2], [4, 2]]


def test_gradients_of_conjugates_may_be_written() -> None:
    x = matrix().requires_grad_()
    (g,) = tn.autograd.grad(x.conj().abs().sum(), x)
    x.conj().abs().sum().backward()
    assert tn.equal(g.mul_(2), x.grad.mul_(2))
    y = (x * 1).conj()
    y.mul_(2j)
    (h,) = tn.autograd.grad(y.real.sum(), x)
    assert tn.allclose(h, tn.full((2, 2), 2j))


def test_results_of_matrix_functions_may_be_written() -> None:
    x = tn.randn(3, 3, dtype=tn.complex64)
    for made in (*tn.svd(x), tn.linalg.pinv(x), tn.linalg.cholesky(x @ x.mH, upper=True)):
        made.mul_(2)
