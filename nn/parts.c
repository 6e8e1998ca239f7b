/* parts.c: what shape rules, decompositions and gradients of several layers are made of. */
#include <tenon/ops_compare.h>
#include <tenon/ops_reduce.h>

#include "nn_priv.h"

/* ---- Shape rules -------------------------------------------------------------------------------*/

int32_t nn_arg(const tn_infer *inf, const char *name) {
    const tn_op *op = inf->op;
    for (int32_t i = 0; i < op->nfields; i++)
        if (strcmp(op->fields[i].name, name) == 0) return i;
    return -1;
}

tn_status nn_expect_list(const tn_infer *inf, tn_ints v, int64_t n, int64_t least,
                         const char *name) {
    tn_status st = nn_check_list(v, n, least, 0, name);
    return st == TN_OK ? st : nn_check_list(v, n, least, nn_arg(inf, name), name);
}

tn_status nn_check_list(tn_ints v, int64_t n, int64_t least, int32_t arg, const char *name) {
    if (v.n != n) {
        return tn_fail(TN_E_SHAPE, arg, "expected %s to be a list of %lld ints, but got %lld", name,
                       (long long)n, (long long)v.n);
    }
    for (int64_t i = 0; i < n; i++) {
        if (v.v[i] < least) {
            return tn_fail(TN_E_SHAPE, arg, "%s %s is not supported",
                           least > 0 ? "non-positive" : "negative", name);
        }
        if (v.v[i] > NN_SIZE_LIMIT) return tn_fail(TN_E_VALUE, arg, "%s is too large", name);
    }
    return TN_OK;
}

tn_status nn_infer_sized(tn_infer *inf, tn_ints size, const tn_view *grad) {
    int32_t n = grad->ndim;
    if (n != 3 && n != 4) return tn_fail(TN_E_SHAPE, 0, "a gradient of 3D or 4D planes is needed");
    TN_TRY(nn_expect_list(inf, size, n, 0, "input_size"));
    bool fits = memcmp(size.v, grad->shape, (size_t)(n - 2) * sizeof(int64_t)) == 0;
    for (int32_t d = n - 2; d < n; d++) fits = fits && (size.v[d] > 0 || grad->shape[d] == 0);
    if (!fits) {
        return tn_fail(TN_E_SHAPE, nn_arg(inf, "input_size"),
                       "input size %s does not belong to gradient %s", tni_shape_text(n, size.v),
                       tni_shape_text_of(grad));
    }
    return tni_infer_set(inf, 0, n, size.v);
}

tn_status nn_infer_resized(tn_infer *inf, const tn_view *x, tn_ints size) {
    int64_t shape[TN_MAX_DIMS];
    TN_TRY(nn_expect_list(inf, size, 2, 0, "output_size"));
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof(int64_t));
    shape[x->ndim - 2] = size.v[0];
    shape[x->ndim - 1] = size.v[1];
    return tni_infer_set(inf, 0, x->ndim, shape);
}

/* ---- Pieces of composites ----------------------------------------------------------------------*/

tn_tensor *scope_only_where(tni_scope *s, tn_tensor *condition, tn_tensor *input, tn_scalar other) {
    tn_scalar_box box;
    return scope_where(s, condition, input, tn_scalar_box_init(&box, other));
}

tn_tensor *scope_differs(tni_scope *s, tn_tensor *x, int64_t number) {
    tn_scalar_box box;
    return scope_binary(s, tn_ne, x, tn_scalar_box_init(&box, tn_scalar_int(number)));
}

tn_tensor *scope_shifted_exp(tni_scope *s, tn_tensor *x, int64_t dim, tn_tensor **ret_max) {
    tn_tensor *max = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_amax(x, TN_INTS(dim), 1, &max);
    max = scope_take(s, st, max);
    if (ret_max) *ret_max = max;
    return scope_exp(s, scope_sub(s, x, max));
}

tn_tensor *scope_log_sum(tni_scope *s, tn_tensor *x, int64_t dim, tn_tensor **ret_max) {
    tn_tensor *e = scope_shifted_exp(s, x, dim, ret_max);
    return scope_log(s, scope_sum(s, e, TN_INTS(dim), 1));
}

tn_status scope_give(tni_scope *s, tn_gctx *c, tn_tensor *const *grads, int n) {
    for (int i = 0; i < n && s->st == TN_OK; i++) {
        if (TN_GNEEDS(c, i)) c->ret[i] = tn_tensor_ref(grads[i]);
    }
    return scope_finish(s, NULL, NULL);
}
