/* resample.c: resampling and padding: shape rules, and the forms that users call. */
#include <math.h>

#include <tenon/args_conv.h>
#include <tenon/ops_conv.h>

#include "nn_priv.h"
#include "op_conv.h"

/* ---- Resampling -------------------------------------------------------------------------------*/

static tn_status upsampled(tn_infer *inf, const tn_view *x, tn_ints size) {
    if (x->ndim != 4 || x->shape[2] < 1 || x->shape[3] < 1) {
        return tn_fail(TN_E_SHAPE, 0,
                       "Non-empty 4D data tensor expected but got a tensor with sizes %s",
                       tni_shape_text_of(x));
    }
    TN_TRY(nn_expect_list(inf, size, 2, 1, "output_size"));
    return nn_infer_resized(inf, x, size);
}

tn_status tni_infer_upsample_nearest2d(tn_infer *inf, const void *args) {
    const tn_upsample_nearest2d_args *a = args;
    return upsampled(inf, a->input, a->output_size);
}

tn_status tni_infer__upsample_nearest2d_backward(tn_infer *inf, const void *args) {
    const tn__upsample_nearest2d_backward_args *a = args;
    return nn_infer_sized(inf, a->input_size, a->grad);
}

tn_status tni_infer_upsample_bilinear2d(tn_infer *inf, const void *args) {
    const tn_upsample_bilinear2d_args *a = args;
    return upsampled(inf, a->input, a->output_size);
}

tn_status tni_infer__upsample_bilinear2d_backward(tn_infer *inf, const void *args) {
    const tn__upsample_bilinear2d_backward_args *a = args;
    return nn_infer_sized(inf, a->input_size, a->grad);
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
        if (before > NN_SIZE_LIMIT || after > NN_SIZE_LIMIT || before < -NN_SIZE_LIMIT ||
            after < -NN_SIZE_LIMIT) {
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
    TN_TRY(tni_check_scalar_fits(&a->value, tn_view_dtype(a->input)));
    return padded(inf, a->input, a->pad);
}

/* What reflection and its relatives can reach from within x. */
static tn_status check_mirrors(const tn_view *x, tn_ints pad, int64_t mode) {
    enum { CONSTANT, REFLECT, REPLICATE };
    int64_t channels = x->ndim - pad.n / 2 - 1;
    for (int64_t d = channels; d >= 0 && d < x->ndim; d++) {
        if (x->shape[d] > 0 || (mode != REFLECT && mode != REPLICATE)) continue;
        return tn_fail(TN_E_SHAPE, 0,
                       "Expected %lldD or %lldD (batch mode) tensor with possibly 0 batch size and "
                       "other non-zero dimensions for input, but got: %s",
                       (long long)(pad.n / 2 + 1), (long long)(pad.n / 2 + 2),
                       tni_shape_text_of(x));
    }
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

/* ---- The forms that users call ----------------------------------------------------------------*/

/* The size of one resampled dimension; the factor is kept where it was given instead. */
static tn_status target_size(const tn_interpolate_args *a, int32_t i, int64_t in, int64_t *ret) {
    if (a->size.n > 0) {
        *ret = a->size.v[a->size.n == 1 ? 0 : i];
        return TN_OK;
    }
    double size = floor((double)in * a->scale_factor.value);
    if (!(size >= 1.0 && size < 1e12)) {
        return tn_fail(TN_E_VALUE, 2, "Input and output sizes should be greater than 0");
    }
    *ret = (int64_t)size;
    return TN_OK;
}

tn_status tni_composite_interpolate(const void *args, tn_tensor **rets) {
    const tn_interpolate_args *a = args;
    int32_t n = a->input->ndim - 2;
    bool nearest = strcmp(a->mode, "nearest") == 0, area = strcmp(a->mode, "area") == 0;
    bool linear = strcmp(a->mode, n == 1 ? "linear" : "bilinear") == 0;
    int64_t size[2] = {1}; /* of one dimension: [1, size] */
    if ((a->size.n > 0) == (a->scale_factor.has != 0)) {
        return tn_fail(TN_E_VALUE, 1, "only one of size or scale_factor should be defined");
    }
    if ((n != 1 && n != 2) || !(nearest || linear || area)) {
        return tn_fail(TN_E_UNSUPPORTED, 3,
                       "interpolate: mode '%s' is not supported for an input of "
                       "%d dimensions",
                       a->mode, (int)a->input->ndim);
    }
    if (a->align_corners && !linear) {
        return tn_fail(TN_E_VALUE, 4,
                       "align_corners option can only be set with the interpolating "
                       "modes: linear | bilinear");
    }
    if (a->size.n > 0 && a->size.n != 1 && a->size.n != n) {
        return tn_fail(TN_E_VALUE, 1,
                       "Input and output must have the same number of spatial "
                       "dimensions, but got output size of %lld",
                       (long long)a->size.n);
    }
    for (int32_t i = 0; i < n; i++) {
        TN_TRY(target_size(a, i, a->input->shape[2 + i], &size[2 - n + i]));
    }
    tni_scope s = {0};
    tn_tensor *x = tni_t(a->input), *y = NULL;
    if (n == 1) { /* packed: it is no image that could lie channels last */
        tn_tensor *packed = NULL;
        tn_status st = tn_contiguous(x, TN_FORMAT_CONTIGUOUS, &packed);
        x = scope_unsqueeze(&s, scope_take(&s, st, packed), -2);
    }
    tn_opt_float scale = a->scale_factor, tall = n == 1 ? tn_no_float() : scale;
    tn_ints to = tn_ints_of(size, 2);
    if (s.st == TN_OK) {
        tn_status st = nearest ? tn_upsample_nearest2d(x, to, tall, scale, &y)
                       : area  ? tn_adaptive_avg_pool2d(x, to, &y)
                               : tn_upsample_bilinear2d(x, to, a->align_corners, tall, scale, &y);
        y = scope_take(&s, st, y);
    }
    if (n == 1) y = scope_select(&s, y, -2, 0);
    return scope_finish(&s, y, rets);
}

/* PyTorch's reflections and its relatives are of images: one dimension less, or two, than are padded. */
static tn_status check_padded(const tn_pad_args *a, const char *mode) {
    int32_t ndim = a->input->ndim, n = (int32_t)(a->pad.n / 2);
    if (a->pad.n < 2 || a->pad.n > 6 || a->pad.n % 2 || (ndim != n + 1 && ndim != n + 2))
        return tn_fail(
            TN_E_UNSUPPORTED, 1,
            "Padding size %lld is not supported for %dD input tensor.\nSupported "
            "combinations for non-constant padding:\n  - 2D or 3D input: padding size = 2 "
            "(pads last dimension)\n  - 3D or 4D input: padding size = 4 (pads last 2 "
            "dimensions)\n  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)",
            (long long)a->pad.n, (int)ndim);
    if (tn_view_dtype(a->input) == TN_BOOL && strcmp(mode, "circular") != 0)
        return tn_fail(TN_E_UNSUPPORTED, 0, "\"%s padding\" not implemented for 'Bool'", mode);
    return TN_OK;
}

/* A circle of what is left: negative amounts are cut off before anything goes round. */
static tn_status pad_by_mode(const tn_pad_args *a, int64_t mode, tn_tensor **rets) {
    enum { CIRCULAR = 3 };
    int64_t cut[2 * TN_MAX_DIMS], rest[2 * TN_MAX_DIMS], n = a->pad.n;
    bool cuts = false;
    for (int64_t i = 0; i < n && n <= TN_COUNT(cut); i++) {
        cut[i] = a->pad.v[i] < 0 ? a->pad.v[i] : 0;
        rest[i] = a->pad.v[i] - cut[i];
        cuts |= cut[i] < 0;
    }
    if (mode != CIRCULAR || !cuts) return tn__pad(tni_t(a->input), a->pad, mode, rets);
    tni_scope s = {0};
    tn_tensor *inner = NULL;
    tn_status st =
        tn_constant_pad_nd(tni_t(a->input), tn_ints_of(cut, n), tn_scalar_int(0), &inner);
    inner = scope_take(&s, st, inner);
    if (s.st == TN_OK) s.st = tn__pad(inner, tn_ints_of(rest, n), mode, rets);
    return scope_finish(&s, NULL, NULL);
}

tn_status tni_composite_pad(const void *args, tn_tensor **rets) {
    const tn_pad_args *a = args;
    static const char *const modes[] = {"constant", "reflect", "replicate", "circular"};
    for (int i = 0; i < TN_COUNT(modes); i++) {
        if (strcmp(a->mode, modes[i]) != 0) continue;
        if (i > 0 && a->value.has && a->value.value != 0.0) {
            return tn_fail(TN_E_STATE, 3, "Padding mode \"%s\" doesn't take in value argument",
                           a->mode);
        }
        if (i > 0) TN_TRY(check_padded(a, modes[i]));
        if (i > 0) return pad_by_mode(a, i, rets);
        tn_scalar value = tn_scalar_float(a->value.has ? a->value.value : 0.0);
        return tn_constant_pad_nd(tni_t(a->input), a->pad, value, &rets[0]);
    }
    return tn_fail(TN_E_UNSUPPORTED, 2, "Unrecognised padding mode %s", a->mode);
}
