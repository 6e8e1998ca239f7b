"""out= that is, or lies within, what the call reads: for every operator of the table that takes
one, the result is that of a call without out=, or the call is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import table
import tenon as tn

REFUSED = (RuntimeError, TypeError, ValueError, NotImplementedError)


def with_out() -> list[dict[str, Any]]:
    return [
        row
        for row in table.entries()
        if row["where"] and not row["list_out"] and len(row["outs"]) == 1
    ]


def cases(row: dict[str, Any]) -> Iterator[table.Case]:
    for dtype in ("float32", "int64", "bool"):
        if dtype not in row["dtypes"]:
            continue
        for sample in row["samples"]:
            yield table.make_case(row, sample, dtype)


def inputs_of(args: dict[str, Any]) -> list[tuple[str, int]]:
    """(argument, member) of all tensors, also in lists."""
    found = []
    for name, value in args.items():
        if isinstance(value, tn.Tensor):
            found.append((name, -1))
        elif isinstance(value, list) and value and isinstance(value[0], tn.Tensor):
            found += [(name, i) for i in range(len(value))]
    return found


def replaced(args: dict[str, Any], place: tuple[str, int], t: Any) -> dict[str, Any]:
    name, i = place
    new = {n: list(v) if isinstance(v, list) else v for n, v in args.items()}
    if i < 0:
        new[name] = t
    else:
        new[name][i] = t
    return new


def shifted(t: Any, like: Any) -> tuple[Any, Any]:
    """A copy of t, and memory for `like` that begins one element into it."""
    room = tn.zeros(t.numel() + like.numel() + 1, dtype=t.dtype)
    copy = room[: t.numel()].view(t.shape)
    copy.copy_(t)
    return copy, room[1 : 1 + like.numel()].view(like.shape)


def interleaved(t: Any, like: Any) -> tuple[Any, Any] | None:
    """The same for rows with a step, of which no view is dense."""
    if t.dim() == 0 or t.shape != like.shape or t.shape[-1] == 0:
        return None
    room = tn.zeros((*t.shape[:-1], 2 * t.shape[-1] + 2), dtype=t.dtype)
    copy = room[..., 2 : 2 + 2 * t.shape[-1] : 2]
    copy.copy_(t)
    return copy, room[..., 0 : 2 * t.shape[-1] : 2]


def check(row: dict[str, Any], args: dict[str, Any], out: Any, expected: Any, what: str) -> None:
    try:
        got = table.call(row, args, out=out)
    except REFUSED:
        return
    assert got is out
    np.testing.assert_array_equal(got.numpy(), expected, err_msg=f"{row['name']} {what}")


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("row", with_out(), ids=lambda row: row["name"])
def test_out_is_an_input(row: dict[str, Any]) -> None:
    for case in cases(row):
        args = table.tensor_args(case)
        tn.manual_seed(0)
        try:
            plain = table.call(row, args)
            table.call(row, args, out=tn.empty(0, dtype=plain.dtype))
        except (*REFUSED, AttributeError, IndexError):
            continue  # an error's sample, or an operator without out=
        tn.manual_seed(0)
        again = table.call(row, args)
        if not isinstance(plain, tn.Tensor) or not np.array_equal(
            plain.numpy(), again.numpy(), equal_nan=plain.is_floating_point()
        ):
            continue  # drawn anew by every call
        for place in inputs_of(args):
            name, i = place
            t = args[name] if i < 0 else args[name][i]
            if t.dtype != plain.dtype:
                continue
            whole = t.clone()
            check(row, replaced(args, place, whole), whole, plain.numpy(), f"{case.label()} {name}")
            copy, out = shifted(t, plain)
            check(row, replaced(args, place, copy), out, plain.numpy(), f"{case.label()} {name}+1")
            pair = interleaved(t, plain)
            if pair:
                copy, out = pair
                new = replaced(args, place, copy)
                check(row, new, out, plain.numpy(), f"{case.label()} {name} by 2")


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_of_another_shape_that_is_an_input() -> None:
    """The tensor is read before it gets its new shape; pointwise ones refuse, as in PyTorch."""
    x = tn.arange(6.0).reshape(2, 3)
    y = x.clone()
    assert tn.sum(y, 1, out=y) is y and y.tolist() == [3, 12]
    y = x[:, :1].clone()
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        tn.add(x, y, out=y)
    y = x.clone()
    tn.mm(y, x.t(), out=y)
    np.testing.assert_array_equal(y.numpy(), x.numpy() @ x.numpy().T)


WIDER = {
    "float32": "float64", "float64": "complex128", "int64": "float64", "bool": "int64",
    "complex64": "complex128",
}  # fmt: skip


def with_contract(word: str) -> list[dict[str, Any]]:
    return [row for row in with_out() if word in row["out"].split()]


def contract_cases(row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Samples, and their results, of calls that are fine with an out= of their own."""
    for case in cases(row):
        args = table.tensor_args(case)
        try:
            plain = table.call(row, args)
            table.call(row, args, out=tn.empty(0, dtype=plain.dtype))
        except (*REFUSED, AttributeError, IndexError):
            continue
        if isinstance(plain, tn.Tensor):
            yield case.label(), args, plain


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("row", with_contract("exact"), ids=lambda row: row["name"])
def test_out_of_another_dtype_is_refused(row: dict[str, Any]) -> None:
    for label, args, plain in contract_cases(row):
        wide = str(plain.dtype).split(".")[-1]
        out = tn.zeros(plain.shape, dtype=getattr(tn, WIDER[wide]))
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
            table.call(row, args, out=out)
        assert not out.any(), label


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize(
    "row", with_contract("whole") + with_contract("apart"), ids=lambda row: row["name"]
)
def test_out_that_is_part_of_an_input_is_refused(row: dict[str, Any]) -> None:
    refused = 0
    for label, args, plain in contract_cases(row):
        for place in inputs_of(args):
            name, i = place
            t = args[name] if i < 0 else args[name][i]
            if t.dtype != plain.dtype or min(t.numel(), plain.numel()) < 2:
                continue
            copy, out = shifted(t, plain)
            before = out.clone()
            with pytest.raises(RuntimeError, match="refer to a single memory location"):
                table.call(row, replaced(args, place, copy), out=out)
            np.testing.assert_array_equal(out.numpy(), before.numpy(), err_msg=label)
            refused += 1
            if "apart" in row["out"] and (
                i >= 0 or "inplace" not in row["where"] or place != inputs_of(args)[0]
            ):
                whole = t.clone()
                with pytest.raises(RuntimeError, match="refer to a single memory location"):
                    table.call(row, replaced(args, place, whole), out=whole)
    assert refused or row["name"] in ("masked_select", "nonzero", "normal")


def test_what_makes_a_tensor_takes_the_dtype_of_out() -> None:
    """Values are computed in it, and a dtype that is asked for has to be it."""
    out = tn.empty(4, dtype=tn.float64)
    np.testing.assert_allclose(tn.linspace(0, 1, 4, out=out), np.linspace(0, 1, 4), rtol=1e-15)
    assert tn.full((2,), 0.1, out=tn.empty(2, dtype=tn.float64)).tolist() == [0.1, 0.1]
    assert tn.zeros(2, out=tn.empty(2, dtype=tn.int64)).dtype is tn.int64
    assert tn.rand(3, out=tn.empty(3, dtype=tn.float64)).dtype is tn.float64
    with pytest.raises(RuntimeError, match="does not match dtype of out parameter"):
        tn.ones(2, dtype=tn.float32, out=tn.empty(2, dtype=tn.int64))


def test_two_outputs_that_share_memory() -> None:
    x = tn.arange(6, dtype=tn.int64).reshape(2, 3)
    v = tn.empty(2, dtype=tn.int64)
    with pytest.raises(RuntimeError, match="share memory"):
        tn.max(x, 1, out=(v, v))
