"""Indexing: x[...] and x[...] = v against NumPy and, where it differs from NumPy, PyTorch."""

from __future__ import annotations

import gc
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tenon

np = pytest.importorskip("numpy")

BASIC = [
    "0", "-1", "3", "slice(None)", "slice(1, 3)", "slice(None, None, 2)", "slice(-3, None)",
    "slice(2, 1)", "slice(0, 100)", "...", "None", "(0, 1)", "(0, 1, 2)", "(-1, -1, -1)",
    "(slice(None), 0)", "(slice(None), slice(1, 2), 3)", "(..., 0)", "(0, ...)", "(0, ..., 1)",
    "(None, 0, None)", "(slice(1, None), None, ..., slice(None, -1))", "()", "(..., None)",
    "slice(None, None, -1)", "(slice(None), slice(4, 0, -2))", "(0, slice(None, None, -3))",
    "np.int64(2)", "(slice(3, 3), 0)",
]  # fmt: skip
ADVANCED = [
    "[0, 2]", "np.array([[0, 1], [2, 3]])", "np.array([3, 0, 0])", "(slice(None), [0, 2])",
    "(slice(None), slice(None), [1, 0, 1])", "([0, 1], [1, 2])", "([0, 1], slice(None), [1, 2])",
    "(slice(None), [0, 1], [2, 3])", "([[0], [1]], [0, 1, 2])", "(..., [0, 1])",
    "(None, [0, 1])", "([0, 1], None)", "np.array([True, False, True, True])",
    "(slice(None), np.array([True, False, True, False, True]))", "[-1, -2]",
    "np.arange(4 * 5).reshape(4, 5) % 3 == 0", "(np.arange(4 * 5).reshape(4, 5) % 3 == 0, 1)",
    "([0, 3], np.array([True, False, True, False, False]))", "True", "False",
    "(True, 0)", "[]", "([1], slice(1, 3), [0])", "[True, False, False, True]",
    "np.zeros((0,), dtype=np.int64)", "(slice(None), [[0, 1], [1, 2]], 2)",
]  # fmt: skip


def make() -> tuple:
    a = np.arange(4 * 5 * 6, dtype=np.float32).reshape(4, 5, 6)
    return a, tenon.tensor(a)


def key_of(text: str):
    return eval(text, {"np": np})


def as_ours(key):
    """The same index with arrays as tensors."""
    if isinstance(key, tuple):
        return tuple(as_ours(k) for k in key)
    return tenon.tensor(key) if isinstance(key, np.ndarray) else key


@pytest.mark.parametrize("text", BASIC + ADVANCED)
def test_get(text):
    a, x = make()
    key = key_of(text)
    for index in (key, as_ours(key)):
        got = x[index]
        want = a[key]
        assert tuple(got.shape) == np.shape(want)
        assert np.array_equal(got.numpy(), want)


@pytest.mark.parametrize("text", BASIC + ADVANCED)
def test_set_number(text):
    a, x = make()
    key = key_of(text)
    if "-1)" in text and "None, None, -" in text or "-2)" in text or "-3)" in text:
        pytest.skip("a negative step cannot be assigned to")
    a[key] = 7
    x[as_ours(key)] = 7
    assert np.array_equal(x.numpy(), a)


@pytest.mark.parametrize("text", BASIC + ADVANCED)
def test_set_values(text):
    a, x = make()
    key = key_of(text)
    if "-1)" in text and "None, None, -" in text or "-2)" in text or "-3)" in text:
        pytest.skip("a negative step cannot be assigned to")
    values = -np.arange(max(1, a[key].size), dtype=np.float32)[: a[key].size].reshape(a[key].shape)
    a[key] = values
    x[key] = tenon.tensor(values)
    assert np.array_equal(x.numpy(), a)


def random_part(rng: random.Random, size: int):
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randrange(-size, size)
    if kind == 1:
        start, stop = sorted((rng.randrange(-size, size), rng.randrange(-size, size + 2)))
        return slice(start, stop, rng.choice([None, 1, 2]))
    if kind == 2:
        return None
    if kind == 3:
        return slice(None)
    if kind == 4:
        return [rng.randrange(-size, size) for _ in range(3)]
    return np.array(rng.choices([True, False], k=size))


def test_random_against_torch():
    torch = pytest.importorskip("torch")
    rng = random.Random(0)
    for _ in range(600):
        shape = [rng.randrange(1, 5) for _ in range(rng.randrange(1, 5))]
        a = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
        x, y = tenon.tensor(a), torch.tensor(a)
        ours, theirs, dim = [], [], 0
        while dim < len(shape) and rng.random() < 0.85:
            part = random_part(rng, shape[dim])
            dim += part is not None
            ours.append(tenon.tensor(part) if isinstance(part, np.ndarray) else part)
            theirs.append(torch.tensor(part) if isinstance(part, np.ndarray) else part)
        if rng.random() < 0.3:
            at = rng.randrange(len(ours) + 1)
            ours.insert(at, ...)
            theirs.insert(at, ...)
            ours, theirs = ours[: at + 1], theirs[: at + 1]
        try:
            want = y[tuple(theirs)]
        except IndexError:
            with pytest.raises(IndexError):
                x[tuple(ours)]
            continue
        got = x[tuple(ours)]
        assert tuple(got.shape) == tuple(want.shape), (shape, theirs)
        assert got.tolist() == want.tolist(), (shape, theirs)
        x[tuple(ours)] = -1.0
        y[tuple(theirs)] = -1.0
        assert x.tolist() == y.tolist(), (shape, theirs)


def test_views_share_memory():
    _, x = make()
    for view in (x[0], x[1:3], x[..., 0], x[None], x[()], x[...]):
        assert view._storage_ptr() == x._storage_ptr()
        view.fill_(1)
    assert x[0].sum() == x[0].numel()
    assert x[[0]]._storage_ptr() != x._storage_ptr()


def test_gradient_flows_through_indexing():
    x = tenon.arange(12.0).view(3, 4).requires_grad_()
    (x[0].sum() + 2 * x[:, 1].sum() + 3 * x[[2, 2], [0, 3]].sum()).backward()
    want = np.zeros((3, 4))
    want[0] += 1
    want[:, 1] += 2
    want[2, 0] += 3
    want[2, 3] += 3
    assert np.array_equal(x.grad.numpy(), want)


def test_gradient_of_assignment():
    x = tenon.ones(3, 4, requires_grad=True)
    v = tenon.ones(4, requires_grad=True)
    y = x * 2
    y[1] = v * 3
    y.sum().backward()
    assert x.grad.tolist() == [[2.0] * 4, [0.0] * 4, [2.0] * 4]
    assert v.grad.tolist() == [3.0] * 4


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (4, IndexError),
        (-5, IndexError),
        ((0, 5), IndexError),
        ((0, 0, 0, 0), IndexError),
        ((..., ...), IndexError),
        ([4], IndexError),
        ([-5], IndexError),
        ("a", TypeError),
        (1.5, IndexError),
        ({}, IndexError),
        pytest.param(object(), IndexError, id="object"),
        (slice(None, None, 0), ValueError),
        (slice(1.5), TypeError),
        (2**70, (IndexError, ValueError)),
        (([[1], [2, 3]],), (ValueError, TypeError)),
        (np.array([True, False]), IndexError),
    ],
    ids=str,
)
def test_errors(key, error):
    _, x = make()
    before = x.clone()
    with pytest.raises(error):
        x[key]
    with pytest.raises(error):
        x[key] = 0
    assert tenon.equal(x, before)


def test_bad_values():
    _, x = make()
    for value in ("a", object(), tenon.ones(7), [1, 2, 3, 4, 5, 6, 7]):
        with pytest.raises((TypeError, RuntimeError, ValueError)):
            x[0] = value
    with pytest.raises(TypeError):
        del x[0]


def test_no_leak():
    _, x = make()
    index = tenon.tensor([0, 1])

    def work() -> None:
        for _ in range(200):
            x[0], x[1:2, None], x[index], x[..., [0]]
            x[index] = 1.0
            try:
                x[9]
            except IndexError:
                pass

    work()
    gc.collect()
    before = sys.getrefcount(index), sys.getrefcount(x), len(gc.get_objects())
    work()
    gc.collect()
    after = sys.getrefcount(index), sys.getrefcount(x), len(gc.get_objects())
    assert before[:2] == after[:2]
    assert after[2] - before[2] < 50


def test_subclass_of_int_and_zero_dim():
    _, x = make()

    class Odd:
        def __index__(self) -> int:
            return 2

    assert x[Odd()].tolist() == x[2].tolist()
    assert x[tenon.tensor(2)].tolist() == x[2].tolist()
    zero = tenon.tensor(5.0)
    assert zero[()].item() == zero[...].item() == 5.0
    assert zero[None].shape == (1,)
    assert zero[True].shape == (1,)
    with pytest.raises(IndexError):
        zero[0]


def test_empty_tensors_keep_their_offset() -> None:
    base = tenon.arange(10.0)
    for source, offset in ((base[4:4], 4), (base[10:], 10)):
        assert tenon.zeros(3).set_(source).storage_offset() == offset
    assert tenon.zeros(3).set_(base, 7, (0, 2)).storage_offset() == 7


def test_reversed():
    assert list(reversed(tenon.arange(3))) == [2, 1, 0]
    assert reversed(tenon.tensor([[1, 2], [3, 4]])).tolist() == [[3, 4], [1, 2]]
    assert reversed(tenon.tensor(5)).item() == 5


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ((2,), "index 2 is out of bounds for dimension 0 with size 2"),
        ((0, 3), "index 3 is out of bounds for dimension 1 with size 3"),
        ((0, 0, -5), "index -5 is out of bounds for dimension 2 with size 4"),
        ((slice(None), 0, 9), "index 9 is out of bounds for dimension 2 with size 4"),
        (
            (tenon.tensor(0), tenon.tensor(5)),
            "index 5 is out of bounds for dimension 1 with size 3",
        ),
    ],
    ids=str,
)
def test_an_error_names_the_place_in_the_index(index: object, words: str) -> None:
    x = tenon.zeros(2, 3, 4)
    with pytest.raises(IndexError, match=words):
        x[index]
    with pytest.raises(IndexError, match=words):
        x[index] = 1


def test_strides_that_nobody_walks() -> None:
    """Those of a tensor without elements may have more bytes than a number holds."""
    empty = tenon.empty(0, 2**31, 2**31)
    assert empty.stride() == (2**62, 2**31, 1)
    assert empty.tolist() == [] and memoryview(empty).strides == (0, 0, 0)
    assert empty.nonzero().shape == (0, 3)
    assert empty[tenon.zeros(0, dtype=tenon.int64)].shape == empty.shape
    assert tenon.empty(2**31, 2**31, 0)[:0].index_select(1, tenon.tensor([5])).shape == (0, 1, 0)
    assert empty.normal_().bernoulli_(0.5).tril().numel() == 0
    assert empty.argmax(1).shape == (0, 2**31) and empty.sum().item() == 0
    index = tenon.zeros(0, 2**31, 2**31, dtype=tenon.int64)
    assert empty.gather(0, index).shape == empty.shape
    assert empty.scatter_add_(2, index, empty).shape == empty.shape


@pytest.mark.parametrize("way", [lambda a: a, lambda a: (a,), lambda a: [0, a], lambda a: (..., a)])
def test_a_list_in_itself_is_no_index(way: Callable[[Any], Any]) -> None:
    endless: list[Any] = []
    endless.append(endless)
    x = tenon.zeros(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a list is taken as a tuple
        with pytest.raises((ValueError, IndexError), match="too many"):
            x[way(endless)]
        with pytest.raises((ValueError, IndexError), match="too many"):
            x[way(endless)] = 1


OVERLAPPING = [
    ("1", "(1, 0)"), ("1", "(1, slice(1, 2))"), ("slice(None)", "1"), ("...", "(0, 2)"),
    ("slice(1, None)", "(1, slice(0, 1))"), ("(slice(None), slice(1, None))", "(0, 2)"),
    ("(1, slice(None, None, 2))", "(1, 1)"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "source"), OVERLAPPING)
def test_a_part_of_a_tensor_fills_a_larger_one(place, source):
    """The value is what stood there before the assignment, and so is its gradient's way."""
    place, source = eval(place), eval(source)
    want = np.arange(6.0).reshape(2, 3)
    x = tenon.tensor(want, requires_grad=True)
    y = x * 1
    y[place] = y[source]
    want[place] = want[source].copy()
    assert y.tolist() == want.tolist()
    (y * tenon.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).sum().backward()
    grad = np.zeros(6)
    for i, weight in zip(want.ravel().astype(int), range(1, 7)):
        grad[i] += weight
    assert x.grad.flatten().tolist() == grad.tolist()


@pytest.mark.parametrize("key", [slice(None), (slice(None), 0), ..., slice(None, None, 2)])
@pytest.mark.parametrize("value", [5, 2.5, True, tenon.tensor(4.0)])
def test_elements_that_share_a_place_take_no_value(key: Any, value: Any) -> None:
    once = tenon.zeros(1, 2)
    many = once.expand(3, 2)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        many[key] = value
    assert once.tolist() == [[0.0, 0.0]]
    many[1] = value
    assert once.tolist() == [[float(value)] * 2]
