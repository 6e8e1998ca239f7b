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


NARROWED = [tn.uint8, tn.int8, tn.int16, tn.int32, tn.int64, tn.float16, tn.bfloat16, tn.float32,
            tn.float64]  # fmt: skip


@pytest.mark.parametrize("kind", ["many", "few", "alike", "near"])
@pytest.mark.parametrize("dtype", NARROWED, ids=str)
def test_the_kth_of_long_rows(dtype: tn.dtype, kind: str) -> None:
    """The value and its first free place among equals, by a stable sort in NumPy."""
    draw = np.random.default_rng(3)
    for n in (39, 40, 41, 300, 1000):
        x = {
            "many": draw.integers(0, 120, (3, n)) * draw.choice([1, 1 << 20], (3, n)),
            "few": draw.integers(0, 3, (3, n)),
            "alike": np.full((3, n), 7),
            "near": draw.integers(0, 1 << 40, (3, n)) >> draw.integers(0, 40, (3, n)),
        }[kind]
        t = tn.tensor(x).to(dtype)
        if dtype.is_floating_point and kind != "alike":
            t = t - 5.5
        v = t.double().numpy() if dtype.is_floating_point else t.to(tn.int64).numpy()
        order = np.argsort(v, axis=1, kind="stable")
        for k in (1, 2, n // 3, n // 2, n - 1, n):
            values, places = t.kthvalue(k)
            np.testing.assert_array_equal(places.numpy(), order[:, k - 1])
            assert tn.equal(values, t.gather(1, places[:, None])[:, 0])
        values, places = t.median(1)
        np.testing.assert_array_equal(places.numpy(), order[:, (n - 1) // 2])


def test_medians_of_what_is_no_nan() -> None:
    x = np.random.default_rng(4).normal(size=(4, 301)).astype(np.float32)
    x[1, 7], x[2, ::2] = np.nan, np.nan
    values = tn.tensor(x).nanmedian(1).values.numpy()
    exact = [np.sort(row[~np.isnan(row)])[((~np.isnan(row)).sum() - 1) // 2] for row in x]
    np.testing.assert_array_equal(values, np.array(exact, np.float32))
    assert tn.tensor(x).median(1).indices.tolist()[1:3] == [7, 0]


@pytest.mark.parametrize("dtype", [*NARROWED, tn.bool, tn.complex64, tn.complex128], ids=str)
def test_turned_rows(dtype: tn.dtype) -> None:
    for n in (*range(20), 64, 67, 255):
        x = tn.tensor(np.random.default_rng(n).integers(0, 100, (3, n))).to(dtype)
        if dtype == tn.bool:
            x = tn.tensor(np.random.default_rng(n).integers(0, 2, (3, n)) > 0)
        assert x.flip(1).tolist() == [row[::-1] for row in x.tolist()]
        assert x.flip(0, 1).tolist() == [row[::-1] for row in x.tolist()][::-1]
