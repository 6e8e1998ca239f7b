"""Copies with a part replaced, copies of views, tensors cut into parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn


def numbers(*shape: int) -> tn.Tensor:
    return tn.arange(int(np.prod(shape)), dtype=tn.float64).reshape(shape)


SCATTERS = {
    "select_scatter": ((1, 2), lambda t: t.select(1, 2)),
    "slice_scatter": ((0, 1, None, 2), lambda t: t[1::2]),
    "diagonal_scatter": ((1,), lambda t: t.diagonal(1)),
    "as_strided_scatter": (((2, 2), (5, 2), 1), lambda t: t.as_strided((2, 2), (5, 2), 1)),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_scatters(name: str) -> None:
    args, view = SCATTERS[name]
    x = numbers(4, 3).requires_grad_()
    src = (-1 - view(numbers(4, 3)).clone() ** 2).requires_grad_()
    want = x.detach().clone()
    view(want).copy_(src.detach())
    got = getattr(tn, name)(x, src, *args)
    assert got.equal(want)
    assert getattr(x, name)(src, *args).equal(want)
    assert x[0, 1].item() == 1  # the input is left alone
    weight = tn.cos(numbers(4, 3)).requires_grad_()
    first = tn.autograd.grad((got**2 * weight).sum(), (x, src), create_graph=True)
    slope = (2 * want * weight).detach()
    assert first[1].equal(view(slope))
    kept = slope.clone()
    view(kept).zero_()
    assert first[0].equal(kept)
    (second,) = tn.autograd.grad(first[1].sum(), src)
    assert second.equal(2 * view(weight.detach()))
    with pytest.raises(RuntimeError, match="slice size"):
        getattr(tn, name)(x, numbers(7), *args)


def test_as_strided_scatter_of_a_part_of_a_storage() -> None:
    x = numbers(12)[4:].reshape(2, 4)
    got = x.as_strided_scatter(tn.zeros(2, dtype=tn.float64), (2,), (2,), 5)
    assert got.tolist() == [[4, 0, 6, 0], [8, 9, 10, 11]]


def test_put() -> None:
    x = numbers(3, 4).requires_grad_()
    source = tn.tensor([[-1.0, -2.0]], dtype=tn.float64, requires_grad=True)
    index = tn.tensor([[1, -2]])
    got = x.put(index, source)
    assert got.tolist() == [[0, -1, 2, 3], [4, 5, 6, 7], [8, 9, -2, 11]]
    (got * numbers(3, 4)).sum().backward()
    assert source.grad.tolist() == [[1, 10]]
    assert x.grad.tolist() == [[0, 0, 2, 3], [4, 5, 6, 7], [8, 9, 0, 11]]
    y = numbers(2, 2).t()
    assert y.put_(tn.tensor([1, 1]), tn.tensor([5.0, 6.0]).double(), accumulate=True) is y
    assert y.tolist() == [[0, 13], [1, 3]]
    with pytest.raises(RuntimeError, match="same dtype"):
        y.put(tn.tensor([1]), tn.tensor([1.0]))
    with pytest.raises(IndexError, match="number of elements"):
        y.put(tn.tensor([1, 0]), tn.ones(1, dtype=tn.float64))
    with pytest.raises(RuntimeError, match="long"):
        y.put(tn.tensor([1.0]), tn.ones(1, dtype=tn.float64))
    with pytest.raises(IndexError):
        y.put(tn.tensor([4]), tn.ones(1, dtype=tn.float64))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce(reduce: str, include_self: bool) -> None:
    rng = np.random.default_rng(0)
    x, source = rng.uniform(1, 2, (3, 4)), rng.uniform(0.5, 3, (3, 5))
    index = np.array([2, 0, 2, 1, 2])
    fn = {"prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min}[reduce]
    want = x.copy()
    for column in set(index.tolist()):
        given = source[:, index == column]
        want[:, column] = fn(np.c_[x[:, column], given] if include_self else given, axis=1)
    args = (1, tn.from_numpy(index), tn.from_numpy(source), reduce)
    got = tn.index_reduce(tn.from_numpy(x), *args, include_self=include_self)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-14)
    target = tn.from_numpy(x.copy())
    assert target.index_reduce_(*args, include_self=include_self) is target
    assert target.equal(got)
    variable = tn.from_numpy(x[:, :3].copy()).requires_grad_()
    assert tn.autograd.gradcheck(
        lambda t: t.index_reduce(0, tn.tensor([0, 2]), tn.from_numpy(source[:2, :3]), reduce),
        (variable,),
    )


def test_index_reduce_refuses_what_does_not_fit() -> None:
    x, index = numbers(3, 4), tn.tensor([0, 1])
    for source, at, how in ((numbers(3, 3), index, "mean"), (numbers(2, 2), index, "mean"),
                            (numbers(3, 2), tn.tensor([[0, 1]]), "mean"),
                            (numbers(3, 2), index, "sum")):  # fmt: skip
        with pytest.raises((RuntimeError, IndexError)):
            x.index_reduce(1, at, source, how)


def test_renorm() -> None:
    x = tn.tensor([[3.0, 4.0], [0.3, 0.4]], dtype=tn.float64, requires_grad=True)
    assert tn.autograd.gradcheck(lambda t: t.renorm(2, 0, 1.0), (x,))
    for bad in ((0.0, 0, 1.0), (2.0, 0, -1.0)):
        with pytest.raises(RuntimeError):
            x.renorm(*bad)
    with pytest.raises(RuntimeError, match="2 dimensions"):
        tn.ones(3).renorm(2, 0, 1.0)


def test_sum_to_size() -> None:
    x = numbers(2, 3, 4).requires_grad_()
    assert x.sum_to_size(3, 1).tolist() == x.sum(0).sum(1, keepdim=True).tolist()
    assert x.sum_to_size((2, 3, 4)) is x or x.sum_to_size((2, 3, 4)).equal(x)
    assert x.sum_to_size(()).item() == x.sum().item()
    x.sum_to_size(1, 4)[0, 1].backward()
    assert x.grad.sum().item() == 6
    for bad in ((2, 4), (1, 2, 3, 4)):
        with pytest.raises(RuntimeError, match="not expandable"):
            x.sum_to_size(bad)


def test_unravel_index() -> None:
    flat = tn.tensor([[0, 5], [11, 23]])
    want = np.unravel_index(flat.numpy(), (2, 3, 4))
    for got, expected in zip(tn.unravel_index(flat, (2, 3, 4)), want, strict=True):
        np.testing.assert_array_equal(got.numpy(), expected)
    assert tn.unravel_index(flat, 24)[0].equal(flat)
    assert isinstance(tn.unravel_index(flat, (2, 3, 4)), tuple)
    assert tn.unravel_index(flat, ()) == ()
    most = 2**63 - 1
    assert [t.tolist() for t in tn.unravel_index(flat, (1, most))] == [
        [[0, 0], [0, 0]],
        flat.tolist(),
    ]
    with pytest.raises(ValueError, match="more places"):
        tn.unravel_index(flat, (2, 4, most))
    with pytest.raises(TypeError, match="integer"):
        tn.unravel_index(tn.tensor([1.0]), (2,))
    with pytest.raises(ValueError, match="negative"):
        tn.unravel_index(flat, (2, -1))


def test_combinations_are_counted_at_once() -> None:
    """One row of 2^40 places has no memory; to find that takes no 2^40 steps."""
    with pytest.raises((MemoryError, RuntimeError)):
        tn.combinations(numbers(1), 2**44, True)
    assert tn.combinations(numbers(300), 299).shape == (300, 299)
    assert tn.combinations(numbers(2), 300, True).shape == (301, 300)


def test_combinations_of_nothing_and_of_too_many() -> None:
    x = numbers(3)
    assert tn.combinations(x, 0).shape == (0,)
    assert tn.combinations(x, 4).shape == (0, 4)
    assert tn.combinations(numbers(0), 2).shape == (0, 2)
    with pytest.raises(RuntimeError, match="1D"):
        tn.combinations(numbers(2, 2))
    with pytest.raises(RuntimeError, match="non-negative"):
        tn.combinations(x, -1)
    with pytest.raises(RuntimeError, match="too many"):
        tn.combinations(numbers(1000), 300)
    with pytest.raises(RuntimeError, match="too many"):
        tn.combinations(numbers(2), 2**63 - 1, True)


def test_empty_permuted() -> None:
    t = tn.empty_permuted((2, 3, 4), (0, 2, 1), dtype=tn.int8)
    assert (t.shape, t.stride(), t.dtype) == ((2, 3, 4), (12, 1, 3), tn.int8)
    for layout in ((0, 1), (0, 1, 3), (0, 1, 1)):
        with pytest.raises(RuntimeError):
            tn.empty_permuted((2, 3, 4), layout)


@pytest.mark.parametrize("name", ["hsplit", "vsplit", "dsplit"])
@pytest.mark.parametrize("how", [2, [1, 3], (2,), []])
def test_splits(name: str, how: Any) -> None:
    x = numbers(4, 6, 2) if name != "dsplit" else numbers(2, 3, 4)
    want = getattr(np, name)(x.numpy(), how)
    for got in (getattr(tn, name)(x, how), getattr(x, name)(how)):
        assert [g.tolist() for g in got] == [w.tolist() for w in want]
        assert all(g._base is x for g in got) or got[0].data_ptr() == x.data_ptr()


def test_splits_refuse_what_does_not_fit() -> None:
    for name, x in (("hsplit", tn.tensor(1)), ("vsplit", numbers(3)), ("dsplit", numbers(3, 3))):
        with pytest.raises(RuntimeError, match="at least"):
            getattr(tn, name)(x, 1)
    for name in ("hsplit", "vsplit", "dsplit"):
        for sections in (0, 2):
            with pytest.raises(RuntimeError, match="not divisible"):
                getattr(tn, name)(numbers(3, 3, 3), sections)
    assert [p.tolist() for p in tn.hsplit(numbers(4), 2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("name", ["atleast_1d", "atleast_2d", "atleast_3d"])
def test_atleast_of_several(name: str) -> None:
    f = getattr(tn, name)
    parts = (tn.tensor(1.0), numbers(2), numbers(2, 3))
    want = [getattr(np, name)(p.numpy()) for p in parts]
    for got in (f(parts), f(list(parts)), f(*parts)):
        assert isinstance(got, tuple)
        assert [g.tolist() for g in got] == [w.tolist() for w in want]
    assert isinstance(f(parts[0]), tn.Tensor)


COPIES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("alias_copy", (), lambda t: t),
    ("detach_copy", (), lambda t: t.detach()),
    ("as_strided_copy", ((2, 2), (3, 1), 1), lambda t: t.as_strided((2, 2), (3, 1), 1)),
    ("diagonal_copy", (1,), lambda t: t.diagonal(1)),
    ("expand_copy", ((2, 3, 4),), lambda t: t.expand(2, 3, 4)),
    ("permute_copy", ((1, 0),), lambda t: t.permute(1, 0)),
    ("select_copy", (1, 2), lambda t: t.select(1, 2)),
    ("slice_copy", (1, 0, 4, 2), lambda t: t[:, 0:4:2]),
    ("squeeze_copy", (), lambda t: t.squeeze()),
    ("squeeze_copy", (0,), lambda t: t.squeeze(0)),
    ("squeeze_copy", ((0, 1),), lambda t: t.squeeze((0, 1))),
    ("t_copy", (), lambda t: t.t()),
    ("transpose_copy", (0, 1), lambda t: t.transpose(0, 1)),
    ("unfold_copy", (1, 2, 1), lambda t: t.unfold(1, 2, 1)),
    ("unsqueeze_copy", (1,), lambda t: t.unsqueeze(1)),
    ("view_copy", ((2, 6),), lambda t: t.view(2, 6)),
    ("view_copy", (tn.int64,), lambda t: t.view(tn.int64)),
    ("narrow_copy", (1, 1, 2), lambda t: t.narrow(1, 1, 2)),
    ("view_as_complex_copy", (), lambda t: tn.view_as_complex(t)),
    ("view_as_real_copy", (), lambda t: tn.view_as_real(t)),
]


@pytest.mark.parametrize(("name", "args", "view"), COPIES)
def test_copies_of_views(name: str, args: tuple[Any, ...], view: Any) -> None:
    x = numbers(3, 2) if "complex" in name else numbers(3, 4)
    x = tn.complex(x, x + 1) if "as_real" in name else x
    got = getattr(tn, name)(x, *args)
    assert got.equal(view(x))
    assert got.data_ptr() != x.data_ptr()
    out = tn.empty_like(got)
    assert getattr(tn, name)(x, *args, out=out) is out
    assert out.equal(got)


LISTS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("unbind_copy", (1,), lambda t: t.unbind(1)),
    ("split_copy", (2,), lambda t: t.split(2)),
    ("unsafe_split", (2,), lambda t: t.split(2)),
    ("split_with_sizes_copy", ((1, 2),), lambda t: t.split((1, 2))),
    ("unsafe_split_with_sizes", ((1, 2),), lambda t: t.split((1, 2))),
    ("unsafe_chunk", (2, 1), lambda t: t.chunk(2, 1)),
]


@pytest.mark.parametrize(("name", "args", "view"), LISTS)
def test_copies_of_parts(name: str, args: tuple[Any, ...], view: Any) -> None:
    x = numbers(3, 4).requires_grad_()
    got = getattr(tn, name)(x, *args)
    assert [g.tolist() for g in got] == [v.tolist() for v in view(x)]
    got[0].mul_(2)  # which a view that came with others would not allow
    got[0].sum().backward()
    assert x.detach().equal(numbers(3, 4))
    assert x.grad.sum().item() == 2 * got[0].numel()


def test_parts_of_nothing() -> None:
    for each in (1, 2):
        assert [p.shape for p in numbers(0).split(each)] == [(0,)]


def test_positive_is_its_input() -> None:
    x = numbers(3)
    assert x.positive().data_ptr() == x.data_ptr()


def test_fill_makes_a_new_tensor() -> None:
    x = numbers(2, 2).requires_grad_()
    assert tn.fill(x, 7).tolist() == [[7, 7], [7, 7]]
    value = tn.tensor(3.0, dtype=tn.float64, requires_grad=True)
    tn.fill(x, value).sum().backward()
    assert value.grad.item() == 4
    assert x.grad.tolist() == [[0, 0], [0, 0]]
    assert x[1, 1].item() == 3


def test_functions_that_write_their_argument() -> None:
    x = tn.ones(3)
    assert tn.zero_(x) is x or x.tolist() == [0, 0, 0]
    tn.fill_(x, 2)
    assert x.tolist() == [2, 2, 2]
    tn.index_put_(x, (tn.tensor([1]),), tn.tensor(5.0))
    assert x.tolist() == [2, 5, 2]


def test_as_strided_in_place() -> None:
    x = numbers(3, 4)
    assert x.as_strided_((2, 2), (4, 1), 1) is x
    assert x.tolist() == [[1, 2], [5, 6]]
    assert tn.as_strided_(numbers(4), (2,), (2,)).tolist() == [0, 2]


def test_gradients_of_as_strided_without_elements_take_no_time() -> None:
    x = tn.ones(0, 3, requires_grad=True)
    y = x.as_strided((2**40, 0, 2**40, 1, 1), (2, 2, 2, 1, 0), 2)
    y.sum().backward()
    assert x.grad.shape == (0, 3)


def test_ends_in_tensors() -> None:
    low, high = tn.tensor(1.0), tn.tensor(3)
    assert tn.linspace(low, high, 3).tolist() == [1, 2, 3]
    assert tn.linspace(low, 3, 3).tolist() == [1, 2, 3]
    assert tn.linspace(tn.tensor(1.0, requires_grad=True), high, 3).tolist() == [1, 2, 3]
    assert tn.logspace(low, high, 3, base=2).tolist() == [2, 4, 8]
    assert tn.logspace(low.requires_grad_(), high, 3, base=2).tolist() == [2, 4, 8]
    for f in (tn.linspace, tn.logspace):
        with pytest.raises(RuntimeError, match="0-dimensional"):
            f(tn.ones(2), high, 3)


def test_diff_with_ends() -> None:
    x = numbers(4)
    assert tn.diff(x, 1, 0, None, None).tolist() == [1, 1, 1]
    assert tn.diff(x, prepend=tn.tensor([-5.0]).double()).tolist() == [5, 1, 1, 1]
    assert x.diff(append=tn.tensor([7.0]).double()).tolist() == [1, 1, 1, 4]
    assert tn.diff(x, 0, prepend=x).equal(x)


def test_what_has_too_few_dimensions_is_not_turned_over() -> None:
    for f, least, x in ((tn.flipud, 1, tn.tensor(1.0)), (tn.fliplr, 2, tn.ones(3))):
        with pytest.raises(RuntimeError, match=f">= {least}-d"):
            f(x)
