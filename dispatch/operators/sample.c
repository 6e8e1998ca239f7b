/* sample.c: slopes of samples, and how often they lie between edges. */
#include <math.h>

#include <tenon/args_math.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_math.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_shape.h>

#include "op_math.h"
#include "scope_priv.h"

/* ---- gradient ----------------------------------------------------------------------------------*/

/* Three samples and what they count: a * x + b * y + c * z. Factors are tensors that broadcast. */
typedef struct stencil {
    tn_tensor *x[3], *by[3];
} stencil;

static tn_tensor *weighed(tni_scope *s, const stencil *t) {
    tn_tensor *sum = scope_mul(s, t->x[0], t->by[0]);
    for (int i = 1; i < 3; i++) sum = scope_add(s, sum, scope_mul(s, t->x[i], t->by[i]));
    return sum;
}

static tn_status check_samples(const tn_view *v, int64_t dim, int64_t edge_order) {
    if (edge_order != 1 && edge_order != 2)
        return tn_fail(TN_E_STATE, 3,
                       "torch.gradient only supports edge_order=1 and edge_order=2.");
    if (v->ndim == 0 || v->shape[dim] < edge_order + 1)
        return tn_fail(TN_E_STATE, 0,
                       "torch.gradient expected each dimension size to be at least edge_order+1");
    return TN_OK;
}

static tn_tensor *joined(tni_scope *s, tn_tensor *first, tn_tensor *middle, tn_tensor *last,
                         int64_t dim) {
    tn_tensor *parts[] = {first, middle, last}, *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_cat((tn_tensors){parts, 3}, dim, &r);
    return scope_take(s, st, r);
}

/* x[from ... from + n - 1] along dim. */
static tn_tensor *part(tni_scope *s, tn_tensor *x, int64_t dim, int64_t from, int64_t n) {
    return scope_narrow(s, x, dim, from, n);
}

tn_status tni_composite__gradient(const void *args, tn_tensor **rets) {
    const tn__gradient_args *a = args;
    tni_scope s = {0};
    int64_t d = a->dim, n;
    double h = a->spacing;
    tn_tensor *x = tni_t(a->input), *first, *last;
    TN_TRY(check_samples(a->input, d, a->edge_order));
    n = a->input->shape[d];
    tn_tensor *middle = scope_sub(&s, part(&s, x, d, 2, n - 2), part(&s, x, d, 0, n - 2));
    middle = scope_mul_number(&s, middle, 0.5 / h);
    if (a->edge_order == 1) {
        first = scope_sub(&s, part(&s, x, d, 1, 1), part(&s, x, d, 0, 1));
        last = scope_sub(&s, part(&s, x, d, n - 1, 1), part(&s, x, d, n - 2, 1));
        first = scope_mul_number(&s, first, 1 / h);
        last = scope_mul_number(&s, last, 1 / h);
    } else {
        first = scope_mul_number(&s, part(&s, x, d, 0, 1), -1.5 / h);
        first = scope_add(&s, first, scope_mul_number(&s, part(&s, x, d, 1, 1), 2 / h));
        first = scope_add(&s, first, scope_mul_number(&s, part(&s, x, d, 2, 1), -0.5 / h));
        last = scope_mul_number(&s, part(&s, x, d, n - 1, 1), 1.5 / h);
        last = scope_add(&s, last, scope_mul_number(&s, part(&s, x, d, n - 2, 1), -2 / h));
        last = scope_add(&s, last, scope_mul_number(&s, part(&s, x, d, n - 3, 1), 0.5 / h));
    }
    return scope_finish(&s, joined(&s, first, middle, last, d), rets);
}

/* The factors of three neighbours, `p` and `q` apart, for the slope at the middle one; `end`: at the
 * first one; the last one is the first one of the mirrored samples. */
static void factors(tni_scope *s, tn_tensor *p, tn_tensor *q, bool end, tn_tensor **ret_by) {
    tn_tensor *sum = scope_add(s, p, q), *pq = scope_mul(s, p, q);
    if (end) {
        ret_by[0] = scope_neg(s, scope_true_divide(s, scope_add(s, p, sum), scope_mul(s, p, sum)));
        ret_by[1] = scope_true_divide(s, sum, pq);
        ret_by[2] = scope_neg(s, scope_true_divide(s, p, scope_mul(s, q, sum)));
    } else {
        ret_by[0] = scope_neg(s, scope_true_divide(s, q, scope_mul(s, p, sum)));
        ret_by[1] = scope_true_divide(s, scope_sub(s, q, p), pq);
        ret_by[2] = scope_true_divide(s, p, scope_mul(s, q, sum));
    }
}

/* The slope at the end of samples where `at` is the first one, or with step -1 the last one. */
static tn_tensor *end_slope(tni_scope *whole, tn_tensor *x, tn_tensor *gaps, int64_t d, int64_t at,
                            int64_t step, int64_t order) {
    tni_scope own = {0}, *s = &own;
    int64_t gap = step > 0 ? at : at - 1;
    tn_tensor *ret = NULL;
    if (whole->st != TN_OK) return NULL;
    tn_tensor *p = part(s, gaps, 0, gap, 1);
    tn_tensor *near = part(s, x, d, at, 1), *next = part(s, x, d, at + step, 1), *slope;
    if (order == 1) {
        slope = scope_true_divide(s, scope_sub(s, next, near), p);
    } else {
        stencil t = {.x = {near, next, part(s, x, d, at + 2 * step, 1)}};
        factors(s, p, part(s, gaps, 0, gap + step, 1), true, t.by);
        slope = weighed(s, &t);
    }
    tn_status st = scope_finish(s, step > 0 ? slope : scope_neg(s, slope), &ret);
    return scope_take(whole, st, ret);
}

tn_status tni_composite__gradient_at(const void *args, tn_tensor **rets) {
    const tn__gradient_at_args *a = args;
    tni_scope s = {0};
    int64_t d = a->dim, n, shape[TN_MAX_DIMS];
    tn_tensor *x = tni_t(a->input), *gaps = NULL, *by[3];
    TN_TRY(check_samples(a->input, d, a->edge_order));
    n = a->input->shape[d];
    if (a->coordinates->ndim != 1 || a->coordinates->numel != n)
        return tn_fail(TN_E_STATE, 2,
                       "torch.gradient expected each element of spacing to be a vector of the size "
                       "of its dimension");
    tn_status st = tn_diff(tni_t(a->coordinates), 1, 0, NULL, NULL, &gaps);
    gaps = scope_take(&s, st, gaps);
    factors(&s, part(&s, gaps, 0, 0, n - 2), part(&s, gaps, 0, 1, n - 2), false, by);
    for (int32_t k = 0; k < a->input->ndim; k++) shape[k] = k == d ? n - 2 : 1;
    stencil t = {
        .x = {part(&s, x, d, 0, n - 2), part(&s, x, d, 1, n - 2), part(&s, x, d, 2, n - 2)}};
    for (int i = 0; i < 3; i++)
        t.by[i] = scope_reshape(&s, by[i], tn_ints_of(shape, a->input->ndim));
    tn_tensor *first = end_slope(&s, x, gaps, d, 0, 1, a->edge_order);
    tn_tensor *last = end_slope(&s, x, gaps, d, n - 1, -1, a->edge_order);
    return scope_finish(&s, joined(&s, first, weighed(&s, &t), last, d), rets);
}

/* ---- histogram ---------------------------------------------------------------------------------*/

tn_status tni_composite__histogram_edges(const void *args, tn_tensor **rets) {
    const tn__histogram_edges_args *a = args;
    tn_tensor *least = NULL, *most = NULL;
    double low = a->low.has ? a->low.value : 0, high = a->high.has ? a->high.value : 1;
    tn_status st = TN_OK;
    if (a->bins <= 0)
        return tn_fail(TN_E_STATE, 1, "torch.histogram(): bins must be > 0, got %lld",
                       (long long)a->bins);
    if (a->bins == INT64_MAX)
        return tn_fail(TN_E_SHAPE, 1, "torch.histogram(): too many bins: %lld", (long long)a->bins);
    if (tn_dtype_category(tn_view_dtype(a->input)) != TN_CAT_FLOAT)
        return tn_fail(TN_E_UNSUPPORTED, 0, "torch.histogram(): input must be floating, got %s",
                       tn_dtype_name(tn_view_dtype(a->input)));
    if (!a->low.has && a->input->numel > 0) {
        tn_scalar number;
        if ((st = tn_amin(tni_t(a->input), tn_ints_none(), 0, &least))) goto out;
        if ((st = tn_amax(tni_t(a->input), tn_ints_none(), 0, &most))) goto out;
        if ((st = tn_tensor_item(least, &number))) goto out;
        low = number.re;
        if ((st = tn_tensor_item(most, &number))) goto out;
        high = number.re;
    }
    if (!(low <= high) || !isfinite(high - low)) {
        st = tn_fail(TN_E_STATE, 2,
                     low > high
                         ? "torch.histogramdd: max should not exceed min, but got min %g max %g"
                         : "torch.histogramdd: range of [%g, %g] is not finite",
                     low, high);
        goto out;
    }
    if (low == high) low -= 0.5, high += 0.5;
    st = tn_linspace(tn_scalar_float(low), tn_scalar_float(high), a->bins + 1,
                     tn_view_dtype(a->input), tni_device_of(tni_t(a->input)), rets);
out:
    tn_tensor_unref(&least);
    tn_tensor_unref(&most);
    return st;
}

tn_status tni_composite__histogram(const void *args, tn_tensor **rets) {
    const tn__histogram_args *a = args;
    tni_scope s = {0};
    tn_tensor *edges = tni_t(a->edges), *t = NULL, *in = NULL, *weight = NULL;
    int32_t dtype = tn_view_dtype(a->input);
    int64_t bins = a->edges->numel - 1;
    if (a->edges->ndim != 1 || bins < 1)
        return tn_fail(TN_E_STATE, 1,
                       "torch.histogram: bins tensor should have one dimension and "
                       "at least two edges");
    if (dtype != tn_view_dtype(a->edges) || tn_dtype_category(dtype) != TN_CAT_FLOAT)
        return tn_fail(TN_E_STATE, 1,
                       "torch.histogram: input tensor and bins tensors should have the same "
                       "floating dtype");
    if (a->weight && (a->weight->ndim != a->input->ndim || a->weight->numel != a->input->numel ||
                      tn_view_dtype(a->weight) != dtype))
        return tn_fail(
            TN_E_STATE, 2,
            "torch.histogram: if weight tensor is provided it should have the same shape "
            "and dtype as the input tensor");
    tn_tensor *x = scope_reshape(&s, tni_t(a->input), TN_INTS(-1));
    tn_tensor *low = scope_select(&s, edges, 0, 0), *high = scope_select(&s, edges, 0, bins);
    in = scope_binary(&s, tn_logical_and, scope_binary(&s, tn_ge, x, low),
                      scope_binary(&s, tn_le, x, high));
    x = scope_binary(&s, tn_masked_select, x, in);
    if (a->weight)
        weight = scope_binary(&s, tn_masked_select,
                              scope_reshape(&s, tni_t(a->weight), TN_INTS(-1)), in);
    tn_tensor *inner = scope_narrow(&s, edges, 0, 1, bins - 1);
    t = SCOPE(&s, tn_searchsorted(inner, x, 0, 1, NULL, NULL, scope_slot(&s)));
    tn_tensor *hist = NULL;
    if (s.st == TN_OK) {
        tn_status st = tn_bincount(t, weight, bins, &hist);
        hist = scope_convert(&s, scope_take(&s, st, hist), dtype);
    }
    if (a->density && s.st == TN_OK) {
        tn_tensor *widths = NULL;
        tn_status st = tn_diff(edges, 1, 0, NULL, NULL, &widths);
        widths = scope_take(&s, st, widths);
        tn_tensor *total = scope_sum(&s, hist, tn_ints_none(), 0);
        hist = scope_true_divide(&s, scope_true_divide(&s, hist, total), widths);
    }
    return scope_finish(&s, hist, rets);
}
