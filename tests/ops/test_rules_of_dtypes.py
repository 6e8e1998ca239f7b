"""The dtypes of results are those that the rules of the table say, of internal operators as well:
docs/op-table.md has the rules. Every sample in every dtype, and pairs of dtypes where operands are
promoted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import tenon as tn
from both import flat
from table import call, is_tensor_type, make_case, rows, tensor_args

PAIRS = [("float32", "float64"), ("bfloat16", "float32"), ("float16", "bfloat16"),
         ("int32", "float32"), ("uint8", "int8"), ("bool", "int16"), ("uint8", "int64"),
         ("float64", "complex64")]  # fmt: skip
# Results whose dtype is their own: infos and statistics, spectra, sums of small integers.
INFOS = {"linalg_inv_ex", "_linalg_cholesky", "_linalg_lu_factor", "_linalg_ldl_factor"}
STATISTICS = {"_cross_entropy", "_flash_attention", "native_layer_norm", "_rms_norm",
              "native_batch_norm"}  # fmt: skip
SPECTRA = {"_linalg_eig", "_fft_r2c"}
COMPLEX = {tn.float32: tn.complex64, tn.float64: tn.complex128}
REAL = {tn.complex64: tn.float32, tn.complex128: tn.float64}
REFUSALS = (RuntimeError, NotImplementedError, ValueError, TypeError, OverflowError)
# What is refused though there are kernels for the dtype that the rule says, and with which words.
BOOLS = "Subtraction, the `-` operator, with a bool tensor is not supported"
WHOLE = "could not infer output dtype. Input dtype must be either a floating point or complex dtype"
UNLIKE = "did not match|expected dtype"
BOUNDS = "out of bounds for the dtype of self"
ZERO = "ZeroDivisionError"
REFUSED = {
    "isclose": UNLIKE, "heaviside": UNLIKE, "lerp": UNLIKE, "sub": BOOLS, "rsub": BOOLS,
    "floor_divide": ZERO, "_trunc_divide": ZERO, "remainder": ZERO, "fmod": ZERO, "mean": WHOLE,
    "_var": WHOLE, "_std": WHOLE, "_sum_squares": WHOLE, "_nansum": WHOLE,
    "random__from": BOUNDS, "random__to": BOUNDS, "addcdiv": "does not divide integers by integers",
}  # fmt: skip


def is_whole(dtype: tn.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex


def computed(row: dict[str, Any], args: dict[str, Any]) -> tn.dtype:
    """The dtype that a call computes in."""
    rule, _, names = row["dtype"].rstrip(")").partition("(")
    given = {n: t for n, t in args.items() if isinstance(t, tn.Tensor) and n not in row["inputs"]}
    kinds = [args[n.strip()].dtype for n in names.split(",")] if names else [
        t.dtype for t in given.values()]  # fmt: skip
    first = kinds[0]
    if rule in ("same", "first"):
        return first
    if rule == "bool":
        return tn.bool
    for kind in kinds[1:]:
        first = tn.promote_types(first, kind)
    for a in row["args"]:
        if a["type"] == "Operand" and isinstance(args.get(a["name"]), (int, float)):
            first = tn.result_type(tn.zeros(1, dtype=first), args[a["name"]])
    if rule == "float" and is_whole(first):
        return tn.float32
    if (rule == "sum" and is_whole(first)) or (rule == "number" and first is tn.bool):
        return tn.int64
    return first


def expected(row: dict[str, Any], args: dict[str, Any]) -> list[tn.dtype]:
    kind = computed(row, args)
    words = row["result"] if isinstance(row["result"], list) else [row["result"]]
    of_word = {"compute": kind, "bool": tn.bool, "int64": tn.int64, "real": REAL.get(kind, kind)}
    found = [of_word[words[min(i, len(words) - 1)]] for i in range(len(row["outs"]))]
    if row["name"] in INFOS:
        return [kind, *[tn.int32] * (len(found) - 1)]
    if row["name"] in STATISTICS:
        return [kind, *[tn.promote_types(kind, tn.float32)] * (len(found) - 1)]
    if row["name"] in SPECTRA:
        return [COMPLEX.get(kind, kind)] * len(found)
    return found if row["name"] != "_int_mm" else [tn.int32]


def samples(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of the entry; of a pointwise one without some, tensors of one shape and numbers."""
    if row["samples"] or row["kind"] != "pointwise":
        return row["samples"]
    return [{a["name"]: [3] if is_tensor_type(a["type"]) else 1 for a in row["args"]}]


def ruled() -> list[dict[str, Any]]:
    """Those with samples, whose rule says it all."""
    return [
        row for row in rows()
        if row["kind"] in ("pointwise", "reduction", "structured") and samples(row)
        and row["dtype"] not in (None, "custom") and row["outs"] and not row["list_out"]
    ]  # fmt: skip


def calls(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    of_tensors = [a["name"] for a in row["args"] if is_tensor_type(a["type"])]
    for sample in (s for s in samples(row) if "dtype" not in s):
        free = row["dtype"] == "float" or row["kind"] == "pointwise"
        whole = ["int64", "bool"] if free and "int64" not in row["dtypes"] else []
        for dtype in [*row["dtypes"], *whole]:
            with suppress(OverflowError):
                yield tensor_args(make_case(row, sample, dtype))
        promotes = row["kind"] == "pointwise" or row["dtype"].startswith("promote")
        for pair in PAIRS if promotes and row["dtype"] != "first" else ():
            for low, high in (pair, pair[::-1]):
                with suppress(OverflowError):
                    args = tensor_args(make_case(row, sample, low))
                    other = tensor_args(make_case(row, sample, high))
                    mixed = [n for n in of_tensors if n in args and n not in row["inputs"]]
                    if len(mixed) > 1:
                        yield {**args, **{n: other[n] for n in mixed[1:]}}


@pytest.mark.parametrize("row", ruled(), ids=lambda row: row["name"])
def test_results_have_the_dtype_of_the_rule(row: dict[str, Any]) -> None:
    seen = 0
    for args in calls(row):
        want = expected(row, args)
        before = [t.dtype for t in flat(list(args.values())) if isinstance(t, tn.Tensor)]
        try:
            got = call(row, args)
        except REFUSALS as err:
            lacks = str(computed(row, args)).removeprefix("tenon.") not in row["dtypes"]
            words = "dtype|implemented|support|type" if lacks else REFUSED.get(row["name"], "^$")
            assert re.search(words, str(err)), err
            continue
        seen += 1
        results = [t for t in flat(got) if isinstance(t, tn.Tensor)]
        assert [t.dtype for t in results] == want[: len(results)], before
    assert seen
