"""Views under vmap: writes through them arrive in the mapped tensor, as in a loop over elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.func import grad, vmap

VIEWS: dict[str, Callable[[tn.Tensor], Any]] = {
    "diagonal": lambda x: x.diagonal(),
    "upper diagonal": lambda x: x.diagonal(1),
    "squeeze": lambda x: x[:, :1].squeeze(),
    "squeeze of one": lambda x: x[:1].squeeze(0),
    "tensor_split": lambda x: x.tensor_split(3, 1)[1],
    "hsplit": lambda x: x.hsplit([1])[1],
    "vsplit": lambda x: x.vsplit([1])[0],
    "unfold": lambda x: x.unfold(0, 2, 2),
    "unflatten": lambda x: x.unflatten(1, (2, 2))[:, 1],
    "view as bits": lambda x: x.view(tn.int64)[0],
    "t": lambda x: x.t()[1],
    "narrow": lambda x: x.narrow(1, 1, 2),
}


def data() -> tn.Tensor:
    return (tn.arange(48, dtype=tn.float64).reshape(3, 4, 4) + 1) / 8


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("name", VIEWS)
def test_writes_arrive(name: str, dim: int) -> None:
    whole, each = data(), data()

    def write(x: tn.Tensor) -> tn.Tensor:
        VIEWS[name](x).zero_()
        return x.sum()

    sums = vmap(write, in_dims=dim)(whole)
    for i in range(each.shape[dim]):
        VIEWS[name](each.select(dim, i)).zero_()
    assert (each == 0).any()
    np.testing.assert_array_equal(whole.numpy(), each.numpy())
    np.testing.assert_allclose(
        sums.numpy(), [float(each.select(dim, i).sum()) for i in range(each.shape[dim])]
    )


@pytest.mark.parametrize(
    "name", [n for n in VIEWS if n not in ("view as bits", "tensor_split", "hsplit", "vsplit")]
)
def test_gradients_through_written_views(name: str) -> None:
    def loss(x: tn.Tensor) -> tn.Tensor:
        y = x * 2
        VIEWS[name](y).mul_(3)
        return (y**2).sum() + (VIEWS[name](x) ** 3).sum()

    x = data()
    found = vmap(grad(loss))(x)
    for i in range(3):
        leaf = x[i].clone().requires_grad_()
        loss(leaf).backward()
        np.testing.assert_allclose(found[i].numpy(), leaf.grad.numpy())


def test_nested_maps_write_too() -> None:
    whole = tn.stack([data(), data()])

    def write(x: tn.Tensor) -> tn.Tensor:
        x.diagonal().zero_()
        return x.sum()

    vmap(vmap(write), in_dims=1)(whole)
    assert int((whole == 0).sum()) == 24


def test_parts_of_complex_numbers() -> None:
    z = tn.view_as_complex(data().reshape(3, 4, 2, 2).contiguous())
    pairs = vmap(tn.view_as_real)(z)
    assert pairs._storage_id() == z._storage_id()
    vmap(lambda v: tn.view_as_real(v).zero_())(z)
    assert not z.any()


@pytest.mark.parametrize(
    "name, shapes",
    [("mm", ((3, 2), (3, 2))), ("mm", ((3, 4, 2, 2), (3, 2, 2))), ("dot", ((3, 2, 2), (3, 2, 2))),
     ("mv", ((3, 2, 2), (3, 2, 2))), ("bmm", ((3, 1, 2, 2), (3, 4, 2, 2)))],
)  # fmt: skip
def test_products_take_what_they_take_of_an_element(name: str, shapes: Any) -> None:
    with pytest.raises(RuntimeError):
        vmap(getattr(tn, name))(*(tn.ones(*s) for s in shapes))


def test_a_view_that_an_element_does_not_have_is_refused() -> None:
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        vmap(lambda x: x.t().view(-1))(data())
