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
    if (out == x && dtype >= 0 && d != tn_view_dtype(x))
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

/* Slice k of the gradient: y_(k-1) * sum over i >= k of g_i * prod(x_j, k < j <= i). Dividing the
 * running product by x_k instead would lose everything behind a zero. */
static tn_status cumprod_slice(const tn__cumprod_backward_args *a, int64_t k, int64_t n,
                               tn_tensor **ret) {
    tni_scope s = {0};
    tn_tensor *ones = NULL, *run = NULL, *x = tni_t(a->input),
              *head = scope_narrow(&s, x, a->dim, k, 1);
    if (s.st == TN_OK) {
        tn_status st = tn_ones_like(head, -1, -1, TN_FORMAT_PRESERVE, &ones);
        ones = scope_take(&s, st, ones);
    }
    tn_tensor *factors = joined(&s, ones, scope_narrow(&s, x, a->dim, k + 1, n - k - 1), a->dim);
    if (s.st == TN_OK) {
        tn_status st = tn_cumprod(factors, a->dim, -1, &run);
        run = scope_take(&s, st, run);
    }
    tn_tensor *g = scope_narrow(&s, tni_t(a->grad), a->dim, k, n - k);
    tn_tensor *part = scope_sum(&s, scope_mul(&s, g, run), TN_INTS(a->dim), 1);
    if (k > 0) part = scope_mul(&s, part, scope_narrow(&s, tni_t(a->y), a->dim, k - 1, 1));
    return scope_finish(&s, part, ret);
}

tn_status tni_composite__cumprod_backward(const void *args, tn_tensor **rets) {
    const tn__cumprod_backward_args *a = args;
    int64_t n = a->input->ndim == 0 ? 0 : a->input->shape[a->dim];
    tn_tensor *sum = n == 0 ? tn_tensor_ref(tni_t(a->grad)) : NULL;
    tn_status st = TN_OK;
    for (int64_t k = 0; k < n && st == TN_OK; k++) {
        tni_scope s = {0};
        tn_tensor *part = NULL, *both = NULL;
        st = cumprod_slice(a, k, n, &part);
        if (st != TN_OK) break;
        st = scope_finish(&s, sum ? joined(&s, sum, part, a->dim) : part, &both);
        tn_tensor_unref(&part);
        tn_tensor_unref(&sum);
        sum = both;
    }
    if (st == TN_OK) {
        rets[0] = sum;
    } else {
        tn_tensor_unref(&sum);
    }
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
