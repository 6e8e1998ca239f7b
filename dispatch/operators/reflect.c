/* reflect.c: products of reflections I - tau v v^H, as QR factorisations leave them. The product of k of
 * them is I - V T V^H, where T = (I + D S)^-1 D for the diagonal D of the taus and the strict upper
 * triangle S of V^H V: a triangular system, whatever the taus are. */
#include <tenon/args_linalg.h>
#include <tenon/ops_linalg.h>

#include "infer_priv.h"
#include "op_linalg.h"
#include "scope_priv.h"

static int64_t rows_of(const tn_view *a) { return a->shape[a->ndim - 2]; }

static int64_t columns_of(const tn_view *a) { return a->shape[a->ndim - 1]; }

static bool batch_is(const tn_view *a, const tn_view *b, int32_t behind) {
    bool same = b->ndim - behind == a->ndim - 2;
    for (int32_t d = 0; same && d < a->ndim - 2; d++) same = a->shape[d] == b->shape[d];
    return same;
}

tn_status tni_infer_geqrf(tn_infer *inf, const void *args) {
    const tn_geqrf_args *a = args;
    const tn_view *x = a->input;
    if (x->ndim < 2)
        return tn_fail(TN_E_SHAPE, 0, "torch.geqrf: input must have at least 2 dimensions.");
    int64_t shape[TN_MAX_DIMS];
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof shape[0]);
    TN_TRY(tni_infer_set(inf, 0, x->ndim, shape));
    shape[x->ndim - 2] = rows_of(x) < columns_of(x) ? rows_of(x) : columns_of(x);
    return tni_infer_set(inf, 1, x->ndim - 1, shape);
}

static tn_status check_reflections(const char *op, const tn_view *x, const tn_view *tau) {
    if (x->ndim < 2)
        return tn_fail(TN_E_SHAPE, 0, "%s: input must have at least 2 dimensions.", op);
    if (tn_dtype_category(tn_view_dtype(x)) < TN_CAT_FLOAT)
        return tn_fail(TN_E_DTYPE, 0, "%s: expected a floating point or complex input, but got %s",
                       op, tn_dtype_name(tn_view_dtype(x)));
    if (tn_view_dtype(tau) != tn_view_dtype(x))
        return tn_fail(TN_E_DTYPE, 1, "%s: tau dtype %s does not match input dtype %s", op,
                       tn_dtype_name(tn_view_dtype(tau)), tn_dtype_name(tn_view_dtype(x)));
    if (!batch_is(x, tau, 1))
        return tn_fail(TN_E_SHAPE, 1,
                       "%s: Expected tau to have the batch of input and one dimension less, but "
                       "input has shape %s and tau %s",
                       op, tni_shape_text_of(x), tni_shape_text_of(tau));
    if (columns_of(x) < columns_of(tau))
        return tn_fail(TN_E_SHAPE, 1,
                       "%s: input.shape[-1] must be greater than or equal to tau.shape[-1]", op);
    return TN_OK;
}

/* The vectors of the reflections as columns, 1 on the diagonal. */
static tn_tensor *vectors(tni_scope *s, const tn_view *x, const tn_view *tau) {
    return scope_unary(s, tn__reflections, scope_narrow(s, tni_t(x), -1, 0, columns_of(tau)));
}

static tn_tensor *reflect(tni_scope *s, bool back, tn_tensor *v, tn_tensor *tau, tn_tensor *x) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = back ? tn__reflect_back(v, tau, x, &r) : tn__reflect(v, tau, x, &r);
    return scope_take(s, st, r);
}

tn_status tni_composite_linalg_householder_product(const void *args, tn_tensor **rets) {
    const tn_linalg_householder_product_args *a = args;
    const tn_view *x = a->input;
    TN_TRY(check_reflections("torch.linalg.householder_product", x, a->tau));
    if (rows_of(x) < columns_of(x))
        return tn_fail(TN_E_SHAPE, 0,
                       "torch.linalg.householder_product: input.shape[-2] must be greater than or "
                       "equal to input.shape[-1]");
    tni_scope s = {0};
    tn_tensor *v = vectors(&s, x, a->tau), *unit = scope_unary(&s, tn__unit_like, tni_t(x));
    return scope_finish(&s, reflect(&s, false, v, tni_t(a->tau), unit), rets);
}

tn_status tni_composite_ormqr(const void *args, tn_tensor **rets) {
    const tn_ormqr_args *a = args;
    const tn_view *x = a->input, *other = a->other;
    TN_TRY(check_reflections("torch.ormqr", x, a->tau));
    if (other->ndim < 2)
        return tn_fail(TN_E_SHAPE, 2, "torch.ormqr: other must have at least 2 dimensions.");
    int64_t side = a->left ? rows_of(other) : columns_of(other);
    const char *which = a->left ? "-2" : "-1";
    if (side < columns_of(a->tau))
        return tn_fail(TN_E_SHAPE, 2,
                       "torch.ormqr: other.shape[%s] must be greater than or equal to "
                       "tau.shape[-1]",
                       which);
    if (side != rows_of(x))
        return tn_fail(TN_E_SHAPE, 2,
                       "torch.ormqr: other.shape[%s] must be equal to input.shape[-2]", which);
    int64_t most = side < columns_of(x) ? side : columns_of(x);
    if (columns_of(a->tau) != most)
        return tn_fail(TN_E_SHAPE, 1,
                       "torch.ormqr: tau.shape[-1] must be equal to min(other.shape[%s], "
                       "input.shape[-1])",
                       which);
    if (!batch_is(x, other, 2))
        return tn_fail(TN_E_SHAPE, 2,
                       "torch.ormqr: Expected batch dimensions of other to be equal to those of "
                       "input, but got %s and %s",
                       tni_shape_text_of(other), tni_shape_text_of(x));
    if (tn_view_dtype(other) != tn_view_dtype(x))
        return tn_fail(TN_E_DTYPE, 2, "torch.ormqr: Expected other to have dtype %s, but got %s",
                       tn_dtype_name(tn_view_dtype(x)), tn_dtype_name(tn_view_dtype(other)));
    tni_scope s = {0};
    tn_tensor *v = vectors(&s, x, a->tau), *y = tni_t(other);
    if (!a->left) y = scope_unary(&s, tn_adjoint, y);
    y = reflect(&s, (a->transpose != 0) == (a->left != 0), v, tni_t(a->tau), y);
    if (!a->left) y = scope_unary(&s, tn_adjoint, y);
    return scope_finish(&s, y, rets);
}
