/* pool.c: pooling: shape rules, and the forms of one dimension. */
#include <math.h>

#include <tenon/args_conv.h>
#include <tenon/ops_conv.h>
#include <tenon/ops_reduce.h>

#include "nn_priv.h"
#include "op_conv.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

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
    TN_TRY(nn_expect_list(inf, kernel, 2, 1, "kernel_size"));
    TN_TRY(nn_check_sides(x->shape[x->ndim - 2], x->shape[x->ndim - 1]));
    if (stride.n > 0) TN_TRY(nn_expect_list(inf, stride, 2, 1, "stride"));
    TN_TRY(nn_expect_list(inf, padding, 2, 0, "padding"));
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
    }
    const int64_t *in = x->shape + x->ndim - 3, *out = shape + x->ndim - 3;
    if (out[1] < 1 || out[2] < 1)
        return tn_fail(TN_E_SHAPE, 0,
                       "Given input size: (%lldx%lldx%lld). Calculated output size: "
                       "(%lldx%lldx%lld). Output size is too small",
                       (long long)in[0], (long long)in[1], (long long)in[2], (long long)out[0],
                       (long long)out[1], (long long)out[2]);
    for (int i = 0; i < outs; i++) TN_TRY(tni_infer_set(inf, i, x->ndim, shape));
    return TN_OK;
}

tn_status tni_infer_max_pool2d_with_indices(tn_infer *inf, const void *args) {
    const tn_max_pool2d_with_indices_args *a = args;
    TN_TRY(nn_expect_list(inf, a->dilation, 2, 1, "dilation"));
    return pool_shape(inf, 2, a->input, a->kernel_size, a->stride, a->padding, a->dilation.v,
                      a->ceil_mode, "max_pool2d");
}

tn_status tni_infer_avg_pool2d(tn_infer *inf, const void *args) {
    const tn_avg_pool2d_args *a = args;
    const int64_t ones[2] = {1, 1};
    if (a->divisor_override.has && a->divisor_override.value == 0) {
        return tn_fail(TN_E_STATE, 6, "divisor must be not zero");
    }
    return pool_shape(inf, 1, a->input, a->kernel_size, a->stride, a->padding, ones, a->ceil_mode,
                      "avg_pool2d");
}

tn_status tni_infer__max_pool2d_backward(tn_infer *inf, const void *args) {
    const tn__max_pool2d_backward_args *a = args;
    TN_TRY(tni_infer_expect(inf, 1, a->indices, a->grad->ndim, a->grad->shape, TN_I64));
    return nn_infer_sized(inf, a->input_size, a->grad);
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
    TN_TRY(nn_infer_sized(inf, a->input_size, a->grad));
    image.shape = inf->out[0].shape;
    tn_infer pooled_image = {.op = inf->op};
    pooled_image.out[0].dtype = inf->out[0].dtype;
    TN_TRY(pool_shape(&pooled_image, 1, &image, a->kernel_size, a->stride, a->padding, ones,
                      a->ceil_mode, "avg_pool2d"));
    TN_TRY(tni_infer_expect(inf, 0, a->grad, image.ndim, pooled_image.out[0].shape, -1));
    return nn_infer_sized(inf, a->input_size, a->grad);
}

tn_status tni_infer__adaptive_avg_pool2d(tn_infer *inf, const void *args) {
    const tn__adaptive_avg_pool2d_args *a = args;
    TN_TRY(check_planes(a->input, "adaptive_avg_pool2d()"));
    return nn_infer_resized(inf, a->input, a->output_size);
}

tn_status tni_infer__adaptive_avg_pool2d_backward(tn_infer *inf, const void *args) {
    const tn__adaptive_avg_pool2d_backward_args *a = args;
    return nn_infer_sized(inf, a->input_size, a->grad);
}

/* ---- The forms that users call ----------------------------------------------------------------*/

tn_status tni_composite_max_pool2d(const void *args, tn_tensor **rets) {
    const tn_max_pool2d_args *a = args;
    tn_tensor *indices = NULL;
    TN_TRY(tn_max_pool2d_with_indices(tni_t(a->input), a->kernel_size, a->stride, a->padding,
                                      a->dilation, a->ceil_mode, &rets[0], &indices));
    tn_tensor_unref(&indices);
    return TN_OK;
}

/* One-dimensional windows are two-dimensional ones of height 1. */
#define WIDE(list, fill) ((list).n > 0 ? TN_INTS((fill), (list).v[0]) : tn_ints_none())

static tn_status fail_line(const char *op, const tn_view *x) {
    return tn_fail(TN_E_SHAPE, 0,
                   "%s: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for "
                   "input, but got:%s",
                   op, tni_shape_text_of(x));
}

/* Lists that say something of the one dimension of a line have one number, or none. */
static tn_status one_number(const char *op, const char *name, int32_t arg, tn_ints list) {
    return list.n <= 1
               ? TN_OK
               : tn_fail(TN_E_STATE, arg, "%s() argument '%s' should contain one int (got %lld)",
                         op, name, (long long)list.n);
}

tn_status tni_composite_max_pool1d(const void *args, tn_tensor **rets) {
    const tn_max_pool1d_args *a = args;
    tni_scope s = {0};
    if (a->input->ndim != 2 && a->input->ndim != 3) return fail_line("max_pool1d", a->input);
    TN_TRY(one_number("max_pool1d", "kernel_size", 1, a->kernel_size));
    TN_TRY(one_number("max_pool1d", "stride", 2, a->stride));
    TN_TRY(one_number("max_pool1d", "padding", 3, a->padding));
    TN_TRY(one_number("max_pool1d", "dilation", 4, a->dilation));
    tn_tensor *x = scope_unsqueeze(&s, tni_t(a->input), -2), *y = NULL;
    if (s.st == TN_OK) {
        tn_status st = tn_max_pool2d(x, WIDE(a->kernel_size, 1), WIDE(a->stride, 1),
                                     WIDE(a->padding, 0), WIDE(a->dilation, 1), a->ceil_mode, &y);
        y = scope_take(&s, st, y);
    }
    return scope_finish(&s, scope_select(&s, y, -2, 0), rets);
}

tn_status tni_composite_avg_pool1d(const void *args, tn_tensor **rets) {
    const tn_avg_pool1d_args *a = args;
    tni_scope s = {0};
    if (a->input->ndim != 2 && a->input->ndim != 3) return fail_line("avg_pool1d", a->input);
    TN_TRY(one_number("avg_pool1d", "kernel_size", 1, a->kernel_size));
    TN_TRY(one_number("avg_pool1d", "stride", 2, a->stride));
    TN_TRY(one_number("avg_pool1d", "padding", 3, a->padding));
    tn_tensor *x = scope_unsqueeze(&s, tni_t(a->input), -2), *y = NULL;
    if (s.st == TN_OK) {
        tn_status st =
            tn_avg_pool2d(x, WIDE(a->kernel_size, 1), WIDE(a->stride, 1), WIDE(a->padding, 0),
                          a->ceil_mode, a->count_include_pad, tn_no_int(), &y);
        y = scope_take(&s, st, y);
    }
    return scope_finish(&s, scope_select(&s, y, -2, 0), rets);
}

tn_status tni_composite_adaptive_avg_pool2d(const void *args, tn_tensor **rets) {
    const tn_adaptive_avg_pool2d_args *a = args;
    tn_tensor *x = tni_t(a->input);
    int32_t n = a->input->ndim;
    if (n != 3 && n != 4) {
        return tn_fail(TN_E_SHAPE, 0,
                       "adaptive_avg_pool2d(): Expected 3D or 4D tensor, but got %d "
                       "dimensions",
                       (int)n);
    }
    if (a->output_size.n != 2) {
        return tn_fail(TN_E_SHAPE, 1, "adaptive_avg_pool2d(): output_size must have 2 elements");
    }
    int64_t size[2] = {a->output_size.v[0], a->output_size.v[1]};
    for (int i = 0; i < 2; i++) {
        if (size[i] < 0) {
            return tn_fail(TN_E_SHAPE, 1,
                           "adaptive_avg_pool2d(): elements of output_size must be greater than or "
                           "equal to 0 but received {%lld, %lld}",
                           (long long)a->output_size.v[0], (long long)a->output_size.v[1]);
        }
    }
    if (size[0] == 1 && size[1] == 1) return tn_mean(x, TN_INTS(-2, -1), 1, -1, &rets[0]);
    return tn__adaptive_avg_pool2d(x, tn_ints_of(size, 2), &rets[0]);
}

tn_status tni_composite_adaptive_avg_pool1d(const void *args, tn_tensor **rets) {
    const tn_adaptive_avg_pool1d_args *a = args;
    tni_scope s = {0};
    if (a->input->ndim != 2 && a->input->ndim != 3)
        return fail_line("adaptive_avg_pool1d", a->input);
    TN_TRY(one_number("adaptive_avg_pool1d", "output_size", 1, a->output_size));
    tn_tensor *x = scope_unsqueeze(&s, tni_t(a->input), -2), *y = NULL;
    if (s.st == TN_OK) {
        tn_status st = tn_adaptive_avg_pool2d(x, WIDE(a->output_size, 1), &y);
        y = scope_take(&s, st, y);
    }
    return scope_finish(&s, scope_select(&s, y, -2, 0), rets);
}
