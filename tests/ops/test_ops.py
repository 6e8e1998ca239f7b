"""Every operator of the table: values against NumPy/SciPy in float64 for every dtype it claims, in
several memory layouts, in its in-place, out= and method forms, and its gradients, first and second
order, against finite differences.

Adding an operator adds its tests: nothing here names one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tenon as tn
from table import (
    Case,
    as_array,
    call,
    entries,
    is_tensor_type,
    make_case,
    reference,
    tensor_args,
)
from tolerances import tolerance

FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def cases(row: dict[str, Any], dtypes: list[str]) -> Iterator[Case]:
    for dtype in dtypes:
        for sample in row["samples"]:
            yield make_case(row, sample, dtype)


def check(case: Case, got: Any, want: Any) -> None:
    """got (a tensor or several) holds want, to the tolerance of the computation's dtype."""
    if isinstance(got, (tuple, list)):
        assert len(got) == len(want), case.label()
        for g, w in zip(got, want, strict=True):
            check(case, g, w)
        return
    have, want = as_array(got), np.asarray(want)
    rtol, atol = tolerance(case.dtype if case.dtype in FLOATS else str(got.dtype).split(".")[-1])
    if case.row["tol"]:
        rtol, atol = rtol * case.row["tol"], atol * case.row["tol"]
    assert have.shape == want.shape, f"{case.label()}: shape {have.shape}, expected {want.shape}"
    if have.dtype.kind == "b":
        want = want.astype(bool)
    elif have.dtype.kind in "iu" and want.dtype.kind == "f":
        want = np.trunc(want)
    np.testing.assert_allclose(
        have.astype(want.dtype, copy=False), want, rtol=rtol, atol=atol, equal_nan=True,
        err_msg=case.label(),
    )  # fmt: skip


def ids(row: dict[str, Any]) -> str:
    return row["name"]


every_op = pytest.mark.parametrize("row", entries(), ids=ids)


@every_op
def test_values(row: dict[str, Any]) -> None:
    for case in cases(row, row["dtypes"]):
        check(case, call(row, tensor_args(case)), reference(case))


def transposed(t: tn.Tensor) -> tn.Tensor:
    """The same values with the dimensions' memory order reversed."""
    order = list(range(t.ndim))[::-1]
    return t.permute(order).contiguous().permute(order)


def sliced(t: tn.Tensor) -> tn.Tensor:
    """The same values as every second element of a larger tensor."""
    if t.ndim == 0:
        return t
    big = tn.zeros([*t.shape[:-1], 2 * t.shape[-1] + 1], dtype=t.dtype, device=t.device)
    view = big[..., 1::2]
    view.copy_(t)
    return view


LAYOUTS: list[Callable[[tn.Tensor], tn.Tensor]] = [transposed, sliced]


@every_op
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(row: dict[str, Any], layout: Callable[[tn.Tensor], tn.Tensor]) -> None:
    preferred = [d for d in ("float32", "int64", "bool", "complex64") if d in row["dtypes"]][:1]
    for case in cases(row, preferred):
        args = {
            n: layout(v) if isinstance(v, tn.Tensor) else v for n, v in tensor_args(case).items()
        }
        check(case, call(row, args), reference(case))


@pytest.mark.parametrize("row", [r for r in entries() if "out" in r["where"]], ids=ids)
def test_out(row: dict[str, Any]) -> None:
    dtype = [d for d in ("float64", "int64", "bool", "complex128") if d in row["dtypes"]][0]
    for case in cases(row, [dtype]):
        want = call(row, tensor_args(case))
        many = isinstance(want, tuple)
        outs = tuple(tn.empty_like(w) for w in (want if many else (want,)))
        got = call(row, tensor_args(case), out=outs if many else outs[0])
        for w, g, o in zip(want if many else (want,), got if many else (got,), outs, strict=True):
            assert g is o, case.label()
            np.testing.assert_array_equal(as_array(g), as_array(w), err_msg=case.label())


@pytest.mark.parametrize("row", [r for r in entries() if "inplace" in r["where"]], ids=ids)
def test_inplace(row: dict[str, Any]) -> None:
    dtype = [d for d in ("float64", "int64", "bool", "complex128") if d in row["dtypes"]][0]
    for case in cases(row, [dtype]):
        want = call(row, tensor_args(case))
        args = tensor_args(case)
        target = args.pop(next(a["name"] for a in row["args"] if is_tensor_type(a["type"])))
        if target.shape != want.shape or (want.dtype != target.dtype):
            continue
        got = getattr(target, row["py_name"] + "_")(**args)
        assert got is target, case.label()
        np.testing.assert_array_equal(as_array(target), as_array(want), err_msg=case.label())


@pytest.mark.parametrize("row", [r for r in entries() if "method" in r["where"]], ids=ids)
def test_method(row: dict[str, Any]) -> None:
    dtype = [d for d in ("float64", "int64", "bool", "complex128") if d in row["dtypes"]][0]
    for case in cases(row, [dtype]):
        args = tensor_args(case)
        first = args.pop("input" if "input" in args else row["args"][0]["name"])
        if isinstance(first, tn.Tensor):
            check(case, getattr(first, row["py_name"])(**args), reference(case))


def differentiable(row: dict[str, Any]) -> bool:
    return bool(row["differentiable"]) and "float64" in row["dtypes"] and not row["inplace_only"]


def graded(row: dict[str, Any]) -> Iterator[Case]:
    """Cases whose gradients are looked at, of real and of complex numbers."""
    samples = row["samples"] if row["grad_samples"] is None else row["grad_samples"]
    for dtype in [d for d in ("float64", "complex128") if d in row["dtypes"]]:
        for sample in samples:
            case = make_case(row, sample, dtype)
            try:
                with tn.no_grad():
                    call(row, tensor_args(case))
            except (NotImplementedError, RuntimeError):  # what it is made of is not there for them
                assert dtype == "complex128" and row["composite"], case.label()
                continue
            yield case


@pytest.mark.parametrize("row", [r for r in entries() if differentiable(r)], ids=ids)
def test_gradients(row: dict[str, Any]) -> None:
    for case in graded(row):
        args = tensor_args(case)
        names = [n for n in row["differentiable"] if isinstance(args.get(n), tn.Tensor)]
        names = [n for n in names if args[n].dtype == getattr(tn, case.dtype)]
        size = sum(args[n].numel() for n in names)
        if not names or size > 200:
            continue

        def fn(*inputs: tn.Tensor, args: dict[str, Any] = args, names: list[str] = names) -> Any:
            result = call(row, {**args, **dict(zip(names, inputs, strict=True))})
            if isinstance(result, tuple):
                result = tuple(r for r in result if r.is_floating_point() or r.is_complex())
            return result

        inputs = tuple(args[n].requires_grad_() for n in names)
        if getattr(fn(*inputs), "dtype", None) == tn.bool:
            continue  # only the in-place form of a comparison has a gradient
        assert tn.autograd.gradcheck(fn, inputs), case.label()
        if size <= 40:
            assert tn.autograd.gradgradcheck(fn, inputs), case.label()
