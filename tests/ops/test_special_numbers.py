"""Every pointwise operator of numbers at which formulas change: halves, equal operands, infinities,
NaN, the ends of integers, counts of bits. All pairs of them, in every dtype, and the gradients
there, against PyTorch.

A new operator is covered without being named.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from table import NP_DTYPES, Case, is_tensor_type, rows, tensor_args
from table import call as our_call
from test_formulas import formulas
from test_torch import torch_args, torch_call
from tolerances import tolerance
from vary import default_of, other_values

DTYPES = ["bool", "uint8", "int8", "int32", "int64", "bfloat16", "float32", "float64",
          "complex64", "complex128"]  # fmt: skip
FINITE = [0.0, 0.25, -0.25, 0.5, -0.5, 1, -1, 1.5, -2, 2.5, -2.5, 3, 7]
BEYOND = [math.inf, -math.inf, math.nan]
WHOLE = [0, 1, 2, 3, -1, -2, -3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, -8, 100]
PARTS = [0, 1, -0.5, 2.5, 0.01]
FEW = 6  # of three operands and more
# Functions of statistics and physics, whose numbers are compared with SciPy's elsewhere.
APART = "dispatch/ops/special.toml"
# PyTorch ends the process at the least integer, or compares in single precision.
NO_ENDS = {"gcd", "lcm", "isclose"}
# Whose constants PyTorch has in single precision.
SINGLE = {"hardsigmoid"}
# Where PyTorch's sign of NaN is not the operand's, or zero to the power of zero is not one.
LESS = {"copysign bfloat16": slice(-1), "pow complex64": slice(1, None),
        "pow complex128": slice(1, None)}  # fmt: skip
ERRORS = (RuntimeError, TypeError, NotImplementedError, ValueError, AttributeError)


@cache
def numbers(dtype: str) -> dict[str, np.ndarray]:
    """Groups of numbers of like size."""
    kind = NP_DTYPES[dtype]
    if dtype == "bool":
        return {"all": np.array([False, True])}
    if dtype.startswith(("int", "uint")):
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        small = np.array([n for n in WHOLE if low <= n <= high], kind)
        return {"small": small, "ends": np.array([low, low + 1, high - 1, high, 1, 2], kind)}
    if dtype.startswith("complex"):
        return {"small": np.array([complex(a, b) for a in PARTS for b in PARTS], kind)}
    return {"small": np.array(FINITE + BEYOND, kind)}


def operands(row: dict[str, Any], dtype: str) -> Iterator[dict[str, Any]]:
    """All pairs of the numbers; of more operands, all of some."""
    names = [a["name"] for a in row["args"] if is_tensor_type(a["type"])]
    own = [n for n in names if n not in row["inputs"]]
    for group, some in numbers(dtype).items():
        if group == "ends" and row["name"] in NO_ENDS:
            continue
        some = some[LESS.get(f"{row['name']} {dtype}", slice(None))]
        some = some[:: -(-some.size // FEW)] if len(own) > 2 else some
        grid = [g.reshape(-1) for g in np.meshgrid(*[some] * len(own))]
        third = np.arange(grid[0].size) % 3 == 0
        yield {**dict(zip(own, grid, strict=True)), **{n: third for n in names if n not in own}}


def settings(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The numbers that samples give beside tensors, and other whole ones, words and switches."""
    found: list[dict[str, Any]] = []
    beside = [a for a in row["args"] if not is_tensor_type(a["type"])]
    for sample in row["samples"]:
        plain = {a["name"]: sample[a["name"]] for a in beside if a["name"] in sample}
        more = [{**plain, a["name"]: v} for a in beside if a["type"] in ("int", "bool", "str?")
                for v in other_values(a, plain.get(a["name"], default_of(a)), [])]  # fmt: skip
        found += [s for s in (plain, *more) if s not in found]
    return found[:5]


def cases(row: dict[str, Any]) -> list[Case]:
    return [Case(row, dtype, {**args, **plain}) for dtype in DTYPES for plain in settings(row)
            for args in operands(row, dtype)]  # fmt: skip


def condensed(a: np.ndarray) -> list[Any]:
    """Numbers among which a wrong one shows though others are large."""
    if a.dtype.kind == "c":
        return [*condensed(a.real), *condensed(a.imag)]
    if a.dtype.kind in "iu":
        return [np.mod(a, 101).astype(np.int64)]
    return [a if a.dtype.kind == "b" else np.arcsinh(a.astype(np.float64))]


def outcome(results: Any) -> list[Any]:
    results = results if isinstance(results, (tuple, list)) else [results]
    return [
        None if r is None else [str(r.dtype).split(".")[-1], *condensed(stored.array_of(r)[1])]
        for r in results
    ]


def theirs(torch: Any, case: Case) -> Any:
    try:
        return outcome(torch_call(torch, case.row, torch_args(torch, case)))
    except ERRORS:
        return "refused"


def same(case: Case, got: Any, want: Any) -> None:
    exact = case.dtype in ("float64", "complex128") and case.row["name"] not in SINGLE
    rtol, atol = tolerance(case.dtype if exact or case.dtype == "bfloat16" else "float32")
    stored.same(got, want, 4 * rtol, 4 * max(rtol, atol), case.label())


def pointwise() -> list[dict[str, Any]]:
    return [r for r in rows() if r["kind"] == "pointwise" and r["where"] and not r["random"]
            and r["samples"] and r["file"] != APART]  # fmt: skip


every = pytest.mark.parametrize("row", pointwise(), ids=lambda row: row["name"])


@every
def test_values(row: dict[str, Any]) -> None:
    calls = cases(row)
    answers = stored.of_torch(lambda torch: [theirs(torch, c) for c in calls], brief=True)
    for case, want in zip(calls, answers, strict=True):
        if want != "refused":
            same(case, outcome(our_call(row, tensor_args(case))), want)


def gradients(lib: Any, case: Case, args: dict[str, Any], run: Any) -> Any:
    """Those of all floating operands, where the result is a number."""
    try:
        inputs = [t.requires_grad_() for t in args.values() if isinstance(t, lib.Tensor)
                  and (t.is_floating_point() or t.is_complex())]  # fmt: skip
        result = run(case.row, args)
        if not inputs or not result.requires_grad:
            return "refused"
        seed = lib.from_numpy(np.cos(np.arange(result.numel()))).to(result.dtype)
        grads = lib.autograd.grad(result, inputs, seed, allow_unused=True)
        known = result.detach().isfinite()
        return outcome([None if g is None else g.masked_fill(~known, 0) for g in grads])
    except ERRORS:
        return "refused"


@every
def test_gradients(row: dict[str, Any]) -> None:
    calls = [c for c in cases(row) if c.dtype in ("bfloat16", "float64", "complex128")]
    answers = stored.of_torch(
        lambda torch: [
            gradients(torch, c, torch_args(torch, c), lambda *a: torch_call(torch, *a))
            for c in calls
        ],
        brief=True,
    )
    for case, want in zip(calls, answers, strict=True):
        if want != "refused":
            same(case, gradients(tn, case, tensor_args(case), our_call), want)


@pytest.mark.parametrize(
    "row", [r for r in pointwise() if r["composite"]], ids=lambda row: row["name"]
)
def test_formulas_agree_with_kernels(row: dict[str, Any]) -> None:
    for case in cases(row):
        if (
            case.dtype == "float64" and row["name"] != "masked_fill"
        ):  # of a value without dimensions
            args = tensor_args(case)
            want = outcome(our_call(row, args))
            with formulas():
                stored.same(outcome(our_call(row, args)), want, 1e-7, 1e-9, case.label())
