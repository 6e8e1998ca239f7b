/* composite_parts.c: layers and losses out of simpler operators, for devices that have kernels for these
 * parts (`parts` in the table) and none for the whole. What each computes is stated at its CPU kernel,
 * backends/cpu; gradients are the entries' own. */
#include <math.h>

#include "scope_priv.h"

tn_status tni_composite_linear(const void *args, tn_tensor **rets);
tn_status tni_composite_softmax(const void *args, tn_tensor **rets);
tn_status tni_composite_log_softmax(const void *args, tn_tensor **rets);
tn_status tni_composite__cross_entropy(const void *args, tn_tensor **rets);
tn_status tni_composite__cross_entropy_backward(const void *args, tn_tensor **rets);
tn_status tni_composite_native_layer_norm(const void *args, tn_tensor **rets);
tn_status tni_composite__layer_norm_backward(const void *args, tn_tensor **rets);
tn_status tni_composite__rms_norm(const void *args, tn_tensor **rets);
tn_status tni_composite__rms_norm_backward(const void *args, tn_tensor **rets);
tn_status tni_composite_embedding(const void *args, tn_tensor **rets);
tn_status tni_composite__embedding_backward(const void *args, tn_tensor **rets);

/* ---- Pieces ------------------------------------------------------------------------------------*/

/* input where the condition holds, else a number. */
static tn_tensor *only_where(tni_scope *s, tn_tensor *condition, tn_tensor *input,
                             tn_scalar other) {
    tn_scalar_box box;
    return scope_where(s, condition, input, tn_scalar_box_init(&box, other));
}

static tn_tensor *differs(tni_scope *s, tn_tensor *x, int64_t number) {
    tn_scalar_box box;
    return scope_binary(s, tn_ne, x, tn_scalar_box_init(&box, tn_scalar_int(number)));
}

static tn_tensor *rows_of(tni_scope *s, tn_tensor *table, tn_tensor *indices) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_index_select(table, 0, indices, &r);
    return scope_take(s, st, r);
}

/* ---- Linear, softmax ---------------------------------------------------------------------------*/

tn_status tni_composite_linear(const void *args, tn_tensor **rets) {
    const tn_linear_args *a = args;
    tni_scope s = {0};
    tn_tensor *t = scope_transpose(&s, tni_t(a->weight), 0, 1);
    tn_tensor *y = scope_matmul(&s, tni_t(a->input), t);
    if (a->bias) y = scope_add(&s, y, tni_t(a->bias));
    return scope_finish(&s, y, rets);
}

/* exp(x - max(x)) along dim, and the maximum (may be NULL). */
static tn_tensor *shifted_exp(tni_scope *s, tn_tensor *x, int64_t dim, tn_tensor **ret_max) {
    tn_tensor *max = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_amax(x, TN_INTS(dim), 1, &max);
    max = scope_take(s, st, max);
    if (ret_max) *ret_max = max;
    return scope_exp(s, scope_sub(s, x, max));
}

/* log(sum(exp(x))) along dim, which stays with size 1. */
static tn_tensor *log_sum(tni_scope *s, tn_tensor *x, int64_t dim) {
    tn_tensor *max = NULL, *e = shifted_exp(s, x, dim, &max);
    return scope_add(s, max, scope_log(s, scope_sum(s, e, TN_INTS(dim), 1)));
}

tn_status tni_composite_log_softmax(const void *args, tn_tensor **rets) {
    const tn_log_softmax_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = scope_convert(&s, tni_t(a->input), a->dtype), *y = x;
    if (a->input->numel > 0) y = scope_sub(&s, x, log_sum(&s, x, a->dim));
    return scope_finish(&s, y, rets);
}

tn_status tni_composite_softmax(const void *args, tn_tensor **rets) {
    const tn_softmax_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = scope_convert(&s, tni_t(a->input), a->dtype), *y = x;
    if (a->input->numel > 0) {
        tn_tensor *e = shifted_exp(&s, x, a->dim, NULL);
        y = scope_true_divide(&s, e, scope_sum(&s, e, TN_INTS(a->dim), 1));
    }
    return scope_finish(&s, y, rets);
}

/* ---- Cross entropy -----------------------------------------------------------------------------*/

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

static int64_t class_dim(const tn_view *input) { return input->ndim == 1 ? 0 : 1; }

tn_status tni_composite__cross_entropy(const void *args, tn_tensor **rets) {
    const tn__cross_entropy_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input), *target = tni_t(a->target), *picked = NULL;
    tn_ints shape = tn_ints_of(a->target->shape, a->target->ndim);
    int64_t dim = class_dim(a->input);
    tn_tensor *counts = differs(&s, target, a->ignore_index);
    tn_tensor *index = scope_unsqueeze(&s, only_where(&s, counts, target, tn_scalar_int(0)), dim);
    if (s.st == TN_OK) {
        tn_status st = tn_gather(x, dim, index, 0, &picked);
        picked = scope_take(&s, st, picked);
    }
    tn_tensor *lse = scope_reshape(&s, log_sum(&s, x, dim), shape);
    picked = scope_reshape(&s, picked, shape);
    tn_tensor *loss = only_where(&s, counts, scope_sub(&s, lse, picked), tn_scalar_float(0));
    tn_tensor *count =
        scope_sum(&s, scope_convert(&s, counts, tn_view_dtype(a->input)), tn_ints_none(), 0);
    if (a->reduction != REDUCE_NONE) loss = scope_sum(&s, loss, tn_ints_none(), 0);
    if (a->reduction == REDUCE_MEAN) loss = scope_true_divide(&s, loss, count);
    if (s.st == TN_OK) {
        rets[1] = tn_tensor_ref(lse);
        rets[2] = tn_tensor_ref(count);
    }
    return scope_finish(&s, loss, rets);
}

/* softmax(input) - 1 at the target, times the incoming gradient; nothing where it is ignored. */
tn_status tni_composite__cross_entropy_backward(const void *args, tn_tensor **rets) {
    const tn__cross_entropy_backward_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input), *target = tni_t(a->target), *g = tni_t(a->grad);
    tn_tensor *classes = NULL, *hit = NULL;
    int64_t dim = class_dim(a->input), shape[TN_MAX_DIMS];
    for (int32_t d = 0; d < a->input->ndim; d++) shape[d] = d == dim ? a->input->shape[d] : 1;
    tn_tensor *counts = scope_unsqueeze(&s, differs(&s, target, a->ignore_index), dim);
    tn_tensor *p = scope_exp(&s, scope_sub(&s, x, scope_unsqueeze(&s, tni_t(a->lse), dim)));
    if (s.st == TN_OK) {
        tn_status st =
            tn_arange(tn_scalar_int(a->input->shape[dim]), TN_I64, tni_device_of(x), &classes);
        classes = scope_reshape(&s, scope_take(&s, st, classes), tn_ints_of(shape, a->input->ndim));
    }
    tn_tensor *at = scope_unsqueeze(&s, target, dim);
    if (s.st == TN_OK) {
        tn_status st = tn_eq(classes, at, &hit);
        hit = scope_take(&s, st, hit);
    }
    p = scope_sub(&s, p, scope_convert(&s, hit, tn_view_dtype(a->input)));
    if (a->reduction == REDUCE_MEAN) g = scope_true_divide(&s, g, tni_t(a->count));
    if (a->reduction == REDUCE_NONE) g = scope_unsqueeze(&s, g, dim);
    tn_tensor *r = only_where(&s, counts, scope_mul(&s, p, g), tn_scalar_float(0));
    return scope_finish(&s, r, rets);
}

/* ---- Layer norm --------------------------------------------------------------------------------*/

/* The last dimensions, which are normalized, and those in front of them. */
typedef struct sides {
    int64_t dims[TN_MAX_DIMS];
    tn_ints inner, outer;
} sides;

static void split(const tn_view *x, tn_ints normalized, sides *ret) {
    int64_t n = x->ndim - normalized.n;
    for (int32_t d = 0; d < x->ndim; d++) ret->dims[d] = d;
    ret->outer = tn_ints_of(ret->dims, n);
    ret->inner = tn_ints_of(ret->dims + n, normalized.n);
}

tn_status tni_composite_native_layer_norm(const void *args, tn_tensor **rets) {
    const tn_native_layer_norm_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input);
    sides at;
    split(a->input, a->normalized_shape, &at);
    tn_tensor *mean = scope_mean(&s, x, at.inner, 1), *d = scope_sub(&s, x, mean);
    tn_tensor *var = scope_mean(&s, scope_square(&s, d), at.inner, 1);
    tn_tensor *rstd = scope_rsqrt(&s, scope_add_number(&s, var, a->eps));
    tn_tensor *y = scope_mul(&s, d, rstd);
    if (a->weight) y = scope_mul(&s, y, tni_t(a->weight));
    if (a->bias) y = scope_add(&s, y, tni_t(a->bias));
    if (s.st == TN_OK) {
        rets[1] = tn_tensor_ref(mean);
        rets[2] = tn_tensor_ref(rstd);
    }
    return scope_finish(&s, y, rets);
}

/* A parameter's gradient: the sum over the rows. */
static void sum_rows(tni_scope *s, tn_tensor *x, tn_ints outer, tn_tensor **ret) {
    tn_tensor *r = outer.n > 0 ? scope_sum(s, x, outer, 0) : x;
    if (s->st == TN_OK) *ret = tn_tensor_ref(r);
}

tn_status tni_composite__layer_norm_backward(const void *args, tn_tensor **rets) {
    const tn__layer_norm_backward_args *a = args;
    tni_scope s = {0};
    tn_tensor *g = tni_t(a->grad), *rstd = tni_t(a->rstd), *gx = g;
    sides at;
    split(a->input, a->normalized_shape, &at);
    tn_tensor *hat = scope_mul(&s, scope_sub(&s, tni_t(a->input), tni_t(a->mean)), rstd);
    if (a->need_weight) sum_rows(&s, scope_mul(&s, g, hat), at.outer, &rets[1]);
    if (a->need_bias) sum_rows(&s, g, at.outer, &rets[2]);
    if (a->need_input) {
        if (a->weight) gx = scope_mul(&s, g, tni_t(a->weight));
        tn_tensor *along = scope_mean(&s, scope_mul(&s, gx, hat), at.inner, 1);
        tn_tensor *r = scope_sub(&s, gx, scope_mean(&s, gx, at.inner, 1));
        r = scope_mul(&s, scope_sub(&s, r, scope_mul(&s, hat, along)), rstd);
        if (s.st == TN_OK) rets[0] = tn_tensor_ref(r);
    }
    tn_status st = scope_finish(&s, NULL, NULL);
    for (int i = 0; i < 3 && st != TN_OK; i++) tn_tensor_unref(&rets[i]);
    return st;
}

/* ---- RMS norm ----------------------------------------------------------------------------------*/

tn_status tni_composite__rms_norm(const void *args, tn_tensor **rets) {
    const tn__rms_norm_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input);
    sides at;
    split(a->input, a->normalized_shape, &at);
    tn_tensor *square = scope_mean(&s, scope_square(&s, x), at.inner, 1);
    tn_tensor *rstd = scope_rsqrt(&s, scope_add_number(&s, square, a->eps));
    tn_tensor *y = scope_mul(&s, x, rstd);
    if (a->weight) y = scope_mul(&s, y, tni_t(a->weight));
    if (s.st == TN_OK) rets[1] = tn_tensor_ref(rstd);
    return scope_finish(&s, y, rets);
}

tn_status tni_composite__rms_norm_backward(const void *args, tn_tensor **rets) {
    const tn__rms_norm_backward_args *a = args;
    tni_scope s = {0};
    tn_tensor *g = tni_t(a->grad), *rstd = tni_t(a->rstd), *gx = g;
    sides at;
    split(a->input, a->normalized_shape, &at);
    tn_tensor *hat = scope_mul(&s, tni_t(a->input), rstd);
    if (a->need_weight) sum_rows(&s, scope_mul(&s, g, hat), at.outer, &rets[1]);
    if (a->need_input) {
        if (a->weight) gx = scope_mul(&s, g, tni_t(a->weight));
        tn_tensor *along = scope_mean(&s, scope_mul(&s, gx, hat), at.inner, 1);
        tn_tensor *r = scope_mul(&s, scope_sub(&s, gx, scope_mul(&s, hat, along)), rstd);
        if (s.st == TN_OK) rets[0] = tn_tensor_ref(r);
    }
    tn_status st = scope_finish(&s, NULL, NULL);
    for (int i = 0; i < 2 && st != TN_OK; i++) tn_tensor_unref(&rets[i]);
    return st;
}

/* ---- Embedding ---------------------------------------------------------------------------------*/

tn_status tni_composite_embedding(const void *args, tn_tensor **rets) {
    const tn_embedding_args *a = args;
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS];
    int32_t n = a->indices->ndim;
    if (n + a->weight->ndim - 1 > TN_MAX_DIMS)
        return tn_fail(TN_E_SHAPE, 1, "embedding: at most %d dimensions", TN_MAX_DIMS);
    memcpy(shape, a->indices->shape, sizeof shape[0] * (size_t)n);
    for (int32_t d = 1; d < a->weight->ndim; d++) shape[n++] = a->weight->shape[d];
    tn_tensor *flat = scope_reshape(&s, tni_t(a->indices), TN_INTS(-1));
    if (a->indices->numel == 0) flat = scope_reshape(&s, tni_t(a->indices), TN_INTS(0));
    tn_tensor *rows = rows_of(&s, tni_t(a->weight), flat);
    return scope_finish(&s, scope_reshape(&s, rows, tn_ints_of(shape, n)), rets);
}

/* sums[indices[i]] += source[i]; a new tensor of n rows like the source's. */
static tn_tensor *sum_by_index(tni_scope *s, int64_t n, tn_tensor *indices, tn_tensor *source) {
    tn_tensor *sums = NULL, *same = NULL;
    int64_t shape[2] = {n, 0};
    if (s->st != TN_OK) return NULL;
    int32_t ndim = tn_tensor_ndim(source);
    if (ndim > 1) shape[1] = tn_tensor_shape(source)[1];
    tn_status st =
        tn_zeros(tn_ints_of(shape, ndim), tn_tensor_dtype(source), tni_device_of(source), &sums);
    sums = scope_take(s, st, sums);
    if (s->st == TN_OK) s->st = tn_index_add_(sums, 0, indices, source, tn_scalar_int(1), &same);
    tn_tensor_unref(&same);
    return sums;
}

tn_status tni_composite__embedding_backward(const void *args, tn_tensor **rets) {
    const tn__embedding_backward_args *a = args;
    tni_scope s = {0};
    int64_t width = a->grad->ndim > 0 ? a->grad->shape[a->grad->ndim - 1] : 1;
    int64_t n = a->indices->numel;
    tn_tensor *flat = scope_reshape(&s, tni_t(a->indices), TN_INTS(n));
    tn_tensor *g = scope_reshape(&s, tni_t(a->grad), TN_INTS(n, width));
    tn_tensor *kept = scope_convert(&s, differs(&s, flat, a->padding_idx), tn_view_dtype(a->grad));
    if (a->scale_grad_by_freq) {
        tn_tensor *often = sum_by_index(&s, a->num_weights, flat, kept);
        tn_tensor *by_row = rows_of(&s, often, flat);
        kept = only_where(&s, differs(&s, flat, a->padding_idx),
                          scope_true_divide(&s, kept, by_row), tn_scalar_float(0));
    }
    g = scope_mul(&s, g, scope_unsqueeze(&s, kept, 1));
    return scope_finish(&s, sum_by_index(&s, a->num_weights, flat, g), rets);
}
