"""Derivatives of the first, second and third order of every operator against central differences
along one direction. What a gradient is made of has gradients too: the third order reaches operators
that no program calls by name.

The tests walk the whole table: a new operator is covered without being named here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
from both import flat
from table import call, make_case, sampled, tensor_args
from test_history import weights
from test_ops import differentiable

STEP = 1e-6
# A padding row has no gradient and statistics of a layer pass none on, as in PyTorch, whatever the
# differences say.
APART = {"embedding", "native_layer_norm"}


def able(row: dict[str, Any]) -> bool:
    written = any("!" in a["type"] for a in row["args"])
    return differentiable(row) and not written and row["name"] not in APART


def number(tensors: list[tn.Tensor], squares: bool) -> tn.Tensor:
    """A sum in which every element has a weight of its own, with squares if parts are linear."""
    parts = []
    for t in tensors:
        size = (t * t.conj()).real if t.is_complex() else t * t
        weighed = t * weights(tn, t)
        parts.append((weighed.real if t.is_complex() else weighed).sum())
        parts += [size.sum()] if squares else []
    return sum(parts[1:], parts[0])


def climbed(results: list[Any], inputs: list[tn.Tensor], order: int) -> tn.Tensor | None:
    """A number made of the derivatives of order `order` - 1; nothing where these are constant."""
    live = [r for r in results if isinstance(r, tn.Tensor) and r.requires_grad]
    for k in range(order - 1):
        if not live:
            return None
        total = number(live, k == 0)
        grads = tn.autograd.grad(total, inputs, create_graph=True, allow_unused=True)
        live = [g for g in grads if g is not None and g.requires_grad]
    return number(live, order == 1) if live else None


@pytest.mark.parametrize(
    "row",
    [r for r in sampled() if able(r)],
    ids=lambda row: row["name"],
)
def test_three_orders(row: dict[str, Any]) -> None:
    samples = row["samples"] if row["grad_samples"] is None else row["grad_samples"]
    for sample in samples:
        case = make_case(row, sample, "float64")
        args = tensor_args(case)
        names = [n for n in row["differentiable"] if isinstance(args.get(n), tn.Tensor)]
        start = {n: args[n].numpy() for n in names if args[n].dtype == tn.float64}
        rng = np.random.default_rng(len(start))
        way = {n: rng.standard_normal(x.shape) for n, x in start.items()}

        def at(
            step: float,
            order: int,
            args: dict[str, Any] = args,
            start: dict[str, np.ndarray] = start,
            way: dict[str, np.ndarray] = way,
        ) -> tuple[list[tn.Tensor], tn.Tensor | None]:
            moved = {n: tn.from_numpy(np.asarray(x + step * way[n])) for n, x in start.items()}
            inputs = [t.requires_grad_() for t in moved.values()]
            tn.manual_seed(1)
            return inputs, climbed(flat(call(row, {**args, **moved})), inputs, order)

        for order in (1, 2, 3):
            inputs, total = at(0.0, order)
            if total is None or not total.requires_grad:
                break
            grads = tn.autograd.grad(total, inputs, allow_unused=True)
            pairs = zip(grads, way.values(), strict=True)
            got = sum(float((g.numpy() * w).sum()) for g, w in pairs if g is not None)
            low, high = at(-STEP, order)[1], at(STEP, order)[1]
            assert low is not None and high is not None
            want = (high.item() - low.item()) / (2 * STEP)
            near = 1e-4 * abs(want) + 1e-7 * max(abs(total.item()), 1)
            assert abs(got - want) <= near, (case.label(), order, got, want)
