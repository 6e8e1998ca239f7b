"""Functions made of others: what their samples in the op table do not reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn
from both import both

RNG = np.random.default_rng(5)
NAN, INF = float("nan"), float("inf")
HOLES = np.array([[1, NAN, 3, 2], [5, 4, NAN, NAN], [NAN, NAN, NAN, NAN]])

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "nanquantile": (
        lambda m, x, q: m.nanquantile(x, q, dim=1), (HOLES[:2], np.array([0.3, 1.0])),
        np.nanquantile(HOLES[:2], [0.3, 1.0], axis=1),
    ),
    "nanquantile of nothing": (
        lambda m, x: m.nanquantile(x, 0.5, 1), (HOLES,), np.array([2, 4.5, NAN]),
    ),
    "quantile of NaN": (
        lambda m, x: m.quantile(x, 0.0, 1, True), (HOLES,), np.full((3, 1), NAN),
    ),
    "quantile, dim in the middle": (
        lambda m, x, q: m.quantile(x, q, 1),
        (x := RNG.normal(size=(2, 5, 3)), q := RNG.random(4)),
        np.quantile(x, q, axis=1),
    ),
    "quantile, all, kept": (
        lambda m, x, q: m.quantile(x, q, keepdim=True), (x, q), np.quantile(x, q, keepdims=True),
    ),
    "logaddexp of infinities": (
        lambda m, x, y: m.logaddexp(x.detach(), y.detach()),
        (np.array([INF, -INF, 1.0]), np.array([INF, -INF, -INF])), np.array([INF, -INF, 1.0]),
    ),
    "xlogy of zeros": (
        lambda m, x, y: m.xlogy(x, y), (np.array([0.0, 0.0, 2.0]), np.array([0.0, NAN, 1.0])),
        np.array([0.0, NAN, 0.0]),
    ),
    "cov with weights": (
        lambda m, x, f, a: m.cov(x, fweights=f, aweights=a.detach()),
        (x := RNG.normal(size=(3, 4)), f := np.array([1, 2, 1, 3]), a := RNG.uniform(1, 2, 4)),
        np.cov(x, fweights=f, aweights=a),
    ),
    "signbit": (
        lambda m, x: m.signbit(x), (np.array([0.0, -0.0, -INF, 2.0]),),
        np.array([False, True, True, False]),
    ),
    "cdist of equal rows": (
        lambda m, x: m.cdist(x, x.detach()), (x := RNG.normal(size=(3, 4)),),
        np.linalg.norm(x[:, None] - x, axis=-1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str) -> None:
    fn, arrays, want = CASES[name]
    # distances of second order at equal points are not defined, nor are gradients of NaN
    smooth = not any(np.isnan(a).any() for a in arrays) and "equal" not in name
    both(fn, *arrays, grad=smooth, want=None if want is None else [want])


def test_cross_takes_the_first_dimension_of_three() -> None:
    x, y = RNG.normal(size=(2, 3, 3)), RNG.normal(size=(1, 3, 3))
    got = tn.cross(tn.from_numpy(x), tn.from_numpy(y))
    np.testing.assert_allclose(got.numpy(), np.cross(x, np.broadcast_to(y, x.shape), axis=1))


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda m, x: m.quantile(x, 1.5), r"must be in the range \[0, 1\]"),
        (lambda m, x: m.quantile(x, 0.5, interpolation="odd"), "interpolation"),
        (lambda m, x: m.quantile(x[:0], 0.5), "non-empty"),
        (lambda m, x: m.cov(x.reshape(1, 2, 2)), "two or fewer dimensions"),
        (lambda m, x: m.cross(x, x), "no dimension of size 3 in input"),
        (lambda m, x: m.trapezoid(x, x[:3]), "one `x` value for each sample"),
        (lambda m, x: m.complex(x, x.float()), "Expected"),
    ],
)
def test_failures(fn: Callable[..., Any], words: str) -> None:
    with pytest.raises((RuntimeError, TypeError, IndexError), match=words):
        fn(tn, tn.from_numpy(RNG.normal(size=4)))


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_rounded_quotients_have_the_dtype_of_both(mode: str) -> None:
    rounded = {"floor": np.floor, "trunc": np.trunc}[mode]
    kinds = ["uint8", "int32", "int64", "float32", "float64"]
    for mine in kinds:
        for other in kinds:
            a, b = np.array([7, 9, 250]).astype(mine), np.array([2, 4, 7]).astype(other)
            if mine[0] != "u":
                a = -a
            want = rounded(a.astype(float) / b)
            for x, y in ((tn.from_numpy(a), tn.from_numpy(b)), (tn.from_numpy(a), b[1].item())):
                got = tn.div(x, y, rounding_mode=mode)
                assert got.dtype is tn.result_type(x, y), (mine, other)
                exact = want if isinstance(y, tn.Tensor) else rounded(a.astype(float) / b[1])
                assert got.tolist() == exact.tolist(), (mine, other)


def test_the_modulus_of_complex_numbers_in_place() -> None:
    x = tn.tensor([3 + 4j])
    with pytest.raises(RuntimeError, match="In-place abs is not supported for complex tensors"):
        x.abs_()
    assert x.tolist() == [3 + 4j] and tn.abs(x, out=tn.empty(1)).tolist() == [5]
    assert tn.tensor([-3]).abs_().tolist() == [3]
