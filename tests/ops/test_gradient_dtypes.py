"""Gradients of calls whose tensors have different dtypes or are broadcast: each has the dtype and
the shape of its tensor and the numbers that the same call has in float64 or complex128, whose
gradients others hold against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import table
import tenon as tn
from tolerances import tolerance

PAIRS = [("float32", "float64"), ("float64", "float32"), ("float16", "float32"),
         ("float32", "bfloat16"), ("float32", "complex64"), ("complex64", "float32")]  # fmt: skip


def parts(value: Any) -> list[tn.Tensor]:
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in parts(v)]
    return [value] if isinstance(value, tn.Tensor) else []


def has_grad(t: Any) -> bool:
    return isinstance(t, tn.Tensor) and (t.is_floating_point() or t.is_complex())


def widened(value: Any) -> Any:
    if isinstance(value, list):
        return [widened(v) for v in value]
    if not has_grad(value):
        return value
    return value.detach().to(tn.complex128 if value.is_complex() else tn.float64)


def differentiable() -> list[dict[str, Any]]:
    return [
        row for row in table.rows()
        if row["samples"] and row["differentiable"] and not row["random"] and row["name"] != "index"
    ]  # fmt: skip


def written(row: dict[str, Any]) -> set[str]:
    return {a["name"] for a in row["args"] if "!" in a["type"]}


def call(row: dict[str, Any], args: dict[str, Any]) -> list[tn.Tensor]:
    """The results; what the call writes to is a copy."""
    copied = written(row)
    return parts(table.call(row, {n: v.clone() if n in copied else v for n, v in args.items()}))


def seeds_of(results: list[tn.Tensor]) -> list[tn.Tensor]:
    """Weights of the results."""
    places = [tn.arange(r.numel(), dtype=tn.float64).reshape(r.shape) for r in results]
    return [((p + k).cos() + 1.5).to(r.dtype) for k, (p, r) in enumerate(zip(places, results))]


def gradients(row: dict[str, Any], args: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """The results, the leaves and their gradients of a sum with weights."""
    names = set(row["differentiable"]) - (set() if row["inplace_only"] else written(row))
    given = {
        n: v.detach().requires_grad_() if has_grad(v) and n in names else v
        for n, v in args.items()
    }  # fmt: skip
    leaves = [t for t in given.values() if isinstance(t, tn.Tensor) and t.requires_grad]
    results = [r for r in call(row, given) if r.requires_grad]
    if not results:
        return [], [], []
    grads = tn.autograd.grad(results, leaves, seeds_of(results), allow_unused=True)
    return results, leaves, list(grads)


def check(row: dict[str, Any], args: dict[str, Any], text: str) -> None:
    """The gradients beside those of the call in wide dtypes, where the call is not refused."""
    try:
        with tn.no_grad():
            call(row, args)
    except (NotImplementedError, RuntimeError, TypeError):
        return
    try:
        results, leaves, grads = gradients(row, args)
    except RuntimeError as error:  # the entry says so
        missing = isinstance(error, NotImplementedError) or "derivative for" in str(error)
        assert missing, f"{text}: {error}"
        return
    _, _, want = gradients(row, {n: widened(v) for n, v in args.items()})
    if not results:
        return
    near = [tolerance(str(t.dtype).split(".")[-1]) for t in [*results, *parts([*args.values()])]]
    rtol, atol = (32 * (row["tol"] or 1) * max(n) for n in zip(*near, strict=True))
    for leaf, g, w in zip(leaves, grads, want, strict=True):
        assert (g is None) == (w is None), text
        if g is None:
            continue
        assert (g.dtype, g.shape) == (leaf.dtype, leaf.shape), text
        a, b = (table.as_array(x) for x in (g, w))
        np.testing.assert_allclose(a.astype(b.dtype), b, rtol=rtol, atol=atol, err_msg=text)


@pytest.mark.parametrize("row", differentiable(), ids=lambda row: row["name"])
def test_mixed(row: dict[str, Any]) -> None:
    for sample in row["samples"]:
        for first, rest in PAIRS:
            one, other = (table.make_case(row, sample, d) for d in (first, rest))
            args, more = table.tensor_args(one), table.tensor_args(other)
            names = [n for n in args if has_grad(args[n]) or isinstance(args[n], list)]
            for k, name in enumerate(names):
                mixed = {**args, **{n: more[n] for n in names[:k] + names[k + 1 :]}}
                check(row, mixed, f"{one.label()} {name} {first} {rest}")


def smaller(t: tn.Tensor) -> list[tn.Tensor]:
    """Parts that broadcasting makes as large again."""
    return [t[:1], t[0], t[..., :1], t[0][..., :1]] if t.ndim > 1 and t.numel() else []


def several() -> list[dict[str, Any]]:
    many = [r for r in differentiable() if "float64" in r["dtypes"] and not r["inplace_only"]]
    return [r for r in many if sum(table.is_tensor_type(a["type"]) for a in r["args"]) > 1]


@pytest.mark.parametrize("row", several(), ids=lambda row: row["name"])
def test_broadcast(row: dict[str, Any]) -> None:
    """Where a smaller tensor gives what its expansion gives, its gradient is the expansion's
    summed over what was expanded."""
    for sample in row["samples"]:
        case = table.make_case(row, sample, "float64")
        args = table.tensor_args(case)
        for name in [n for n in args if has_grad(args[n]) and n in row["differentiable"]]:
            for part in smaller(args[name]):
                whole = part.expand(args[name].shape).contiguous()
                try:
                    with tn.no_grad():
                        plain = call(row, {**args, name: part})
                except (RuntimeError, IndexError, ValueError):
                    continue
                expanded, _, want = gradients(row, {**args, name: whole})
                if any(a.shape != b.shape or not a.equal(b) for a, b in zip(plain, expanded)):
                    continue
                _, leaves, grads = gradients(row, {**args, name: part})
                for leaf, g, w in zip(leaves, grads, want, strict=True):
                    assert (g is None) == (w is None), case.label()
                    if g is None:
                        continue
                    assert g.shape == leaf.shape, case.label()
                    total = np.asarray(w.numpy())
                    total = total.sum(tuple(range(total.ndim - leaf.ndim)))
                    ones = tuple(d for d, n in enumerate(leaf.shape) if n < total.shape[d])
                    total = total.sum(ones, keepdims=True)
                    np.testing.assert_allclose(
                        g.numpy(), total, rtol=1e-10, atol=1e-12, err_msg=f"{case.label()} {name}"
                    )


@pytest.mark.parametrize("row", several(), ids=lambda row: row["name"])
def test_each_alone(row: dict[str, Any]) -> None:
    """A tensor's gradient is the same, whether or not the others' are asked for."""
    for sample in row["samples"]:
        case = table.make_case(row, sample, "float64")
        args = table.tensor_args(case)
        _, leaves, grads = gradients(row, args)
        names = [n for n in args if has_grad(args[n]) and n in row["differentiable"]]
        for i in range(len(leaves) if len(leaves) > 1 else 0):
            given = {n: leaves[i].detach().requires_grad_() if n == names[i] else v
                     for n, v in args.items()}  # fmt: skip
            results = [r for r in call(row, given) if r.requires_grad]
            if not results:
                assert grads[i] is None or not grads[i].any(), f"{case.label()} {names[i]}"
                continue
            seeds = seeds_of(results)
            (alone,) = tn.autograd.grad(results, [given[names[i]]], seeds, allow_unused=True)
            assert (alone is None) == (grads[i] is None), f"{case.label()} {names[i]}"
            if alone is not None:
                np.testing.assert_array_equal(alone.numpy(), grads[i].numpy(), case.label())
