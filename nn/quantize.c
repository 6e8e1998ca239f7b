/* quantize.c: values on a grid, and linear maps and convolutions whose products are whole numbers: what
 * is checked of their arguments, and their shapes. */
#include <tenon/args_quantize.h>
#include <tenon/ops_quantize.h>

#include "nn_priv.h"
#include "op_quantize.h"

/* ---- Values on a grid --------------------------------------------------------------------------*/

static tn_status check_levels(int64_t low, int64_t high) {
    if (low > high)
        return tn_fail(TN_E_STATE, -1, "`quant_min` should be less than or equal to `quant_max`.");
    if (low < -(INT64_C(1) << 24) || high > INT64_C(1) << 24)
        return tn_fail(TN_E_VALUE, -1, "`quant_min` and `quant_max` must be within 2^24");
    return TN_OK;
}

tn_status tni_composite_fake_quantize_per_tensor_affine(const void *args, tn_tensor **rets) {
    const tn_fake_quantize_per_tensor_affine_args *a = args;
    tn_scalar_box scale, zero;
    TN_TRY(check_levels(a->quant_min, a->quant_max));
    if (a->zero_point < a->quant_min || a->zero_point > a->quant_max)
        return tn_fail(TN_E_STATE, 2, "`zero_point` must be between `quant_min` and `quant_max`.");
    return tn__fake_quantize(tni_t(a->input), tn_scalar_box_init(&scale, tn_scalar_float(a->scale)),
                             tn_scalar_box_init(&zero, tn_scalar_int(a->zero_point)),
                             (double)a->quant_min, (double)a->quant_max, rets);
}

tn_status tni_composite_fake_quantize_per_tensor_affine_tensor_qparams(const void *args,
                                                                       tn_tensor **rets) {
    const tn_fake_quantize_per_tensor_affine_tensor_qparams_args *a = args;
    TN_TRY(check_levels(a->quant_min, a->quant_max));
    if (a->scale->numel != 1 || a->zero_point->numel != 1)
        return tn_fail(TN_E_STATE, 1, "scale and zero_point must have one element");
    tni_scope s = {0};
    tn_tensor *scale = scope_reshape(&s, tni_t(a->scale), (tn_ints){0});
    tn_tensor *zero = scope_reshape(&s, tni_t(a->zero_point), (tn_ints){0});
    if (s.st == TN_OK)
        s.st = tn__fake_quantize(tni_t(a->input), scale, zero, (double)a->quant_min,
                                 (double)a->quant_max, rets);
    return scope_finish(&s, NULL, NULL);
}

tn_status tni_composite_fake_quantize_per_channel_affine(const void *args, tn_tensor **rets) {
    const tn_fake_quantize_per_channel_affine_args *a = args;
    int64_t along[TN_MAX_DIMS];
    TN_TRY(check_levels(a->quant_min, a->quant_max));
    if (a->scale->ndim != 1 || a->zero_point->ndim != 1)
        return tn_fail(TN_E_STATE, 1, "scale and zero_point should be 1-D tensors");
    if (a->input->ndim == 0 || a->scale->numel != a->input->shape[a->axis] ||
        a->zero_point->numel != a->scale->numel)
        return tn_fail(TN_E_STATE, 1,
                       "dimensions of scale and zero-point are not consistent with "
                       "input tensor");
    for (int32_t d = 0; d < a->input->ndim; d++) along[d] = d == a->axis ? a->scale->numel : 1;
    tni_scope s = {0};
    tn_ints shape = {.v = along, .n = a->input->ndim};
    tn_tensor *scale = scope_reshape(&s, tni_t(a->scale), shape);
    tn_tensor *zero = scope_reshape(&s, tni_t(a->zero_point), shape);
    if (s.st == TN_OK)
        s.st = tn__fake_quantize(tni_t(a->input), scale, zero, (double)a->quant_min,
                                 (double)a->quant_max, rets);
    return scope_finish(&s, NULL, NULL);
}

/* ---- Whole numbers -----------------------------------------------------------------------------*/

static tn_status check_dtype(int32_t arg, const char *name, const tn_view *v, int32_t dtype) {
    if (!v || tn_view_dtype(v) == dtype) return TN_OK;
    return tn_fail(TN_E_DTYPE, arg, "%s must be %s, got %s", name, tn_dtype_name(dtype),
                   tn_dtype_name(tn_view_dtype(v)));
}

/* A vector of n elements, or of one where `one`. NULL passes. */
static tn_status check_row(int32_t arg, const char *name, const tn_view *v, int64_t n, bool one) {
    TN_TRY(check_dtype(arg, name, v, TN_F32));
    if (!v || (v->ndim == 1 && v->shape[0] == n) || (one && v->numel == 1)) return TN_OK;
    return tn_fail(TN_E_SHAPE, arg, "%s must have %lld elements, got size %s", name, (long long)n,
                   tni_shape_text_of(v));
}

/* Numbers of at most 8 bits whose distance to the zero point fits into 9, which is what keeps sums of
 * 2^15 products below 2^31. */
static tn_status check_grid(double scale, int64_t zero, int64_t low, int64_t high) {
    bool bytes = low >= -128 && high <= 255 && low < high && high - low <= 255;
    if (!bytes || zero < low || zero > high)
        return tn_fail(TN_E_VALUE, -1,
                       "whole numbers from %lld to %lld with zero at %lld are not of 8 bits",
                       (long long)low, (long long)high, (long long)zero);
    if (!(scale >= 0) || !(scale < HUGE_VAL))
        return tn_fail(TN_E_VALUE, -1, "a scale must be finite and not negative");
    return TN_OK;
}

tn_status tni_infer__int_mm(tn_infer *inf, const void *args) {
    const tn__int_mm_args *a = args;
    const tn_view *x = a->input, *y = a->mat2;
    if (x->ndim != 2 || y->ndim != 2)
        return tn_fail(TN_E_SHAPE, 0,
                       "Expected self and mat2 to be of dimension 2 but got %d and %d",
                       (int)x->ndim, (int)y->ndim);
    TN_TRY(check_dtype(0, "self", x, TN_I8));
    TN_TRY(check_dtype(1, "mat2", y, TN_I8));
    if (x->shape[1] != y->shape[0])
        return tn_fail(TN_E_SHAPE, 1,
                       "self.size(1) needs to match mat2.size(0) but got %lld and %lld",
                       (long long)x->shape[1], (long long)y->shape[0]);
    return nn_infer_set_as(inf, 0, TN_I32, 2, (int64_t[]){x->shape[0], y->shape[1]});
}

/* Rows of x times a matrix of `columns` columns. */
static tn_status infer_rows(tn_infer *inf, const tn_view *x, const tn_view *w, int64_t columns) {
    int64_t shape[TN_MAX_DIMS];
    if (x->ndim < 1 || w->ndim != 2 || x->shape[x->ndim - 1] != columns)
        return tn_fail(TN_E_SHAPE, 1, "a weight of size %s does not take input of size %s",
                       tni_shape_text_of(w), tni_shape_text_of(x));
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
    shape[x->ndim - 1] = w->shape[0];
    return tni_infer_set(inf, 0, x->ndim, shape);
}

tn_status tni_infer__linear_int8(tn_infer *inf, const void *args) {
    const tn__linear_int8_args *a = args;
    TN_TRY(check_dtype(0, "input", a->input, TN_F32));
    TN_TRY(check_dtype(1, "weight", a->weight, TN_I8));
    TN_TRY(check_grid(a->input_scale, a->input_zero, a->low, a->high));
    TN_TRY(check_grid(a->output_scale, a->output_zero, a->output_low, a->output_high));
    TN_TRY(infer_rows(inf, a->input, a->weight, a->weight->ndim == 2 ? a->weight->shape[1] : -1));
    TN_TRY(check_row(2, "scale", a->scale, a->weight->shape[0], true));
    return check_row(3, "bias", a->bias, a->weight->shape[0], false);
}

tn_status tni_infer__conv_int8(tn_infer *inf, const void *args) {
    const tn__conv_int8_args *a = args;
    const tn_view *x = a->input, *w = a->weight;
    TN_TRY(check_dtype(0, "input", x, TN_F32));
    TN_TRY(check_dtype(1, "weight", w, TN_I8));
    TN_TRY(check_grid(a->input_scale, a->input_zero, a->low, a->high));
    TN_TRY(check_grid(a->output_scale, a->output_zero, a->output_low, a->output_high));
    if (!(a->input_scale > 0)) return tn_fail(TN_E_VALUE, 8, "input_scale must be positive");
    TN_TRY(nn_expect_list(inf, a->stride, 2, 1, "stride"));
    TN_TRY(nn_expect_list(inf, a->padding, 2, 0, "padding"));
    TN_TRY(nn_expect_list(inf, a->dilation, 2, 1, "dilation"));
    if (x->ndim != 4 || w->ndim != 4 || a->groups < 1 || a->groups > NN_SIZE_LIMIT ||
        w->shape[1] > NN_SIZE_LIMIT || w->shape[0] % a->groups != 0 ||
        x->shape[1] != w->shape[1] * a->groups)
        return tn_fail(
            TN_E_SHAPE, 1,
            "a convolution of images with weight %s and %lld groups does not take input %s",
            tni_shape_text_of(w), (long long)a->groups, tni_shape_text_of(x));
    TN_TRY(check_row(2, "scale", a->scale, w->shape[0], true));
    TN_TRY(check_row(3, "bias", a->bias, w->shape[0], false));
    int64_t shape[4] = {x->shape[0], w->shape[0]};
    for (int32_t d = 0; d < 2; d++) {
        TN_TRY(nn_check_sides(x->shape[d + 2], w->shape[d + 2]));
        int64_t in = x->shape[d + 2] + 2 * a->padding.v[d];
        int64_t reach = a->dilation.v[d] * (w->shape[d + 2] - 1) + 1;
        if (w->shape[d + 2] < 1 || in < reach)
            return tn_fail(TN_E_SHAPE, 1, "Kernel size can't be greater than actual input size");
        shape[d + 2] = (in - reach) / a->stride.v[d] + 1;
    }
    return tni_infer_set(inf, 0, 4, shape);
}

tn_status tni_infer__weight_int8pack_mm(tn_infer *inf, const void *args) {
    const tn__weight_int8pack_mm_args *a = args;
    TN_TRY(check_dtype(1, "mat2", a->mat2, TN_I8));
    TN_TRY(infer_rows(inf, a->input, a->mat2, a->mat2->ndim == 2 ? a->mat2->shape[1] : -1));
    return check_row(2, "scales", a->scales, a->mat2->shape[0], false);
}

tn_status tni_infer__linear_int4(tn_infer *inf, const void *args) {
    const tn__linear_int4_args *a = args;
    const tn_view *w = a->weight;
    TN_TRY(check_dtype(1, "weight", w, TN_U8));
    TN_TRY(check_dtype(2, "scale", a->scale, TN_F32));
    TN_TRY(check_dtype(3, "zero_point", a->zero_point, TN_F32));
    int64_t columns = -1;
    bool fits = w->ndim == 2 && !__builtin_mul_overflow(w->shape[1], 2, &columns);
    TN_TRY(infer_rows(inf, a->input, w, fits ? columns : -1));
    const tn_view *parts[] = {a->scale, a->zero_point};
    for (int32_t i = 0; i < 2; i++) {
        const tn_view *p = parts[i];
        if (p->ndim != 2 || p->shape[0] != w->shape[0] || p->shape[1] < 1 ||
            columns % p->shape[1] != 0 || (columns / p->shape[1]) % 2 != 0 ||
            p->shape[1] != a->scale->shape[1])
            return tn_fail(TN_E_SHAPE, 2 + i,
                           "scales and zero points of size %s do not belong to weight %s",
                           tni_shape_text_of(p), tni_shape_text_of(w));
    }
    return TN_OK;
}
