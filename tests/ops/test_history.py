"""Histories: which results of which operators carry one, that an operator without a gradient says
so instead of giving zeros, that in-place forms have the gradients of the plain ones, and that hooks
of saved tensors change none.

The tests walk the whole table: a new operator is covered without being named here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from both import flat
from table import Case, call, make_case, sampled, tensor_args
from test_torch import torch_args, torch_call

FLOATING = ("float64", "complex128")


def roots(lib: Any, args: dict[str, Any]) -> list[Any]:
    """The floating tensors among the arguments, from here on requiring gradients."""
    found = []
    for value in args.values():
        for t in value if isinstance(value, list) else [value]:
            if isinstance(t, lib.Tensor) and t.dtype in (lib.float64, lib.complex128):
                found.append(t.requires_grad_())
    return found


def weights(lib: Any, t: Any) -> Any:
    w = np.cos(np.arange(t.numel())).reshape(tuple(t.shape))
    return lib.from_numpy(np.asarray(w)).to(t.dtype)


def array(t: Any) -> np.ndarray:
    return stored.array_of(t)[1]


def square_sum(t: Any) -> Any:
    return (t * t.conj()).real.sum() if t.is_complex() else (t * t).sum()


def derivatives(lib: Any, results: list[Any], inputs: list[Any], orders: int) -> list[Any]:
    """Gradients of weighted sums of the results, then of the squares of those; zeros for none."""
    live = [r for r in results if r.requires_grad]
    found: list[np.ndarray] = []
    for order in range(orders):
        if not live:
            found += [array(lib.zeros_like(x)) for x in inputs]
            continue
        seeds = [weights(lib, r) for r in live] if order == 0 else None
        sums = live if order == 0 else [square_sum(r) for r in live]
        grads = lib.autograd.grad(
            sums, inputs, seeds, create_graph=order + 1 < orders, allow_unused=True
        )
        found += [array(lib.zeros_like(x) if g is None else g)
                  for g, x in zip(grads, inputs, strict=True)]  # fmt: skip
        live = [g for g in grads if g is not None and g.requires_grad]
    return found


def in_place(lib: Any, row: dict[str, Any], args: dict[str, Any]) -> Any:
    rest = dict(args)
    target = rest.pop(row["args"][0]["name"]) * 1
    return getattr(target, row["py_name"] + "_")(**rest)


# Composites that no complex numbers go through.
REAL = {"scatter_reduce", "index_reduce", "searchsorted", "bucketize", "view_as_complex"}
# Counts; numbers in tensors; arguments that are written, which have no history; no dtype as text.
APART = {
    "histc", "linspace_tensors", "logspace_tensors", "detach_copy", "batch_norm",
    "native_batch_norm", "view_as_type", "view_copy_as_type",
}  # fmt: skip
# Differentiable in one argument alone.
HALF = {"igamma", "igammac"}


def floating_cases(row: dict[str, Any]) -> list[Case]:
    dtypes = [d for d in FLOATING if d in row["dtypes"]]
    dtypes = [d for d in dtypes if d == "float64" or row["name"] not in REAL]
    return [make_case(row, s, d) for d in dtypes for s in row["samples"]]


def apart() -> list[dict[str, Any]]:
    return [row for row in sampled() if row["name"] not in APART]


@pytest.mark.parametrize("row", apart(), ids=lambda row: row["name"])
def test_every_floating_result_has_a_history(row: dict[str, Any]) -> None:
    """A floating result of floating tensors is differentiable unless its entry says otherwise."""
    for case in floating_cases(row):
        args = tensor_args(case)
        inputs = roots(tn, args)
        if row["inplace_only"] or not inputs:
            continue
        results = [r for r in flat(call(row, args)) if isinstance(r, tn.Tensor)]
        for i, r in enumerate(results):
            floating = r.dtype.is_floating_point or r.is_complex()
            if row["history"] == "first" and i > 0:
                assert not r.requires_grad, case.label()
                continue
            known = row["grad"] != "none" and (row["grad"] or row["composite"])
            assert r.requires_grad == (floating and bool(known)), case.label()
        if row["grad"] == "missing":
            for r in (r for r in results if r.requires_grad):
                assert "NotImplemented" in repr(r.grad_fn)
                with pytest.raises(RuntimeError, match=f"derivative for {row['name']} is not"):
                    r.abs().sum().backward()


@pytest.mark.parametrize(
    "row",
    [r for r in apart() if "inplace" in r["where"] and r["name"] not in HALF],
    ids=lambda row: row["name"],
)
def test_in_place_gradients(row: dict[str, Any]) -> None:
    """Both orders of gradients of x.op_() are those of x.op()."""
    for case in floating_cases(row):
        args = tensor_args(case)
        inputs = roots(tn, args)
        first = args.get(row["args"][0]["name"])
        if not isinstance(first, tn.Tensor) or row["grad"] == "missing":
            continue
        plain = call(row, {**args})
        if (plain.shape, plain.dtype) != (first.shape, first.dtype):
            continue
        got = in_place(tn, row, args)
        want = derivatives(tn, [plain], inputs, 2)
        for g, w in zip(derivatives(tn, [got], inputs, 2), want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-10, atol=1e-12, err_msg=case.label())


@pytest.mark.parametrize("row", apart(), ids=lambda row: row["name"])
def test_gradients_of_what_hooks_unpack(row: dict[str, Any]) -> None:
    """Hooks of saved tensors that hand back copies change no gradient, also of lists."""
    for case in floating_cases(row):
        args = tensor_args(case)
        inputs = roots(tn, args)
        if row["inplace_only"] or row["grad"] == "missing" or not inputs:
            continue
        plain = [r for r in flat(call(row, args)) if isinstance(r, tn.Tensor)]
        hooks = tn.autograd.graph.saved_tensors_hooks(tn.clone, tn.clone)
        with hooks:
            packed = [r for r in flat(call(row, args)) if isinstance(r, tn.Tensor)]
        try:
            want = derivatives(tn, plain, inputs, 2)
        except RuntimeError:  # without hooks there is none
            continue
        with hooks:
            got = derivatives(tn, packed, inputs, 2)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-13, atol=1e-15, err_msg=case.label())


# Where PyTorch has no gradient, zero, a weaker one, or none of this dtype, and Tenon has one;
# PyTorch's of as_strided_scatter is at the elements that were replaced.
BEYOND = {
    "hardsigmoid", "ldexp", "native_layer_norm", "native_group_norm", "equal", "allclose",
    "as_strided_scatter", "special_modified_bessel_i0", "special_modified_bessel_i1",
}  # fmt: skip


@pytest.mark.parametrize("row", sampled(), ids=lambda row: row["name"])
def test_same_gradients_as_torch(row: dict[str, Any]) -> None:
    """Of every result, both orders, wherever PyTorch has such a gradient."""
    if row["inplace_only"] or row["name"] in BEYOND:
        pytest.skip("PyTorch has no such gradient")
    cases = floating_cases(row)

    def theirs(torch: Any, case: Case) -> Any:
        try:
            args = torch_args(torch, case)
            inputs = roots(torch, args)
            results = [r for r in flat(torch_call(torch, row, args)) if hasattr(r, "dtype")]
            history = [r.requires_grad for r in results]
            return [history, derivatives(torch, results, inputs, 2)] if inputs else None
        except (RuntimeError, TypeError, AttributeError, ValueError):
            return None

    answers = stored.of_torch(lambda torch: [theirs(torch, case) for case in cases])
    for case, want in zip(cases, answers, strict=True):
        args = tensor_args(case)
        inputs = roots(tn, args)
        if want is None or not inputs:
            continue
        ours = flat(call(row, args))
        assert [r.requires_grad for r in ours] == want[0], case.label()
        stored.same(derivatives(tn, ours, inputs, 2), want[1], 1e-6, 1e-8, case.label())


@pytest.mark.parametrize("kind", ["same", "ones", "expanded"])
def test_hooks_keep_the_layout(kind: str) -> None:
    """Gradients of sparse tensors read the parts of what was saved."""
    unpack = {
        "same": lambda t: t,
        "ones": lambda t: tn.ones(t.shape, dtype=tn.int64),
        "expanded": lambda t: tn.ones((), dtype=t.dtype).expand(t.shape),
    }[kind]
    index, dense, values = tn.tensor([[0, 1, 2], [1, 2, 3]]), tn.rand(5, 4), tn.rand(3)
    with tn.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = (tn.sparse_coo_tensor(index, values.requires_grad_(), (4, 5)) @ dense).sum()
        if kind != "same":
            with pytest.raises(RuntimeError, match="layout strided, but .* has layout sparse_coo"):
                y.backward()
            return
        y.backward()
    assert tn.allclose(values.grad, dense[1:4].sum(1))
