/* composite_factor.c: operators that take one result of a factorisation, or put several together. */
#include <math.h>

#include <tenon/op_args.h>
#include <tenon/ops.h>

#include "scope_priv.h"

tn_status tni_composite_inverse(const void *args, tn_tensor **rets);
tn_status tni_composite_logdet(const void *args, tn_tensor **rets);
tn_status tni_composite_cholesky(const void *args, tn_tensor **rets);
tn_status tni_composite__linalg_pinv(const void *args, tn_tensor **rets);

tn_status tni_composite_inverse(const void *args, tn_tensor **rets) {
    const tn_inverse_args *a = args;
    tn_tensor *info = NULL;
    tn_status st = tn_linalg_inv_ex(tni_t(a->input), 1, &rets[0], &info);
    tn_tensor_unref(&info);
    return st;
}

/* log|det|, with the NaN of a negative determinant from the logarithm of its sign. */
tn_status tni_composite_logdet(const void *args, tn_tensor **rets) {
    const tn_logdet_args *a = args;
    tn_tensor *sign = NULL, *size = NULL, *negative = NULL;
    tn_scalar_box nan;
    tn_status st = tn_slogdet(tni_t(a->input), &sign, &size);
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

/* V diag(1 / S) U^T, without the singular values that count as zero. */
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
    tn_tensor *v = scope_transpose(&s, vh, -2, -1), *ut = scope_transpose(&s, u, -2, -1);
    tn_tensor *scaled = scope_mul(&s, v, scope_unsqueeze(&s, values, -2));
    if (s.st == TN_OK) {
        tn_status done = tn_matmul(scaled, ut, &t);
        scope_take(&s, done, t);
    }
    return scope_finish(&s, t, &rets[0]);
}
