"""Operators that have kernels and a formula over others: both compute the same, and so do gradients
of both orders. Formulas run here with the kernels of all such operators hidden, as they do on a
device that has none of them. At whole numbers, where formulas take another branch, meet a bound or
a zero, values are compared with the reference as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from both import flat
from table import Case, call, function_of, make_case, reference, rows, tensor_args
from test_history import derivatives, roots


@contextmanager
def formulas() -> Iterator[None]:
    tn._C._hide_kernels(True)
    try:
        yield
    finally:
        tn._C._hide_kernels(False)


def computed(
    row: dict[str, Any], sample: dict[str, Any], behind: bool = False, orders: int = 2
) -> list[Any]:
    """Results, and gradients of both orders where there are some; `behind`: the results by kernels,
    the gradients by formulas, as on a device that has a kernel of the one but not of the other."""
    tn.manual_seed(3)
    args = tensor_args(make_case(row, sample, "float64"))
    written = {a["name"] for a in row["args"] if "!" in a["type"]}
    plain = {n: v for n, v in args.items() if not n.startswith("running_")}
    inputs = [] if written else roots(tn, plain)
    results = [t for t in flat(call(row, args)) if isinstance(t, tn.Tensor)]
    found = [t.detach() for t in results]
    try:
        with formulas() if behind else nullcontext():
            return [*found, *derivatives(tn, results, inputs, orders)] if inputs else found
    except RuntimeError as err:
        if "is not implemented" in str(err):  # a part has no gradient: its entry says so
            return found
        raise


def same(got: list[Any], want: list[Any], text: str) -> None:
    for mine, other in zip(got, want, strict=True):
        a, b = stored.array_of(mine)[1], stored.array_of(other)[1]
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9, err_msg=text)


def able(row: dict[str, Any]) -> bool:
    """Whether it can be called with its samples, in float64, and computes what is asked of it."""
    lists = [a["name"] for a in row["args"] if a["type"].startswith("Tensor") and "[]" in a["type"]]
    plain = all(isinstance(x, list) for s in row["samples"] for n in lists for x in s.get(n, []))
    drawn = row["random"] or row["kind"] == "view" or "empty" in row["name"]
    drawn = drawn or row["name"] == "view_copy_as_type"  # a dtype is no text
    return bool(
        row["samples"] and row["where"] and "float64" in row["dtypes"] and plain and not drawn
    )


@pytest.mark.parametrize("row", [r for r in rows() if able(r)], ids=lambda row: row["name"])
def test_formula_and_kernel_agree(row: dict[str, Any]) -> None:
    function_of(row)
    for sample in row["samples"]:
        want = computed(row, sample)
        with formulas():
            got = computed(row, sample)
        same(got, want, f"{row['name']} {sample}")


@pytest.mark.parametrize("row", [r for r in rows() if able(r)], ids=lambda row: row["name"])
def test_formulas_take_the_results_of_kernels(row: dict[str, Any]) -> None:
    """Gradients by formulas of what kernels have computed."""
    for sample in row["samples"]:
        same(computed(row, sample, True), computed(row, sample), f"{row['name']} {sample}")


# References that are not made for whole numbers: at poles, or where they divide zero by zero.
POLES = {"_standard_gamma_grad", "mvlgamma", "special_chebyshev_polynomial_v",
         "special_shifted_chebyshev_polynomial_v"}  # fmt: skip
SCALES = (0.25, 1.0, 4.0)  # mostly zeros and ones, small numbers, numbers beyond thresholds


def rounded(value: Any, scale: float) -> Any:
    if isinstance(value, list):
        return [rounded(v, scale) for v in value]
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    return np.asarray(np.rint(value * scale) + 0.0)


def values(case: Case) -> list[np.ndarray] | str:
    tn.manual_seed(3)
    try:
        results = flat(call(case.row, tensor_args(case)))
    except (RuntimeError, ValueError, IndexError) as err:
        return str(err)
    return [stored.array_of(t)[1] for t in results if isinstance(t, tn.Tensor)]


def whole() -> list[dict[str, Any]]:
    """Internal operators as well; no running statistics, which a call changes."""
    return [
        r for r in rows()
        if able({**r, "where": ["any"]}) and "running_mean" not in [a["name"] for a in r["args"]]
    ]  # fmt: skip


@pytest.mark.parametrize("row", whole(), ids=lambda row: row["name"])
def test_whole_numbers(row: dict[str, Any]) -> None:
    for sample in row["samples"]:
        plain = make_case(row, sample, "float64")
        for scale in SCALES:
            args = {n: rounded(v, scale) for n, v in plain.args.items()}
            case = Case(row, "float64", args)
            got = values(case)
            with formulas():
                other = values(case)
            if isinstance(got, str) or isinstance(other, str):
                assert got == other, case.label()
                continue
            same([tn.tensor(x) for x in other], [tn.tensor(x) for x in got], case.label())
            if row["ref"] and row["name"] not in POLES:
                want = reference(case)
                for a, b in zip(got, want if isinstance(want, (list, tuple)) else [want]):
                    b = np.asarray(b)
                    known = np.isfinite(b)
                    np.testing.assert_allclose(a[known], b[known], 1e-7, 1e-9, True, case.label())


@pytest.mark.parametrize("row", whole(), ids=lambda row: row["name"])
def test_gradients_that_are_not_recorded(row: dict[str, Any]) -> None:
    """They have kernels and formulas of their own, which need no derivatives."""
    for sample in row["samples"]:
        want = computed(row, sample, orders=1)
        with formulas():
            got = computed(row, sample, orders=1)
        same(got, want, f"{row['name']} {sample}")
        same(computed(row, sample, True, 1), want, f"{row['name']} {sample}")


def test_kernels_come_back() -> None:
    x = tn.ones(3, dtype=tn.complex64)
    with formulas(), pytest.raises(NotImplementedError):
        x.tan()
    assert x.tan().shape == (3,)
