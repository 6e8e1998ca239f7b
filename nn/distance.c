/* distance.c: distances of rows: cdist and pdist, their shape rules, and gradients of recorded passes.
 * The messages are PyTorch's. */
#include <string.h>

#include <tenon/args_distance.h>
#include <tenon/args_loss.h>
#include <tenon/autograd.h>
#include <tenon/ops_distance.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_loss.h>
#include <tenon/ops_pointwise.h>

#include "nn_priv.h"
#include "op_distance.h"
#include "op_loss.h"

enum { FEW_ROWS = 25 }; /* up to where PyTorch computes distances one by one */

/* ---- Shape rules -------------------------------------------------------------------------------*/

/* x1 (.., P, M) and x2 (.., R, M) of one dtype and batch. */
static tn_status check_rows(tn_infer *inf, const tn_view *x1, const tn_view *x2) {
    int64_t shape[TN_MAX_DIMS];
    if (x1->ndim < 2 || x2->ndim != x1->ndim)
        return tn_fail(TN_E_SHAPE, 1, "_cdist(): rows of matrices, or of batches of one shape");
    for (int32_t d = 0; d < x1->ndim; d++) shape[d] = x1->shape[d];
    shape[x1->ndim - 2] = x2->shape[x1->ndim - 2];
    return tni_infer_expect(inf, 1, x2, x1->ndim, shape, tn_view_dtype(x1));
}

/* The shape of the distances. */
static void distances_of(const tn_view *x1, const tn_view *x2, int64_t *ret_shape) {
    memcpy(ret_shape, x1->shape, (size_t)x1->ndim * sizeof *ret_shape);
    ret_shape[x1->ndim - 1] = x2->shape[x2->ndim - 2];
}

tn_status tni_infer__cdist(tn_infer *inf, const void *args) {
    const tn__cdist_args *a = args;
    int64_t shape[TN_MAX_DIMS];
    TN_TRY(check_rows(inf, a->x1, a->x2));
    distances_of(a->x1, a->x2, shape);
    return tni_infer_set(inf, 0, a->x1->ndim, shape);
}

tn_status tni_infer__cdist_backward(tn_infer *inf, const void *args) {
    const tn__cdist_backward_args *a = args;
    int64_t shape[TN_MAX_DIMS];
    TN_TRY(check_rows(inf, a->x1, a->x2));
    distances_of(a->x1, a->x2, shape);
    TN_TRY(tni_infer_expect(inf, 0, a->grad, a->x1->ndim, shape, tn_view_dtype(a->x1)));
    TN_TRY(tni_infer_expect(inf, 4, a->distance, a->x1->ndim, shape, tn_view_dtype(a->x1)));
    return tni_infer_set(inf, 0, a->x1->ndim, a->x1->shape);
}

/* ---- Cosines -----------------------------------------------------------------------------------*/

/* Rows of two dtypes are compared in the one that holds both. */
tn_status tni_composite_cosine_similarity(const void *args, tn_tensor **rets) {
    const tn_cosine_similarity_args *a = args;
    tn_tensor *x[] = {tni_t(a->x1), tni_t(a->x2)}, *r = NULL;
    int32_t dtype = tni_result_dtype(x, 2);
    tni_scope s = {0};
    if (!(a->eps >= 0))
        return tn_fail(TN_E_STATE, 3, "cosine_similarity: eps must be non-negative, got: %g",
                       a->eps);
    for (int i = 0; i < 2 && dtype != TN_NO_DTYPE; i++)
        if (tn_tensor_dtype(x[i]) != dtype) x[i] = scope_convert(&s, x[i], dtype);
    if (s.st == TN_OK) {
        tn_status st = tn__cosine_similarity(x[0], x[1], a->dim, a->eps, &r);
        r = scope_take(&s, st, r);
    }
    return scope_finish(&s, r, rets);
}

/* ---- cdist -------------------------------------------------------------------------------------*/

static tn_status check_points(const tn_view *x, int i) {
    if (x->ndim < 2)
        return tn_fail(TN_E_STATE, i, "cdist only supports at least 2D tensors, X%d got: %dD",
                       i + 1, (int)x->ndim);
    return tn_dtype_category(tn_view_dtype(x)) == TN_CAT_FLOAT
               ? TN_OK
               : tn_fail(TN_E_DTYPE, i, "cdist only supports floating-point dtypes, X%d got: %s",
                         i + 1, tni_type_text(tn_view_dtype(x)));
}

/* Whether Euclidean distances are computed by products of matrices. */
static tn_status by_products(const tn_cdist_args *a, bool *ret) {
    const char *mode = a->compute_mode ? a->compute_mode : "use_mm_for_euclid_dist_if_necessary";
    int64_t p = a->x1->shape[a->x1->ndim - 2], r = a->x2->shape[a->x2->ndim - 2];
    bool always = strcmp(mode, "use_mm_for_euclid_dist") == 0;
    bool large = strcmp(mode, "use_mm_for_euclid_dist_if_necessary") == 0;
    if (!always && !large && strcmp(mode, "donot_use_mm_for_euclid_dist") != 0)
        return tn_fail(TN_E_VALUE, 3, "%s is not a valid value for compute_mode", mode);
    *ret = a->p == 2.0 && (always || (large && (p > FEW_ROWS || r > FEW_ROWS)));
    return TN_OK;
}

static tn_status check_cdist(const tn_cdist_args *a) {
    int64_t m1, m2;
    TN_TRY(check_points(a->x1, 0));
    TN_TRY(check_points(a->x2, 1));
    if (!(a->p >= 0)) return tn_fail(TN_E_STATE, 2, "cdist only supports non-negative p values");
    m1 = a->x1->shape[a->x1->ndim - 1];
    m2 = a->x2->shape[a->x2->ndim - 1];
    return m1 == m2 ? TN_OK
                    : tn_fail(TN_E_STATE, 1,
                              "X1 and X2 must have the same number of columns. X1: %lld X2: %lld",
                              (long long)m1, (long long)m2);
}

tn_status tni_composite_cdist(const void *args, tn_tensor **rets) {
    const tn_cdist_args *a = args;
    const tn_view *const x[] = {a->x1, a->x2};
    int64_t shape[TN_MAX_DIMS];
    int32_t batch;
    bool products = false;
    tni_scope s = {0};
    tn_tensor *rows[2];
    TN_TRY(check_cdist(a));
    TN_TRY(by_products(a, &products));
    TN_TRY(tni_broadcast_shapes(x[0]->ndim - 2, x[0]->shape, x[1]->ndim - 2, x[1]->shape, &batch,
                                shape));
    for (int i = 0; i < 2; i++) {
        shape[batch] = x[i]->shape[x[i]->ndim - 2];
        shape[batch + 1] = x[i]->shape[x[i]->ndim - 1];
        rows[i] = scope_expand(&s, tni_t(x[i]), tn_ints_of(shape, batch + 2));
    }
    tn_tensor *r = SCOPE(&s, products ? tn__euclidean_dist(rows[0], rows[1], scope_slot(&s))
                                      : tn__cdist(rows[0], rows[1], a->p, scope_slot(&s)));
    return scope_finish(&s, r, rets);
}

/* x (.., n, m) as (.., n, m + 2): scaled, with its rows' squares and ones behind, in this order or the other. */
static tn_tensor *with_squares(tni_scope *s, tn_tensor *x, double scale, bool squares_first) {
    tn_tensor *squares = scope_sum(s, scope_square(s, x), TN_INTS(-1), 1);
    tn_tensor *ones = SCOPE(s, tn_ones_like(squares, -1, -1, TN_FORMAT_PRESERVE, scope_slot(s)));
    tn_tensor *part[] = {scale == 1.0 ? x : scope_mul_number(s, x, scale),
                         squares_first ? squares : ones, squares_first ? ones : squares};
    return SCOPE(s, tn_cat((tn_tensors){part, 3}, -1, scope_slot(s)));
}

/* |a - b|^2 = -2 ab + |a|^2 + |b|^2, as one product of matrices. */
tn_status tni_composite__euclidean_dist(const void *args, tn_tensor **rets) {
    const tn__euclidean_dist_args *a = args;
    tni_scope s = {0};
    tn_scalar_box zero;
    tn_tensor *x1 = with_squares(&s, tni_t(a->x1), -2.0, true);
    tn_tensor *x2 = with_squares(&s, tni_t(a->x2), 1.0, false);
    tn_tensor *r = scope_matmul(&s, x1, scope_transpose(&s, x2, -2, -1));
    r = scope_binary(&s, tn_clamp_min, r, tn_scalar_box_init(&zero, tn_scalar_float(0)));
    return scope_finish(&s, scope_unary(&s, tn_sqrt, r), rets);
}

tn_status tni_composite__cdist_gradient(const void *args, tn_tensor **rets) {
    const tn__cdist_gradient_args *a = args;
    tn_tensor *g = tni_t(a->grad), *x1 = tni_t(a->x1), *x2 = tni_t(a->x2);
    tn_tensor *distance = tni_t(a->distance);
    if (!tn_grad_enabled()) return tn__cdist_backward(g, x1, x2, a->p, distance, rets);
    return tn__cdist_parts(g, x1, x2, a->p, distance, rets);
}

/* ---- pdist -------------------------------------------------------------------------------------*/

tn_status tni_composite_pdist(const void *args, tn_tensor **rets) {
    const tn_pdist_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input);
    if (a->input->ndim != 2)
        return tn_fail(TN_E_STATE, 0, "pdist only supports 2D tensors, got: %dD",
                       (int)a->input->ndim);
    if (!(a->p >= 0)) return tn_fail(TN_E_STATE, 1, "pdist only supports non-negative p values");
    int64_t n = a->input->shape[0];
    tn_tensor *all = SCOPE(&s, tn__cdist(x, x, a->p, scope_slot(&s)));
    tn_tensor *pairs =
        SCOPE(&s, tn_triu_indices(n, n, 1, TN_I64, tni_device_of(x), scope_slot(&s)));
    tn_tensor *at[] = {scope_select(&s, pairs, 0, 0), scope_select(&s, pairs, 0, 1)};
    tn_tensor *r = SCOPE(&s, tn_index(all, (tn_tensors){at, 2}, scope_slot(&s)));
    return scope_finish(&s, r, rets);
}
