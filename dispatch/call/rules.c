/* rules.c: the shape and dtype rules that many operators share. */
#include <ctype.h>
#include <stdio.h>

#include "infer_priv.h"
#include "op_pointwise.h"

int32_t tni_result_of(int32_t compute, int rule) {
    switch (rule) {
    case TNI_RESULT_BOOL: return TN_BOOL;
    case TNI_RESULT_I64: return TN_I64;
    case TNI_RESULT_REAL: return tni_dtype_to_real(compute);
    default: return rule >= TNI_RESULT_DTYPE ? rule - TNI_RESULT_DTYPE : compute;
    }
}

/* What `-` is, of the operators behind it; NULL of others. */
static const char *minus_of(const tn_op *op) {
    if (op == &tni_op_neg) return "Negation, the `-` operator, on";
    return op == &tni_op_sub || op == &tni_op_rsub ? "Subtraction, the `-` operator, with" : NULL;
}

tn_status tni_check_kind(const tn_op *op, int field, int32_t dtype) {
    int32_t kind = tn_dtype_category(dtype);
    uint8_t word = kind == TN_CAT_BOOL      ? TNI_REFUSES_BOOL
                   : kind == TN_CAT_INT     ? TNI_REFUSES_INT
                   : kind == TN_CAT_COMPLEX ? TNI_REFUSES_COMPLEX
                                            : 0;
    if (!(op->refuses & word)) return TN_OK;
    if (op->refuses & TNI_REFUSES_LACKING)
        return tn_fail(TN_E_UNSUPPORTED, field, "\"%s\" not implemented for '%s'", op->info.name,
                       tni_type_text(dtype));
    const char *minus = kind == TN_CAT_BOOL ? minus_of(op) : NULL;
    if (minus)
        return tn_fail(TN_E_DTYPE, field,
                       "%s(): %s a bool tensor is not supported. If you are trying to invert a "
                       "mask, use the `~` or `logical_not()` operator instead.",
                       op->info.name, minus);
    return tn_fail(TN_E_DTYPE, field, "%s() does not support %s tensors (got %s)", op->info.name,
                   kind == TN_CAT_BOOL      ? "bool"
                   : kind == TN_CAT_COMPLEX ? "complex"
                                            : "integer",
                   tni_type_text(dtype));
}

tn_status tni_infer_dtype(tn_infer *inf, int rule, const tn_view *const *of, int n) {
    tn_tensor *const *ts = (tn_tensor *const *)(const void *)of;
    int32_t d = tni_result_dtype(ts, n);
    if (rule == TNI_COMPUTE_FIRST) {
        d = -1;
        for (int i = 0; i < n && d < 0; i++)
            if (of[i]) d = tni_result_dtype(&ts[i], 1);
    }
    if (TN_UNLIKELY(d == TN_NO_DTYPE)) return tni_fail_promotions(ts, n);
    if (d < 0)
        return tn_fail(TN_E_VALUE, -1, "%s: no tensor to take a dtype from", inf->op->info.name);
    if (rule == TNI_COMPUTE_FLOAT && tn_dtype_category(d) < TN_CAT_FLOAT) d = tn_dtype_default();
    if (rule == TNI_COMPUTE_SUM && tn_dtype_category(d) < TN_CAT_FLOAT) d = TN_I64;
    if (rule == TNI_COMPUTE_BOOL) d = TN_BOOL;
    if (rule == TNI_COMPUTE_NUMBER && d == TN_BOOL) d = TN_I64;
    inf->compute = d;
    return TN_OK;
}

void tni_infer_same(tn_infer *inf, int i, const tn_view *x) {
    tn_out_meta *m = &inf->out[i];
    m->ndim = x->ndim;
    memcpy(m->shape, x->shape, sizeof *m->shape * (size_t)x->ndim);
    m->strided = !(x->word & TN_W_CONTIGUOUS);
    if (m->strided) tni_format_strides(TN_FORMAT_PRESERVE, x, x->ndim, x->shape, m->strides);
}

tn_status tni_infer_set(tn_infer *inf, int i, int32_t ndim, const int64_t *shape) {
    int64_t numel;
    tn_out_meta *m = &inf->out[i];
    TN_TRY(
        tni_numel(ndim, shape, tn_dtype_size(m->dtype) > 0 ? tn_dtype_size(m->dtype) : 16, &numel));
    m->ndim = ndim;
    m->strided = 0;
    if (ndim > 0) memmove(m->shape, shape, sizeof *shape * (size_t)ndim);
    return TN_OK;
}

tn_status tni_infer_expect(const tn_infer *inf, int32_t arg, const tn_view *t, int32_t ndim,
                           const int64_t *shape, int32_t dtype) {
    const tn_op *op = inf->op;
    if (!t) return TN_OK;
    if (!tni_shape_is(tni_t(t), ndim, shape))
        return tn_fail(TN_E_SHAPE, arg, "%s(): argument '%s' must have shape %s, not %s",
                       op->info.name, op->fields[arg].name, tni_shape_text(ndim, shape),
                       tni_shape_text_of(t));
    if (dtype >= 0 && tn_view_dtype(t) != dtype)
        return tn_fail(TN_E_DTYPE, arg, "%s(): argument '%s' must be %s, not %s", op->info.name,
                       op->fields[arg].name, tni_type_text(dtype), tni_type_text(tn_view_dtype(t)));
    return TN_OK;
}

tn_status tni_infer_packed(const tn_infer *inf, int32_t arg, const tn_view *t) {
    const tn_op *op = inf->op;
    if (t->word & TN_W_CONTIGUOUS) return TN_OK;
    return tn_fail(TN_E_VALUE, arg, "%s(): argument '%s' must be contiguous", op->info.name,
                   op->fields[arg].name);
}
