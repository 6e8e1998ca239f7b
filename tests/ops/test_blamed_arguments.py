"""Errors say which argument is at fault: the number that an exception carries is that of the
argument that its words name.

One argument of a sample at a time gets a wrong size, rank or dtype, or a number out of range, for
every operator of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import tenon as tn
from table import call, function_of, is_tensor_type, make_case, rows, tensor_args

# What `make_case` does not fill, and what lies about sizes of memory would be asked of.
APART = {"index", "empty_strided", "new_empty_strided"}
# Words whose subject is one argument.
SUBJECT = re.compile(
    r"argument '(\w+)' must|^(\w+) (?:must|should|contains)|[Ee]xpected (\w+) (?:to |of dtype)"
    r"|(?:negative|non-positive) (\w+) is not"
)


def plain(row: dict[str, Any]) -> list[dict[str, Any]]:
    dtypes = [d for d in ("float32", "int64", "bool", "complex64") if d in row["dtypes"]]
    return [tensor_args(make_case(row, s, (dtypes or ["float32"])[0])) for s in row["samples"][:3]]


def other_tensors(t: tn.Tensor) -> Iterator[tn.Tensor]:
    shape = list(t.shape)
    for sizes in ([*shape, 2], shape[1:], [*shape[:-1], shape[-1] + 1] if shape else [2],
                  [shape[0] + 1, *shape[1:]] if shape else [0], [2] * 7):  # fmt: skip
        yield tn.ones(sizes).to(t.dtype)
    for dtype in (tn.float64, tn.int32, tn.bool, tn.complex128):
        if dtype is not t.dtype:
            yield t.to(dtype) if dtype.is_complex or not t.is_complex() else t.real.to(dtype)


def others(arg: dict[str, Any], value: Any) -> Iterator[Any]:
    kind = arg["type"].rstrip("?")
    if is_tensor_type(kind) and isinstance(value, tn.Tensor):
        yield from other_tensors(value)
    elif kind.startswith("int["):
        many = value if isinstance(value, list) else [value] if isinstance(value, int) else [1]
        yield from ([*many, 1], [-1] * len(many), [0] * len(many), [-7, *many[1:]])
    elif kind in ("int", "Dim"):
        yield from (-9, 99, 0)
    elif kind in ("float", "Scalar"):
        yield from (-2.5, 7.5)


def changed(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for args in plain(row):
        for arg in row["args"]:
            if not arg["kwonly"]:
                for value in others(arg, args.get(arg["name"])):
                    yield {**args, arg["name"]: value}


@pytest.mark.parametrize(
    "row",
    [r for r in rows() if r["samples"] and not r["random"] and r["name"] not in APART],
    ids=lambda row: row["name"],
)
def test_the_argument_that_is_named(row: dict[str, Any]) -> None:
    names = [a["name"] for a in row["args"]]
    for args in changed(row):
        try:
            call(row, args)
        except Exception as err:
            if getattr(err, "op", "") != row["name"] or err.arg == -1:
                continue
            assert 0 <= err.arg < len(names), err
            said = SUBJECT.search(str(err).partition("\n")[0])
            name = next((g for g in said.groups() if g), "") if said else ""
            assert name not in names or names[err.arg] == name, err


ONE = tn.tensor(1.0)
DOUBLE = tn.ones(3).double()
LOSS = (ONE, tn.tensor([0, 1]))


@pytest.mark.parametrize(
    ("name", "args", "blamed"),
    [
        ("arange", (-5,), "end"),
        ("arange_start", (1, 5, -1), "end"),
        ("arange_start", (1, 5, 0), "step"),
        ("range", (1, float("inf"), 2), "end"),
        ("_gru_step", (tn.ones(6), tn.ones(6), ONE), "h"),
        ("_lstm_step", (tn.ones(6), tn.ones(6), ONE), "c"),
        ("_weight_int8pack_mm", (tn.ones(2, 4), tn.ones(3, 4).char(), tn.ones(2)), "scales"),
        ("_nll_loss_backward", (*LOSS, DOUBLE, ONE, [2, 3], 1, -100), "weight"),
        ("_nll_loss_backward", (*LOSS, DOUBLE.float(), ONE.double(), [2, 3], 1, -100),
         "total_weight"),
        ("_poisson_", (tn.ones(3), tn.ones(2, 3)), "rate"),
        ("_standard_gamma_", (tn.ones(3), tn.ones(3).long()), "concentration"),
        ("_binomial_", (tn.ones(3), tn.ones(2, 3), tn.ones(3)), "count"),
        ("_binomial_", (tn.ones(3), tn.ones(3), tn.ones(2, 3)), "prob"),
        ("_linalg_ldl_solve", (tn.eye(3), tn.ones(3).int(), tn.ones(2, 1), True), "B"),
        ("_linalg_ldl_solve", (tn.eye(3), tn.ones(3), tn.ones(3, 1), True), "pivots"),
    ],
)  # fmt: skip
def test_the_one_at_fault(name: str, args: tuple[Any, ...], blamed: str) -> None:
    """Where the words name none, or the last one is at fault."""
    (row,) = [r for r in rows() if r["name"] == name]
    with pytest.raises((RuntimeError, ValueError)) as err:
        function_of(row)(*args)
    assert (err.value.op, row["args"][err.value.arg]["name"]) == (name, blamed)
