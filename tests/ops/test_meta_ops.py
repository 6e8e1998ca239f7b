"""Every operator of the table on the meta device: for every sample the shapes, strides and dtypes
that the CPU's call has, and those of its gradients, or the error of an operator whose results
depend on values.

Adding an operator adds its tests: nothing here names one but the list of those that need values.
"""

from __future__ import annotations

from typing import Any

import pytest
import tenon as tn
from table import call, make_case, rows, tensor_args

# What they return depends on the values of their arguments.
NEED_VALUES = {
    "argwhere", "bincount", "linspace_tensors", "logspace_tensors", "equal", "is_nonzero",
    "masked_select", "narrow_tensor", "nonzero", "repeat_interleave_counts",
    "repeat_interleave_tensor", "unique", "unique_consecutive", "_unique",
    "_unique_consecutive", "_nonzero_tuple", "where_condition",
}  # fmt: skip
HOST = {"batch_sizes"}  # arguments that stay in the memory of the CPU


def on_meta(value: Any) -> Any:
    if isinstance(value, tn.Tensor):
        copy = tn.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        return copy.requires_grad_(value.requires_grad)
    if isinstance(value, list):
        return [on_meta(v) for v in value]
    return value


def facts(result: Any) -> Any:
    """Shape, strides and dtype of every tensor of a result."""
    if isinstance(result, tn.Tensor):
        return tuple(result.shape), result.stride(), result.dtype
    if isinstance(result, (tuple, list)):
        return [facts(r) for r in result]
    return result


def tensors_of(result: Any) -> list[tn.Tensor]:
    parts = result if isinstance(result, (tuple, list)) else [result]
    return [r for r in parts if isinstance(r, tn.Tensor)]


def call_of(row: dict[str, Any], sample: dict[str, Any], dtype: str) -> tuple[Any, Any]:
    """The sample's arguments, and the same on meta: without tensors, by `device`."""
    types = {a["name"]: a["type"] for a in row["args"]}
    here = tensor_args(make_case(row, sample, dtype))
    for name, value in here.items():
        if types[name].startswith("DType") and isinstance(value, str):
            here[name] = getattr(tn, value)
    there = {name: value if name in HOST else on_meta(value) for name, value in here.items()}
    if "device" in types and not any(tensors_of(v) for v in here.values()):
        there["device"] = "meta"
    return here, there


# The sample of `index` is a list in which None stands for a dimension.
sampled = pytest.mark.parametrize(
    "row",
    [r for r in rows() if r["samples"] and r["name"] != "index"],
    ids=lambda row: row["name"],
)


@sampled
def test_same_geometry(row: dict[str, Any]) -> None:
    compared = 0
    for dtype in row["dtypes"]:
        for sample in row["samples"]:
            here, there = call_of(row, sample, dtype)
            try:
                want = call(row, here)
            except (RuntimeError, NotImplementedError, ValueError):
                continue  # not for this dtype
            compared += 1
            if row["name"] in NEED_VALUES:
                with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
                    call(row, there)
                continue
            got = call(row, there)
            assert facts(got) == facts(want), (sample, dtype)
            if "device" in there or any(tensors_of(v) for v in there.values()):
                assert all(t.is_meta for t in tensors_of(got)), (sample, dtype)
    assert compared


@pytest.mark.parametrize(
    "row",
    [
        r for r in rows()
        if r["samples"] and r["where"] and r["differentiable"] and not r["inplace_only"]
        and "float32" in r["dtypes"] and r["name"] not in NEED_VALUES
    ],
    ids=lambda row: row["name"],
)  # fmt: skip
def test_same_gradients(row: dict[str, Any]) -> None:
    written = {a["name"] for a in row["args"] if "!" in a["type"]}
    for sample in row["samples"]:
        here, there = call_of(row, sample, "float32")
        grads = []
        for args in (here, there):
            leaves = [t for n, v in args.items() if n not in written for t in tensors_of(v)]
            leaves = [t.requires_grad_() for t in leaves if t.is_floating_point()]
            results = [r for r in tensors_of(call(row, args)) if r.requires_grad]
            if results and leaves:
                seeds = [tn.ones_like(r) for r in results]
                try:
                    grads.append(tn.autograd.grad(results, leaves, seeds, allow_unused=True))
                except RuntimeError as error:  # the entry says so
                    assert "derivative" in str(error)
        if grads:
            assert facts(grads[1]) == facts(grads[0]), sample


def test_norms_say_the_shape_of_what_they_keep() -> None:
    """The reciprocal root mean square of each row, which the CPU computes by parts."""
    for dtype, kept in ((tn.float32, tn.float32), (tn.float16, tn.float32)):
        x = tn.empty(3, 4, 5, dtype=dtype, device="meta")
        y, rstd = tn._C._ops._rms_norm(x, [4, 5], None, 1e-5)
        assert (y.shape, y.dtype, rstd.shape, rstd.dtype) == (x.shape, dtype, (3, 1, 1), kept)
