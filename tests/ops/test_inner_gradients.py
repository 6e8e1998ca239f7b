"""Gradients of the operators that only formulas call, by themselves: first and second order against
finite differences, forward mode against backward. What calls them reaches a third derivative, a
gradient for a factor or a form of theirs seldom or never.

Adding such an operator with samples adds its tests: one with a gradient needs them.
"""

from __future__ import annotations

from typing import Any

import pytest
import table
import tenon as tn
from tenon.autograd import forward_ad, gradcheck, gradgradcheck

# No differences of these: steps that gradients pass as if there were none, and a loss whose
# gradient is that of logarithms which sum up to 1. The samples of index are lists with gaps.
APART = {"_fake_quantize", "_ctc_loss", "index"}
# What these keep for their gradients has none itself.
FIRST = {"_cross_entropy", "_flash_attention", "_rms_norm"}
# What takes sparse tensors, draws numbers or runs on devices of CUDA alone has no samples.
WITHOUT = {"_sparse_make", "_sparse_values", "_dropout", "_rnn_layers", "_rnn_layers_backward"}
WIDE = ("float64", "complex128")


def differentiable() -> list[dict[str, Any]]:
    return [
        row for row in table.inner()
        if row["differentiable"] and row["name"] not in APART and set(WIDE) & set(row["dtypes"])
    ]  # fmt: skip


every = pytest.mark.parametrize("row", differentiable(), ids=lambda row: row["name"])


class Inner:
    """One call as a function of the tensors that it has gradients for."""

    def __init__(self, row: dict[str, Any], sample: dict[str, Any], dtype: str) -> None:
        self.row, case = row, table.make_case(row, sample, dtype)
        self.label, self.args = case.label(), table.tensor_args(case)
        no = row["grad"] if isinstance(row["grad"], dict) else {}
        self.names = [
            n for n in row["differentiable"]
            if isinstance(self.args.get(n), tn.Tensor) and no.get(n) != "none"
            and (self.args[n].is_floating_point() or self.args[n].is_complex())
        ]  # fmt: skip
        self.leaves = tuple(self.args[n].requires_grad_() for n in self.names)
        results = self.all(*self.leaves)
        results = results[:1] if row["name"] in FIRST else results
        self.kept = [i for i, r in enumerate(results) if r.requires_grad]

    def all(self, *values: tn.Tensor) -> tuple[tn.Tensor, ...]:
        given = {**self.args, **dict(zip(self.names, values, strict=True))}
        out = table.call(self.row, given)
        return (out,) if isinstance(out, tn.Tensor) else tuple(out)

    def __call__(self, *values: tn.Tensor) -> tuple[tn.Tensor, ...]:
        """The results that have gradients."""
        results = self.all(*values)
        return tuple(results[i] for i in self.kept)


def calls(row: dict[str, Any]) -> list[Inner]:
    found = []
    for dtype in [d for d in WIDE if d in row["dtypes"]]:
        for sample in row["samples"]:
            try:
                found.append(Inner(row, sample, dtype))
            except NotImplementedError:  # what it is made of is not there for complex numbers
                assert dtype == "complex128" and row["composite"], row["name"]
    return found


def test_every_inner_operator_with_a_gradient_has_samples() -> None:
    gaps = {r["name"] for r in table.rows() if r["differentiable"] and not r["where"]}
    assert gaps - {r["name"] for r in table.inner()} == WITHOUT


@every
def test_gradients(row: dict[str, Any]) -> None:
    for call in calls(row):
        assert call.kept, call.label
        assert gradcheck(call, call.leaves), call.label


@every
def test_gradients_of_gradients(row: dict[str, Any]) -> None:
    for call in calls(row):
        try:
            assert gradgradcheck(call, call.leaves), call.label
        except RuntimeError as error:  # the entry says so
            assert "derivative" in str(error), call.label


@every
def test_forward_mode(row: dict[str, Any]) -> None:
    """u . J v is the same, whether the tangent v was pushed or the gradient u was pulled."""
    for call in calls(row):
        tn.manual_seed(2)
        tangents = [tn.randn_like(t) for t in call.leaves]
        results = call(*call.leaves)
        seeds = [tn.randn_like(r) for r in results]
        grads = tn.autograd.grad(results, call.leaves, seeds, allow_unused=True)
        pulled = sum(
            (g.conj() * t).real.sum().item()
            for g, t in zip(grads, tangents, strict=True) if g is not None
        )  # fmt: skip
        with forward_ad.dual_level():
            pairs = zip(call.leaves, tangents, strict=True)
            duals = [forward_ad.make_dual(x.detach(), t) for x, t in pairs]
            try:
                out = call(*duals)
            except RuntimeError as error:  # forward mode asks for a derivative of the gradient
                assert "derivative" in str(error), call.label
                continue
            pushed = [forward_ad.unpack_dual(r).tangent for r in out]
        got = sum(
            (s.conj() * t).real.sum().item()
            for s, t in zip(seeds, pushed, strict=True) if t is not None
        )  # fmt: skip
        assert got == pytest.approx(float(pulled), rel=1e-7, abs=1e-9), call.label
