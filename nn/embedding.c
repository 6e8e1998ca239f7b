/* embedding.c: rows of a table by index: shape rules, and gathering and adding out of simpler
 * operators. */
#include <math.h>

#include <tenon/args_nn.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_sparse.h>

#include "nn_priv.h"
#include "op_nn.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

static tn_status check_indices(const tn_view *indices) {
    int32_t d = tn_view_dtype(indices);
    if (d == TN_I64 || d == TN_I32) return TN_OK;
    return tn_fail(TN_E_DTYPE, 1,
                   "Expected tensor for argument #1 'indices' to have one of the following scalar "
                   "types: Long, Int; but got %s instead",
                   tni_type_text(d));
}

static tn_status lookup(tn_infer *inf, const tn_view *weight, const tn_view *indices) {
    TN_TRY(check_indices(indices));
    if (weight->ndim != 2) return tn_fail(TN_E_SHAPE, 0, "'weight' must be 2-D");
    if (indices->ndim + 1 > TN_MAX_DIMS) {
        return tn_fail(TN_E_SHAPE, 1, "a tensor has at most 64 dimensions");
    }
    int64_t shape[TN_MAX_DIMS + 1];
    memcpy(shape, indices->shape, (size_t)indices->ndim * sizeof(int64_t));
    shape[indices->ndim] = weight->shape[1];
    return tni_infer_set(inf, 0, indices->ndim + 1, shape);
}

tn_status tni_infer_embedding(tn_infer *inf, const void *args) {
    const tn_embedding_args *a = args;
    return lookup(inf, a->weight, a->indices);
}

tn_status tni_infer__embedding_gather(tn_infer *inf, const void *args) {
    const tn__embedding_gather_args *a = args;
    return lookup(inf, a->weight, a->indices);
}

tn_status tni_infer__embedding_backward(tn_infer *inf, const void *args) {
    const tn__embedding_backward_args *a = args;
    const tn_view *g = a->grad, *at = a->indices;
    TN_TRY(check_indices(at));
    if (g->ndim != at->ndim + 1) return tn_fail(TN_E_SHAPE, 0, "one row of grad for each index");
    TN_TRY(tni_infer_expect(inf, 1, at, g->ndim - 1, g->shape, -1));
    int64_t shape[2] = {a->num_weights, a->grad->shape[a->grad->ndim - 1]};
    return tni_infer_set(inf, 0, 2, shape);
}

/* ---- Out of simpler operators -----------------------------------------------------------------*/

static tn_tensor *rows_of(tni_scope *s, tn_tensor *table, tn_tensor *indices) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_index_select(table, 0, indices, &r);
    return scope_take(s, st, r);
}

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
    int64_t width = a->grad->shape[a->grad->ndim - 1], n = a->indices->numel;
    tn_tensor *flat = scope_reshape(&s, tni_t(a->indices), TN_INTS(n));
    tn_tensor *g = scope_reshape(&s, tni_t(a->grad), TN_INTS(n, width));
    tn_tensor *kept =
        scope_convert(&s, scope_differs(&s, flat, a->padding_idx), tn_view_dtype(a->grad));
    if (a->scale_grad_by_freq) {
        tn_tensor *often = sum_by_index(&s, a->num_weights, flat, kept);
        tn_tensor *by_row = rows_of(&s, often, flat);
        kept = scope_only_where(&s, scope_differs(&s, flat, a->padding_idx),
                                scope_true_divide(&s, kept, by_row), tn_scalar_float(0));
    }
    g = scope_mul(&s, g, scope_unsqueeze(&s, kept, 1));
    return scope_finish(&s, sum_by_index(&s, a->num_weights, flat, g), rets);
}

/* The gradient as rows at their indices, for tables of which few rows are used. */
tn_status tni_composite__embedding_sparse_backward(const void *args, tn_tensor **rets) {
    const tn__embedding_sparse_backward_args *a = args;
    tni_scope s = {0};
    if (a->scale_grad_by_freq)
        return tn_fail(
            TN_E_STATE, 4,
            "embedding_backward: scale_grad_by_freq not supported with sparse gradients");
    int64_t width = a->grad->ndim > 0 ? a->grad->shape[a->grad->ndim - 1] : 1;
    int64_t n = a->indices->numel;
    tn_tensor *flat = scope_convert(&s, scope_reshape(&s, tni_t(a->indices), TN_INTS(n)), TN_I64);
    tn_tensor *g = scope_reshape(&s, tni_t(a->grad), TN_INTS(n, width)), *r = NULL;
    if (a->padding_idx >= 0) {
        tn_tensor *kept = NULL;
        tn_tensor *differs = scope_differs(&s, flat, a->padding_idx);
        if (s.st == TN_OK) s.st = tn_nonzero(differs, &kept);
        kept = scope_take(&s, s.st, kept);
        if (s.st == TN_OK) kept = scope_reshape(&s, kept, TN_INTS(tn_tensor_numel(kept)));
        flat = rows_of(&s, flat, kept);
        g = rows_of(&s, g, kept);
    }
    flat = scope_unsqueeze(&s, flat, 0);
    if (s.st == TN_OK)
        s.st = tn__sparse_make(flat, NULL, g, TN_INTS(a->num_weights, width), TN_LAYOUT_COO, 0, &r);
    return scope_finish(&s, scope_take(&s, s.st, r), rets);
}
