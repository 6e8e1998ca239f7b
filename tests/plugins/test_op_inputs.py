"""In which dtype and layout the kernel of a structured operator gets its tensors: lists as single
ones, by the dtype rule and what the schema declares, never as memory that it would read past."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
from added import STRUCTURED, load

# A kernel that adds up what it gets as float, checking nothing, and reports the dtypes.
SUMS = r"""
typedef struct sum_args {
    const tn_plan *plan; const tn_view *x, *y; tn_views zs; tn_view *total, *seen;
} sum_args;
static tn_status infer(const tn_host *h, void *c, const void *args, tn_out_shape *outs) {
    (void)h; (void)c; (void)args;
    outs[0].ndim = 0;
    outs[0].dtype = TN_F64;
    outs[1].ndim = 1;
    outs[1].dtype = TN_I64;
    outs[1].shape[0] = 2 + ((const sum_args *)args)->zs.n;
    return TN_OK;
}
static double sum(const tn_view *v, int64_t *seen) {
    double s = 0;
    *seen = v ? tn_view_dtype(v) : -1;
    if (!v || *seen == TN_I64) return 0;
    for (int64_t i = 0; i < v->numel; i++) s += ((const float *)v->data)[i] * (float)(i + 1);
    return s;
}
static tn_status sums(const tn_call *call, const void *args) {
    const sum_args *a = (const sum_args *)args;
    int64_t *seen = (int64_t *)a->seen->data;
    (void)call;
    double s = sum(a->x, seen) + sum(a->y, seen + 1);
    for (int64_t i = 0; i < a->zs.n; i++) s += sum(a->zs.v[i], seen + 2 + i);
    *(double *)a->total->data = s;
    return TN_OK;
}
"""
RESULTS = "-> (Tensor total, Tensor seen)"


def load_sums(name: str, y: str = "Tensor y", zs: str = "Tensor[] zs", more: str = "") -> Any:
    schema = f'"{name}::f(Tensor? x, {y}, {zs}) {RESULTS}"'
    fields = f"{STRUCTURED}{schema}, .infer = infer, .flags = TN_OPF_PACK{more}"
    row = f'return kernel(h, t, "{name}::f", 0, sums, TN_F32, 0);'
    return load(name, fields, row, SUMS).f


def weighted(*parts: Any) -> float:
    """What the kernel computes, in float64."""
    flat = [np.asarray(p.float().numpy(), np.float64).ravel() for p in parts]
    return float(sum((p * np.arange(1, p.size + 1)).sum() for p in flat))


X = tn.arange(6.0).reshape(2, 3)
CODE = {tn.float32: 8, tn.int64: 5, tn.int8: 2, tn.bool: 0, tn.float16: 6}


def test_members_of_a_list_arrive_packed_and_cast() -> None:
    f = load_sums("members")
    zs = [X.t(), X[:, :1].expand(2, 70), X.half(), X[:, 1], X.double()[:, ::2]]
    total, seen = f(X, X, zs)
    assert seen.tolist() == [CODE[tn.float32]] * 7
    assert total.item() == weighted(X, X, *zs)
    assert zs[2].dtype == tn.float16 and not zs[0].is_contiguous()  # the caller's stay as they were


def test_a_hundred_members_are_converted() -> None:
    f = load_sums("hundred")
    zs = [tn.full((3,), float(i), dtype=tn.float16) for i in range(100)]
    total, seen = f(X, X, zs)
    assert set(seen.tolist()) == {CODE[tn.float32]} and total.item() == weighted(X, X, *zs)


@pytest.mark.parametrize("place", ["x", "y", "list"])
@pytest.mark.parametrize("dtype", [tn.int8, tn.bool, tn.uint8, tn.int32])
def test_memory_of_another_category_is_refused(place: str, dtype: Any) -> None:
    """The kernel would read floats out of it, past its end."""
    f = load_sums("categories")
    other = tn.ones(5, dtype=dtype)
    args: list[Any] = [X, X, [X]]
    if place == "x":
        args[1] = other  # x decides what is computed in; it is y that does not fit then
    elif place == "y":
        args[1] = other
    else:
        args[2] = [X, other]
    with pytest.raises((TypeError, RuntimeError), match=r"declared, as in Tensor\(\w+\) (y|zs)"):
        f(*args)


def test_an_index_of_int64_needs_no_declaration() -> None:
    f = load_sums("plain_index")
    total, seen = f(X, tn.arange(3), [X, tn.arange(2)])
    assert seen.tolist() == [8, 5, 8, 5] and total.item() == weighted(X, X)


@pytest.mark.parametrize("flags", ["", " | TN_OPF_CAST"])
def test_a_declared_dtype_stays_and_is_checked(flags: str) -> None:
    name = "declared_cast" if flags else "declared"
    f = load_sums(name, "Tensor(int64) y", "Tensor(bool)[] zs", flags)
    mask = tn.tensor([True, False])
    total, seen = f(X.half() if flags else X, tn.arange(3), [])
    assert seen.tolist()[1] == CODE[tn.int64]
    assert seen.tolist()[0] == CODE[tn.float32] or flags == ""
    for y, zs, text in [
        (tn.arange(3).to(tn.int8), [], r"'y' must be a tensor of int64, not int8"),
        (X, [], r"'y' must be a tensor of int64, not float32"),
        (tn.arange(3), [mask, X], r"'zs' must be a tensor of bool, not float32"),
    ]:
        with pytest.raises((TypeError, RuntimeError), match=text):
            f(X, y, zs)


def test_any_dtype_is_the_plugins_affair() -> None:
    f = load_sums("anything", "Tensor(any)? y", "Tensor[] zs")
    assert f(X, None, [])[1].tolist() == [8, -1]
    assert f(X, tn.arange(3), [])[1].tolist() == [8, 5]


def test_lists_and_optional_tensors_decide_a_dtype() -> None:
    """Without a rule, by promotion, and by name; where nothing is given, that is an error."""
    for name, more in [
        ("first_list", ""),
        ("promoted_list", ', .dtype = "promote"'),
        ("named_list", ', .dtype = "promote(zs, y)"'),
    ]:
        f = load_sums(name, "Tensor? y", "Tensor[] zs", more)
        total, seen = f(None, None, [X, X.half()])
        assert seen.tolist() == [-1, -1, 8, 8] and total.item() == weighted(X, X)
        with pytest.raises(ValueError, match="no tensor to take a dtype from"):
            f(None, None, [])
    f = load_sums("mixed_list", "Tensor? y", "Tensor[] zs", ', .dtype = "promote(zs)"')
    total, seen = f(X.int(), X.half(), [X.int(), X])  # x and y are not named, and stay
    assert seen.tolist() == [4, 6, 8, 8]


def test_promotion_converts_across_categories() -> None:
    f = load_sums("across", more=', .dtype = "promote"')
    total, seen = f(X.int(), X, [X.to(tn.int8), X.half()])
    assert seen.tolist() == [8] * 4 and total.item() == weighted(X, X, X, X)


def test_gradients_of_a_list_arrive_packed() -> None:
    """sum() hands down one number, expanded."""
    before = r"""
typedef struct list_args { const tn_plan *plan; tn_views gs; tn_view *out; } list_args;
static tn_status join(const tn_call *call, const void *args) {
    const list_args *a = (const list_args *)args;
    double *to = (double *)a->out->data;
    (void)call;
    for (int64_t i = 0; i < a->gs.n; i++)
        for (int64_t k = 0; k < a->gs.v[i]->numel; k++)
            *to++ = ((const double *)a->gs.v[i]->data)[k];
    return TN_OK;
}
static tn_status infer(const tn_host *h, void *c, const void *args, tn_out_shape *outs) {
    const tn_views gs = ((const list_args *)args)->gs;
    (void)h; (void)c;
    outs->ndim = 1;
    for (int64_t i = 0; i < gs.n; i++) outs->shape[0] += gs.v[i]->numel;
    return TN_OK;
}
"""
    fields = (
        f'{STRUCTURED}"joined::join(Tensor[] gs) -> Tensor", .infer = infer, .flags = TN_OPF_PACK'
    )
    more = (
        "tn_op_desc two = {.struct_size = sizeof two, .kind = TN_OP_COMPOSITE, .schema = "
        '"joined::halves(Tensor x) -> Tensor[]", .formula = "split(x, 3)", '
        '.gradient = "x: joined::join(grad)"};'
        "st = h->register_op(t, &two); if (st != TN_OK) return st;"
        'return kernel(h, t, "joined::join", 0, join, TN_F64, 0);'
    )
    ops = load("joined", fields, more, before)
    x = tn.arange(6.0, dtype=tn.float64).requires_grad_()
    a, b = ops.halves(x)
    (a.sum() * 2 + b.sum() * 3).backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2, 2, 2, 3, 3, 3])


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("Tensor(int65) y", "no dtype of that name"),
        ("Tensor(int64 y", "no such type|goes with Tensor"),
        ("int(int64) y", "goes with Tensor alone"),
        ("Tensor() y", "no dtype of that name"),
    ],
)
def test_declarations_that_mean_nothing(argument: str, text: str) -> None:
    with pytest.raises(ImportError, match=text):
        schema = f'"meaningless::f({argument}) -> Tensor"'
        load("meaningless", f'{STRUCTURED}{schema}, .shape = "same(y)"')
