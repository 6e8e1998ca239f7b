"""One argument of another floating dtype is converted or refused: no kernel takes its bytes for
those of the dtype that it computes in. Results have the dtypes that PyTorch's have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import stored
import table
import tenon as tn
from test_torch import torch_args, torch_call

# What Tenon refuses and PyTorch computes: of nothing, and running means of floats beside halves.
REFUSED = {"bmm", "cdist", "native_batch_norm"}
# A truth value that is no tensor; means that are kept for the gradient in another dtype.
OWN = {"equal", "native_group_norm", "native_layer_norm"}
OTHERS = {"float32": ["float64", "bfloat16"], "float64": ["float32"]}


def tensors(value: Any) -> Iterator[tn.Tensor]:
    if isinstance(value, tn.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors(v)


def several() -> list[dict[str, Any]]:
    """Operators with more than one tensor."""
    is_one = lambda a: a["type"].startswith(table.TENSOR_TYPES)  # noqa: E731
    return [row for row in table.sampled() if sum(map(is_one, row["args"])) > 1]


def places(row: dict[str, Any]) -> Iterator[tuple[table.Case, str, str]]:
    """Calls, an argument of theirs, and its other dtype."""
    for sample in row["samples"]:
        for dtype, others in OTHERS.items():
            case = table.make_case(row, sample, dtype)
            for name in case.tensors:
                if table.tensor_args(case)[name].is_floating_point():
                    yield from ((case, name, other) for other in others)


def theirs(torch: Any, case: table.Case, name: str, other: str) -> str:
    """The dtypes of PyTorch's results, or "refused"."""
    args = torch_args(torch, case)
    args[name] = args[name].to(getattr(torch, other))
    try:
        found = torch_call(torch, case.row, args)
    except (RuntimeError, TypeError, NotImplementedError, IndexError, ValueError, AttributeError):
        return "refused"
    results = found if isinstance(found, (list, tuple)) else [found]
    return " ".join(str(r.dtype)[6:] for r in results if isinstance(r, torch.Tensor))


@pytest.mark.parametrize("row", several(), ids=lambda row: row["name"])
def test_another_dtype(row: dict[str, Any]) -> None:
    answers = stored.of_torch(lambda torch: [theirs(torch, *place) for place in places(row)])
    for (case, name, other), answer in zip(places(row), answers, strict=True):
        try:
            want = table.call(row, table.tensor_args(case))
        except RuntimeError:  # not of this dtype
            continue
        args = table.tensor_args(case)
        args[name] = args[name].to(getattr(tn, other))
        text = f"{case.label()}: {name} of {other}"
        try:
            got = table.call(row, args)
        except (RuntimeError, TypeError):
            assert answer == "refused" or row["name"] in REFUSED, text
            continue
        if answer != "refused" and row["name"] not in OWN:
            assert " ".join(str(t.dtype)[6:] for t in tensors(got)) == answer, text
        near = 6e-2 if other == "bfloat16" else 1e-4
        for a, b in zip(tensors(got), tensors(want), strict=True):
            wide = tn.complex128 if b.is_complex() else tn.float64
            assert tn.allclose(a.to(wide), b.to(wide), near, near, equal_nan=True), text
