"""Values that random samples hold rarely or never, planted: infinities and NaN where an operator
asks for them, fractions beside integers, a factor of zero beside NaN.

The tests walk the table: a new operator of these kinds is covered without being named here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from table import Case, as_array, call, entries, is_tensor_type, make_case, reference, tensor_args
from test_formulas import formulas

SPECIAL = [np.inf, -np.inf, np.nan, -0.0, 0.0, 1.0, -1.0, 0.5]
# Every pair of these stands in one place of the operands.
WHOLE, BROKEN = [0, 1, 2], [0.0, 0.5, 1.0, 1.5, 2.0, np.inf, np.nan]
MIXED = [("int32", "float64"), ("bool", "float32"), ("uint8", "float64"), ("int64", "float32")]


def tensors(row: dict[str, Any]) -> list[str]:
    return [a["name"] for a in row["args"] if is_tensor_type(a["type"])]


def answers(case: Case) -> list[np.ndarray]:
    """By kernels and by formulas."""
    got = [as_array(call(case.row, tensor_args(case)))]
    with formulas():
        try:
            return [*got, as_array(call(case.row, tensor_args(case)))]
        except NotImplementedError:  # it has no formula
            return got


def says(row: dict[str, Any], count: int) -> bool:
    """Whether it answers yes or no about each element of so many tensors."""
    if "float64" not in row["dtypes"] or row["inputs"] or len(tensors(row)) != count:
        return False
    if len(row["args"]) != count or row["inplace_only"]:
        return False
    case = make_case(row, row["samples"][0], "float64")
    if any(not isinstance(v, np.ndarray) for v in case.args.values()):
        return False
    want = np.asarray(reference(case))
    return want.dtype == bool and want.shape == case.args[tensors(row)[0]].shape


FLOATS = ("float16", "float32", "float64", "complex128")


@pytest.mark.parametrize(
    ("row", "dtype"),
    [(r, d) for r in entries() if says(r, 1) for d in FLOATS if d in r["dtypes"]],
    ids=lambda x: x if isinstance(x, str) else x["name"],
)
def test_questions_about_numbers_that_are_none(row: dict[str, Any], dtype: str) -> None:
    x = np.array(SPECIAL, dtype=dtype)
    if dtype.startswith("complex"):
        x = np.array([complex(a, b) for a in SPECIAL for b in (0.0, np.inf, np.nan)])
    case = Case(row, dtype, {tensors(row)[0]: x})
    for got in answers(case):
        np.testing.assert_array_equal(got, reference(case))


@pytest.mark.parametrize("row", [r for r in entries() if says(r, 2)], ids=lambda row: row["name"])
@pytest.mark.parametrize(("whole", "broken"), MIXED)
@pytest.mark.parametrize("turned", [False, True])
def test_questions_about_integers_and_fractions(
    row: dict[str, Any], whole: str, broken: str, turned: bool
) -> None:
    """The integers become what the fractions are, whichever comes first."""
    a, b = (g.reshape(-1) for g in np.meshgrid(WHOLE, BROKEN))
    pair = [a.astype(whole), b.astype(broken)][:: -1 if turned else 1]
    case = Case(row, broken, dict(zip(tensors(row), pair, strict=True)))
    for got in answers(case):
        np.testing.assert_array_equal(got, reference(case))


@pytest.mark.parametrize(
    "row",
    [r for r in entries() if {"beta", "input"} <= {a["name"] for a in r["args"]}
     and "alpha" in {a["name"] for a in r["args"]}],
    ids=lambda row: row["name"],
)  # fmt: skip
@pytest.mark.parametrize(("beta", "alpha"), [(0, 1), (0, 3), (1, 3), (2, 1)])
def test_a_factor_of_zero_leaves_the_input_out(row: dict[str, Any], beta: int, alpha: int) -> None:
    """0 times NaN is not NaN here, as BLAS has it."""
    for sample in row["samples"]:
        case = make_case(row, {**sample, "beta": beta, "alpha": alpha}, "float64")
        want = reference(case)
        if beta == 0:
            case.args["input"] = np.full_like(case.args["input"], np.nan)
        for got in answers(case):
            np.testing.assert_allclose(got, want, rtol=1e-12)


def floating(row: dict[str, Any]) -> bool:
    """Whether integers become floats in it."""
    plain = all(a["type"] in ("Tensor", "Operand") for a in row["args"])
    return row["kind"] == "pointwise" and row["dtype"] == "float" and plain


@pytest.mark.parametrize("row", [r for r in entries() if floating(r)], ids=lambda row: row["name"])
def test_integers_become_floats(row: dict[str, Any]) -> None:
    whole = {n: np.array([0, 1, 2, 3, 1]) for n in tensors(row)}
    args = tensor_args(Case(row, "int64", whole))
    want = call(row, {n: t.float() for n, t in args.items()})
    got = call(row, args)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(as_array(got), as_array(want))
