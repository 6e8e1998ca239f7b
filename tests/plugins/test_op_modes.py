"""Operators of plugins under autocast and vmap."""

from __future__ import annotations

import as_user
import pytest
import tenon as tn
from added import COMPOSITE, POINTWISE, STRUCTURED, load, private_cache  # noqa: F401

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")


@pytest.mark.parametrize(
    ("rule", "short", "full"),
    [
        ('"low"', tn.bfloat16, tn.bfloat16),
        ('"float32"', tn.float32, tn.float32),
        ('"widest"', tn.bfloat16, tn.float32),
        ("NULL", tn.bfloat16, tn.float32),
    ],
)
def test_autocast(rule: str, short: tn.dtype, full: tn.dtype) -> None:
    name = "cast_" + rule.strip('"').lower()
    schema = f'"{name}::f(Tensor x, Tensor y) -> Tensor"'
    f = load(name, f'{COMPOSITE}{schema}, .formula = "x + y", .autocast = {rule}').f
    x = tn.ones(2, requires_grad=True)
    with tn.autocast("cpu"):
        assert f(x.bfloat16(), x.bfloat16()).dtype == short
        y = f(x, x)
        assert y.dtype == full
        assert f(x.double(), x.double()).dtype == tn.float64
    y.sum().backward()
    assert x.grad is not None and x.grad.dtype == tn.float32 and x.grad.tolist() == [2, 2]
    assert f(x, x).dtype == tn.float32


def test_parts_of_a_formula() -> None:
    f = load(
        "cast_parts", f'{COMPOSITE}"cast_parts::f(Tensor x) -> Tensor", .formula = "mm(x, x)"'
    ).f
    with tn.autocast("cpu"):
        assert f(tn.ones(2, 2)).dtype == tn.bfloat16


def test_bad_rule() -> None:
    text = f'{COMPOSITE}"cast_bad::f(Tensor x) -> Tensor", .formula = "x", .autocast = "high"'
    with pytest.raises(ImportError, match="autocast 'high' is none of low, float32, widest"):
        load("cast_bad", text)


# -- under vmap -----------------------------------------------------------------------------------


def test_pointwise_goes_through_vmap_at_once() -> None:
    row = 'return kernel(h, t, "mapped::f", 0, counted, TN_F32, 0);'
    before = (
        "static tn_status counted(const tn_call *c, const void *a) { (void)c; tn_rows r;"
        "const tn_plan *p = *(const tn_plan *const *)a;"
        "for (tn_rows_start(&r, p); tn_rows_next(&r);)"
        "for (int64_t i = 0; i < r.n; i++) *TN_ROW(float, r, 0, i) = (float)p->numel;"
        "return TN_OK; }"
    )
    f = load("mapped", f'{POINTWISE}"mapped::f(Tensor x) -> Tensor"', row, before).f
    assert tn.vmap(f)(tn.ones(3, 4)).tolist() == [[12.0] * 4] * 3
    assert tn.vmap(tn.vmap(f))(tn.ones(2, 3, 4)).sum().item() == 24.0 * 24


@pytest.mark.parametrize(("rule", "calls"), [('"batch"', 1), ("NULL", 3)])
def test_rule_of_a_structured_operator(rule: str, calls: int) -> None:
    """A sum over the last dimension, which says how many rows it got."""
    name = f"rows{calls}"
    before = """
    typedef struct args_ { const tn_plan *p; const tn_view *x; tn_view *out; } args_;
    static tn_status infer(const tn_host *h, void *c, const void *a, tn_out_shape *o) {
        (void)h; (void)c;
        o->ndim = 1;
        o->shape[0] = ((const args_ *)a)->x->shape[0];
        return TN_OK;
    }
    static tn_status rows(const tn_call *c, const void *a) {
        const args_ *s = (const args_ *)a;
        (void)c;
        for (int64_t i = 0; i < s->out->numel; i++)
            ((float *)s->out->data)[i] = (float)s->out->numel;
        return TN_OK;
    }
    """
    fields = f'{STRUCTURED}"{name}::f(Tensor x) -> Tensor", .infer = infer, .vmap = {rule}'
    f = load(name, fields, f'return kernel(h, t, "{name}::f", 0, rows, TN_F32, 0);', before).f
    got = tn.vmap(f)(tn.ones(3, 5, 2))
    assert got.tolist() == [[15.0 / calls] * 5] * 3


def test_composite_and_gradient_under_vmap() -> None:
    schema = '"mapgrad::f(Tensor x, Tensor y) -> Tensor"'
    f = load("mapgrad", f'{COMPOSITE}{schema}, .formula = "sum(x * x * y)"').f
    x, y = tn.randn(3, 4, dtype=tn.float64), tn.randn(4, dtype=tn.float64)
    got = tn.vmap(tn.func.grad(f), in_dims=(0, None))(x, y)
    assert tn.allclose(got, 2 * x * y)


def test_bad_vmap_rule() -> None:
    text = f'{COMPOSITE}"map_bad::f(Tensor x) -> Tensor", .formula = "x", .vmap = "fold"'
    with pytest.raises(ImportError, match="vmap 'fold' is none of pointwise, batch"):
        load("map_bad", text)
