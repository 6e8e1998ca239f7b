"""out= that is, or lies within, what the call reads: for every operator of the table that takes
one, the result is that of a call without out=, or the call is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
                i >= 0
                or not ("inplace" in row["where"] or "itself" in row["out"])
                or place != inputs_of(args)[0]
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


AT, PLACES = tn.tensor([2, 0, 1, 3]), tn.tensor([[2, 1, 0], [0, 0, 1], [1, 2, 2], [3, 3, 3]])
# Writes to the first tensor what is picked from the second.
INTO: dict[str, Callable[[tn.Tensor, tn.Tensor], Any]] = {
    "index_copy_": lambda a, b: a.index_copy_(0, AT, b),
    "index_add_": lambda a, b: a.index_add_(0, AT, b, alpha=2),
    **{f"index_reduce_ {how}": lambda a, b, how=how: a.index_reduce_(0, AT, b, how)
       for how in ("prod", "mean", "amax", "amin")},
    "index_put_": lambda a, b: a.index_put_((AT,), b),
    "index_put_ added": lambda a, b: a.index_put_((AT,), b, accumulate=True),
    "scatter_": lambda a, b: a.scatter_(0, PLACES, b),
    "scatter_ multiplied": lambda a, b: a.scatter_(0, PLACES, b, reduce="multiply"),
    "scatter_add_": lambda a, b: a.scatter_add_(0, PLACES, b),
    **{f"scatter_reduce_ {how}": lambda a, b, how=how: a.scatter_reduce_(0, PLACES, b, how)
       for how in ("sum", "prod", "mean", "amax", "amin")},
    "masked_scatter_": lambda a, b: a.masked_scatter_(a > 4, b),
    "put_": lambda a, b: a.put_(PLACES, b),
    "put_ added": lambda a, b: a.put_(PLACES, b, accumulate=True),
    "index": lambda a, b: a.__setitem__(AT, b),
    "index_fill_": lambda a, b: a.index_fill_(0, AT[:2], b[1, 1]),
}  # fmt: skip


LIE: dict[str, Callable[[tn.Tensor], tuple[tn.Tensor, tn.Tensor]]] = {
    "whole": lambda x: (x, x), "rows": lambda x: (x[1:5], x[:4]),
    "columns": lambda x: (x[:4, 1:4], x[:4, :3]), "turned": lambda x: (x[:4, :3], x.T[:4, :3]),
}  # fmt: skip


@pytest.mark.parametrize("name", INTO)
def test_what_is_written_may_be_what_is_read(name: str) -> None:
    """In whole, in part, and where columns of both lie among each other: as of a copy of what is
    read, or refused."""
    for dtype in (tn.float32, tn.float64, tn.int64):
        for kind, lie in LIE.items():
            size = (4, 3) if kind == "whole" else (5, 3) if kind == "rows" else (5, 5)
            here, there = (
                (tn.arange(size[0] * size[1]) % 7 + 1).reshape(size).to(dtype) for _ in range(2)
            )
            (to, source), (apart, read) = lie(here), lie(there)
            INTO[name](apart, read.clone())
            try:
                INTO[name](to, source)
            except RuntimeError as err:
                assert "refer to a single memory location" in str(err), err
                assert kind in ("whole", "rows"), err
            else:
                assert tn.equal(here, there), (kind, dtype)


@pytest.mark.parametrize("name", ["sum", "nansum", "cumsum", "mean", "nanmean"])
def test_sums_are_made_in_the_dtype_of_out(name: str) -> None:
    """In float32 the second and the third element would not change the first."""
    x, means = tn.tensor([2.0**24, 1.0, 1.0]), "mean" in name
    for kind in (tn.float64,) if means else (tn.float64, tn.int64):
        out = tn.empty(0, dtype=kind)
        y = getattr(tn, name)(x, 0, out=out)
        assert y is out and y.dtype == kind
        assert y.flatten()[-1].item() == (2**24 + 2) / (3 if means else 1)
    if name == "sum":
        with pytest.raises(RuntimeError, match="to have dtype Float, but got Double instead"):
            tn.sum(x, 0, dtype=tn.float32, out=tn.empty(0, dtype=tn.float64))


@pytest.mark.parametrize("dtype", [tn.float64, tn.float32, tn.int16, tn.uint8])
def test_neighbours_do_not_meet(dtype: tn.dtype) -> None:
    """Parts of one memory that touch are apart, those with one common element are not."""
    x = tn.arange(24).to(dtype)
    for out, given in ((slice(8, 16), slice(16, 24)), (slice(8, 16), slice(0, 8))):
        want = (x[given] + 1).tolist()
        assert tn.add(x[given], 1, out=x[out]).tolist() == want
    for out, given in ((slice(8, 16), slice(15, 23)), (slice(8, 16), slice(1, 9))):
        before = x.tolist()
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            tn.add(x[given], 1, out=x[out])
        assert x.tolist() == before
