/* softmax.c: softmax, logsumexp, cumulative sums and products: shape rules, parts, the gradient of
 * cumprod. */
#include <math.h>

#include <tenon/args_norm.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_norm.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_shape.h>

#include "nn_priv.h"
#include "op_norm.h"

/* ---- Shape rules ------------------------------------------------------------------------------
 *
 * Results are packed by rows, whatever the order of the input: so are PyTorch's, and what is drawn
 * for their elements follows. */

static tn_status packed_like(tn_infer *inf, const tn_view *x) {
    return tni_infer_set(inf, 0, x->ndim, x->shape);
}

static tn_status float_result(tn_infer *inf, const tn_view *x, int64_t dtype, const char *kernel) {
    int32_t d = dtype >= 0 ? (int32_t)dtype : tn_view_dtype(x);
    if (tn_dtype_category(d) != TN_CAT_FLOAT) {
        return tn_fail(TN_E_UNSUPPORTED, 0, "\"%s\" not implemented for '%s'", kernel,
                       tni_type_text(d));
    }
    inf->compute = inf->out[0].dtype = d;
    return packed_like(inf, x);
}

tn_status tni_infer_softmax(tn_infer *inf, const void *args) {
    const tn_softmax_args *a = args;
    return float_result(inf, a->input, a->dtype, "softmax_lastdim_kernel_impl");
}

tn_status tni_infer_log_softmax(tn_infer *inf, const void *args) {
    const tn_log_softmax_args *a = args;
    return float_result(inf, a->input, a->dtype, "log_softmax_lastdim_kernel_impl");
}

tn_status tni_infer__softmax_backward(tn_infer *inf, const void *args) {
    const tn__softmax_backward_args *a = args;
    TN_TRY(packed_like(inf, a->y));
    return tni_infer_expect(inf, 0, a->grad, a->y->ndim, a->y->shape, -1);
}

tn_status tni_infer__log_softmax_backward(tn_infer *inf, const void *args) {
    const tn__log_softmax_backward_args *a = args;
    TN_TRY(packed_like(inf, a->y));
    return tni_infer_expect(inf, 0, a->grad, a->y->ndim, a->y->shape, -1);
}

static tn_status scan(tn_infer *inf, const tn_view *x, int64_t dtype, const tn_view *out) {
    int32_t d = dtype >= 0 ? (int32_t)dtype : tn_view_dtype(x);
    if (dtype < 0 && tn_dtype_category(d) < TN_CAT_FLOAT) d = TN_I64;
    if (out && out != x && dtype >= 0 && d != tn_view_dtype(out))
        return tn_fail(TN_E_DTYPE, -1, "Expected out tensor to have dtype %s, but got %s instead",
                       tni_type_text(d), tni_type_text(tn_view_dtype(out)));
    if (out && dtype < 0) d = tn_view_dtype(out);
    if (d == TN_BOOL)
        return tn_fail(TN_E_UNSUPPORTED, -1, "\"%s\" not implemented for 'Bool'",
                       inf->op->info.name);
    if (out == x && d != tn_view_dtype(x))
        return tn_fail(TN_E_DTYPE, -1,
                       "Bad in-place call: input tensor dtype %s and output tensor dtype %s should "
                       "match",
                       tni_type_text(tn_view_dtype(x)), tni_type_text(d));
    inf->compute = inf->out[0].dtype = d;
    return packed_like(inf, x);
}

tn_status tni_infer_cumsum(tn_infer *inf, const void *args) {
    const tn_cumsum_args *a = args;
    return scan(inf, a->input, a->dtype, a->out);
}

tn_status tni_infer_cumprod(tn_infer *inf, const void *args) {
    const tn_cumprod_args *a = args;
    return scan(inf, a->input, a->dtype, a->out);
}

/* log(sum(exp(x - m))) + m, where m is the maximum, or 0 where that is infinite. m is a constant
 * for the gradient: the terms that it adds cancel. */
tn_status tni_composite_logsumexp(const void *args, tn_tensor **rets) {
    const tn_logsumexp_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input), *m = NULL, *inf = NULL, *plain = NULL;
    tn_scalar_box zero;
    tn_status st = TN_OK;
    if (tn_dtype_category(tn_tensor_dtype(x)) < TN_CAT_FLOAT) {
        tn_tensor *real = NULL;
        st = tn__to_copy(x, tn_dtype_default(), -1, 0, TN_FORMAT_PRESERVE, &real);
        x = scope_take(&s, st, real);
    }
    if (s.st == TN_OK) {
        st = tn_detach(x, &plain);
        plain = scope_take(&s, st, plain);
    }
    if (s.st == TN_OK && tn_dtype_category(tn_tensor_dtype(plain)) == TN_CAT_COMPLEX) {
        st = tn_real(plain, &m); /* by the size of exp(x) */
        plain = scope_take(&s, st, m);
    }
    if (s.st == TN_OK) { /* a sum of nothing has no largest term */
        bool empty = tn_tensor_numel(plain) == 0;
        st = empty ? tn_sum(plain, a->dim, 1, -1, &m) : tn_amax(plain, a->dim, 1, &m);
        m = scope_take(&s, st, m);
    }
    if (s.st == TN_OK) {
        st = tn_isinf(m, &inf);
        inf = scope_take(&s, st, inf);
    }
    if (s.st == TN_OK) {
        tn_tensor *finite = NULL;
        st = tn_where(inf, tn_scalar_box_init(&zero, tn_scalar_int(0)), m, &finite);
        m = scope_take(&s, st, finite);
    }
    tn_tensor *sum =
        scope_log(&s, scope_sum(&s, scope_exp(&s, scope_sub(&s, x, m)), a->dim, a->keepdim));
    if (!a->keepdim && s.st == TN_OK) m = scope_reshape(&s, m, tni_shape_ints(sum));
    return scope_finish(&s, scope_add(&s, sum, m), rets);
}

static tn_tensor *joined(tni_scope *s, tn_tensor *a, tn_tensor *b, int64_t dim) {
    tn_tensor *both[2] = {a, b}, *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_cat((tn_tensors){both, 2}, dim, &r);
    return scope_take(s, st, r);
}

/* Slice k of the gradient is y_(k-1) S_k with S_k = g_k + x_(k+1) S_(k+1). Dividing the running product
 * by x_k instead would lose everything behind a zero. What S_k takes in doubles with every step: `by` is
 * the product of the factors x up to there, by which the sum from there on counts. */
static tn_status double_reach(int64_t d, int64_t n, int64_t m, tn_tensor **sum, tn_tensor **by) {
    tni_scope s = {0};
    tn_tensor *next = NULL, *factors = NULL;
    tn_tensor *more = scope_mul(&s, *by, scope_narrow(&s, *sum, d, m, n - m));
    tn_tensor *head = scope_add(&s, scope_narrow(&s, *sum, d, 0, n - m), more);
    tn_status st =
        scope_finish(&s, joined(&s, head, scope_narrow(&s, *sum, d, n - m, m), d), &next);
    if (st == TN_OK && 2 * m < n) {
        tni_scope t = {0};
        tn_tensor *low = scope_narrow(&t, *by, d, 0, n - 2 * m);
        tn_tensor *high = scope_narrow(&t, *by, d, m, n - 2 * m);
        st = scope_finish(&t, scope_mul(&t, low, high), &factors);
    }
    tn_tensor_unref(sum);
    tn_tensor_unref(by);
    *sum = next;
    *by = factors;
    return st;
}

tn_status tni_composite__cumprod_backward(const void *args, tn_tensor **rets) {
    const tn__cumprod_backward_args *a = args;
    int64_t n = a->input->ndim == 0 ? 0 : a->input->shape[a->dim], d = a->dim;
    tn_tensor *sum = tn_tensor_ref(tni_t(a->grad)), *by = NULL;
    if (n < 2) {
        rets[0] = sum;
        return TN_OK;
    }
    tni_scope first = {0}, last = {0};
    tn_status st = scope_finish(&first, scope_narrow(&first, tni_t(a->input), d, 1, n - 1), &by);
    for (int64_t m = 1; m < n && st == TN_OK; m *= 2) st = double_reach(d, n, m, &sum, &by);
    if (st == TN_OK) {
        tn_tensor *rest = scope_mul(&last, scope_narrow(&last, sum, d, 1, n - 1),
                                    scope_narrow(&last, tni_t(a->y), d, 0, n - 1));
        tn_tensor *head = scope_narrow(&last, sum, d, 0, 1);
        st = scope_finish(&last, joined(&last, head, rest, d), rets);
    }
    tn_tensor_unref(&sum);
    tn_tensor_unref(&by);
    return st;
}

/* ---- Out of simpler operators -----------------------------------------------------------------*/

tn_status tni_composite_log_softmax(const void *args, tn_tensor **rets) {
    const tn_log_softmax_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = scope_convert(&s, tni_t(a->input), a->dtype), *y = x;
    if (a->input->numel > 0) {
        tn_tensor *max = NULL, *log_sum = scope_log_sum(&s, x, a->dim, &max);
        y = scope_sub(&s, scope_sub(&s, x, max), log_sum);
    }
    return scope_finish(&s, y, rets);
}

tn_status tni_composite_softmax(const void *args, tn_tensor **rets) {
    const tn_softmax_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = scope_convert(&s, tni_t(a->input), a->dtype), *y = x;
    if (a->input->numel > 0) {
        tn_tensor *e = scope_shifted_exp(&s, x, a->dim, NULL);
        y = scope_true_divide(&s, e, scope_sum(&s, e, TN_INTS(a->dim), 1));
    }
    return scope_finish(&s, y, rets);
}
