/* infer_linalg.c: shape rules of the matrix products. The messages are PyTorch's, because that is
 * what people search for. */
#include <tenon/op_args.h>

#include "infer_priv.h"

tn_status tni_infer_mm(tn_infer *inf, const void *args);
tn_status tni_infer_bmm(tn_infer *inf, const void *args);
tn_status tni_infer_mv(tn_infer *inf, const void *args);
tn_status tni_infer_dot(tn_infer *inf, const void *args);
tn_status tni_infer_addmm(tn_infer *inf, const void *args);
tn_status tni_infer_baddbmm(tn_infer *inf, const void *args);
tn_status tni_infer_addmv(tn_infer *inf, const void *args);
tn_status tni_infer_linear(tn_infer *inf, const void *args);
tn_status tni_infer__linear_relu(tn_infer *inf, const void *args);
tn_status tni_infer__linear_gelu(tn_infer *inf, const void *args);
tn_status tni_infer__linear_gelu_backward(tn_infer *inf, const void *args);
tn_status tni_infer__linear_backward_weight(tn_infer *inf, const void *args);

static tn_status same_dtype(const tn_view *a, const tn_view *b) {
    int32_t x = tn_view_dtype(a), y = tn_view_dtype(b);
    if (x == y) return TN_OK;
    return tn_fail(TN_E_DTYPE, 1, "expected m1 and m2 to have the same dtype, but got: %s != %s",
                   tn_dtype_name(x), tn_dtype_name(y));
}

/* `v` must broadcast to the result's shape. */
static tn_status expandable(const tn_view *v, int32_t ndim, const int64_t *shape) {
    bool fits = v->ndim <= ndim;
    for (int32_t d = 0; fits && d < v->ndim; d++) {
        int64_t from = v->shape[v->ndim - 1 - d], to = shape[ndim - 1 - d];
        fits = from == to || from == 1;
    }
    if (fits) return TN_OK;
    return tn_fail(TN_E_SHAPE, 0,
                   "The expanded size of the tensor %s must match the existing size %s",
                   tni_shape_text(ndim, shape), tni_shape_text_of(v));
}

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
    TN_TRY(same_dtype(a, b));
    int64_t shape[2] = {a->shape[0], b->shape[1]};
    return tni_infer_set(inf, 0, 2, shape);
}

tn_status tni_infer_mm(tn_infer *inf, const void *args) {
    const tn_mm_args *a = args;
    return product(inf, a->input, a->mat2, 0);
}

tn_status tni_infer_addmm(tn_infer *inf, const void *args) {
    const tn_addmm_args *a = args;
    TN_TRY(product(inf, a->mat1, a->mat2, 1));
    TN_TRY(same_dtype(a->input, a->mat1));
    return expandable(a->input, 2, inf->out[0].shape);
}

static tn_status batched(tn_infer *inf, const tn_view *a, const tn_view *b, int32_t arg) {
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
    TN_TRY(same_dtype(a, b));
    int64_t shape[3] = {a->shape[0], a->shape[1], b->shape[2]};
    return tni_infer_set(inf, 0, 3, shape);
}

tn_status tni_infer_bmm(tn_infer *inf, const void *args) {
    const tn_bmm_args *a = args;
    return batched(inf, a->input, a->mat2, 0);
}

tn_status tni_infer_baddbmm(tn_infer *inf, const void *args) {
    const tn_baddbmm_args *a = args;
    TN_TRY(batched(inf, a->batch1, a->batch2, 1));
    TN_TRY(same_dtype(a->input, a->batch1));
    return expandable(a->input, 3, inf->out[0].shape);
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
    TN_TRY(same_dtype(m, v));
    return tni_infer_set(inf, 0, 1, m->shape);
}

tn_status tni_infer_mv(tn_infer *inf, const void *args) {
    const tn_mv_args *a = args;
    return matvec(inf, a->input, a->vec, 0);
}

tn_status tni_infer_addmv(tn_infer *inf, const void *args) {
    const tn_addmv_args *a = args;
    TN_TRY(matvec(inf, a->mat, a->vec, 1));
    TN_TRY(same_dtype(a->input, a->mat));
    return expandable(a->input, 1, inf->out[0].shape);
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

/* ---- Linear maps -------------------------------------------------------------------------------*/

static tn_status linear(tn_infer *inf, const tn_view *x, const tn_view *w, const tn_view *bias) {
    if (x->ndim == 0)
        return tn_fail(TN_E_SHAPE, 0, "both arguments to linear need to be at least 1D");
    if (w->ndim != 2) {
        return tn_fail(TN_E_SHAPE, 1, "weight must be a matrix, got %d-D tensor", (int)w->ndim);
    }
    int64_t k = x->shape[x->ndim - 1];
    if (k != w->shape[1]) {
        int64_t rows = 1;
        for (int32_t d = 0; d + 1 < x->ndim; d++) rows *= x->shape[d];
        return tn_fail(
            TN_E_SHAPE, 1, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
            (long long)rows, (long long)k, (long long)w->shape[1], (long long)w->shape[0]);
    }
    TN_TRY(same_dtype(x, w));
    int64_t shape[TN_MAX_DIMS];
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof(int64_t));
    shape[x->ndim - 1] = w->shape[0];
    TN_TRY(tni_infer_set(inf, 0, x->ndim, shape));
    if (bias) {
        TN_TRY(same_dtype(bias, w));
        if (bias->ndim != 1) {
            return tn_fail(TN_E_SHAPE, 2, "bias must be a vector, got %d-D tensor",
                           (int)bias->ndim);
        }
        TN_TRY(expandable(bias, x->ndim, shape));
    }
    return TN_OK;
}

tn_status tni_infer_linear(tn_infer *inf, const void *args) {
    const tn_linear_args *a = args;
    return linear(inf, a->input, a->weight, a->bias);
}

tn_status tni_infer__linear_relu(tn_infer *inf, const void *args) {
    const tn__linear_relu_args *a = args;
    return linear(inf, a->input, a->weight, a->bias);
}

tn_status tni_infer__linear_gelu(tn_infer *inf, const void *args) {
    const tn__linear_gelu_args *a = args;
    TN_TRY(linear(inf, a->input, a->weight, a->bias));
    if (a->keep) return tni_infer_set(inf, 1, inf->out[0].ndim, inf->out[0].shape);
    tni_infer_absent(inf, 1);
    return TN_OK;
}

/* `t` has the leading dimensions of `like` and then one of size n. */
static tn_status expect_rows(const tn_infer *inf, int32_t arg, const tn_view *t,
                             const tn_view *like, int64_t n) {
    int64_t shape[TN_MAX_DIMS];
    if (like->ndim == 0) return tn_fail(TN_E_SHAPE, arg, "expected at least one dimension");
    memcpy(shape, like->shape, (size_t)like->ndim * sizeof *shape);
    shape[like->ndim - 1] = n;
    return tni_infer_expect(inf, arg, t, like->ndim, shape, inf->compute);
}

tn_status tni_infer__linear_gelu_backward(tn_infer *inf, const void *args) {
    const tn__linear_gelu_backward_args *a = args;
    const tn_view *w = a->next_weight;
    if (w->ndim != 2)
        return tn_fail(TN_E_SHAPE, 1, "weight must be a matrix, got %d-D tensor", (int)w->ndim);
    TN_TRY(same_dtype(a->grad, w));
    TN_TRY(expect_rows(inf, 0, a->grad, a->pre, w->shape[0]));
    TN_TRY(expect_rows(inf, 2, a->pre, a->grad, w->shape[1]));
    TN_TRY(tni_infer_set(inf, 0, a->pre->ndim, a->pre->shape));
    return tni_infer_set(inf, 1, 1, &w->shape[1]);
}

tn_status tni_infer__linear_backward_weight(tn_infer *inf, const void *args) {
    const tn__linear_backward_weight_args *a = args;
    const tn_view *g = a->grad, *x = a->input;
    int32_t last = g->ndim - 1;
    TN_TRY(expect_rows(inf, 1, x, g, x->ndim > 0 ? x->shape[x->ndim - 1] : 1));
    int64_t shape[2] = {g->shape[last], x->shape[last]};
    TN_TRY(tni_infer_set(inf, 0, 2, shape));
    return tni_infer_set(inf, 1, 1, shape);
}
