"""Many gradients by one backward pass (`_transform.rows`) against a pass for each, for the gradient
of every operator: first order, and second through what was recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import table
import tenon as tn
from tenon._transform import rows
from test_inner_gradients import APART, WIDE, Inner

SIZE = 3
# An operator of their gradients has no rule: rows are computed singly.
NO_RULE = {
    "_as_strided", "_cholesky_solve", "_conv", "_conv_backward_input", "_conv_backward_weight",
    "_cross_entropy", "_embedding_backward", "_embedding_gather", "_fft_weigh", "_grid_sample",
    "_grid_sample_grid", "_grid_sample_input", "_index_backward", "_nll_loss",
    "_nll_loss_backward", "_nll_loss_gather", "_sddmm", "_spmm",
    "_upsample_bilinear2d_backward", "_upsample_nearest2d_backward", "embedding",
}  # fmt: skip


def with_gradients() -> list[dict[str, Any]]:
    return [
        row for row in table.rows()
        if row["samples"] and row["differentiable"] and not row["inplace_only"]
        and not row["random"] and row["name"] not in APART and set(WIDE) & set(row["dtypes"])
    ]  # fmt: skip


def calls(row: dict[str, Any]) -> list[Inner]:
    found = []
    for dtype in [d for d in WIDE if d in row["dtypes"]]:
        for sample in row["samples"]:
            try:
                call = Inner(row, sample, dtype)
            except (
                RuntimeError,
                NotImplementedError,
            ):  # of complex numbers, or writes to statistics
                continue
            if call.kept:
                found.append(call)
    return found


def same(got: list[Any], want: list[Any], label: str) -> None:
    for g, w in zip(got, want, strict=True):
        assert (g is None) == (w is None), label
        if w is not None:
            assert g.dtype == w.dtype and g.shape == w.shape, label
            a, b = g.detach().resolve_conj().numpy(), w.detach().resolve_conj().numpy()
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=label)


def second(found: list[Any], leaves: tuple[tn.Tensor, ...]) -> list[Any]:
    """Gradients of a number that all rows go into, each element in its own way."""
    recorded = [f for f in found if f is not None and f.requires_grad]
    if not recorded:
        return [None] * len(leaves)
    tn.manual_seed(3)
    total = sum((f * tn.randn_like(f)).real.sum() for f in recorded)
    return list(tn.autograd.grad(total, leaves, retain_graph=True, allow_unused=True))


@pytest.mark.parametrize("row", with_gradients(), ids=lambda row: row["name"])
def test_all_at_once(row: dict[str, Any]) -> None:
    reached, made = 0, calls(row)
    for call in made:
        results = call(*call.leaves)
        tn.manual_seed(2)
        seeds = [tn.randn(SIZE, *r.shape, dtype=r.dtype) for r in results]
        try:
            got = rows._all_at_once(results, call.leaves, seeds, True, True, SIZE)
        except rows._NoRuleError:
            continue
        want = rows._one_by_one(results, call.leaves, seeds, True, True, True, SIZE)
        same(got, want, call.label)
        try:
            again = second(want, call.leaves)
        except RuntimeError as error:  # the entry says so
            assert "derivative" in str(error), call.label
        else:
            same(second(got, call.leaves), again, call.label)
        reached += 1
    assert (reached > 0) == (row["name"] not in NO_RULE) or not made
