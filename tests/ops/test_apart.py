"""Every composite as the operators that it calls: a program of the parts computes what the whole
does, to the bit, and gives the gradients that it gives."""

from __future__ import annotations

from typing import Any

import pytest
import tenon as tn
from table import Case, call, make_case, sampled, tensor_args
from tenon._program import record
from tenon._program.apart import take_apart
from tenon.utils import _pytree

ROWS = [
    row for row in sampled()
    if row["kind"] == "composite" and "float32" in row["dtypes"] and "_(" not in row["sig"]
]  # fmt: skip


def as_program(case: Case, args: dict[str, Any]) -> Any:
    """The call as a program, or None where it cannot be recorded (a value is looked at)."""
    own = {n: v for n, v in args.items() if isinstance(v, tn.Tensor)}

    def run() -> list[Any]:
        found = _pytree.tree_leaves(call(case.row, args))
        return [t for t in found if isinstance(t, tn.Tensor)]

    try:
        program, results = record(run, own)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    return program if results and not program.reads[0] else None


def gradients(program: Any, args: dict[str, Any]) -> list[Any]:
    own = [
        v.detach().clone().requires_grad_(v.is_floating_point() and not name.startswith("running"))
        for name, v in args.items()
        if isinstance(v, tn.Tensor)
    ]
    found = [t for t in program(*own) if t.requires_grad]
    leaves = [t for t in own if t.requires_grad]
    if not found:
        return [tn.zeros_like(t) for t in leaves]
    found = [tn.view_as_real(t) if t.is_complex() else t for t in found]
    total: Any = sum((t * tn.linspace(0.5, 1.5, t.numel()).view_as(t)).sum() for t in found)
    return list(tn.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_parts_compute_what_the_whole_does(row: dict[str, Any]) -> None:
    for sample in row["samples"]:
        case = make_case(row, sample, "float32")
        args = tensor_args(case)
        program = as_program(case, args)
        if program is None:
            continue
        own = [v for v in args.values() if isinstance(v, tn.Tensor)]
        parts = take_apart(program, None, own)
        copies = [t.clone() for t in own]
        for a, b in zip(parts(*own), program(*copies), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert a.layout != tn.strided or tn.equal(a.nan_to_num(), b.nan_to_num()), case.label()
        try:
            by_parts = gradients(parts, args)
        except RuntimeError as err:  # of a part that has none
            assert row["grad"] or "_scatter_" in str(err), case.label()
            continue
        for a, b in zip(by_parts, gradients(program, args), strict=True):
            tn.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_most_composites_come_apart() -> None:
    """Those that stay are the ones that look at values or make tensors without operators."""
    whole = set()
    for row in ROWS:
        case = make_case(row, row["samples"][0], "float32")
        program = as_program(case, tensor_args(case))
        if program is not None:
            own = [v for v in tensor_args(case).values() if isinstance(v, tn.Tensor)]
            parts = take_apart(program, None, own)
            whole |= {row["name"]} & {n["op"] for n in parts.data["nodes"]}
    assert len(whole) < len(ROWS) / 8, sorted(whole)
