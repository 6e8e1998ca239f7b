"""Every byte but 0 is true: memory that is viewed as bool, and what files and other libraries hand
over, has other bytes than 0 and 1. All operators give for them what they give for True."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import table
import tenon as tn
from both import flat


def other_bytes(value: Any) -> Any:
    """The same bools with 2 to 255 for true."""
    if isinstance(value, list):
        return [other_bytes(v) for v in value]
    if not isinstance(value, tn.Tensor) or value.dtype != tn.bool:
        return value
    fill = tn.arange(value.numel(), dtype=tn.int64).remainder(254).add(2).view(value.shape)
    bytes_ = tn.where(value.cpu(), fill.to(tn.uint8), tn.zeros((), dtype=tn.uint8))
    return bytes_.view(tn.bool).to(value.device)


def holds_bools(args: dict[str, Any]) -> bool:
    return any(isinstance(t, tn.Tensor) and t.dtype == tn.bool for t in flat(list(args.values())))


def cases() -> dict[str, list[table.Case]]:
    """By operator, those of all samples that take a bool, whatever their other operands are."""
    found: dict[str, list[table.Case]] = {}
    for row in table.sampled():
        dtypes = [d for d in ("bool", "float32", "int64") if d in row["dtypes"]]
        for sample in row["samples"]:
            for case in (table.make_case(row, sample, dtype) for dtype in dtypes):
                if holds_bools(table.tensor_args(case)):
                    found.setdefault(row["name"], []).append(case)
    return found


CASES = cases()


def values(result: Any) -> list[Any]:
    """Numbers of a result's tensors; of bools whether they are true."""
    return [
        np.asarray((t.view(tn.uint8) != 0 if t.dtype == tn.bool else t).cpu().tolist())
        for t in flat(result)
        if isinstance(t, tn.Tensor)
    ]


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_byte_but_0_is_true(name: str) -> None:
    for case in CASES[name]:
        plain, odd = table.tensor_args(case), table.tensor_args(case)
        odd = {n: other_bytes(v) for n, v in odd.items()}
        assert holds_bools(odd)
        try:
            tn.manual_seed(5)
            want = values(table.call(case.row, plain))
        except (RuntimeError, TypeError):  # no kernel for bool
            continue
        tn.manual_seed(5)
        got = values(table.call(case.row, odd))
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w, err_msg=case.label())
