"""One argument of another floating dtype is converted or refused: no kernel takes its bytes for
those of the dtype that it computes in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import table
import tenon as tn

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


@pytest.mark.parametrize("row", several(), ids=lambda row: row["name"])
def test_another_dtype(row: dict[str, Any]) -> None:
    for sample in row["samples"]:
        for dtype, others in OTHERS.items():
            case = table.make_case(row, sample, dtype)
            try:
                want = table.call(row, table.tensor_args(case))
            except RuntimeError:  # not of this dtype
                continue
            for name, other in [(n, o) for n in case.tensors for o in others]:
                args = table.tensor_args(case)
                if not args[name].is_floating_point():
                    continue
                args[name] = args[name].to(getattr(tn, other))
                try:
                    got = table.call(row, args)
                except (RuntimeError, TypeError):
                    continue
                near = 6e-2 if other == "bfloat16" else 1e-4
                for a, b in zip(tensors(got), tensors(want), strict=True):
                    wide = tn.complex128 if b.is_complex() else tn.float64
                    assert tn.allclose(a.to(wide), b.to(wide), near, near, equal_nan=True), name
