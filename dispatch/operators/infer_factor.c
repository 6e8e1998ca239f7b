/* infer_factor.c: shape rules of the factorisations: the last two dimensions are matrices, those in
 * front of them a batch. */
#include <tenon/op_args.h>

#include "infer_priv.h"

tn_status tni_infer_linalg_inv_ex(tn_infer *inf, const void *args);
tn_status tni_infer__inverse(tn_infer *inf, const void *args);
tn_status tni_infer_det(tn_infer *inf, const void *args);
tn_status tni_infer__cofactors(tn_infer *inf, const void *args);
tn_status tni_infer_slogdet(tn_infer *inf, const void *args);
tn_status tni_infer__linalg_solve(tn_infer *inf, const void *args);
tn_status tni_infer__linalg_solve_triangular(tn_infer *inf, const void *args);
tn_status tni_infer__linalg_cholesky(tn_infer *inf, const void *args);
tn_status tni_infer__linalg_qr(tn_infer *inf, const void *args);
tn_status tni_infer__linalg_svd(tn_infer *inf, const void *args);
tn_status tni_infer__linalg_eigh(tn_infer *inf, const void *args);
tn_status tni_infer__linalg_lstsq(tn_infer *inf, const void *args);

static tn_status matrices(const char *op, const tn_view *a) {
    if (a->ndim < 2) {
        return tn_fail(TN_E_SHAPE, 0, "%s: The input tensor A must have at least 2 dimensions.",
                       op);
    }
    if (tn_dtype_category(tn_view_dtype(a)) < TN_CAT_FLOAT) {
        return tn_fail(TN_E_DTYPE, 0,
                       "%s: Expected a floating point or complex tensor as input. Got %s", op,
                       tn_dtype_name(tn_view_dtype(a)));
    }
    return TN_OK;
}

static tn_status square(const char *op, const tn_view *a) {
    TN_TRY(matrices(op, a));
    const int64_t *size = a->shape + a->ndim - 2;
    if (size[0] == size[1]) return TN_OK;
    return tn_fail(TN_E_SHAPE, 0,
                   "%s: A must be batches of square matrices, but they are %lld by %lld matrices",
                   op, (long long)size[0], (long long)size[1]);
}

/* Output i has a's batch and `n` further sizes. */
static tn_status set(tn_infer *inf, int i, const tn_view *a, int32_t n, int64_t x, int64_t y) {
    int64_t shape[TN_MAX_DIMS];
    int32_t batch = a->ndim - 2;
    if (batch > 0) memcpy(shape, a->shape, (size_t)batch * sizeof(int64_t));
    if (n > 0) shape[batch] = x;
    if (n > 1) shape[batch + 1] = y;
    return tni_infer_set(inf, i, batch + n, shape);
}

static int64_t rows_of(const tn_view *a) { return a->shape[a->ndim - 2]; }
static int64_t columns_of(const tn_view *a) { return a->shape[a->ndim - 1]; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static tn_status alike(tn_infer *inf, int i, const tn_view *a) {
    return set(inf, i, a, 2, rows_of(a), columns_of(a));
}

tn_status tni_infer_linalg_inv_ex(tn_infer *inf, const void *args) {
    const tn_linalg_inv_ex_args *a = args;
    TN_TRY(square("linalg.inv", a->A));
    inf->out[1].dtype = TN_I32;
    TN_TRY(alike(inf, 0, a->A));
    return set(inf, 1, a->A, 0, 0, 0);
}

tn_status tni_infer__inverse(tn_infer *inf, const void *args) {
    const tn__inverse_args *a = args;
    TN_TRY(square("linalg.inv", a->A));
    return alike(inf, 0, a->A);
}

tn_status tni_infer_det(tn_infer *inf, const void *args) {
    const tn_det_args *a = args;
    TN_TRY(square("linalg.det", a->input));
    return set(inf, 0, a->input, 0, 0, 0);
}

tn_status tni_infer__cofactors(tn_infer *inf, const void *args) {
    const tn__cofactors_args *a = args;
    TN_TRY(square("linalg.det", a->A));
    return alike(inf, 0, a->A);
}

tn_status tni_infer_slogdet(tn_infer *inf, const void *args) {
    const tn_slogdet_args *a = args;
    TN_TRY(square("linalg.slogdet", a->input));
    TN_TRY(set(inf, 0, a->input, 0, 0, 0));
    return set(inf, 1, a->input, 0, 0, 0);
}

/* b has a's batch and dtype, and as many rows. */
static tn_status right_side(const char *op, const tn_view *a, const tn_view *b) {
    if (tn_view_dtype(a) != tn_view_dtype(b)) {
        return tn_fail(TN_E_DTYPE, 1,
                       "%s: Expected A and B to have the same dtype, but found A of type %s and B "
                       "of type %s instead",
                       op, tn_dtype_name(tn_view_dtype(a)), tn_dtype_name(tn_view_dtype(b)));
    }
    bool fits = a->ndim == b->ndim && rows_of(a) == rows_of(b);
    for (int32_t d = 0; fits && d + 2 < a->ndim; d++) fits = a->shape[d] == b->shape[d];
    if (fits) return TN_OK;
    return tn_fail(TN_E_SHAPE, 1,
                   "%s: Incompatible shapes of A and B for the equation AX = B: %s, %s", op,
                   tni_shape_text_of(a), tni_shape_text_of(b));
}

tn_status tni_infer__linalg_solve(tn_infer *inf, const void *args) {
    const tn__linalg_solve_args *a = args;
    TN_TRY(square("linalg.solve", a->A));
    TN_TRY(right_side("linalg.solve", a->A, a->B));
    return alike(inf, 0, a->B);
}

tn_status tni_infer__linalg_solve_triangular(tn_infer *inf, const void *args) {
    const tn__linalg_solve_triangular_args *a = args;
    TN_TRY(square("linalg.solve_triangular", a->A));
    TN_TRY(right_side("linalg.solve_triangular", a->A, a->B));
    return alike(inf, 0, a->B);
}

tn_status tni_infer__linalg_cholesky(tn_infer *inf, const void *args) {
    const tn__linalg_cholesky_args *a = args;
    TN_TRY(square("linalg.cholesky", a->A));
    inf->out[1].dtype = TN_I32;
    TN_TRY(alike(inf, 0, a->A));
    return set(inf, 1, a->A, 0, 0, 0);
}

tn_status tni_infer__linalg_qr(tn_infer *inf, const void *args) {
    const tn__linalg_qr_args *a = args;
    TN_TRY(matrices("linalg.qr", a->A));
    int64_t m = rows_of(a->A), n = columns_of(a->A), k = a->complete ? m : least(m, n);
    TN_TRY(set(inf, 0, a->A, 2, m, k));
    return set(inf, 1, a->A, 2, k, n);
}

tn_status tni_infer__linalg_svd(tn_infer *inf, const void *args) {
    const tn__linalg_svd_args *a = args;
    TN_TRY(matrices("linalg.svd", a->A));
    int64_t m = rows_of(a->A), n = columns_of(a->A), k = least(m, n);
    TN_TRY(set(inf, 0, a->A, 2, m, a->full_matrices ? m : k));
    TN_TRY(set(inf, 1, a->A, 1, k, 0));
    return set(inf, 2, a->A, 2, a->full_matrices ? n : k, n);
}

tn_status tni_infer__linalg_eigh(tn_infer *inf, const void *args) {
    const tn__linalg_eigh_args *a = args;
    TN_TRY(square("linalg.eigh", a->A));
    TN_TRY(set(inf, 0, a->A, 1, rows_of(a->A), 0));
    return alike(inf, 1, a->A);
}

tn_status tni_infer__linalg_lstsq(tn_infer *inf, const void *args) {
    const tn__linalg_lstsq_args *a = args;
    TN_TRY(matrices("torch.linalg.lstsq", a->A));
    TN_TRY(right_side("torch.linalg.lstsq", a->A, a->B));
    int64_t n = columns_of(a->A);
    TN_TRY(set(inf, 0, a->A, 2, n, columns_of(a->B)));
    TN_TRY(set(inf, 1, a->A, 0, 0, 0));
    return set(inf, 2, a->A, 1, least(rows_of(a->A), n), 0);
}
