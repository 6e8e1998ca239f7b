"""Operators on lists of tensors are the operators on their elements."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn
from tenon._C import _ops
from tenon._tensor import foreach

RNG = np.random.default_rng(3)


def tensors(low: float = 0.5, high: float = 0.9) -> list[tn.Tensor]:
    return [tn.from_numpy(RNG.uniform(low, high, shape)) for shape in ((2, 3), (4,), ())]


@pytest.mark.parametrize("op", foreach.UNARY)
def test_one_list(op: str) -> None:
    xs = tensors()
    want = [getattr(x, op)().tolist() for x in xs]
    got = getattr(tn, f"_foreach_{op}")(xs)
    assert isinstance(got, tuple) and [t.tolist() for t in got] == want
    assert getattr(tn, f"_foreach_{op}_")(xs) is None
    assert [t.tolist() for t in xs] == want


@pytest.mark.parametrize("op", foreach.BINARY)
def test_two_lists_and_numbers(op: str) -> None:
    xs, ys = tensors(), tensors()
    functions = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
                 "pow": np.power, "clamp_min": np.maximum, "clamp_max": np.minimum,
                 "maximum": np.maximum, "minimum": np.minimum}  # fmt: skip
    for others in (ys, [0.6, 0.7, 0.8], 0.75):
        got = getattr(tn, f"_foreach_{op}")(xs, others)
        for i, (x, g) in enumerate(zip(xs, got, strict=True)):
            y = others[i] if isinstance(others, list) else others
            y = y.numpy() if isinstance(y, tn.Tensor) else y
            np.testing.assert_allclose(g.numpy(), functions[op](x.numpy(), y))


def test_three_lists() -> None:
    xs, ys, zs = tensors(), tensors(), tensors()
    for values in (0.5, [0.5, 0.5, 0.5]):
        got = tn._foreach_addcdiv(xs, ys, zs, values)
        for g, x, y, z in zip(got, xs, ys, zs, strict=True):
            np.testing.assert_allclose(g.numpy(), (x + 0.5 * y / z).numpy())
    got = tn._foreach_addcmul(xs, ys, zs, value=2)
    for g, x, y, z in zip(got, xs, ys, zs, strict=True):
        np.testing.assert_allclose(g.numpy(), (x + 2 * y * z).numpy())
    for g, x, y in zip(tn._foreach_lerp(xs, ys, 0.25), xs, ys, strict=True):
        np.testing.assert_allclose(g.numpy(), (x + 0.25 * (y - x)).numpy())


def test_norms_copies_zeros() -> None:
    xs, ys = tensors(), tensors()
    norms = [float(n) for n in tn._foreach_norm(xs, 2)]
    np.testing.assert_allclose(norms, [np.linalg.norm(x.numpy().ravel()) for x in xs])
    tn._foreach_copy_(xs, ys)
    assert all(tn.equal(x, y) for x, y in zip(xs, ys, strict=True))
    tn._foreach_zero_(xs)
    assert all(not x.any() for x in xs)


def test_lists_that_do_not_fit() -> None:
    xs = tensors()
    with pytest.raises(RuntimeError, match="same number of tensors, got 3 and 2"):
        tn._foreach_add(xs, xs[:2])
    with pytest.raises(RuntimeError, match="at least one tensor"):
        tn._foreach_neg([])


def test_changes_by_name() -> None:
    """The operator behind those that change tensors, next to NumPy."""
    names = {
        "fill": lambda x, a, b: np.full_like(x, 0.3), "scale": lambda x, a, b: x * 0.3,
        "divide": lambda x, a, b: x / 0.3, "shift": lambda x, a, b: x + 0.3,
        "copy": lambda x, a, b: a, "add": lambda x, a, b: x + 0.3 * a,
        "mul": lambda x, a, b: x * a, "lerp": lambda x, a, b: x + 0.3 * (a - x),
        "addcmul": lambda x, a, b: x + 0.3 * a * b, "addcdiv": lambda x, a, b: x + 0.3 * a / b,
    }  # fmt: skip
    others = {"copy": 1, "add": 1, "mul": 1, "lerp": 1, "addcmul": 2, "addcdiv": 2}
    for name, formula in names.items():
        xs, ys, zs = tensors(), tensors(), tensors()
        want = [formula(*(t.numpy().copy() for t in some)) for some in zip(xs, ys, zs)]
        count = others.get(name, 0)
        _ops._lists_(xs, ys if count else [], zs if count > 1 else [], name, value=0.3)
        for x, w in zip(xs, want):
            np.testing.assert_allclose(x.numpy(), w, rtol=1e-14)
    with pytest.raises(ValueError, match="no change 'more'"):
        _ops._lists_(tensors(), [], [], "more")
    with pytest.raises(ValueError, match="'add' takes 3 tensors in second"):
        _ops._lists_(tensors(), [], [], "add")


def test_unscaling_by_a_tensor() -> None:
    xs, found = tensors(), tn.zeros(1)
    want = [x.numpy() * 0.25 for x in xs]
    tn._amp_foreach_non_finite_check_and_unscale_(xs, found, tn.tensor(0.25))
    assert found.item() == 0
    for x, w in zip(xs, want):
        np.testing.assert_allclose(x.numpy(), w)


def test_one_result_for_every_tensor() -> None:
    xs = [tn.tensor([1.0, -2.0], requires_grad=True), tn.tensor([[3, 4]]), tn.tensor(True)]
    assert [t.item() for t in tn._foreach_max(xs)] == [1, 4, True]
    copies = tn._foreach_clone(xs)
    assert all(tn.equal(a, b) and a is not b for a, b in zip(xs, copies))
    (copies[0].sum() + tn._foreach_max(xs)[0]).backward()
    assert xs[0].grad.tolist() == [2, 1]
    image = [tn.ones(1, 2, 2, 2)]
    (lies,) = tn._foreach_clone(image, memory_format=tn.channels_last)
    assert lies.is_contiguous(memory_format=tn.channels_last)
    assert tn._foreach_mm([tn.eye(2)], [tn.ones(2, 3)])[0].tolist() == [[1] * 3] * 2
    with pytest.raises(RuntimeError, match="maximum of an empty tensor"):
        tn._foreach_max([tn.ones(0)])
    with pytest.raises(RuntimeError, match="same number of tensors"):
        tn._foreach_mm([tn.eye(2)], [])
