/* conv.c: convolutions, pooling, resampling and padding in the forms that users call: unbatched
 * inputs, padding by name, one-dimensional windows. The operators below them take what is left. */
#include <math.h>

#include "scope_priv.h"

tn_status tni_composite_conv1d(const void *args, tn_tensor **rets);
tn_status tni_composite_conv2d(const void *args, tn_tensor **rets);
tn_status tni_composite_conv3d(const void *args, tn_tensor **rets);
tn_status tni_composite_conv1d_padding(const void *args, tn_tensor **rets);
tn_status tni_composite_conv2d_padding(const void *args, tn_tensor **rets);
tn_status tni_composite_conv3d_padding(const void *args, tn_tensor **rets);
tn_status tni_composite_conv_transpose1d(const void *args, tn_tensor **rets);
tn_status tni_composite_conv_transpose2d(const void *args, tn_tensor **rets);
tn_status tni_composite_conv_transpose3d(const void *args, tn_tensor **rets);
tn_status tni_composite_max_pool2d(const void *args, tn_tensor **rets);
tn_status tni_composite_max_pool1d(const void *args, tn_tensor **rets);
tn_status tni_composite_avg_pool1d(const void *args, tn_tensor **rets);
tn_status tni_composite_adaptive_avg_pool2d(const void *args, tn_tensor **rets);
tn_status tni_composite_adaptive_avg_pool1d(const void *args, tn_tensor **rets);
tn_status tni_composite_interpolate(const void *args, tn_tensor **rets);
tn_status tni_composite_pad(const void *args, tn_tensor **rets);

/* ---- Convolution ------------------------------------------------------------------------------*/

typedef struct conv {
    const char *name;
    int32_t n; /* dimensions of the window */
    const tn_view *x, *w, *bias;
    tn_ints stride, padding, dilation, output_padding;
    int64_t groups;
} conv;

static tn_status check_rank(const conv *c) {
    if (c->w->ndim != c->n + 2) {
        return tn_fail(TN_E_SHAPE, 1, "%s: expected a %d-dimensional weight, but got %d dimensions",
                       c->name, (int)c->n + 2, (int)c->w->ndim);
    }
    if (c->x->ndim != c->n + 1 && c->x->ndim != c->n + 2) {
        return tn_fail(
            TN_E_SHAPE, 0,
            "Expected %dD (unbatched) or %dD (batched) input to %s, but got %d dimensions",
            (int)c->n + 1, (int)c->n + 2, c->name, (int)c->x->ndim);
    }
    return TN_OK;
}

static tn_tensor *batched(tni_scope *s, const conv *c) {
    return c->x->ndim == c->n + 1 ? scope_unsqueeze(s, tni_t(c->x), 0) : tni_t(c->x);
}

static tn_status unbatched(tni_scope *s, const conv *c, tn_tensor *y, tn_tensor **ret) {
    if (c->x->ndim == c->n + 1) y = scope_select(s, y, 0, 0);
    return scope_finish(s, y, ret);
}

static tn_tensor *run_conv(tni_scope *s, const conv *c, tn_tensor *x) {
    tn_tensor *y = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st =
        tn__conv(x, tni_t(c->w), tni_t(c->bias), c->stride, c->padding, c->dilation, c->groups, &y);
    return scope_take(s, st, y);
}

static tn_status forward(const conv *c, tn_tensor **ret) {
    TN_TRY(check_rank(c));
    tni_scope s = {0};
    return unbatched(&s, c, run_conv(&s, c, batched(&s, c)), ret);
}

/* 'same' pads so that a convolution of stride 1 keeps the size; an odd rest goes to the end. */
static tn_status forward_named(conv *c, const char *padding, tn_tensor **ret) {
    TN_TRY(check_rank(c));
    int64_t sides[3] = {0, 0, 0}, extra[6] = {0};
    bool same = strcmp(padding, "same") == 0, uneven = false;
    if (!same && strcmp(padding, "valid") != 0) {
        return tn_fail(TN_E_VALUE, 4, "Invalid padding string: '%s'", padding);
    }
    for (int32_t d = 0; same && d < c->n; d++) {
        if (c->stride.v[d] != 1) {
            return tn_fail(TN_E_SHAPE, 3,
                           "padding='same' is not supported for strided convolutions");
        }
        int64_t total = c->dilation.v[d] * (c->w->shape[d + 2] - 1);
        if (total < 0) continue;
        sides[d] = total / 2;
        extra[2 * (c->n - 1 - d) + 1] = total % 2;
        uneven = uneven || total % 2 != 0;
    }
    tni_scope s = {0};
    c->padding = tn_ints_of(sides, c->n);
    tn_tensor *x = batched(&s, c);
    if (uneven && s.st == TN_OK) {
        tn_tensor *wide = NULL;
        tn_status st =
            tn_constant_pad_nd(x, tn_ints_of(extra, 2 * (int64_t)c->n), tn_scalar_int(0), &wide);
        x = scope_take(&s, st, wide);
    }
    return unbatched(&s, c, run_conv(&s, c, x), ret);
}

static tn_status backward(const conv *c, tn_tensor **ret) {
    TN_TRY(check_rank(c));
    int64_t size[5];
    tni_scope s = {0};
    tn_tensor *x = batched(&s, c), *y = NULL;
    if (s.st != TN_OK) return scope_finish(&s, NULL, ret);
    const int64_t *shape = tn_tensor_shape(x), limit = INT64_C(1) << 30; /* no sum can overflow */
    if (c->groups < 1 || c->groups > limit || c->w->shape[1] > limit) {
        s.st =
            tn_fail(TN_E_SHAPE, 6, "%s: groups or channels are not positive or too many", c->name);
        return scope_finish(&s, NULL, ret);
    }
    size[0] = shape[0];
    size[1] = c->w->shape[1] * c->groups;
    for (int32_t d = 0; d < c->n; d++) {
        int64_t st = c->stride.v[d], di = c->dilation.v[d], op = c->output_padding.v[d];
        int64_t k = c->w->shape[d + 2], pad = c->padding.v[d], n = shape[d + 2];
        if (st < 1 || di < 1 || op < 0 || (op >= st && op >= di)) {
            s.st = tn_fail(TN_E_SHAPE, 5,
                           "output padding must be smaller than either stride or dilation");
            break;
        }
        if (st > limit || di > limit || pad > limit || pad < 0 || k > limit || n > limit) {
            s.st = tn_fail(TN_E_VALUE, 4, "%s: a size is negative or too large", c->name);
            break;
        }
        size[d + 2] = (n - 1) * st - 2 * pad + di * (k - 1) + op + 1;
    }
    if (s.st == TN_OK) {
        tn_status st =
            tn__conv_backward_input(x, tni_t(c->w), tni_t(c->bias), tn_ints_of(size, c->n + 2),
                                    c->stride, c->padding, c->dilation, c->groups, &y);
        y = scope_take(&s, st, y);
    }
    return unbatched(&s, c, y, ret);
}

tn_status tni_composite_conv1d(const void *args, tn_tensor **rets) {
    const tn_conv1d_args *a = args;
    conv c = {"conv1d",  1,          a->input,    a->weight, a->bias,
              a->stride, a->padding, a->dilation, {NULL, 0}, a->groups};
    return forward(&c, &rets[0]);
}

tn_status tni_composite_conv2d(const void *args, tn_tensor **rets) {
    const tn_conv2d_args *a = args;
    conv c = {"conv2d",  2,          a->input,    a->weight, a->bias,
              a->stride, a->padding, a->dilation, {NULL, 0}, a->groups};
    return forward(&c, &rets[0]);
}

tn_status tni_composite_conv3d(const void *args, tn_tensor **rets) {
    const tn_conv3d_args *a = args;
    conv c = {"conv3d",  3,          a->input,    a->weight, a->bias,
              a->stride, a->padding, a->dilation, {NULL, 0}, a->groups};
    return forward(&c, &rets[0]);
}

tn_status tni_composite_conv1d_padding(const void *args, tn_tensor **rets) {
    const tn_conv1d_padding_args *a = args;
    conv c = {"conv1d",  1,         a->input,    a->weight, a->bias,
              a->stride, {NULL, 0}, a->dilation, {NULL, 0}, a->groups};
    return forward_named(&c, a->padding, &rets[0]);
}

tn_status tni_composite_conv2d_padding(const void *args, tn_tensor **rets) {
    const tn_conv2d_padding_args *a = args;
    conv c = {"conv2d",  2,         a->input,    a->weight, a->bias,
              a->stride, {NULL, 0}, a->dilation, {NULL, 0}, a->groups};
    return forward_named(&c, a->padding, &rets[0]);
}

tn_status tni_composite_conv3d_padding(const void *args, tn_tensor **rets) {
    const tn_conv3d_padding_args *a = args;
    conv c = {"conv3d",  3,         a->input,    a->weight, a->bias,
              a->stride, {NULL, 0}, a->dilation, {NULL, 0}, a->groups};
    return forward_named(&c, a->padding, &rets[0]);
}

tn_status tni_composite_conv_transpose1d(const void *args, tn_tensor **rets) {
    const tn_conv_transpose1d_args *a = args;
    conv c = {"conv_transpose1d", 1,          a->input,    a->weight,         a->bias,
              a->stride,          a->padding, a->dilation, a->output_padding, a->groups};
    return backward(&c, &rets[0]);
}

tn_status tni_composite_conv_transpose2d(const void *args, tn_tensor **rets) {
    const tn_conv_transpose2d_args *a = args;
    conv c = {"conv_transpose2d", 2,          a->input,    a->weight,         a->bias,
              a->stride,          a->padding, a->dilation, a->output_padding, a->groups};
    return backward(&c, &rets[0]);
}

tn_status tni_composite_conv_transpose3d(const void *args, tn_tensor **rets) {
    const tn_conv_transpose3d_args *a = args;
    conv c = {"conv_transpose3d", 3,          a->input,    a->weight,         a->bias,
              a->stride,          a->padding, a->dilation, a->output_padding, a->groups};
    return backward(&c, &rets[0]);
}

/* ---- Pooling ----------------------------------------------------------------------------------*/

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

tn_status tni_composite_max_pool1d(const void *args, tn_tensor **rets) {
    const tn_max_pool1d_args *a = args;
    tni_scope s = {0};
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
        if (size[i] == -1) size[i] = a->input->shape[n - 2 + i];
    }
    if (size[0] == 1 && size[1] == 1) return tn_mean(x, TN_INTS(-2, -1), 1, -1, &rets[0]);
    return tn__adaptive_avg_pool2d(x, tn_ints_of(size, 2), &rets[0]);
}

tn_status tni_composite_adaptive_avg_pool1d(const void *args, tn_tensor **rets) {
    const tn_adaptive_avg_pool1d_args *a = args;
    tni_scope s = {0};
    tn_tensor *x = scope_unsqueeze(&s, tni_t(a->input), -2), *y = NULL;
    if (s.st == TN_OK) {
        tn_status st = tn_adaptive_avg_pool2d(x, WIDE(a->output_size, 1), &y);
        y = scope_take(&s, st, y);
    }
    return scope_finish(&s, scope_select(&s, y, -2, 0), rets);
}

/* ---- Resampling and padding -------------------------------------------------------------------*/

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
    int64_t size[2] = {1, 1};
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
    if (n == 1) x = scope_unsqueeze(&s, x, -2);
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

tn_status tni_composite_pad(const void *args, tn_tensor **rets) {
    const tn_pad_args *a = args;
    static const char *const modes[] = {"constant", "reflect", "replicate", "circular"};
    for (int i = 0; i < TN_COUNT(modes); i++) {
        if (strcmp(a->mode, modes[i]) != 0) continue;
        if (i > 0 && a->value.has && a->value.value != 0.0) {
            return tn_fail(TN_E_VALUE, 3, "Padding mode \"%s\" doesn't take in value argument",
                           a->mode);
        }
        if (i > 0) return tn__pad(tni_t(a->input), a->pad, i, &rets[0]);
        tn_scalar value = tn_scalar_float(a->value.has ? a->value.value : 0.0);
        return tn_constant_pad_nd(tni_t(a->input), a->pad, value, &rets[0]);
    }
    return tn_fail(TN_E_UNSUPPORTED, 2, "Unrecognised padding mode %s", a->mode);
}
