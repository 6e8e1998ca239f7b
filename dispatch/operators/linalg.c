/* linalg.c: matrix products: shape rules, and those that are made of others: matmul with its
 * broadcasting rules, inner, outer, tensordot. Folding batch dimensions into rows turns most of them
 * into one mm. */
#include <tenon/args_linalg.h>
#include <tenon/ops_linalg.h>
#include <tenon/ops_reduce.h>
#include <tenon/ops_pointwise.h>
#include <tenon/ops_shape.h>

#include "ask_priv.h"
#include "infer_priv.h"
#include "op_linalg.h"
#include "rule_priv.h"
#include "scope_priv.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

static tn_status product(tn_infer *inf, const tn_view *a, const tn_view *b, int32_t arg) {
    if (a->ndim != 2) {
        return tn_fail(TN_E_SHAPE, arg, "mat1 must be a matrix, got %d-D tensor", (int)a->ndim);
    }
    if (b->ndim != 2) {
        return tn_fail(TN_E_SHAPE, arg + 1, "mat2 must be a matrix, got %d-D tensor", (int)b->ndim);
    }
    if (a->shape[1] != b->shape[0]) {
        return tn_fail(TN_E_SHAPE, arg + 1,
                       "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
                       (long long)a->shape[0], (long long)a->shape[1], (long long)b->shape[0],
                       (long long)b->shape[1]);
    }
    TN_TRY(rule_same_dtype(a, b));
    int64_t shape[2] = {a->shape[0], b->shape[1]};
    return tni_infer_set(inf, 0, 2, shape);
}

tn_status tni_infer_mm(tn_infer *inf, const void *args) {
    const tn_mm_args *a = args;
    return product(inf, a->input, a->mat2, 0);
}

static tn_status check_factors(const tn_view *input, const tn_scalar *beta,
                               const tn_scalar *alpha) {
    TN_TRY(tni_check_scalar_fits(beta, tn_view_dtype(input)));
    return tni_check_scalar_fits(alpha, tn_view_dtype(input));
}

tn_status tni_infer_addmm(tn_infer *inf, const void *args) {
    const tn_addmm_args *a = args;
    TN_TRY(rule_same_factors(a->mat1, a->mat2));
    TN_TRY(product(inf, a->mat1, a->mat2, 1));
    TN_TRY(rule_same_dtype(a->input, a->mat1));
    TN_TRY(check_factors(a->input, &a->beta, &a->alpha));
    return rule_expandable(a->input, 2, inf->out[0].shape);
}

static tn_status check_batches(tn_infer *inf, const tn_view *a, const tn_view *b, int32_t arg) {
    if (a->ndim != 3 || b->ndim != 3) {
        return tn_fail(TN_E_SHAPE, a->ndim != 3 ? arg : arg + 1,
                       "batch1 and batch2 must be 3D tensors, got %s and %s", tni_shape_text_of(a),
                       tni_shape_text_of(b));
    }
    if (a->shape[0] != b->shape[0] || a->shape[2] != b->shape[1]) {
        return tn_fail(
            TN_E_SHAPE, arg + 1,
            "Expected size for first two dimensions of batch2 tensor to be: [%lld, %lld] "
            "but got: [%lld, %lld].",
            (long long)a->shape[0], (long long)a->shape[2], (long long)b->shape[0],
            (long long)b->shape[1]);
    }
    TN_TRY(rule_same_dtype(a, b));
    int64_t shape[3] = {a->shape[0], a->shape[1], b->shape[2]};
    return tni_infer_set(inf, 0, 3, shape);
}

tn_status tni_infer_bmm(tn_infer *inf, const void *args) {
    const tn_bmm_args *a = args;
    return check_batches(inf, a->input, a->mat2, 0);
}

tn_status tni_infer_baddbmm(tn_infer *inf, const void *args) {
    const tn_baddbmm_args *a = args;
    TN_TRY(check_batches(inf, a->batch1, a->batch2, 1));
    TN_TRY(rule_same_dtype(a->input, a->batch1));
    TN_TRY(check_factors(a->input, &a->beta, &a->alpha));
    return rule_expandable(a->input, 3, inf->out[0].shape);
}

tn_status tni_check_addbmm(const void *args) {
    const tn_addbmm_args *a = args;
    if (a->batch1->ndim == 3 && a->batch2->ndim == 3) return TN_OK;
    return tn_fail(TN_E_SHAPE, a->batch1->ndim == 3 ? 2 : 1, "%s must be a 3D tensor",
                   a->batch1->ndim == 3 ? "batch2" : "batch1");
}

static tn_status matvec(tn_infer *inf, const tn_view *m, const tn_view *v, int32_t arg) {
    if (m->ndim != 2 || v->ndim != 1) {
        return tn_fail(TN_E_SHAPE, arg, "vector + matrix @ vector expected, got %d, %d",
                       (int)m->ndim, (int)v->ndim);
    }
    if (m->shape[1] != v->shape[0]) {
        return tn_fail(TN_E_SHAPE, arg + 1,
                       "size mismatch, got input (%lld), mat (%lldx%lld), vec (%lld)",
                       (long long)m->shape[0], (long long)m->shape[0], (long long)m->shape[1],
                       (long long)v->shape[0]);
    }
    TN_TRY(rule_same_dtype(m, v));
    return tni_infer_set(inf, 0, 1, m->shape);
}

tn_status tni_infer_mv(tn_infer *inf, const void *args) {
    const tn_mv_args *a = args;
    return matvec(inf, a->input, a->vec, 0);
}

tn_status tni_infer_addmv(tn_infer *inf, const void *args) {
    const tn_addmv_args *a = args;
    TN_TRY(matvec(inf, a->mat, a->vec, 1));
    TN_TRY(rule_same_dtype(a->input, a->mat));
    TN_TRY(check_factors(a->input, &a->beta, &a->alpha));
    return rule_expandable(a->input, 1, inf->out[0].shape);
}

tn_status tni_infer_dot(tn_infer *inf, const void *args) {
    const tn_dot_args *a = args;
    if (a->input->ndim != 1 || a->tensor->ndim != 1) {
        return tn_fail(TN_E_SHAPE, a->input->ndim != 1 ? 0 : 1,
                       "1D tensors expected, but got %dD and %dD tensors", (int)a->input->ndim,
                       (int)a->tensor->ndim);
    }
    if (a->input->shape[0] != a->tensor->shape[0]) {
        return tn_fail(TN_E_SHAPE, 1,
                       "inconsistent tensor size, expected tensor %s and src %s to have the same "
                       "number of elements",
                       tni_shape_text_of(a->input), tni_shape_text_of(a->tensor));
    }
    if (tn_view_dtype(a->input) != tn_view_dtype(a->tensor)) {
        return tn_fail(
            TN_E_DTYPE, 1, "dot : expected both vectors to have same dtype, but found %s and %s",
            tn_dtype_name(tn_view_dtype(a->input)), tn_dtype_name(tn_view_dtype(a->tensor)));
    }
    return tni_infer_set(inf, 0, 0, NULL);
}

tn_status tni_composite_conj(const void *args, tn_tensor **rets) {
    const tn_conj_args *a = args;
    tn_tensor *x = tni_t(a->input);
    if (tn_dtype_category(tn_tensor_dtype(x)) == TN_CAT_COMPLEX) {
        TN_TRY(tn_conj_physical(x, &rets[0]));
        tn_status st = tni_note_conjugate(x, rets[0]);
        if (st != TN_OK) tn_tensor_unref(&rets[0]);
        return st;
    }
    rets[0] = tn_tensor_ref(x);
    return TN_OK;
}

tn_status tni_composite_resolve_conj(const void *args, tn_tensor **rets) {
    const tn_resolve_conj_args *a = args;
    tn_tensor *x = tni_t(a->input);
    if (tni_is_conjugate(x) && tni_is_readonly(x)) return tn_clone(x, TN_FORMAT_PRESERVE, rets);
    rets[0] = tn_tensor_ref(x);
    return TN_OK;
}

tn_status tni_composite_adjoint(const void *args, tn_tensor **rets) {
    const tn_adjoint_args *a = args;
    tn_tensor *x = tni_t(a->input), *t = NULL;
    if (a->input->ndim == 0) return tn_conj(x, &rets[0]);
    if (a->input->ndim < 2) {
        return tn_fail(TN_E_SHAPE, 0,
                       "tensor.adjoint() is only supported on matrices or batches of "
                       "matrices. Got %d-D tensor.",
                       (int)a->input->ndim);
    }
    TN_TRY(tn_transpose(x, -2, -1, &t));
    tn_status st = tn_conj(t, &rets[0]);
    tn_tensor_unref(&t);
    return st;
}

tn_status tni_composite_outer(const void *args, tn_tensor **rets) {
    const tn_outer_args *a = args;
    if (a->input->ndim != 1 || a->vec2->ndim != 1) {
        int32_t arg = a->input->ndim != 1 ? 0 : 1;
        return tn_fail(TN_E_SHAPE, arg, "outer: Expected 1-D argument %s, but got %d-D",
                       arg == 0 ? "self" : "vec2", (int)(arg == 0 ? a->input : a->vec2)->ndim);
    }
    tn_tensor *col = NULL;
    TN_TRY(tn_unsqueeze(tni_t(a->input), 1, &col));
    tn_status st = tn_mul(col, tni_t(a->vec2), &rets[0]);
    tn_tensor_unref(&col);
    return st;
}

/* In the dtype of all three, whatever their ranks. Bools are joined by and, sums by or. */
tn_status tni_composite_addr(const void *args, tn_tensor **rets) {
    const tn_addr_args *a = args;
    const int64_t shape[] = {a->vec1->numel, a->vec2->numel};
    TN_TRY(rule_expandable(a->input, 2, shape));
    tni_scope s = {0};
    tn_scalar_box by, of;
    int32_t dtype = tn_dtype_promote(
        tn_dtype_promote(tn_view_dtype(a->vec1), tn_view_dtype(a->vec2)), tn_view_dtype(a->input));
    tn_scalar alpha = a->alpha, beta = a->beta;
    bool none = beta.re == 0 && beta.im == 0;
    if (dtype == TN_BOOL) {
        alpha = tn_scalar_bool(alpha.re != 0 || alpha.im != 0);
        beta = tn_scalar_bool(!none);
    }
    tn_tensor *x = scope_convert(&s, tni_t(a->vec1), dtype);
    tn_tensor *product = scope_binary(&s, tn_outer, x, scope_convert(&s, tni_t(a->vec2), dtype));
    if (alpha.re != 1 || alpha.im != 0)
        product = scope_mul(&s, product, tn_scalar_box_init(&by, alpha));
    tn_tensor *input = scope_convert(&s, tni_t(a->input), dtype);
    if (none) /* the sizes count, nan does not */
        input = SCOPE(&s, tn_zeros_like(input, -1, -1, TN_FORMAT_PRESERVE, scope_slot(&s)));
    else if (beta.re != 1 || beta.im != 0)
        input = scope_mul(&s, input, tn_scalar_box_init(&of, beta));
    return scope_finish(&s, scope_add(&s, input, product), rets);
}

/* ---- matmul -----------------------------------------------------------------------------------*/

/* (.., m, k) @ (k, n) or (k): the leading dimensions become rows of one product. */
static tn_status folded(tn_tensor *x, tn_tensor *y, tn_tensor **ret) {
    int32_t ndim = tn_tensor_ndim(x), n = ndim - 1;
    int64_t shape[TN_MAX_DIMS];
    memcpy(shape, tn_tensor_shape(x), (size_t)ndim * sizeof(int64_t));
    int64_t k = shape[ndim - 1], rows = 1;
    for (int32_t d = 0; d < n; d++) rows *= shape[d];
    tn_tensor *flat = NULL, *prod = NULL;
    tn_status st = tn_reshape(x, TN_INTS(rows, k), &flat);
    if (st) goto out;
    if (tn_tensor_ndim(y) == 2) {
        st = tn_mm(flat, y, &prod);
        shape[n++] = tn_tensor_shape(y)[1];
    } else {
        st = tn_mv(flat, y, &prod);
    }
    if (st) goto out;
    st = tn_reshape(prod, tn_ints_of(shape, n), ret);
out:
    tn_tensor_unref(&flat);
    tn_tensor_unref(&prod);
    return st;
}

/* Expands t to batch + its last two sizes and flattens the batch into one dimension. */
static tn_status as_batch(tn_tensor *t, int32_t nb, const int64_t *batch, int64_t total,
                          tn_tensor **ret) {
    int64_t shape[TN_MAX_DIMS];
    const int64_t *last = tn_tensor_shape(t) + tn_tensor_ndim(t) - 2;
    int64_t rows = last[0], cols = last[1];
    memcpy(shape, batch, (size_t)nb * sizeof(int64_t));
    shape[nb] = rows;
    shape[nb + 1] = cols;
    tn_tensor *wide = NULL;
    TN_TRY(tn_expand(t, tn_ints_of(shape, nb + 2), 0, &wide));
    tn_status st = tn_reshape(wide, TN_INTS(total, rows, cols), ret);
    tn_tensor_unref(&wide);
    return st;
}

/* Both have two dimensions or more, at least one has a batch. */
static tn_status batched(tn_tensor *x, tn_tensor *y, tn_tensor **ret) {
    int32_t nx = tn_tensor_ndim(x), ny = tn_tensor_ndim(y), nb;
    int64_t shape[TN_MAX_DIMS + 2], total;
    TN_TRY(
        tni_broadcast_shapes(nx - 2, tn_tensor_shape(x), ny - 2, tn_tensor_shape(y), &nb, shape));
    if (nb + 2 > TN_MAX_DIMS) return tn_fail(TN_E_SHAPE, 0, "a tensor has at most 64 dimensions");
    TN_TRY(tni_numel(nb, shape, 1, &total));
    tn_tensor *a = NULL, *b = NULL, *prod = NULL;
    tn_status st = as_batch(x, nb, shape, total, &a);
    if (!st) st = as_batch(y, nb, shape, total, &b);
    if (!st) st = tn_bmm(a, b, &prod);
    if (st) goto out;
    shape[nb] = tn_tensor_shape(prod)[1];
    shape[nb + 1] = tn_tensor_shape(prod)[2];
    st = tn_reshape(prod, tn_ints_of(shape, nb + 2), ret);
out:
    tn_tensor_unref(&a);
    tn_tensor_unref(&b);
    tn_tensor_unref(&prod);
    return st;
}

/* One operand is a vector and the other has a batch, or both have batches. */
static tn_status general(tn_tensor *x, tn_tensor *y, tn_tensor **ret) {
    tn_tensor *row = NULL, *prod = NULL;
    if (tn_tensor_ndim(x) > 1) return batched(x, y, ret);
    TN_TRY(tn_unsqueeze(x, 0, &row));
    tn_status st = batched(row, y, &prod);
    if (!st) st = tn_select(prod, tn_tensor_ndim(prod) - 2, 0, ret);
    tn_tensor_unref(&row);
    tn_tensor_unref(&prod);
    return st;
}

tn_status tni_composite_matmul(const void *args, tn_tensor **rets) {
    const tn_matmul_args *a = args;
    tn_tensor *x = tni_t(a->input), *y = tni_t(a->other), *t = NULL;
    int32_t nx = a->input->ndim, ny = a->other->ndim;
    if (nx == 0 || ny == 0) {
        return tn_fail(TN_E_SHAPE, nx == 0 ? 0 : 1,
                       "both arguments to matmul need to be at least 1D, but they are %dD and %dD",
                       (int)nx, (int)ny);
    }
    if (nx == 2 && ny == 2) return tn_mm(x, y, &rets[0]);
    if (nx == 1 && ny == 1) return tn_dot(x, y, &rets[0]);
    if (nx == 2 && ny == 1) return tn_mv(x, y, &rets[0]);
    if (nx >= 3 && ny <= 2) return folded(x, y, &rets[0]);
    if (nx == 1 && ny == 2) {
        TN_TRY(tn_transpose(y, 0, 1, &t));
        tn_status st = tn_mv(t, x, &rets[0]);
        tn_tensor_unref(&t);
        return st;
    }
    return general(x, y, &rets[0]);
}

tn_status tni_composite_inner(const void *args, tn_tensor **rets) {
    const tn_inner_args *a = args;
    tn_tensor *x = tni_t(a->input), *y = tni_t(a->other);
    int32_t nx = a->input->ndim, ny = a->other->ndim;
    if (nx == 0 || ny == 0) return tn_mul(x, y, &rets[0]);
    if (tni_size_at(x, -1) != tni_size_at(y, -1)) {
        return tn_fail(TN_E_SHAPE, 1,
                       "inner() the last dimension must match on both input tensors "
                       "but got sizes %lld and %lld",
                       (long long)tni_size_at(x, -1), (long long)tni_size_at(y, -1));
    }
    return tn_tensordot(x, y, TN_INTS(-1), TN_INTS(-1), &rets[0]);
}

/* ---- tensordot --------------------------------------------------------------------------------*/

/* Permutes t to (kept, summed) or, when `front` is set, (summed, kept) dimensions and makes it a
 * matrix; appends the kept sizes to `sizes`. */
static tn_status as_matrix(tn_tensor *t, tn_ints dims, bool front, int64_t *sizes, int32_t *n,
                           tn_tensor **ret) {
    int32_t ndim = tn_tensor_ndim(t), kept = 0;
    const int64_t *shape = tn_tensor_shape(t);
    int64_t perm[TN_MAX_DIMS], wrapped[TN_MAX_DIMS], outer = 1, inner = 1;
    uint64_t mask = 0;
    if (dims.n > 0) TN_TRY(tni_dim_mask(dims, ndim, &mask));
    for (int64_t i = 0; i < dims.n; i++) TN_TRY(tni_wrap_dim(dims.v[i], ndim, &wrapped[i]));
    int32_t at = front ? (int32_t)dims.n : 0;
    for (int32_t d = 0; d < ndim; d++) {
        if (mask >> d & 1) continue;
        if (*n == TN_MAX_DIMS) return tn_fail(TN_E_SHAPE, 0, "a tensor has at most 64 dimensions");
        perm[at + kept++] = d;
        outer *= shape[d];
        sizes[(*n)++] = shape[d];
    }
    for (int64_t i = 0; i < dims.n; i++) {
        perm[front ? i : kept + i] = wrapped[i];
        inner *= shape[wrapped[i]];
    }
    tn_tensor *p = NULL;
    TN_TRY(tn_permute(t, tn_ints_of(perm, ndim), &p));
    tn_ints to = front ? TN_INTS(inner, outer) : TN_INTS(outer, inner);
    tn_status st = tn_reshape(p, to, ret);
    tn_tensor_unref(&p);
    return st;
}

/* A contracted dimension of size 1 stands for as many as the other tensor has: that one is summed. */
static tn_status summed(tn_tensor *t, tn_ints dims, const tn_tensor *other, tn_ints theirs,
                        tn_tensor **ret) {
    int64_t over[TN_MAX_DIMS], d, e;
    int32_t n = 0;
    for (int64_t i = 0; i < dims.n && i < TN_MAX_DIMS; i++) {
        TN_TRY(tni_wrap_dim(dims.v[i], t->v.ndim, &d));
        TN_TRY(tni_wrap_dim(theirs.v[i], other->v.ndim, &e));
        if (t->v.shape[d] != 1 && other->v.shape[e] == 1) over[n++] = d;
    }
    if (n > 0) return tn_sum(t, tn_ints_of(over, n), 1, tn_view_dtype(&t->v), ret);
    *ret = tn_tensor_ref(t);
    return TN_OK;
}

tn_status tni_composite_tensordot(const void *args, tn_tensor **rets) {
    const tn_tensordot_args *a = args;
    if (a->dims_a.n != a->dims_b.n) {
        return tn_fail(TN_E_SHAPE, 3, "both dimension lists should have same length");
    }
    for (int64_t i = 0; i < a->dims_a.n; i++) {
        int64_t da, db;
        TN_TRY(tni_wrap_dim(a->dims_a.v[i], a->a->ndim, &da));
        TN_TRY(tni_wrap_dim(a->dims_b.v[i], a->b->ndim, &db));
        if (a->a->ndim == 0 || a->b->ndim == 0 ||
            (a->a->shape[da] != a->b->shape[db] && a->a->shape[da] != 1 && a->b->shape[db] != 1)) {
            return tn_fail(TN_E_SHAPE, 1,
                           "contracted dimensions need to match, but first has size "
                           "%lld in dim %lld and second has size %lld in dim %lld",
                           (long long)tni_size_at(tni_t(a->a), da), (long long)da,
                           (long long)tni_size_at(tni_t(a->b), db), (long long)db);
        }
    }
    int64_t sizes[TN_MAX_DIMS];
    int32_t n = 0;
    tn_tensor *left = NULL, *right = NULL, *x = NULL, *y = NULL, *prod = NULL;
    tn_status st = summed(tni_t(a->a), a->dims_a, tni_t(a->b), a->dims_b, &left);
    if (!st) st = summed(tni_t(a->b), a->dims_b, tni_t(a->a), a->dims_a, &right);
    if (!st) st = as_matrix(left, a->dims_a, false, sizes, &n, &x);
    if (!st) st = as_matrix(right, a->dims_b, true, sizes, &n, &y);
    if (!st) st = tn_mm(x, y, &prod);
    if (!st) st = tn_reshape(prod, tn_ints_of(sizes, n), &rets[0]);
    tn_tensor_unref(&left);
    tn_tensor_unref(&right);
    tn_tensor_unref(&x);
    tn_tensor_unref(&y);
    tn_tensor_unref(&prod);
    return st;
}
