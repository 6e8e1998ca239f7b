"""Operands of different dtypes: values and dtypes of every operator with several tensors, against
PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from table import Case, call, entries, make_case, tensor_args
from test_torch import answer, compare

PAIRS = [("float32", "float64"), ("int32", "float32"), ("uint8", "int64"), ("bool", "int16"),
         ("float32", "complex64")]  # fmt: skip
# addr promotes bool with its numbers alpha and beta.
GAPS = {"addr"}
# PyTorch looks at dtypes after it has found that there is nothing to compute.
EMPTY = {"bmm", "cdist"}
# What Tenon computes of some pairs that PyTorch refuses.
WIDER = {"multi_margin_loss", "multilabel_margin_loss", "logaddexp", "logaddexp2",
         "_standard_gamma_grad"}  # fmt: skip
MANY = [r for r in entries() if sum(a["type"] in ("Tensor", "Operand") for a in r["args"]) > 1]


def mixed(row: dict[str, Any]) -> list[Case]:
    """Samples whose first tensor has one dtype and whose others have another, both ways round."""
    found = []
    for sample in row["samples"]:
        for pair in PAIRS:
            for low, high in (pair, pair[::-1]):
                case, other = make_case(row, sample, low), make_case(row, sample, high)
                names = [n for n in case.tensors if n not in row["inputs"]]
                if len(names) < 2:
                    continue
                case.args.update({n: other.args[n] for n in names[1:]})
                found.append(Case(row, high, case.args))
    return found


@pytest.mark.parametrize("row", MANY, ids=lambda row: row["name"])
def test_same_as_torch(row: dict[str, Any]) -> None:
    cases = mixed(row)
    answers = stored.of_torch(lambda torch: [answer(torch, case) for case in cases], brief=True)
    for case, want in zip(cases, answers, strict=True):
        nothing = row["name"] in EMPTY and not all(case.args[n].size for n in case.tensors)
        if isinstance(want, str) and row["name"] in WIDER:
            continue
        if nothing or isinstance(want, str):
            with pytest.raises((RuntimeError, TypeError, IndexError, ValueError)):
                call(row, tensor_args(case))
            continue
        got = call(row, tensor_args(case))
        if row["name"] not in GAPS:
            compare(Case(row, "float32", case.args), got, want)


# What writes numbers of its own making; none of them passes a gradient on.
DRAWING = {
    "uniform_": lambda x: x.uniform_(),
    "normal_": lambda x: x.normal_(),
    "cauchy_": lambda x: x.cauchy_(),
    "log_normal_": lambda x: x.log_normal_(),
    "exponential_": lambda x: x.exponential_(),
    "geometric_": lambda x: x.geometric_(0.4),
    "bernoulli_": lambda x: x.bernoulli_(0.4),
    "random_": lambda x: x.random_(),
    "random_to": lambda x: x.random_(7),
    "random_from": lambda x: x.random_(3, 9),
    "fill_": lambda x: x.fill_(2.0),
    "zero_": lambda x: x.zero_(),
}


@pytest.mark.parametrize("name", DRAWING)
def test_no_gradient_passes_what_is_overwritten(name: str) -> None:
    x = tn.full((3, 5), 0.3, dtype=tn.float64, requires_grad=True)
    hidden = x * 2
    assert DRAWING[name](hidden) is hidden and hidden.requires_grad
    (hidden * 3).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros((3, 5)))


def test_no_gradient_passes_a_draw() -> None:
    """bernoulli and normal of tensors of parameters are drawn, not computed."""
    p = tn.full((3, 5), 0.3, dtype=tn.float64, requires_grad=True)
    mean = tn.zeros(3, 5, dtype=tn.float64, requires_grad=True)
    for y in (tn.bernoulli(p), tn.normal(mean, 1.0), tn.normal(0.0, p), tn.normal(mean, p)):
        assert y.shape == (3, 5) and y.dtype == tn.float64
        if y.requires_grad:
            for g in tn.autograd.grad(y.sum(), [p, mean], allow_unused=True):
                assert g is None or not g.any()


def test_value_of_a_fill_has_a_gradient() -> None:
    """fill_ and index_fill_ with a tensor, masked_fill: the value's gradient is the sum over it."""
    v = tn.tensor(2.0, dtype=tn.float64, requires_grad=True)
    x = tn.arange(12.0, dtype=tn.float64).reshape(3, 4).requires_grad_()
    w = tn.arange(1.0, 13.0, dtype=tn.float64).reshape(3, 4)
    gx, gv = tn.autograd.grad(((x * 1).fill_(v) * w).sum(), [x, v])
    assert not gx.any() and gv.item() == w.sum().item()
    index = tn.tensor([2, 0])
    gx, gv = tn.autograd.grad(((x * 1).index_fill_(1, index, v) * w).sum(), [x, v])
    assert gv.item() == w[:, [0, 2]].sum().item() and gv.shape == ()
    assert gx[:, 1].tolist() == w[:, 1].tolist() and not gx[:, [0, 2]].any()
    mask = w > 4.5
    gx, gv = tn.autograd.grad((tn.masked_fill(x, mask, v) * w).sum(), [x, v])
    np.testing.assert_array_equal(gx.numpy(), np.where(mask.numpy(), 0, w.numpy()))
    assert gv.item() == w.numpy()[mask.numpy()].sum() and gv.shape == ()


@pytest.mark.parametrize(("low", "high"), [("float32", "float64"), ("int64", "float32")])
def test_products_of_rows_and_a_matrix_of_another_dtype(low: str, high: str) -> None:
    rows, dense = np.array([[1, 0, 2], [0, 3, 0]]), np.array([[0.5, 1], [2, 0.25], [1, 4]])
    for a, b in ((low, high), (high, low)):
        x, y = rows.astype(a), (4 * dense).astype(b)
        got = tn.from_numpy(x).to_sparse_csr() @ tn.from_numpy(y)
        np.testing.assert_array_equal(got.numpy(), x @ y)
        assert got.dtype == getattr(tn, high)


@pytest.mark.parametrize("dtype", [tn.float16, tn.bfloat16])
@pytest.mark.parametrize("parts", ["weight bias", "weight", "bias", ""])
def test_groups_of_halves_with_parameters_of_floats(dtype: tn.dtype, parts: str) -> None:
    """The result and the gradient of the input are halves, those of the parameters floats."""
    rng = np.random.default_rng(4)
    x = tn.from_numpy(rng.normal(size=(2, 6, 5))).to(dtype).requires_grad_()
    given = {name: tn.from_numpy(rng.normal(size=6)).float() for name in parts.split()}
    for p in given.values():
        p.requires_grad_()
    y = tn.nn.functional.group_norm(x, 3, **given)
    wide = x.detach().double().reshape(2, 3, 10)
    want = (wide - wide.mean(-1, keepdim=True)) / (
        wide.var(-1, correction=0, keepdim=True) + 1e-5
    ).sqrt()
    want = want.reshape(2, 6, 5) * given.get("weight", tn.ones(6)).detach().double()[:, None]
    want = want + given.get("bias", tn.zeros(6)).detach().double()[:, None]
    near = 2e-3 if dtype is tn.float16 else 2e-2
    assert y.dtype is dtype and (y.double() - want).abs().max() < near * want.abs().max()
    grads = tn.autograd.grad(y.sum(), (x, *given.values()))
    assert [g.dtype for g in grads] == [dtype] + [tn.float32] * len(given)


@pytest.mark.parametrize("dtype", [tn.bfloat16, tn.float16])
def test_gradients_of_parameters_of_group_norm_are_those_of_float32(dtype):
    """What is normalised is not rounded before it is multiplied by a gradient."""
    draw = np.random.default_rng(0)
    x, g = (tn.from_numpy(draw.standard_normal((2, 8, 5, 5)).astype("f")).to(dtype) for _ in "xg")
    found = []
    for wide in (x, x.float()):
        layer = tn.nn.GroupNorm(2, 8)
        y = layer(wide)
        assert y.dtype is wide.dtype
        y.backward(g.to(y.dtype))
        found.append((layer.weight.grad.numpy(), layer.bias.grad.numpy()))
    for mixed, want in zip(*found, strict=True):
        np.testing.assert_allclose(mixed, want, rtol=2e-6, atol=2e-6)
