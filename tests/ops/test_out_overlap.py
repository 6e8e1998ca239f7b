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
    """The tensor is read before it gets its new shape."""
    x = tn.arange(6.0).reshape(2, 3)
    y = x.clone()
    assert tn.sum(y, 1, out=y) is y and y.tolist() == [3, 12]
    y = x[:, :1].clone()
    tn.add(x, y, out=y)
    np.testing.assert_array_equal(y.numpy(), x[:, :1].numpy() + x.numpy())
    y = x.clone()
    tn.mm(y, x.t(), out=y)
    np.testing.assert_array_equal(y.numpy(), x.numpy() @ x.numpy().T)
    y = x.clone()
    tn.cat([x, y], 0, out=y)
    np.testing.assert_array_equal(y.numpy(), np.concatenate([x.numpy(), x.numpy()]))


def test_two_outputs_that_share_memory() -> None:
    x = tn.arange(6, dtype=tn.int64).reshape(2, 3)
    v = tn.empty(2, dtype=tn.int64)
    with pytest.raises(RuntimeError, match="share memory"):
        tn.max(x, 1, out=(v, v))
