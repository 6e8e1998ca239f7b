/* factor.c: factorisations of matrices, of which the last two dimensions are one and those in front a
 * batch: shape rules, operators that take one result or put several together, gradients that depend on
 * the shape of the matrix. */
#include <math.h>

#include <tenon/args_eigen.h>
#include <tenon/args_linalg.h>
#include <tenon/ops_compare.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_linalg.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_shape.h>

#include "infer_priv.h"
#include "op_eigen.h"
#include "op_linalg.h"
#include "scope_priv.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

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

/* Output i has a's batch and the sizes `last`. */
static tn_status set(tn_infer *inf, int i, const tn_view *a, tn_ints last) {
    int64_t shape[TN_MAX_DIMS];
    int32_t batch = a->ndim - 2;
    memcpy(shape, a->shape, (size_t)batch * sizeof(int64_t));
    for (int64_t d = 0; d < last.n; d++) shape[batch + d] = last.v[d];
    return tni_infer_set(inf, i, batch + (int32_t)last.n, shape);
}

static int64_t rows_of(const tn_view *a) { return a->shape[a->ndim - 2]; }

static int64_t columns_of(const tn_view *a) { return a->shape[a->ndim - 1]; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static tn_status alike(tn_infer *inf, int i, const tn_view *a) {
    return set(inf, i, a, TN_INTS(rows_of(a), columns_of(a)));
}

tn_status tni_infer_linalg_inv_ex(tn_infer *inf, const void *args) {
    const tn_linalg_inv_ex_args *a = args;
    TN_TRY(square("linalg.inv", a->A));
    inf->out[1].dtype = TN_I32;
    TN_TRY(alike(inf, 0, a->A));
    return set(inf, 1, a->A, (tn_ints){0});
}

tn_status tni_infer__inverse(tn_infer *inf, const void *args) {
    const tn__inverse_args *a = args;
    TN_TRY(square("linalg.inv", a->A));
    return alike(inf, 0, a->A);
}

tn_status tni_infer_det(tn_infer *inf, const void *args) {
    const tn_det_args *a = args;
    TN_TRY(square("linalg.det", a->input));
    return set(inf, 0, a->input, (tn_ints){0});
}

tn_status tni_infer__cofactors(tn_infer *inf, const void *args) {
    const tn__cofactors_args *a = args;
    TN_TRY(square("linalg.det", a->A));
    return alike(inf, 0, a->A);
}

tn_status tni_infer_slogdet(tn_infer *inf, const void *args) {
    const tn_slogdet_args *a = args;
    TN_TRY(square("linalg.slogdet", a->input));
    TN_TRY(set(inf, 0, a->input, (tn_ints){0}));
    return set(inf, 1, a->input, (tn_ints){0});
}

/* b, the argument with the number `at`, has a's batch and dtype, and as many rows. */
static tn_status right_side(const char *op, const tn_view *a, int32_t at, const tn_view *b) {
    if (tn_view_dtype(a) != tn_view_dtype(b)) {
        return tn_fail(TN_E_DTYPE, at,
                       "%s: Expected A and B to have the same dtype, but found A of type %s and B "
                       "of type %s instead",
                       op, tn_dtype_name(tn_view_dtype(a)), tn_dtype_name(tn_view_dtype(b)));
    }
    bool fits = a->ndim == b->ndim && rows_of(a) == rows_of(b);
    for (int32_t d = 0; fits && d + 2 < a->ndim; d++) fits = a->shape[d] == b->shape[d];
    if (fits) return TN_OK;
    return tn_fail(TN_E_SHAPE, at,
                   "%s: Incompatible shapes of A and B for the equation AX = B: %s, %s", op,
                   tni_shape_text_of(a), tni_shape_text_of(b));
}

tn_status tni_infer__linalg_solve(tn_infer *inf, const void *args) {
    const tn__linalg_solve_args *a = args;
    TN_TRY(square("linalg.solve", a->A));
    TN_TRY(right_side("linalg.solve", a->A, 1, a->B));
    return alike(inf, 0, a->B);
}

tn_status tni_infer__linalg_solve_triangular(tn_infer *inf, const void *args) {
    const tn__linalg_solve_triangular_args *a = args;
    TN_TRY(square("linalg.solve_triangular", a->A));
    TN_TRY(right_side("linalg.solve_triangular", a->A, 1, a->B));
    return alike(inf, 0, a->B);
}

tn_status tni_infer__linalg_cholesky(tn_infer *inf, const void *args) {
    const tn__linalg_cholesky_args *a = args;
    TN_TRY(square("linalg.cholesky", a->A));
    inf->out[1].dtype = TN_I32;
    TN_TRY(alike(inf, 0, a->A));
    return set(inf, 1, a->A, (tn_ints){0});
}

tn_status tni_infer__linalg_qr(tn_infer *inf, const void *args) {
    const tn__linalg_qr_args *a = args;
    TN_TRY(matrices("linalg.qr", a->A));
    int64_t m = rows_of(a->A), n = columns_of(a->A), k = a->complete ? m : least(m, n);
    TN_TRY(set(inf, 0, a->A, TN_INTS(m, k)));
    return set(inf, 1, a->A, TN_INTS(k, n));
}

tn_status tni_infer__linalg_svd(tn_infer *inf, const void *args) {
    const tn__linalg_svd_args *a = args;
    TN_TRY(matrices("linalg.svd", a->A));
    int64_t m = rows_of(a->A), n = columns_of(a->A), k = least(m, n);
    TN_TRY(set(inf, 0, a->A, TN_INTS(m, a->full_matrices ? m : k)));
    TN_TRY(set(inf, 1, a->A, TN_INTS(k)));
    return set(inf, 2, a->A, TN_INTS(a->full_matrices ? n : k, n));
}

tn_status tni_infer__linalg_eigh(tn_infer *inf, const void *args) {
    const tn__linalg_eigh_args *a = args;
    TN_TRY(square("linalg.eigh", a->A));
    TN_TRY(set(inf, 0, a->A, TN_INTS(rows_of(a->A))));
    return alike(inf, 1, a->A);
}

tn_status tni_infer__linalg_lstsq(tn_infer *inf, const void *args) {
    const tn__linalg_lstsq_args *a = args;
    TN_TRY(matrices("torch.linalg.lstsq", a->A));
    TN_TRY(right_side("torch.linalg.lstsq", a->A, 1, a->B));
    int64_t n = columns_of(a->A);
    TN_TRY(set(inf, 0, a->A, TN_INTS(n, columns_of(a->B))));
    TN_TRY(set(inf, 1, a->A, (tn_ints){0}));
    return set(inf, 2, a->A, TN_INTS(a->values ? least(rows_of(a->A), n) : 0));
}

tn_status tni_infer__linalg_lu_factor(tn_infer *inf, const void *args) {
    const tn__linalg_lu_factor_args *a = args;
    TN_TRY(matrices("linalg.lu_factor", a->A));
    inf->out[1].dtype = TN_I32;
    inf->out[2].dtype = TN_I32;
    TN_TRY(alike(inf, 0, a->A));
    TN_TRY(set(inf, 1, a->A, TN_INTS(least(rows_of(a->A), columns_of(a->A)))));
    return set(inf, 2, a->A, (tn_ints){0});
}

tn_status tni_infer__lu_permutation(tn_infer *inf, const void *args) {
    const tn__lu_permutation_args *a = args;
    int32_t ndim = a->pivots->ndim;
    int64_t shape[TN_MAX_DIMS];
    if (ndim < 1 || a->rows < a->pivots->shape[ndim - 1]) {
        return tn_fail(TN_E_SHAPE, 0, "lu_unpack: pivots of shape %s do not belong to %lld rows",
                       tni_shape_text_of(a->pivots), (long long)a->rows);
    }
    memcpy(shape, a->pivots->shape, (size_t)ndim * sizeof(int64_t));
    shape[ndim - 1] = a->rows;
    return tni_infer_set(inf, 0, ndim, shape);
}

tn_status tni_infer__linalg_ldl_factor(tn_infer *inf, const void *args) {
    const tn__linalg_ldl_factor_args *a = args;
    TN_TRY(square("torch.linalg.ldl_factor_ex", a->A));
    inf->out[1].dtype = TN_I32;
    inf->out[2].dtype = TN_I32;
    TN_TRY(alike(inf, 0, a->A));
    TN_TRY(set(inf, 1, a->A, TN_INTS(rows_of(a->A))));
    return set(inf, 2, a->A, (tn_ints){0});
}

tn_status tni_infer__linalg_ldl_solve(tn_infer *inf, const void *args) {
    const tn__linalg_ldl_solve_args *a = args;
    TN_TRY(square("torch.linalg.ldl_solve", a->LD));
    TN_TRY(right_side("torch.linalg.ldl_solve", a->LD, 2, a->B));
    if (tn_view_dtype(a->pivots) != TN_I32)
        return tn_fail(TN_E_DTYPE, 1,
                       "torch.linalg.ldl_solve: Expected pivots to be integers. Got %s",
                       tn_dtype_name(tn_view_dtype(a->pivots)));
    TN_TRY(tni_infer_expect(inf, 1, a->pivots, a->LD->ndim - 1, a->LD->shape, TN_I32));
    return alike(inf, 0, a->B);
}

tn_status tni_infer__linalg_eig(tn_infer *inf, const void *args) {
    const tn__linalg_eig_args *a = args;
    TN_TRY(square("linalg.eig", a->A));
    int32_t given = tn_view_dtype(a->A), dtype = tni_dtype_to_complex(given);
    if (given == TN_BF16 || given == TN_F16 || given == TN_C32)
        return tn_fail(TN_E_UNSUPPORTED, 0, "\"linalg_eig\" not implemented for '%s'",
                       tni_type_text(given));
    inf->out[0].dtype = dtype;
    inf->out[1].dtype = dtype;
    TN_TRY(set(inf, 0, a->A, TN_INTS(rows_of(a->A))));
    return alike(inf, 1, a->A);
}

tn_status tni_infer_matrix_exp(tn_infer *inf, const void *args) {
    const tn_matrix_exp_args *a = args;
    TN_TRY(square("linalg.matrix_exp", a->input));
    return alike(inf, 0, a->input);
}

tn_status tni_composite_inverse(const void *args, tn_tensor **rets) {
    const tn_inverse_args *a = args;
    tn_tensor *info = NULL;
    tn_status st = tn_linalg_inv_ex(tni_t(a->input), 1, &rets[0], &info);
    tn_tensor_unref(&info);
    return st;
}

/* log|det|, with the NaN of a negative determinant from the logarithm of its sign; a complex sign's
 * logarithm is the imaginary part. */
tn_status tni_composite_logdet(const void *args, tn_tensor **rets) {
    const tn_logdet_args *a = args;
    tn_tensor *sign = NULL, *size = NULL, *negative = NULL;
    tn_scalar_box nan;
    tn_status st = tn_slogdet(tni_t(a->input), &sign, &size);
    if (tn_dtype_category(tn_view_dtype(a->input)) == TN_CAT_COMPLEX) {
        tn_tensor *angle = NULL;
        if (!st) st = tn_log(sign, &angle);
        if (!st) st = tn_add(angle, size, tn_scalar_int(1), &rets[0]);
        tn_tensor_unref(&angle);
        tn_tensor_unref(&sign);
        tn_tensor_unref(&size);
        return st;
    }
    if (!st) st = tn_lt_scalar(sign, tn_scalar_int(0), &negative);
    if (!st)
        st = tn_masked_fill(size, negative, tn_scalar_box_init(&nan, tn_scalar_float((double)NAN)),
                            &rets[0]);
    tn_tensor_unref(&sign);
    tn_tensor_unref(&size);
    tn_tensor_unref(&negative);
    return st;
}

/* An upper factor is that of the transpose, which reads the upper triangle. */
tn_status tni_composite_cholesky(const void *args, tn_tensor **rets) {
    const tn_cholesky_args *a = args;
    tn_tensor *t = NULL, *lower = NULL, *info = NULL;
    if (!a->upper || a->input->ndim < 2) {
        tn_status st = tn__linalg_cholesky(tni_t(a->input), 1, &rets[0], &info);
        tn_tensor_unref(&info);
        return st;
    }
    tn_status st = tn_adjoint(tni_t(a->input), &t);
    if (!st) st = tn__linalg_cholesky(t, 1, &lower, &info);
    if (!st) st = tn_adjoint(lower, &rets[0]);
    tn_tensor_unref(&t);
    tn_tensor_unref(&lower);
    tn_tensor_unref(&info);
    return st;
}

static tn_tensor *scope_adjoint(tni_scope *s, tn_tensor *a) {
    return scope_unary(s, tn_adjoint, a);
}

/* V diag(1 / S) U^H, without the singular values that count as zero. */
tn_status tni_composite__linalg_pinv(const void *args, tn_tensor **rets) {
    const tn__linalg_pinv_args *a = args;
    tn_tensor *u = NULL, *values = NULL, *vh = NULL, *t = NULL, *zero = NULL, *flipped = NULL;
    tn_scalar_box box;
    tni_scope s = {0};
    tn_status st = tn__linalg_svd(tni_t(a->A), 0, &u, &values, &vh);
    if (st) return st;
    scope_take(&s, TN_OK, u);
    scope_take(&s, TN_OK, values);
    scope_take(&s, TN_OK, vh);
    if (tn_tensor_numel(values) > 0) {
        st = tn_narrow(values, -1, 0, 1, &t);
        tn_tensor *cut = scope_take(&s, st, t);
        if (!s.st) s.st = tn_mul_scalar(cut, tn_scalar_float(a->rtol), &t);
        cut = scope_take(&s, s.st, t);
        if (!s.st) s.st = tn_clamp(cut, tn_scalar_float(a->atol), tn_scalar_none(), &t);
        cut = scope_take(&s, s.st, t);
        if (!s.st) s.st = tn_le(values, cut, &zero);
        scope_take(&s, s.st, zero);
        if (!s.st) s.st = tn_reciprocal(values, &t);
        tn_tensor *inverse = scope_take(&s, s.st, t);
        if (!s.st) {
            s.st =
                tn_masked_fill(inverse, zero, tn_scalar_box_init(&box, tn_scalar_int(0)), &flipped);
        }
        values = scope_take(&s, s.st, flipped);
    }
    tn_tensor *v = scope_adjoint(&s, vh), *uh = scope_adjoint(&s, u);
    tn_tensor *scaled = scope_mul(&s, v, scope_unsqueeze(&s, values, -2));
    if (s.st == TN_OK) {
        tn_status done = tn_matmul(scaled, uh, &t);
        scope_take(&s, done, t);
    }
    return scope_finish(&s, t, &rets[0]);
}

/* ---- Gradients --------------------------------------------------------------------------------*/

static tn_tensor *qr_backward(tni_scope *s, tn_tensor *gq, tn_tensor *gr, tn_tensor *q,
                              tn_tensor *r) {
    tn_tensor *ga = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn__qr_backward(gq, gr, q, r, &ga);
    return scope_take(s, st, ga);
}

/* A wide A = [X Y] has X = Q U and Y = Q V with R = [U V]: Y's gradient is Q gV, and what V = Q^H Y
 * says of Q is added to Q's. */
tn_status tni_grad__linalg_qr(tn_gctx *c) {
    const tn__linalg_qr_args *a = c->args;
    int64_t m = a->A->shape[a->A->ndim - 2], n = a->A->shape[a->A->ndim - 1];
    if (a->complete && m > n) {
        return tn_fail(TN_E_UNSUPPORTED, 0,
                       "The QR decomposition is not differentiable when mode='complete' and "
                       "nrows > ncols");
    }
    tn_tensor *q = tni_t(a->Q), *r = tni_t(a->R), *both[2];
    if (m >= n) return tn__qr_backward(c->g[0], c->g[1], q, r, &c->ret[0]);
    tni_scope s = {0};
    tn_tensor *gv = scope_narrow(&s, c->g[1], -1, m, n - m),
              *y = scope_narrow(&s, tni_t(a->A), -1, m, n - m);
    tn_tensor *gvh = scope_adjoint(&s, gv);
    tn_tensor *gq = s.st == TN_OK ? scope_add(&s, c->g[0], scope_matmul(&s, y, gvh)) : NULL;
    both[0] =
        qr_backward(&s, gq, scope_narrow(&s, c->g[1], -1, 0, m), q, scope_narrow(&s, r, -1, 0, m));
    both[1] = scope_matmul(&s, q, gv);
    tn_tensor *joined = NULL;
    if (s.st == TN_OK) {
        tn_status st = tn_cat((tn_tensors){both, 2}, -1, &joined);
        scope_take(&s, st, joined);
    }
    return scope_finish(&s, joined, &c->ret[0]);
}

/* A = P X with X = L U, both of which LU holds. Of the square part, X's gradient is
 * L^-H (tril(L^H gL, -1) + triu(gU U^H)) U^-H. The columns beyond are U2 = L^-1 X2: X2's gradient is
 * L^-H gU2, and they say -gU2 U2^H of L^H gL. The rows beyond are L2 = X2 U^-1 in the same way. */
tn_status tni_grad__linalg_lu_factor(tn_gctx *c) {
    const tn__linalg_lu_factor_args *a = c->args;
    int64_t m = rows_of(a->LU), n = columns_of(a->LU), k = least(m, n);
    int dim = m > n ? -2 : -1;
    tn_tensor *t = NULL, *permutation = NULL, *order = NULL, *both[2];
    tni_scope s = {0};
    tn_tensor *lu = scope_narrow(&s, scope_narrow(&s, tni_t(a->LU), -2, 0, k), -1, 0, k),
              *g = scope_narrow(&s, scope_narrow(&s, c->g[0], -2, 0, k), -1, 0, k);
    tn_tensor *lower = scope_unary(&s, tn__unit_lower, lu), *strict = NULL, *upper = NULL;
    tn_status st = s.st ? s.st : tn_tril(g, -1, &t);
    strict = scope_take(&s, st, t);
    st = s.st ? s.st : tn_triu(g, 0, &t);
    upper = scope_take(&s, st, t);
    st = s.st ? s.st : tn_triu(lu, 0, &t);
    tn_tensor *low = scope_matmul(&s, scope_adjoint(&s, lower), strict);
    tn_tensor *up = scope_matmul(&s, upper, scope_adjoint(&s, scope_take(&s, st, t)));
    tn_tensor *rest = NULL;
    if (m != n) {
        int64_t beyond = m > n ? m - n : n - m;
        tn_tensor *x = scope_narrow(&s, tni_t(a->LU), dim, k, beyond);
        rest = scope_narrow(&s, c->g[0], dim, k, beyond);
        tn_tensor *xh = scope_adjoint(&s, x);
        if (m > n) {
            up = scope_sub(&s, up, scope_matmul(&s, xh, rest));
            rest = scope_binary(&s, tn__right_of_upper, rest, lu);
        } else {
            low = scope_sub(&s, low, scope_matmul(&s, rest, xh));
            tn_tensor *lh = scope_adjoint(&s, lu);
            st = s.st ? s.st : tn__linalg_solve_triangular(lh, rest, 1, 1, &t);
            rest = scope_take(&s, st, t);
        }
    }
    st = s.st ? s.st : tn__lu_core(low, up, lu, &t);
    both[0] = scope_take(&s, st, t);
    both[1] = rest;
    tn_tensor *x = both[0];
    if (rest) {
        st = s.st ? s.st : tn_cat((tn_tensors){both, 2}, dim, &t);
        x = scope_take(&s, st, t);
    }
    st = s.st ? s.st : tn__lu_permutation(tni_t(a->pivots), m, &permutation);
    scope_take(&s, st, permutation);
    st = s.st ? s.st : tn_argsort(permutation, -1, 0, 0, &order);
    order = scope_unsqueeze(&s, scope_take(&s, st, order), -1);
    st = s.st ? s.st : tn_take_along_dim(x, order, tn_some_int(-2), &t);
    return scope_finish(&s, scope_take(&s, st, t), &c->ret[0]);
}

/* The upper right quarter of the exponential of [[A^H, G], [0, A^H]]. */
tn_status tni_composite__matrix_exp_backward(const void *args, tn_tensor **rets) {
    const tn__matrix_exp_backward_args *a = args;
    int64_t n = columns_of(a->input);
    tn_tensor *t = NULL, *halves[2];
    tni_scope s = {0};
    tn_tensor *ah = scope_adjoint(&s, tni_t(a->input));
    tn_tensor *zero = NULL;
    tn_status st = s.st ? s.st : tn_zeros_like(ah, -1, -1, TN_FORMAT_PRESERVE, &t);
    zero = scope_take(&s, st, t);
    tn_tensor *top[2] = {ah, tni_t(a->grad)}, *bottom[2] = {zero, ah};
    st = s.st ? s.st : tn_cat((tn_tensors){top, 2}, -1, &t);
    halves[0] = scope_take(&s, st, t);
    st = s.st ? s.st : tn_cat((tn_tensors){bottom, 2}, -1, &t);
    halves[1] = scope_take(&s, st, t);
    st = s.st ? s.st : tn_cat((tn_tensors){halves, 2}, -2, &t);
    tn_tensor *whole = scope_unary(&s, tn_matrix_exp, scope_take(&s, st, t));
    tn_tensor *r = scope_narrow(&s, scope_narrow(&s, whole, -2, 0, n), -1, n, n);
    return scope_finish(&s, r, &rets[0]);
}

/* Complex vectors have phases besides, which U and V share. The vectors that complete a basis are any
 * that do: what is asked of them does not count. */
tn_status tni_grad__linalg_svd(tn_gctx *c) {
    const tn__linalg_svd_args *a = c->args;
    int64_t k = least(rows_of(a->A), columns_of(a->A));
    tni_scope s = {0};
    tn_tensor *u = scope_narrow(&s, tni_t(a->U), -1, 0, k),
              *gu = scope_narrow(&s, c->g[0], -1, 0, k),
              *vh = scope_narrow(&s, tni_t(a->Vh), -2, 0, k),
              *gvh = scope_narrow(&s, c->g[2], -2, 0, k), *gs = c->g[1], *ga = NULL;
    if (s.st == TN_OK && tn_dtype_category(tn_view_dtype(a->A)) == TN_CAT_COMPLEX) {
        tn_status st = tn__svd_phases(gu, gs, u, tni_t(a->S), &ga);
        gs = scope_take(&s, st, ga);
        ga = NULL;
    }
    if (s.st == TN_OK) {
        tn_status st = tn__svd_backward(gu, gs, gvh, u, tni_t(a->S), vh, &ga);
        ga = scope_take(&s, st, ga);
    }
    return scope_finish(&s, ga, &c->ret[0]);
}
