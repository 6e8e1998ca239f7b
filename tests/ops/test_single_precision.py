"""Errors of float32 functions in units of the last place, over the whole range of their arguments,
and that an element's result does not depend on its neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn
from table import Case, as_array, call, entries, reference, tensor_args

F = tn.nn.functional


# Places in which operators of one tensor are off at most, where that is more than one.
PLACES = {
    "erf": 1.2, "erfc": 3.2, "lgamma": 2.2, "acosh": 2, "sigmoid": 2, "rsqrt": 2, "asinh": 2,
    "atanh": 2, "expm1": 1.7, "softplus": 1.7, "log_sigmoid": 1.7, "sinh": 1.6, "cosh": 1.6,
    "hardsigmoid": 1.5, "hardswish": 2, "silu": 2.5, "mish": 2.5, "round": 12,
    "special_entr": 1.7, "special_ndtr": 2.5,
}  # fmt: skip
LARGEST = {"hardswish": 1e36, "round": 1e34, "special_bessel_j0": 10, "special_bessel_j1": 10,
           "silu": 80, "mish": 80}  # fmt: skip


def of_one_tensor(row: dict[str, Any]) -> bool:
    tensors = [a for a in row["args"] if a["type"].startswith(("Tensor", "Operand"))]
    return row["kind"] == "pointwise" and "float32" in row["dtypes"] and len(tensors) == 1


@pytest.mark.parametrize(
    "row", [r for r in entries() if of_one_tensor(r)], ids=lambda row: row["name"]
)
def test_every_size_of_argument(row: dict[str, Any]) -> None:
    """Formulas of one float against their references, to the last place. A new operator is covered
    without being named here."""
    name = row["args"][0]["name"]
    low, high = row["domain"].get(name) or (-3e38, 3e38)
    x = spread(min(max(-low, high), LARGEST.get(row["name"], 3e38)), 4000)
    x = x[(x >= low) & (x <= high)]
    for sample in row["samples"]:
        case = Case(row, "float32", {**sample, name: x})
        want = np.asarray(reference(case))
        got = as_array(call(row, tensor_args(case)))
        if want.dtype.kind == "f" and got.dtype == np.float32:
            kept = np.isfinite(want) & (np.abs(want) < 3e38)
            places = last_places(got[kept].astype(np.float64), want[kept], 1.2e-38)
            assert places <= PLACES.get(row["name"], 1.05), case.label()


def spread(largest: float, count: int = 6000) -> np.ndarray:
    """Floats of every size up to `largest`, of both signs."""
    bits = np.linspace(1, np.float32(largest).view(np.int32), count).astype(np.int32)
    x = bits.view(np.float32)
    return np.concatenate([x, -x])


def last_places(found: np.ndarray, exact: np.ndarray, least: float) -> float:
    """The largest error, where a place is that of `least` at least."""
    unit = np.spacing(np.maximum(np.abs(exact), least).astype(np.float32)).astype(np.float64)
    return float((np.abs(found - exact) / unit).max())


def gelu(x: float) -> float:
    return x * 0.5 * math.erfc(-x / math.sqrt(2))


def slope(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2)) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def test_gelu_keeps_its_digits_in_the_tail() -> None:
    x = spread(13.1)
    exact = np.array([gelu(float(v)) for v in x])
    assert last_places(F.gelu(tn.tensor(x)).numpy(), exact, 1.2e-38) < 3
    tiny = np.outer([1, -1], 1.25 * np.exp2(np.arange(-149, -9))).ravel().astype(np.float32)
    exact = np.array([gelu(float(v)) for v in tiny])
    assert last_places(F.gelu(tn.tensor(tiny)).numpy(), exact, 1e-45) < 3
    edge = tn.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, -15.0, 40.0])
    found = F.gelu(edge).numpy()
    np.testing.assert_array_equal(found, np.float32([math.inf, 0, math.nan, 0, 0, 0, 40]))
    assert np.signbit(found[[1, 4]]).all()
    # Down to the last result that is a float, beside numbers that have no tail.
    far = np.linspace(-14.5, -12.9, 8001, dtype=np.float32)
    mixed = np.stack([far, np.linspace(13, 1e6, far.size, dtype=np.float32), 20 * far], 1).ravel()
    exact = np.array([gelu(float(v)) if v > -30 else -0.0 for v in mixed])
    found = F.gelu(tn.tensor(mixed)).numpy()
    assert last_places(found, exact, 1e-45) < 4
    assert np.signbit(found[exact <= 0]).all()


def test_the_slope_of_gelu_is_right_in_the_tail() -> None:
    x = spread(13.1)
    leaf = tn.tensor(x, requires_grad=True)
    F.gelu(leaf).sum().backward()
    exact = np.array([slope(float(v)) for v in x])
    far = np.abs(x) > 1.5  # next to -0.75 it is zero
    assert last_places(leaf.grad.numpy()[far], exact[far], 1.2e-38) < 5
    assert np.abs(leaf.grad.numpy() - exact).max() < 3e-7


@pytest.mark.parametrize(("name", "exact"), [("sin", np.sin), ("cos", np.cos)])
def test_large_angles_and_what_stands_beside_them(name: str, exact: Callable) -> None:
    x = np.linspace(-9, 9, 1003, dtype=np.float32)
    x[::31] *= np.float32(1e9)
    x[5], x[700] = math.inf, math.nan
    numbers = np.isfinite(x)
    t = tn.tensor(x)
    found = getattr(t, name)().numpy()
    np.testing.assert_allclose(found[numbers], exact(x[numbers].astype(np.float64)), atol=1.5e-7)
    assert np.isnan(found[~numbers]).all()
    getattr(t, name + "_")()  # reads and writes the same memory
    np.testing.assert_array_equal(t.numpy(), found)


@pytest.mark.parametrize("fn", [F.gelu, tn.sin, tn.cos, tn.tanh, tn.exp, F.silu, tn.erf])
def test_an_element_does_not_depend_on_its_neighbours(fn: Callable) -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(257) * 4).astype(np.float32)
    x[::17] *= np.float32(1e7)
    alone = np.array([fn(tn.tensor(v)).item() for v in x], np.float32)
    np.testing.assert_array_equal(fn(tn.tensor(x)).numpy(), alone)
