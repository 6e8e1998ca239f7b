/* infer_conv.c: shape rules of convolutions, pooling, resampling and padding. The messages are
 * PyTorch's, because that is what people search for. */
#include <tenon/op_args.h>

#include "dispatch_priv.h"
#include "infer_priv.h"

tn_status tni_infer__conv(tn_infer *inf, const void *args);
tn_status tni_infer__conv_backward_input(tn_infer *inf, const void *args);
tn_status tni_infer__conv_backward_weight(tn_infer *inf, const void *args);
tn_status tni_infer_max_pool2d_with_indices(tn_infer *inf, const void *args);
tn_status tni_infer__max_pool2d_backward(tn_infer *inf, const void *args);
tn_status tni_infer__max_pool2d_gather(tn_infer *inf, const void *args);
tn_status tni_infer_avg_pool2d(tn_infer *inf, const void *args);
tn_status tni_infer__avg_pool2d_backward(tn_infer *inf, const void *args);
tn_status tni_infer__adaptive_avg_pool2d(tn_infer *inf, const void *args);
tn_status tni_infer__adaptive_avg_pool2d_backward(tn_infer *inf, const void *args);
tn_status tni_infer_upsample_nearest2d(tn_infer *inf, const void *args);
tn_status tni_infer__upsample_nearest2d_backward(tn_infer *inf, const void *args);
tn_status tni_infer_upsample_bilinear2d(tn_infer *inf, const void *args);
tn_status tni_infer__upsample_bilinear2d_backward(tn_infer *inf, const void *args);
tn_status tni_infer_constant_pad_nd(tn_infer *inf, const void *args);
tn_status tni_infer__pad(tn_infer *inf, const void *args);
tn_status tni_infer__pad_backward(tn_infer *inf, const void *args);

/* Note [Sizes of windows]: images, windows, strides, padding and dilation are at most 2^31 each, checked before
 * they meet. A padded image is then at most 3 * 2^31, the reach of a window at most 2^62 + 1, and every
 * sum and product of one axis below is smaller than 2^63. Products over axes are left to
 * tni_infer_set, which checks them, and in kernels to room_mul. */
#define SIZE_LIMIT (INT64_C(1) << 31)

static tn_status check_list(tn_ints v, int64_t n, int64_t least, int32_t arg, const char *name) {
    if (v.n != n) {
        return tn_fail(TN_E_SHAPE, arg, "expected %s to be a list of %lld ints, but got %lld", name,
                       (long long)n, (long long)v.n);
    }
    for (int64_t i = 0; i < n; i++) {
        if (v.v[i] < least) {
            return tn_fail(TN_E_SHAPE, arg, "%s %s is not supported",
                           least > 0 ? "non-positive" : "negative", name);
        }
        if (v.v[i] > SIZE_LIMIT) return tn_fail(TN_E_VALUE, arg, "%s is too large", name);
    }
    return TN_OK;
}

/* A tensor that repeats one element may be larger than memory. */
static tn_status check_sides(int64_t image, int64_t window) {
    if (image <= SIZE_LIMIT && window <= SIZE_LIMIT) return TN_OK;
    return tn_fail(TN_E_VALUE, 0, "sizes of images and windows must be at most 2^31");
}

/* ---- Convolution ------------------------------------------------------------------------------*/

tn_status tni_infer__conv(tn_infer *inf, const void *args) {
    const tn__conv_args *a = args;
    const tn_view *x = a->input, *w = a->weight;
    int32_t n = x->ndim - 2;
    if (x->ndim < 3 || x->ndim > 5 || w->ndim != x->ndim) {
        return tn_fail(TN_E_SHAPE, 0,
                       "expected %d-dimensional input for %d-dimensional weight %s, but "
                       "got %d-dimensional input of size %s instead",
                       (int)w->ndim, (int)w->ndim, tni_shape_text_of(w), (int)x->ndim,
                       tni_shape_text_of(x));
    }
    TN_TRY(check_list(a->stride, n, 1, 3, "stride"));
    TN_TRY(check_list(a->padding, n, 0, 4, "padding"));
    TN_TRY(check_list(a->dilation, n, 1, 5, "dilation"));
    if (a->groups <= 0) return tn_fail(TN_E_SHAPE, 6, "non-positive groups is not supported");
    if (w->shape[0] < a->groups || w->shape[0] % a->groups != 0) {
        return tn_fail(TN_E_SHAPE, 1,
                       "Given groups=%lld, expected weight to be at least %lld at dimension 0 and "
                       "divisible by it, but got weight of size %s instead",
                       (long long)a->groups, (long long)a->groups, tni_shape_text_of(w));
    }
    if (x->shape[1] != w->shape[1] * a->groups) {
        return tn_fail(
            TN_E_SHAPE, 0,
            "Given groups=%lld, weight of size %s, expected input%s to have %lld channels, "
            "but got %lld channels instead",
            (long long)a->groups, tni_shape_text_of(w), tni_shape_text_of(x),
            (long long)(w->shape[1] * a->groups), (long long)x->shape[1]);
    }
    if (a->bias && (a->bias->ndim != 1 || a->bias->shape[0] != w->shape[0])) {
        return tn_fail(
            TN_E_SHAPE, 2,
            "Given weight of size %s, expected bias to be 1-dimensional with %lld elements, "
            "but got bias of size %s instead",
            tni_shape_text_of(w), (long long)w->shape[0], tni_shape_text_of(a->bias));
    }
    if (tn_view_dtype(w) != tn_view_dtype(x) ||
        (a->bias && tn_view_dtype(a->bias) != tn_view_dtype(x))) {
        bool bias = tn_view_dtype(w) == tn_view_dtype(x);
        return tn_fail(TN_E_DTYPE, bias ? 2 : 1,
                       "Input type (%s) and %s type (%s) should be the same",
                       tni_type_text(tn_view_dtype(x)), bias ? "bias" : "weight",
                       tni_type_text(tn_view_dtype(bias ? a->bias : w)));
    }
    int64_t shape[TN_MAX_DIMS] = {x->shape[0], w->shape[0]};
    for (int32_t d = 0; d < n; d++) {
        TN_TRY(check_sides(x->shape[d + 2], w->shape[d + 2]));
        int64_t in = x->shape[d + 2] + 2 * a->padding.v[d];
        int64_t k = a->dilation.v[d] * (w->shape[d + 2] - 1) + 1;
        if (w->shape[d + 2] < 1 || in < k) {
            return tn_fail(TN_E_SHAPE, 1,
                           "Calculated padded input size per channel: (%lld). Kernel size: (%lld). "
                           "Kernel size can't be greater than actual input size",
                           (long long)in, (long long)k);
        }
        shape[d + 2] = (in - k) / a->stride.v[d] + 1;
    }
    return tni_infer_set(inf, 0, x->ndim, shape);
}

tn_status tni_infer__conv_backward_input(tn_infer *inf, const void *args) {
    const tn__conv_backward_input_args *a = args;
    int32_t ndim = a->grad->ndim;
    if (ndim < 3 || ndim > 5 || a->weight->ndim != ndim) {
        return tn_fail(TN_E_SHAPE, 0,
                       "expected %d-dimensional input for %d-dimensional weight %s, but "
                       "got %d-dimensional input of size %s instead",
                       (int)a->weight->ndim, (int)a->weight->ndim, tni_shape_text_of(a->weight),
                       (int)ndim, tni_shape_text_of(a->grad));
    }
    TN_TRY(check_list(a->input_size, ndim, 0, 3, "input_size"));
    if (a->input_size.v[0] != a->grad->shape[0] ||
        (a->groups > 0 && a->input_size.v[1] != a->weight->shape[1] * a->groups)) {
        return tn_fail(TN_E_SHAPE, 3, "input size %s does not belong to weight %s and gradient %s",
                       tni_shape_text(ndim, a->input_size.v), tni_shape_text_of(a->weight),
                       tni_shape_text_of(a->grad));
    }
    TN_TRY(check_list(a->stride, ndim - 2, 1, 4, "stride"));
    TN_TRY(check_list(a->padding, ndim - 2, 0, 5, "padding"));
    TN_TRY(check_list(a->dilation, ndim - 2, 1, 6, "dilation"));
    if (a->groups <= 0 || a->grad->shape[1] % a->groups != 0 ||
        a->weight->shape[0] != a->grad->shape[1]) {
        return tn_fail(
            TN_E_SHAPE, 0,
            "Given transposed=1, weight of size %s, expected input%s to have %lld channels, "
            "but got %lld channels instead",
            tni_shape_text_of(a->weight), tni_shape_text_of(a->grad),
            (long long)a->weight->shape[0], (long long)a->grad->shape[1]);
    }
    if (tn_view_dtype(a->weight) != tn_view_dtype(a->grad)) {
        return tn_fail(TN_E_DTYPE, 1, "Input type (%s) and weight type (%s) should be the same",
                       tni_type_text(tn_view_dtype(a->grad)),
                       tni_type_text(tn_view_dtype(a->weight)));
    }
    if (a->bias && (a->bias->ndim != 1 || a->bias->shape[0] != a->input_size.v[1])) {
        return tn_fail(
            TN_E_SHAPE, 2,
            "expected bias to be 1-dimensional with %lld elements, but got bias of size %s",
            (long long)a->input_size.v[1], tni_shape_text_of(a->bias));
    }
    for (int32_t d = 0; d < ndim - 2; d++) {
        TN_TRY(check_sides(a->input_size.v[d + 2], a->weight->shape[d + 2]));
        int64_t in = a->input_size.v[d + 2] + 2 * a->padding.v[d];
        int64_t k = a->dilation.v[d] * (a->weight->shape[d + 2] - 1) + 1;
        if (in < k || (in - k) / a->stride.v[d] + 1 != a->grad->shape[d + 2]) {
            return tn_fail(TN_E_SHAPE, 3, "a convolution of input size %s does not give size %s",
                           tni_shape_text(ndim, a->input_size.v), tni_shape_text_of(a->grad));
        }
    }
    return tni_infer_set(inf, 0, ndim, a->input_size.v);
}

tn_status tni_infer__conv_backward_weight(tn_infer *inf, const void *args) {
    const tn__conv_backward_weight_args *a = args;
    const tn_view *g = a->grad, *x = a->input;
    int32_t n = g->ndim;
    if (n < 3 || n > 5) return tn_fail(TN_E_SHAPE, 0, "a convolution has 3 to 5 dimensions");
    TN_TRY(check_list(a->weight_size, n, 1, 2, "weight_size"));
    TN_TRY(check_list(a->stride, n - 2, 1, 3, "stride"));
    TN_TRY(check_list(a->padding, n - 2, 0, 4, "padding"));
    TN_TRY(check_list(a->dilation, n - 2, 1, 5, "dilation"));
    const int64_t *w = a->weight_size.v;
    if (a->groups <= 0 || a->groups > SIZE_LIMIT || g->shape[1] != w[0] || w[0] % a->groups != 0) {
        return tn_fail(TN_E_SHAPE, 2, "%lld groups of a weight of size %s do not give gradient %s",
                       (long long)a->groups, tni_shape_text(n, w), tni_shape_text_of(g));
    }
    int64_t shape[5] = {g->shape[0], w[1] * a->groups};
    for (int32_t d = 2; d < n; d++) shape[d] = x->ndim == n ? x->shape[d] : 0;
    TN_TRY(tni_infer_expect(inf, 1, x, n, shape, tn_view_dtype(g)));
    for (int32_t d = 0; d < n - 2; d++) {
        TN_TRY(check_sides(shape[d + 2], w[d + 2]));
        int64_t in = shape[d + 2] + 2 * a->padding.v[d], k = a->dilation.v[d] * (w[d + 2] - 1) + 1;
        if (in < k || (in - k) / a->stride.v[d] + 1 != g->shape[d + 2]) {
            return tn_fail(TN_E_SHAPE, 0, "a convolution of input size %s does not give size %s",
                           tni_shape_text_of(x), tni_shape_text_of(g));
        }
    }
    return tni_infer_set(inf, 0, n, w);
}

/* ---- Pooling ----------------------------------------------------------------------------------*/

static tn_status check_planes(const tn_view *x, const char *op) {
    bool fits = x->ndim == 3 || x->ndim == 4;
    for (int32_t d = x->ndim == 4 ? 1 : 0; fits && d < x->ndim; d++) fits = x->shape[d] > 0;
    if (fits) return TN_OK;
    return tn_fail(TN_E_SHAPE, 0,
                   "%s: Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for "
                   "input, but got:%s",
                   op, tni_shape_text_of(x));
}

/* Number of windows along one axis; below 1 when none fits. */
static int64_t pooled(int64_t in, int64_t k, int64_t stride, int64_t pad, int64_t dilation,
                      bool ceil_mode) {
    int64_t span = in + 2 * pad - dilation * (k - 1) - 1 + (ceil_mode ? stride - 1 : 0);
    if (span < 0) return 0;
    int64_t out = span / stride + 1;
    /* The last window must begin inside the input or its left padding. */
    return ceil_mode && (out - 1) * stride >= in + pad ? out - 1 : out;
}

static tn_status pool_shape(tn_infer *inf, int outs, const tn_view *x, tn_ints kernel,
                            tn_ints stride, tn_ints padding, const int64_t *dilation,
                            bool ceil_mode, const char *op) {
    int64_t shape[TN_MAX_DIMS];
    TN_TRY(check_planes(x, op));
    TN_TRY(check_list(kernel, 2, 1, 1, "kernel_size"));
    TN_TRY(check_sides(x->shape[x->ndim - 2], x->shape[x->ndim - 1]));
    if (stride.n > 0) TN_TRY(check_list(stride, 2, 1, 2, "stride"));
    TN_TRY(check_list(padding, 2, 0, 3, "padding"));
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof(int64_t));
    for (int i = 0; i < 2; i++) {
        int32_t d = x->ndim - 2 + i;
        if (padding.v[i] > ((kernel.v[i] - 1) * dilation[i] + 1) / 2) {
            return tn_fail(TN_E_SHAPE, 3,
                           "pad should be at most half of effective kernel size, but got pad=%lld, "
                           "kernel_size=%lld and dilation=%lld",
                           (long long)padding.v[i], (long long)kernel.v[i], (long long)dilation[i]);
        }
        shape[d] = pooled(x->shape[d], kernel.v[i], stride.n > 0 ? stride.v[i] : kernel.v[i],
                          padding.v[i], dilation[i], ceil_mode);
        if (shape[d] < 1) {
            return tn_fail(TN_E_SHAPE, 0,
                           "Given input size: %s. Calculated output size is too small",
                           tni_shape_text_of(x));
        }
    }
    for (int i = 0; i < outs; i++) TN_TRY(tni_infer_set(inf, i, x->ndim, shape));
    return TN_OK;
}

tn_status tni_infer_max_pool2d_with_indices(tn_infer *inf, const void *args) {
    const tn_max_pool2d_with_indices_args *a = args;
    TN_TRY(check_list(a->dilation, 2, 1, 4, "dilation"));
    return pool_shape(inf, 2, a->input, a->kernel_size, a->stride, a->padding, a->dilation.v,
                      a->ceil_mode, "max_pool2d");
}

tn_status tni_infer_avg_pool2d(tn_infer *inf, const void *args) {
    const tn_avg_pool2d_args *a = args;
    const int64_t ones[2] = {1, 1};
    if (a->divisor_override.has && a->divisor_override.value == 0) {
        return tn_fail(TN_E_VALUE, 6, "divisor must be not zero");
    }
    return pool_shape(inf, 1, a->input, a->kernel_size, a->stride, a->padding, ones, a->ceil_mode,
                      "avg_pool2d");
}

/* The gradient of planes of another size: the sizes in front are those of `grad`. */
static tn_status sized(tn_infer *inf, tn_ints size, const tn_view *grad) {
    int32_t n = grad->ndim;
    if (n != 3 && n != 4) return tn_fail(TN_E_SHAPE, 0, "a gradient of 3D or 4D planes is needed");
    TN_TRY(check_list(size, n, 0, 1, "input_size"));
    bool fits = memcmp(size.v, grad->shape, (size_t)(n - 2) * sizeof(int64_t)) == 0;
    for (int32_t d = n - 2; d < n; d++) fits = fits && (size.v[d] > 0 || grad->shape[d] == 0);
    if (!fits) {
        return tn_fail(TN_E_SHAPE, 1, "input size %s does not belong to gradient %s",
                       tni_shape_text(n, size.v), tni_shape_text_of(grad));
    }
    return tni_infer_set(inf, 0, n, size.v);
}

tn_status tni_infer__max_pool2d_backward(tn_infer *inf, const void *args) {
    const tn__max_pool2d_backward_args *a = args;
    TN_TRY(tni_infer_expect(inf, 1, a->indices, a->grad->ndim, a->grad->shape, TN_I64));
    return sized(inf, a->input_size, a->grad);
}

tn_status tni_infer__max_pool2d_gather(tn_infer *inf, const void *args) {
    const tn__max_pool2d_gather_args *a = args;
    const tn_view *x = a->input, *at = a->indices;
    TN_TRY(check_planes(x, "_max_pool2d_gather()"));
    bool fits = at->ndim == x->ndim &&
                memcmp(at->shape, x->shape, (size_t)(x->ndim - 2) * sizeof(int64_t)) == 0;
    if (!fits) {
        return tn_fail(TN_E_SHAPE, 1, "indices of shape %s do not belong to an input of shape %s",
                       tni_shape_text_of(at), tni_shape_text_of(x));
    }
    TN_TRY(tni_infer_expect(inf, 1, at, at->ndim, at->shape, TN_I64));
    return tni_infer_set(inf, 0, a->indices->ndim, a->indices->shape);
}

tn_status tni_infer__avg_pool2d_backward(tn_infer *inf, const void *args) {
    const tn__avg_pool2d_backward_args *a = args;
    const int64_t ones[2] = {1, 1};
    tn_view image = *a->grad;
    TN_TRY(sized(inf, a->input_size, a->grad));
    image.shape = inf->out[0].shape;
    tn_infer pooled_image = {.op = inf->op};
    pooled_image.out[0].dtype = inf->out[0].dtype;
    TN_TRY(pool_shape(&pooled_image, 1, &image, a->kernel_size, a->stride, a->padding, ones,
                      a->ceil_mode, "avg_pool2d"));
    TN_TRY(tni_infer_expect(inf, 0, a->grad, image.ndim, pooled_image.out[0].shape, -1));
    return sized(inf, a->input_size, a->grad);
}

/* x with its last two sizes replaced. */
static tn_status resized(tn_infer *inf, const tn_view *x, tn_ints size) {
    int64_t shape[TN_MAX_DIMS];
    TN_TRY(check_list(size, 2, 0, 1, "output_size"));
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof(int64_t));
    shape[x->ndim - 2] = size.v[0];
    shape[x->ndim - 1] = size.v[1];
    return tni_infer_set(inf, 0, x->ndim, shape);
}

tn_status tni_infer__adaptive_avg_pool2d(tn_infer *inf, const void *args) {
    const tn__adaptive_avg_pool2d_args *a = args;
    TN_TRY(check_planes(a->input, "adaptive_avg_pool2d()"));
    return resized(inf, a->input, a->output_size);
}

tn_status tni_infer__adaptive_avg_pool2d_backward(tn_infer *inf, const void *args) {
    const tn__adaptive_avg_pool2d_backward_args *a = args;
    return sized(inf, a->input_size, a->grad);
}

/* ---- Resampling -------------------------------------------------------------------------------*/

static tn_status upsampled(tn_infer *inf, const tn_view *x, tn_ints size) {
    if (x->ndim != 4 || x->shape[2] < 1 || x->shape[3] < 1) {
        return tn_fail(TN_E_SHAPE, 0,
                       "Non-empty 4D data tensor expected but got a tensor with sizes %s",
                       tni_shape_text_of(x));
    }
    TN_TRY(check_list(size, 2, 1, 1, "output_size"));
    return resized(inf, x, size);
}

tn_status tni_infer_upsample_nearest2d(tn_infer *inf, const void *args) {
    const tn_upsample_nearest2d_args *a = args;
    return upsampled(inf, a->input, a->output_size);
}

tn_status tni_infer__upsample_nearest2d_backward(tn_infer *inf, const void *args) {
    const tn__upsample_nearest2d_backward_args *a = args;
    return sized(inf, a->input_size, a->grad);
}

tn_status tni_infer_upsample_bilinear2d(tn_infer *inf, const void *args) {
    const tn_upsample_bilinear2d_args *a = args;
    return upsampled(inf, a->input, a->output_size);
}

tn_status tni_infer__upsample_bilinear2d_backward(tn_infer *inf, const void *args) {
    const tn__upsample_bilinear2d_backward_args *a = args;
    return sized(inf, a->input_size, a->grad);
}

/* ---- Padding ----------------------------------------------------------------------------------*/

static tn_status padded(tn_infer *inf, const tn_view *x, tn_ints pad) {
    int64_t shape[TN_MAX_DIMS];
    if (pad.n % 2 != 0 || pad.n > 2 * (int64_t)x->ndim || pad.n < 0) {
        return tn_fail(TN_E_SHAPE, 1,
                       "Length of pad must be even and no more than twice the number of "
                       "dimensions of the input. Pad length is %lld while the input has "
                       "%d dimensions.",
                       (long long)pad.n, (int)x->ndim);
    }
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof(int64_t));
    for (int64_t i = 0; i < pad.n / 2; i++) {
        int64_t d = x->ndim - 1 - i, before = pad.v[2 * i], after = pad.v[2 * i + 1];
        if (before > SIZE_LIMIT || after > SIZE_LIMIT || before < -SIZE_LIMIT ||
            after < -SIZE_LIMIT) {
            return tn_fail(TN_E_VALUE, 1, "pad is too large");
        }
        shape[d] = x->shape[d] + before + after;
        if (shape[d] < 0) {
            return tn_fail(
                TN_E_SHAPE, 1,
                "The input size %lld, plus negative padding %lld and %lld resulted in a "
                "negative output size, which is invalid. Check dimension %lld of your input.",
                (long long)x->shape[d], (long long)before, (long long)after, (long long)d);
        }
    }
    return tni_infer_set(inf, 0, x->ndim, shape);
}

tn_status tni_infer_constant_pad_nd(tn_infer *inf, const void *args) {
    const tn_constant_pad_nd_args *a = args;
    return padded(inf, a->input, a->pad);
}

/* What reflection and its relatives can reach from within x. */
static tn_status check_mirrors(const tn_view *x, tn_ints pad, int64_t mode) {
    enum { CONSTANT, REFLECT, REPLICATE };
    for (int64_t i = 0; mode != CONSTANT && i < pad.n && i / 2 < x->ndim; i++) {
        int64_t n = x->shape[x->ndim - 1 - i / 2], p = pad.v[i];
        bool fits = mode == REFLECT ? p < n : mode == REPLICATE ? n > 0 : p <= n;
        if (!fits) {
            return tn_fail(
                TN_E_SHAPE, 1,
                "Padding size should be less than the corresponding input dimension, but "
                "got: padding %lld at dimension %lld of input %s",
                (long long)p, (long long)(x->ndim - 1 - i / 2), tni_shape_text_of(x));
        }
    }
    return TN_OK;
}

tn_status tni_infer__pad(tn_infer *inf, const void *args) {
    const tn__pad_args *a = args;
    TN_TRY(check_mirrors(a->input, a->pad, a->mode));
    return padded(inf, a->input, a->pad);
}

tn_status tni_infer__pad_backward(tn_infer *inf, const void *args) {
    const tn__pad_backward_args *a = args;
    int64_t numel;
    TN_TRY(tni_numel((int32_t)a->input_size.n, a->input_size.v, 1, &numel));
    tn_view image = {.word = a->grad->word,
                     .ndim = (int32_t)a->input_size.n,
                     .shape = (int64_t *)(uintptr_t)a->input_size.v};
    TN_TRY(check_mirrors(&image, a->pad, a->mode));
    TN_TRY(padded(inf, &image, a->pad));
    TN_TRY(tni_infer_expect(inf, 0, a->grad, image.ndim, inf->out[0].shape, -1));
    return tni_infer_set(inf, 0, image.ndim, image.shape);
}
