"""vmap of every operator against a loop over the elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
from table import entries, function_of, inner, make_case, sampled, tensor_args
from tenon.profiler import profile

SIZE = 3


def elements(value: Any) -> list[Any]:
    """Tensors like this one with its values in other places, so that they are in its domain."""
    if isinstance(value, list):
        return [list(e) for e in zip(*[elements(v) for v in value], strict=True)]
    flat = value.reshape(-1)
    return [(flat.roll(i) if flat.numel() else flat).reshape(value.shape) for i in range(SIZE)]


def is_tensor(value: Any) -> bool:
    return isinstance(value, tn.Tensor) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], tn.Tensor)
    )


def positional(row: dict[str, Any], args: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The call as programs write it: what comes first by position."""
    rest, first = dict(args), []
    for a in row["args"]:
        if a["kwonly"] or a["name"] not in rest:
            break
        first.append(rest.pop(a["name"]))
    return first, rest


def leaves(out: Any) -> list[Any]:
    return [x for o in out for x in leaves(o)] if isinstance(out, list | tuple) else [out]


def same(got: Any, want: list[Any]) -> None:
    """The batch of results holds the results of the elements."""
    for k, batch in enumerate(leaves(got)):
        singles = [leaves(w)[k] for w in want]
        assert batch.dtype == singles[0].dtype
        assert batch.shape == (SIZE, *singles[0].shape)
        for i, single in enumerate(singles):
            np.testing.assert_allclose(
                batch[i].detach().numpy(), single.detach().numpy(), rtol=1e-10, atol=1e-10
            )


def check(row: dict[str, Any], args: dict[str, Any], names: list[str]) -> None:
    """vmap along the tensors of these names."""
    function = function_of(row)
    columns = {n: elements(args[n]) for n in names}

    def run(*values: Any) -> Any:
        given = {**args, **dict(zip(names, values, strict=True))}
        first, rest = positional(row, given)
        return function(*first, **rest)

    try:
        want = [run(*(columns[n][i] for n in names)) for i in range(SIZE)]
    except tn.linalg.LinAlgError:
        return  # with its values in other places a matrix may have no such factors
    if len({tuple(tuple(leaf.shape) for leaf in leaves(w)) for w in want}) > 1:
        return  # how large the result is depends on the values
    batches = [
        [tn.stack(c) for c in zip(*columns[n], strict=True)]
        if isinstance(args[n], list) else tn.stack(columns[n])
        for n in names
    ]  # fmt: skip
    same(tn.vmap(run)(*batches), want)


# One gives no tensor, two need a dtype that is no text, one counts from where its memory begins.
APART = {"equal", "view_as_type", "view_copy_as_type", "as_strided_scatter"}


@pytest.mark.parametrize(
    "row",
    [r for r in sampled() if r["name"] not in APART]
    + [r for r in inner() if r["vmap"] != "each" and not r["random"]],
    ids=lambda row: row["name"],
)
def test_against_a_loop(row: dict[str, Any]) -> None:
    if row["inplace_only"]:
        pytest.skip("the target of a loop is another one")
    dtype = next((d for d in ("float64", "int64", "complex128", "bool") if d in row["dtypes"]), "")
    for sample in row["samples"]:
        args = tensor_args(make_case(row, sample, dtype))
        names = [n for n, v in args.items() if is_tensor(v)]
        if not names:
            continue
        check(row, args, names)
        for name in names[:2] if len(names) > 1 else []:
            check(row, args, [name])


def calls(row: dict[str, Any], args: dict[str, Any], names: list[str], size: int) -> int:
    """How many operators run for a batch of that size."""
    function = function_of(row)

    def run(*values: Any) -> Any:
        first, rest = positional(row, {**args, **dict(zip(names, values, strict=True))})
        return function(*first, **rest)

    batches = [tn.stack([args[n]] * size) for n in names]
    with profile() as recorded:
        tn.vmap(run)(*batches)
    return len(recorded.events())


# These are made of operators that have no rule of their own: outer, diag_embed, addmm, one_hot,
# scatter_add.
BY_ELEMENT = {"addbmm", "addr", "diagflat", "multi_margin_loss", "multilabel_margin_loss"}


FIRST_ALONE = {"along", "last", "fold", "spread", "samples", "permute", "outer"}


@pytest.mark.parametrize(
    "row",
    [r for r in entries() + inner() if r["vmap"] != "each" and r["name"] not in BY_ELEMENT],
    ids=lambda row: row["name"],
)
def test_one_call_for_all_elements(row: dict[str, Any]) -> None:
    """A pointwise operator, and a composite through its parts, is not called for each element."""
    if row["inplace_only"] or row["random"]:
        pytest.skip("the target of a loop is another one")
    dtype = next((d for d in ("float64", "int64", "complex128", "bool") if d in row["dtypes"]), "")
    args = tensor_args(make_case(row, row["samples"][0], dtype))
    names = [n for n, v in args.items() if isinstance(v, tn.Tensor)]
    if row["vmap"].partition(" ")[0] in FIRST_ALONE:
        names = [row["vmap"].split()[-1]] if " indices" in row["vmap"] else names[:1]
    counts = [calls(row, args, names, size) for size in (2, 7)]
    assert counts[0] == counts[1]
