/* infer_nn.c: shape and dtype rules of softmax, norms, losses, embedding and attention. The
 * messages are PyTorch's, because that is what people search for. */
#include <tenon/op_args.h>

#include "dispatch_priv.h"
#include "infer_priv.h"

tn_status tni_infer_softmax(tn_infer *inf, const void *args);
tn_status tni_infer_log_softmax(tn_infer *inf, const void *args);
tn_status tni_infer_cumsum(tn_infer *inf, const void *args);
tn_status tni_infer_cumprod(tn_infer *inf, const void *args);
tn_status tni_infer_native_layer_norm(tn_infer *inf, const void *args);
tn_status tni_infer__layer_norm_backward(tn_infer *inf, const void *args);
tn_status tni_infer_native_batch_norm(tn_infer *inf, const void *args);
tn_status tni_infer__batch_norm_backward(tn_infer *inf, const void *args);
tn_status tni_infer_embedding(tn_infer *inf, const void *args);
tn_status tni_infer__embedding_gather(tn_infer *inf, const void *args);
tn_status tni_infer__embedding_backward(tn_infer *inf, const void *args);
/* Output i like x, with the heads inside of the length where x's memory has them so: merging heads
 * afterwards is then a view. */
static tn_status set_heads(tn_infer *inf, int i, const tn_view *x, int64_t width) {
    int64_t n[4] = {x->shape[0], x->shape[1], x->shape[2], width};
    TN_TRY(tni_infer_set(inf, i, 4, n));
    if (x->strides[1] < x->strides[2]) {
        int64_t strides[4] = {n[1] * n[2] * width, width, n[1] * width, 1};
        memcpy(inf->out[i].strides, strides, sizeof strides);
        inf->out[i].strided = 1;
    }
    return TN_OK;
}

tn_status tni_infer__flash_attention(tn_infer *inf, const void *args);
tn_status tni_infer__flash_attention_backward(tn_infer *inf, const void *args);
tn_status tni_infer__nll_loss(tn_infer *inf, const void *args);
tn_status tni_infer__nll_loss_backward(tn_infer *inf, const void *args);
tn_status tni_infer__nll_loss_gather(tn_infer *inf, const void *args);
tn_status tni_infer__cross_entropy(tn_infer *inf, const void *args);
tn_status tni_infer__cross_entropy_backward(tn_infer *inf, const void *args);
tn_status tni_infer__element_loss(tn_infer *inf, const void *args);
tn_status tni_infer__element_loss_backward(tn_infer *inf, const void *args);
tn_status tni_infer__rms_norm(tn_infer *inf, const void *args);
tn_status tni_infer__rms_norm_backward(tn_infer *inf, const void *args);

/* What kernels keep sums and statistics in. */
static int32_t wide_dtype(int32_t dtype) {
    return dtype == TN_F16 || dtype == TN_BF16 ? TN_F32 : dtype;
}

static tn_status set_as(tn_infer *inf, int i, int32_t dtype, int32_t ndim, const int64_t *shape) {
    inf->out[i].dtype = dtype;
    return tni_infer_set(inf, i, ndim, shape);
}

/* An output that exists only when `wanted`, shaped like v. */
static tn_status set_wanted(tn_infer *inf, int i, bool wanted, int32_t ndim, const int64_t *shape) {
    if (wanted) return tni_infer_set(inf, i, ndim, shape);
    tni_infer_absent(inf, i);
    return TN_OK;
}

/* ---- Along one dimension ----------------------------------------------------------------------*/

static tn_status float_result(tn_infer *inf, const tn_view *x, int64_t dtype, const char *kernel) {
    int32_t d = dtype >= 0 ? (int32_t)dtype : tn_view_dtype(x);
    if (tn_dtype_category(d) != TN_CAT_FLOAT) {
        return tn_fail(TN_E_UNSUPPORTED, 0, "\"%s\" not implemented for '%s'", kernel,
                       tni_type_text(d));
    }
    inf->compute = inf->out[0].dtype = d;
    tni_infer_same(inf, 0, x);
    return TN_OK;
}

tn_status tni_infer_softmax(tn_infer *inf, const void *args) {
    const tn_softmax_args *a = args;
    return float_result(inf, a->input, a->dtype, "softmax_lastdim_kernel_impl");
}

tn_status tni_infer_log_softmax(tn_infer *inf, const void *args) {
    const tn_log_softmax_args *a = args;
    return float_result(inf, a->input, a->dtype, "log_softmax_lastdim_kernel_impl");
}

tn_status tni_infer__softmax_backward(tn_infer *inf, const void *args) {
    const tn__softmax_backward_args *a = args;
    tni_infer_same(inf, 0, a->y);
    return tni_infer_expect(inf, 0, a->grad, a->y->ndim, a->y->shape, -1);
}

tn_status tni_infer__log_softmax_backward(tn_infer *inf, const void *args) {
    const tn__log_softmax_backward_args *a = args;
    tni_infer_same(inf, 0, a->y);
    return tni_infer_expect(inf, 0, a->grad, a->y->ndim, a->y->shape, -1);
}

static tn_status scan(tn_infer *inf, const tn_view *x, int64_t dtype) {
    int32_t d = dtype >= 0 ? (int32_t)dtype : tn_view_dtype(x);
    if (dtype < 0 && tn_dtype_category(d) < TN_CAT_FLOAT) d = TN_I64;
    inf->compute = inf->out[0].dtype = d;
    tni_infer_same(inf, 0, x);
    return TN_OK;
}

tn_status tni_infer_cumsum(tn_infer *inf, const void *args) {
    const tn_cumsum_args *a = args;
    return scan(inf, a->input, a->dtype);
}

tn_status tni_infer_cumprod(tn_infer *inf, const void *args) {
    const tn_cumprod_args *a = args;
    return scan(inf, a->input, a->dtype);
}

/* ---- Norms ------------------------------------------------------------------------------------*/

static bool ends_with(const tn_view *x, tn_ints shape) {
    if (shape.n > x->ndim) return false;
    return memcmp(x->shape + x->ndim - shape.n, shape.v, (size_t)shape.n * sizeof(int64_t)) == 0;
}

static tn_status check_parameter(const tn_view *p, tn_ints shape, int32_t arg, const char *name,
                                 int32_t dtype) {
    if (!p) return TN_OK;
    if (p->ndim != shape.n || !ends_with(p, shape)) {
        return tn_fail(
            TN_E_SHAPE, arg,
            "Expected %s to be of same shape as normalized_shape, but got %s of shape %s "
            "and normalized_shape = %s",
            name, name, tni_shape_text_of(p), tni_shape_text((int32_t)shape.n, shape.v));
    }
    if (tn_view_dtype(p) != dtype && tn_view_dtype(p) != wide_dtype(dtype)) {
        return tn_fail(TN_E_DTYPE, arg, "expected %s of dtype %s, but got %s", name,
                       tni_type_text(dtype), tni_type_text(tn_view_dtype(p)));
    }
    return TN_OK;
}

/* Whether an input can be normalized over dimensions of that shape. */
static tn_status check_normalized(const tn_view *x, tn_ints shape) {
    if (shape.n < 1) {
        return tn_fail(TN_E_SHAPE, 1,
                       "Expected normalized_shape to be at least 1-dimensional, i.e., "
                       "containing at least one element, but got normalized_shape = ()");
    }
    if (!ends_with(x, shape)) {
        return tn_fail(
            TN_E_SHAPE, 0,
            "Given normalized_shape=%s, expected input with shape [*, %s, but got input of "
            "size%s",
            tni_shape_text((int32_t)shape.n, shape.v),
            tni_shape_text((int32_t)shape.n, shape.v) + 1, tni_shape_text_of(x));
    }
    return TN_OK;
}

/* The sizes of what there is one of for each row. */
static void rows_of(const tn_view *x, tn_ints normalized, int64_t *ret_rows) {
    for (int32_t d = 0; d < x->ndim; d++)
        ret_rows[d] = d < x->ndim - normalized.n ? x->shape[d] : 1;
}

tn_status tni_infer_native_layer_norm(tn_infer *inf, const void *args) {
    const tn_native_layer_norm_args *a = args;
    const tn_view *x = a->input;
    int32_t dtype = tn_view_dtype(x), wide = wide_dtype(dtype);
    int64_t rows[TN_MAX_DIMS];
    TN_TRY(check_normalized(x, a->normalized_shape));
    TN_TRY(check_parameter(a->weight, a->normalized_shape, 2, "weight", dtype));
    TN_TRY(check_parameter(a->bias, a->normalized_shape, 3, "bias", dtype));
    rows_of(x, a->normalized_shape, rows);
    TN_TRY(set_as(inf, 0, dtype, x->ndim, x->shape));
    TN_TRY(set_as(inf, 1, wide, x->ndim, rows));
    return set_as(inf, 2, wide, x->ndim, rows);
}

tn_status tni_infer__layer_norm_backward(tn_infer *inf, const void *args) {
    const tn__layer_norm_backward_args *a = args;
    const tn_view *x = a->input;
    int32_t n = (int32_t)a->normalized_shape.n, dtype = tn_view_dtype(x);
    int64_t rows[TN_MAX_DIMS];
    TN_TRY(check_normalized(x, a->normalized_shape));
    rows_of(x, a->normalized_shape, rows);
    TN_TRY(tni_infer_expect(inf, 0, a->grad, x->ndim, x->shape, dtype));
    TN_TRY(tni_infer_expect(inf, 3, a->mean, x->ndim, rows, wide_dtype(dtype)));
    TN_TRY(tni_infer_expect(inf, 4, a->rstd, x->ndim, rows, wide_dtype(dtype)));
    TN_TRY(check_parameter(a->weight, a->normalized_shape, 5, "weight", dtype));
    TN_TRY(set_wanted(inf, 0, a->need_input, a->input->ndim, a->input->shape));
    TN_TRY(set_wanted(inf, 1, a->need_weight, n, a->normalized_shape.v));
    return set_wanted(inf, 2, a->need_bias, n, a->normalized_shape.v);
}

tn_status tni_infer__rms_norm(tn_infer *inf, const void *args) {
    const tn__rms_norm_args *a = args;
    const tn_view *x = a->input;
    int32_t dtype = tn_view_dtype(x);
    int64_t rows[TN_MAX_DIMS];
    TN_TRY(check_normalized(x, a->normalized_shape));
    TN_TRY(check_parameter(a->weight, a->normalized_shape, 2, "weight", dtype));
    rows_of(x, a->normalized_shape, rows);
    TN_TRY(set_as(inf, 0, dtype, x->ndim, x->shape));
    return set_as(inf, 1, wide_dtype(dtype), x->ndim, rows);
}

tn_status tni_infer__rms_norm_backward(tn_infer *inf, const void *args) {
    const tn__rms_norm_backward_args *a = args;
    const tn_view *x = a->input;
    int32_t n = (int32_t)a->normalized_shape.n, dtype = tn_view_dtype(x);
    int64_t rows[TN_MAX_DIMS];
    TN_TRY(check_normalized(x, a->normalized_shape));
    rows_of(x, a->normalized_shape, rows);
    TN_TRY(tni_infer_expect(inf, 0, a->grad, x->ndim, x->shape, dtype));
    TN_TRY(tni_infer_expect(inf, 3, a->rstd, x->ndim, rows, wide_dtype(dtype)));
    TN_TRY(check_parameter(a->weight, a->normalized_shape, 4, "weight", dtype));
    TN_TRY(set_wanted(inf, 0, a->need_input, x->ndim, x->shape));
    return set_wanted(inf, 1, a->need_weight, n, a->normalized_shape.v);
}

static tn_status check_channels(const tn_view *p, int64_t channels, int32_t arg, const char *name,
                                int32_t dtype) {
    if (!p) return TN_OK;
    if (p->ndim != 1 || p->shape[0] != channels) {
        return tn_fail(TN_E_SHAPE, arg, "%s should contain %lld elements not %lld", name,
                       (long long)channels, (long long)p->numel);
    }
    if (tn_view_dtype(p) != dtype) {
        return tn_fail(TN_E_DTYPE, arg, "expected %s of dtype %s, but got %s", name,
                       tni_type_text(dtype), tni_type_text(tn_view_dtype(p)));
    }
    if (p->shape[0] > 1 && p->strides[0] != 1) {
        return tn_fail(TN_E_SHAPE, arg, "%s must be contiguous", name);
    }
    return TN_OK;
}

tn_status tni_infer_native_batch_norm(tn_infer *inf, const void *args) {
    const tn_native_batch_norm_args *a = args;
    const tn_view *x = a->input;
    int32_t dtype = tn_view_dtype(x);
    if (x->ndim < 2) {
        return tn_fail(TN_E_SHAPE, 0,
                       "batch_norm expects an input of at least 2 dimensions, got %s",
                       tni_shape_text_of(x));
    }
    int64_t c = x->shape[1];
    TN_TRY(check_channels(a->weight, c, 1, "weight", dtype));
    TN_TRY(check_channels(a->bias, c, 2, "bias", dtype));
    TN_TRY(check_channels(a->running_mean, c, 3, "running_mean", dtype));
    TN_TRY(check_channels(a->running_var, c, 4, "running_var", dtype));
    if (!a->training && (!a->running_mean || !a->running_var)) {
        return tn_fail(TN_E_VALUE, 3,
                       "Expected running_mean and running_var to be defined when "
                       "training=False");
    }
    inf->out[0].dtype = dtype;
    tni_infer_same(inf, 0, x);
    if (!(x->word & TN_W_CHANNELS_LAST)) inf->out[0].strided = 0;
    TN_TRY(set_as(inf, 1, wide_dtype(dtype), 1, &c));
    return set_as(inf, 2, wide_dtype(dtype), 1, &c);
}

tn_status tni_infer__batch_norm_backward(tn_infer *inf, const void *args) {
    const tn__batch_norm_backward_args *a = args;
    const tn_view *x = a->input;
    int32_t dtype = tn_view_dtype(x);
    if (x->ndim < 2) return tn_fail(TN_E_SHAPE, 1, "an input of at least 2 dimensions is needed");
    TN_TRY(tni_infer_expect(inf, 0, a->grad, x->ndim, x->shape, dtype));
    TN_TRY(check_channels(a->weight, x->shape[1], 2, "weight", dtype));
    TN_TRY(check_channels(a->mean, x->shape[1], 3, "mean", wide_dtype(dtype)));
    TN_TRY(check_channels(a->invstd, x->shape[1], 4, "invstd", wide_dtype(dtype)));
    if (a->need_input) {
        tni_infer_same(inf, 0, a->input);
        if (!(a->input->word & TN_W_CHANNELS_LAST)) inf->out[0].strided = 0;
    } else {
        tni_infer_absent(inf, 0);
    }
    TN_TRY(set_wanted(inf, 1, a->need_weight, 1, a->input->shape + 1));
    return set_wanted(inf, 2, a->need_bias, 1, a->input->shape + 1);
}

/* ---- Embedding --------------------------------------------------------------------------------*/

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
        return tn_fail(TN_E_VALUE, 1, "a tensor has at most 64 dimensions");
    }
    int64_t shape[TN_MAX_DIMS + 1];
    memcpy(shape, indices->shape, (size_t)indices->ndim * sizeof(int64_t));
    shape[indices->ndim] = weight->shape[1];
    return tni_infer_set(inf, 0, indices->ndim + 1, shape);
}

tn_status tni_infer_embedding(tn_infer *inf, const void *args) {
    const tn_embedding_args *a = args;
    if (a->sparse) {
        return tn_fail(TN_E_UNSUPPORTED, 4, "embedding: sparse gradients are not supported");
    }
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

/* ---- Attention: (batch, heads, length, width), checked by the composite above them ------------*/

static tn_status check_heads(const tn_view *q, const tn_view *k, const tn_view *v) {
    bool fits = q->ndim == 4 && k->ndim == 4 && v->ndim == 4 && q->shape[0] == k->shape[0] &&
                k->shape[0] == v->shape[0] && k->shape[1] == v->shape[1] && k->shape[1] > 0 &&
                q->shape[1] % k->shape[1] == 0 && k->shape[2] == v->shape[2] &&
                q->shape[3] == k->shape[3];
    if (!fits) {
        return tn_fail(TN_E_SHAPE, 0, "attention: shapes %s, %s and %s do not fit together",
                       tni_shape_text_of(q), tni_shape_text_of(k), tni_shape_text_of(v));
    }
    if (tn_view_dtype(k) != tn_view_dtype(q) || tn_view_dtype(v) != tn_view_dtype(q)) {
        return tn_fail(TN_E_DTYPE, 1, "attention: query, key and value must be of one dtype");
    }
    return TN_OK;
}

/* One entry for each score; true keeps it, and a number of the query's dtype is added to it. */
static tn_status check_mask(tn_infer *inf, int32_t arg, const tn_view *mask, const tn_view *q,
                            const tn_view *k) {
    if (!mask) return TN_OK;
    const int64_t shape[4] = {q->shape[0], q->shape[1], q->shape[2], k->shape[2]};
    int32_t dtype = tn_view_dtype(mask) == TN_BOOL ? TN_BOOL : tn_view_dtype(q);
    return tni_infer_expect(inf, arg, mask, 4, shape, dtype);
}

tn_status tni_infer__flash_attention(tn_infer *inf, const void *args) {
    const tn__flash_attention_args *a = args;
    const tn_view *q = a->query, *k = a->key, *v = a->value;
    TN_TRY(check_heads(q, k, v));
    TN_TRY(check_mask(inf, 3, a->attn_mask, q, k));
    TN_TRY(set_heads(inf, 0, q, v->shape[3]));
    return set_as(inf, 1, wide_dtype(tn_view_dtype(q)), 3, q->shape);
}

tn_status tni_infer__flash_attention_backward(tn_infer *inf, const void *args) {
    const tn__flash_attention_backward_args *a = args;
    const tn_view *q = a->query;
    int32_t dtype = tn_view_dtype(q);
    TN_TRY(check_heads(q, a->key, a->value));
    int64_t n[4] = {q->shape[0], q->shape[1], q->shape[2], a->value->shape[3]};
    TN_TRY(tni_infer_expect(inf, 0, a->grad, 4, n, dtype));
    TN_TRY(check_mask(inf, 4, a->attn_mask, q, a->key));
    TN_TRY(tni_infer_expect(inf, 5, a->y, 4, n, dtype));
    TN_TRY(tni_infer_expect(inf, 6, a->lse, 3, n, wide_dtype(dtype)));
    TN_TRY(set_heads(inf, 0, a->query, a->query->shape[3]));
    TN_TRY(set_heads(inf, 1, a->key, a->key->shape[3]));
    return set_heads(inf, 2, a->value, a->value->shape[3]);
}

/* ---- Losses -----------------------------------------------------------------------------------*/

enum { REDUCE_NONE };

/* input (C), (N, C) or (N, C, d1, ...) and target without the class dimension. */
static tn_status check_classes(int32_t ndim, const int64_t *shape, const tn_view *target,
                               const tn_view *weight) {
    if (ndim < 1) return tn_fail(TN_E_SHAPE, 0, "Expected 1 or more dimensions (got 0)");
    if (tn_view_dtype(target) != TN_I64) {
        return tn_fail(TN_E_DTYPE, 1, "expected scalar type Long but found %s",
                       tni_type_text(tn_view_dtype(target)));
    }
    if (ndim == 1 ? target->ndim > 1 || target->numel != 1 : target->ndim != ndim - 1) {
        return tn_fail(TN_E_SHAPE, 1,
                       "Expected target of shape %s to have the dimensions of input %s without the "
                       "class dimension",
                       tni_shape_text_of(target), tni_shape_text(ndim, shape));
    }
    for (int32_t d = 0; ndim > 1 && d < target->ndim; d++) {
        int64_t want = shape[d == 0 ? 0 : d + 1];
        if (target->shape[d] == want) continue;
        if (d == 0) {
            return tn_fail(TN_E_VALUE, 1,
                           "Expected input batch_size (%lld) to match target batch_size (%lld).",
                           (long long)want, (long long)target->shape[0]);
        }
        return tn_fail(TN_E_SHAPE, 1, "Expected target size %s, got input of shape %s",
                       tni_shape_text_of(target), tni_shape_text(ndim, shape));
    }
    int64_t c = shape[ndim == 1 ? 0 : 1];
    if (weight && (weight->ndim != 1 || weight->shape[0] != c)) {
        return tn_fail(
            TN_E_SHAPE, 2,
            "weight tensor should be defined either for all %lld classes or no classes but "
            "got weight tensor of shape: %s",
            (long long)c, tni_shape_text_of(weight));
    }
    return TN_OK;
}

/* The gradient that comes back to a loss. */
static tn_status expect_loss(const tn_infer *inf, const tn_view *grad, int64_t reduction,
                             const tn_view *target) {
    return tni_infer_expect(inf, 0, grad, reduction == REDUCE_NONE ? target->ndim : 0,
                            target->shape, -1);
}

/* Shape of a loss: target's without reduction, else a number. */
static tn_status set_loss(tn_infer *inf, int i, int64_t reduction, const tn_view *target) {
    if (reduction == REDUCE_NONE) return tni_infer_set(inf, i, target->ndim, target->shape);
    return tni_infer_set(inf, i, 0, target->shape);
}

tn_status tni_infer__nll_loss(tn_infer *inf, const void *args) {
    const tn__nll_loss_args *a = args;
    TN_TRY(check_classes(a->input->ndim, a->input->shape, a->target, a->weight));
    TN_TRY(set_loss(inf, 0, a->reduction, a->target));
    return tni_infer_set(inf, 1, 0, a->target->shape);
}

tn_status tni_infer__nll_loss_backward(tn_infer *inf, const void *args) {
    const tn__nll_loss_backward_args *a = args;
    int32_t ndim = (int32_t)a->input_size.n;
    int64_t numel;
    TN_TRY(tni_numel(ndim, a->input_size.v, 1, &numel));
    TN_TRY(check_classes(ndim, a->input_size.v, a->target, a->weight));
    TN_TRY(expect_loss(inf, a->grad, a->reduction, a->target));
    return tni_infer_set(inf, 0, ndim, a->input_size.v);
}

tn_status tni_infer__nll_loss_gather(tn_infer *inf, const void *args) {
    const tn__nll_loss_gather_args *a = args;
    TN_TRY(check_classes(a->input->ndim, a->input->shape, a->target, a->weight));
    return set_loss(inf, 0, a->reduction, a->target);
}

tn_status tni_infer__cross_entropy(tn_infer *inf, const void *args) {
    const tn__cross_entropy_args *a = args;
    int32_t wide = wide_dtype(tn_view_dtype(a->input));
    TN_TRY(check_classes(a->input->ndim, a->input->shape, a->target, NULL));
    TN_TRY(set_loss(inf, 0, a->reduction, a->target));
    TN_TRY(set_as(inf, 1, wide, a->target->ndim, a->target->shape));
    return set_as(inf, 2, wide, 0, a->target->shape);
}

tn_status tni_infer__cross_entropy_backward(tn_infer *inf, const void *args) {
    const tn__cross_entropy_backward_args *a = args;
    const tn_view *target = a->target;
    int32_t dtype = tn_view_dtype(a->input), wide = wide_dtype(dtype);
    TN_TRY(check_classes(a->input->ndim, a->input->shape, target, NULL));
    TN_TRY(expect_loss(inf, a->grad, a->reduction, target));
    TN_TRY(tni_infer_expect(inf, 0, a->grad, a->grad->ndim, a->grad->shape, dtype));
    TN_TRY(tni_infer_expect(inf, 3, a->lse, target->ndim, target->shape, wide));
    TN_TRY(tni_infer_expect(inf, 4, a->count, 0, target->shape, wide));
    return tni_infer_set(inf, 0, a->input->ndim, a->input->shape);
}

tn_status tni_infer__element_loss(tn_infer *inf, const void *args) {
    const tn__element_loss_args *a = args;
    const tn_view *x = a->input, *others[] = {a->target, a->weight, a->pos_weight};
    for (int i = 0; i < TN_COUNT(others); i++)
        if (others[i])
            TN_TRY(tni_infer_expect(inf, 1 + i, others[i], x->ndim, x->shape, tn_view_dtype(x)));
    return tni_infer_set(inf, 0, 0, x->shape);
}

tn_status tni_infer__element_loss_backward(tn_infer *inf, const void *args) {
    const tn__element_loss_backward_args *a = args;
    const tn_view *x = a->input, *others[] = {a->target, a->weight, a->pos_weight};
    TN_TRY(tni_infer_expect(inf, 0, a->grad, 0, x->shape, tn_view_dtype(x)));
    for (int i = 0; i < TN_COUNT(others); i++)
        if (others[i])
            TN_TRY(tni_infer_expect(inf, 2 + i, others[i], x->ndim, x->shape, tn_view_dtype(x)));
    return tni_infer_set(inf, 0, x->ndim, x->shape);
}
