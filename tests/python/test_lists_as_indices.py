"""Lists that mean a tuple in x[...], as PyTorch takes them, and results that are no views."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import stored
import tenon

KEYS = """
[[0, 1], [1, 2]]
[(0, 1), (1, 2)]
[[0, 1]]
[[]]
[]
[0, 1]
[True, False]
[tensor([0, 1])]
[tensor([0, 1]), tensor([0, 1])]
[tensor(0), 1]
[tensor([True, False]), 0]
[np.array([0, 1]), np.array([1, 2])]
[np.int64(0), np.int64(1)]
np.array([[0, 1], [1, 1]])
[0, None]
[None]
[Ellipsis, 0]
[slice(None), slice(0, 2)]
[slice(0, 1)] * 3
[slice(0, 1)] * 4
[slice(None), tensor([0, 1]), 0]
[0, [1, 2]]
[range(2)]
range(2)
[[0]] * 31
[[0]] * 32
[0] * 40
([0, 1], [1, 2])
([0, 1],)
""".strip().split("\n")


@pytest.mark.parametrize("key", KEYS)
def test_as_pytorch_takes_them(key):
    def run(lib):
        x = lib.arange(24.0).view(2, 3, 4)
        index = eval(key, {"tensor": lib.tensor, "np": np})
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                read = x[index].clone()
                x[index] = -1.0
            except Exception as err:
                return type(err).__name__
        return [read, x, len(told)]

    stored.same(run(tenon), stored.of_torch(run), 0)


def test_a_warning_that_is_an_error():
    x = tenon.arange(6.0).view(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="non-tuple sequence"):
            x[[slice(None), 0]]
        with pytest.raises(UserWarning):
            x[[slice(None), 0]] = 7.0
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_products_are_no_views():
    x = tenon.randn(2, 3, 4, 4, requires_grad=True)
    for result in (x @ x, tenon.nn.functional.linear(x, x[0, 0]), tenon.einsum("abij,abjk", x, x)):
        assert not result._is_view() and result._base is None
        result.detach_()
        assert result.is_leaf
    y = x @ x.detach()
    y[0].mul_(3.0)
    y.sum().backward()
    want = x.detach().sum(-1)[:, :, None].expand(2, 3, 4, 4) * tenon.tensor([3.0, 1]).view(
        2, 1, 1, 1
    )
    assert x.grad.allclose(want)
    z = x.view(6, 16)
    assert z._is_view() and z._base is x and x.flatten(0, 1)._base is x


def test_types_of_sparse_tensors():
    def run(lib):
        place, values = lib.tensor([[0, 1], [1, 2]]), lib.tensor([3.0, 4.0])
        kind = lib.sparse.FloatTensor
        made = [kind(place, values, lib.Size([2, 3])), kind(place, values), kind(2, 3), kind()]
        made += [kind(lib.Size([2, 2])), lib.sparse.DoubleTensor(2)]
        found = [[list(m.shape), m._nnz(), m.type().split(".", 1)[1]] for m in made]
        x = made[0]
        found.append([isinstance(t, k) for t in (x, values) for k in (kind, lib.FloatTensor)])
        found.append([isinstance(x, lib.sparse.DoubleTensor), str(kind).split(".", 1)[1]])
        found.append(x.type(lib.sparse.DoubleTensor).to_dense())
        return found

    stored.same(run(tenon), stored.of_torch(run), 0)
