/* conv.c: convolutions: the forms that users call (unbatched inputs, padding by name), shape rules, and
 * gradients, which are convolutions themselves. The messages are PyTorch's, because that is what people
 * search for. */
#include <math.h>

#include <tenon/args_conv.h>
#include <tenon/ops_conv.h>
#include <tenon/ops_linalg.h>
#include <tenon/ops_math.h>

#include <stdio.h>

#include "nn_priv.h"
#include "op_conv.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

/* "2 x 3": up to three padded sizes, or those of a filter with its gaps. */
static void sizes_text(const tn__conv_args *a, int32_t n, bool of_filter, char *text, size_t room) {
    size_t at = 0;
    text[0] = '\0';
    for (int32_t d = 0; d < n; d++) {
        int64_t size = of_filter ? a->dilation.v[d] * (a->weight->shape[d + 2] - 1) + 1
                                 : a->input->shape[d + 2] + 2 * a->padding.v[d];
        at += (size_t)snprintf(text + at, room - at, d ? " x %lld" : "%lld", (long long)size);
    }
}

static tn_status fail_small(const tn__conv_args *a, int32_t n) {
    char image[80], filter[80];
    sizes_text(a, n, false, image, sizeof image);
    sizes_text(a, n, true, filter, sizeof filter);
    return tn_fail(TN_E_SHAPE, 1,
                   "Calculated padded input size per channel: (%s). Kernel size: (%s). Kernel size "
                   "can't be greater than actual input size",
                   image, filter);
}

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
    TN_TRY(nn_expect_list(inf, a->stride, n, 1, "stride"));
    TN_TRY(nn_expect_list(inf, a->padding, n, 0, "padding"));
    TN_TRY(nn_expect_list(inf, a->dilation, n, 1, "dilation"));
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
        TN_TRY(nn_check_sides(x->shape[d + 2], w->shape[d + 2]));
        int64_t in = x->shape[d + 2] + 2 * a->padding.v[d];
        int64_t k = a->dilation.v[d] * (w->shape[d + 2] - 1) + 1;
        if (w->shape[d + 2] < 1 || in < k) return fail_small(a, n);
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
    TN_TRY(nn_expect_list(inf, a->input_size, ndim, 0, "input_size"));
    if (a->input_size.v[0] != a->grad->shape[0] ||
        (a->groups > 0 && a->input_size.v[1] != a->weight->shape[1] * a->groups)) {
        return tn_fail(TN_E_SHAPE, 3, "input size %s does not belong to weight %s and gradient %s",
                       tni_shape_text(ndim, a->input_size.v), tni_shape_text_of(a->weight),
                       tni_shape_text_of(a->grad));
    }
    TN_TRY(nn_expect_list(inf, a->stride, ndim - 2, 1, "stride"));
    TN_TRY(nn_expect_list(inf, a->padding, ndim - 2, 0, "padding"));
    TN_TRY(nn_expect_list(inf, a->dilation, ndim - 2, 1, "dilation"));
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
    if (a->bias && tn_view_dtype(a->bias) != tn_view_dtype(a->grad)) {
        return tn_fail(TN_E_DTYPE, 2, "Input type (%s) and bias type (%s) should be the same",
                       tni_type_text(tn_view_dtype(a->grad)),
                       tni_type_text(tn_view_dtype(a->bias)));
    }
    if (a->bias && (a->bias->ndim != 1 || a->bias->shape[0] != a->input_size.v[1])) {
        return tn_fail(
            TN_E_SHAPE, 2,
            "expected bias to be 1-dimensional with %lld elements, but got bias of size %s",
            (long long)a->input_size.v[1], tni_shape_text_of(a->bias));
    }
    for (int32_t d = 0; d < ndim - 2; d++) {
        TN_TRY(nn_check_sides(a->input_size.v[d + 2], a->weight->shape[d + 2]));
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
    TN_TRY(nn_expect_list(inf, a->weight_size, n, 0, "weight_size"));
    TN_TRY(nn_expect_list(inf, a->stride, n - 2, 1, "stride"));
    TN_TRY(nn_expect_list(inf, a->padding, n - 2, 0, "padding"));
    TN_TRY(nn_expect_list(inf, a->dilation, n - 2, 1, "dilation"));
    const int64_t *w = a->weight_size.v;
    if (a->groups <= 0 || a->groups > NN_SIZE_LIMIT || g->shape[1] != w[0] ||
        w[0] % a->groups != 0) {
        return tn_fail(TN_E_SHAPE, 2, "%lld groups of a weight of size %s do not give gradient %s",
                       (long long)a->groups, tni_shape_text(n, w), tni_shape_text_of(g));
    }
    int64_t shape[5] = {g->shape[0], w[1] * a->groups};
    for (int32_t d = 2; d < n; d++) shape[d] = x->ndim == n ? x->shape[d] : 0;
    TN_TRY(tni_infer_expect(inf, 1, x, n, shape, tn_view_dtype(g)));
    for (int32_t d = 0; d < n - 2; d++) {
        TN_TRY(nn_check_sides(shape[d + 2], w[d + 2]));
        int64_t in = shape[d + 2] + 2 * a->padding.v[d], k = a->dilation.v[d] * (w[d + 2] - 1) + 1;
        if (in < k || (in - k) / a->stride.v[d] + 1 != g->shape[d + 2]) {
            return tn_fail(TN_E_SHAPE, 0, "a convolution of input size %s does not give size %s",
                           tni_shape_text_of(x), tni_shape_text_of(g));
        }
    }
    return tni_infer_set(inf, 0, n, w);
}

/* ---- The forms that users call ----------------------------------------------------------------*/

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
            "Expected %dD (unbatched) or %dD (batched) input to %s, but got input of size: %s",
            (int)c->n + 1, (int)c->n + 2, c->name, tni_shape_text_of(c->x));
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

/* One convolution, or with a size its way back, which makes that size. */
static tn_tensor *convolve(tni_scope *s, const conv *c, tn_tensor *x, tn_tensor *w, tn_tensor *bias,
                           const int64_t *size) {
    tn_tensor *y = NULL;
    if (s->st != TN_OK) return NULL;
    bool whole = tn_dtype_category(tn_tensor_dtype(x)) == TN_CAT_INT;
    if (whole && size) {
        tn__conv_backward_input_args back = {.grad = &x->v,
                                             .weight = &w->v,
                                             .bias = bias ? &bias->v : NULL,
                                             .input_size = tn_ints_of(size, c->n + 2),
                                             .stride = c->stride,
                                             .padding = c->padding,
                                             .dilation = c->dilation,
                                             .groups = c->groups};
        return nn_conv_whole_back(s, &back);
    }
    if (whole) {
        tn__conv_args there = {.input = &x->v,
                               .weight = &w->v,
                               .bias = bias ? &bias->v : NULL,
                               .stride = c->stride,
                               .padding = c->padding,
                               .dilation = c->dilation,
                               .groups = c->groups};
        return nn_conv_whole(s, &there);
    }
    tn_status st = size ? tn__conv_backward_input(x, w, bias, tn_ints_of(size, c->n + 2), c->stride,
                                                  c->padding, c->dilation, c->groups, &y)
                        : tn__conv(x, w, bias, c->stride, c->padding, c->dilation, c->groups, &y);
    return scope_take(s, st, y);
}

/* The product of two complex numbers, with convolutions for its four products of real ones. */
static tn_tensor *run_conv(tni_scope *s, const conv *c, tn_tensor *x, const int64_t *size) {
    tn_tensor *w = tni_t(c->w), *bias = tni_t(c->bias), *y = NULL;
    if (s->st != TN_OK) return NULL;
    int32_t dtype = tn_tensor_dtype(x);
    bool is_complex = tn_dtype_category(dtype) == TN_CAT_COMPLEX && tn_view_dtype(c->w) == dtype &&
                      (!bias || tn_view_dtype(c->bias) == dtype);
    if (!is_complex) return convolve(s, c, x, w, bias, size);
    tn_tensor *xr = scope_unary(s, tn_real, x), *xi = scope_unary(s, tn_imag, x),
              *wr = scope_unary(s, tn_real, w), *wi = scope_unary(s, tn_imag, w),
              *br = bias ? scope_unary(s, tn_real, bias) : NULL,
              *bi = bias ? scope_unary(s, tn_imag, bias) : NULL;
    tn_tensor *re = scope_sub(s, convolve(s, c, xr, wr, br, size),
                              convolve(s, c, xi, wi, NULL, size)),
              *im = scope_add(s, convolve(s, c, xr, wi, bi, size),
                              convolve(s, c, xi, wr, NULL, size));
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_complex(re, im, &y);
    return scope_take(s, st, y);
}

static tn_status forward(const conv *c, tn_tensor **ret) {
    TN_TRY(check_rank(c));
    tni_scope s = {0};
    return unbatched(&s, c, run_conv(&s, c, batched(&s, c), NULL), ret);
}

/* 'same' pads so that a convolution of stride 1 keeps the size; an odd rest goes to the end. */
static tn_status forward_named(conv *c, const char *padding, tn_tensor **ret) {
    TN_TRY(check_rank(c));
    int64_t sides[3] = {0, 0, 0}, extra[6] = {0};
    bool same = strcmp(padding, "same") == 0, uneven = false;
    if (!same && strcmp(padding, "valid") != 0) {
        return tn_fail(TN_E_STATE, 4, "Invalid padding string: '%s'", padding);
    }
    for (int32_t d = 0; same && d < c->n; d++) {
        if (c->stride.v[d] != 1) {
            return tn_fail(TN_E_SHAPE, 3,
                           "padding='same' is not supported for strided convolutions");
        }
        int64_t total;
        if (__builtin_mul_overflow(c->dilation.v[d], c->w->shape[d + 2] - 1, &total))
            return tn_fail(TN_E_SHAPE, 5, "padding='same': dilation %lld is too large",
                           (long long)c->dilation.v[d]);
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
    return unbatched(&s, c, run_conv(&s, c, x, NULL), ret);
}

/* The bias of a transposed convolution of less than three dimensions may be of another dtype, as
 * PyTorch has it. */
static const tn_view *bias_as_input(tni_scope *s, const conv *c) {
    if (!c->bias || c->n > 2 || tn_view_dtype(c->bias) == tn_view_dtype(c->x)) return c->bias;
    if (tn_dtype_category(tn_view_dtype(c->bias)) > tn_dtype_category(tn_view_dtype(c->x)))
        return c->bias;
    tn_tensor *as = scope_convert(s, tni_t(c->bias), tn_view_dtype(c->x));
    return as ? &as->v : NULL;
}

static tn_status backward(conv *c, tn_tensor **ret) {
    TN_TRY(check_rank(c));
    TN_TRY(nn_check_list(c->output_padding, c->n, 0, 5, "output_padding"));
    int64_t size[5], further[6] = {0};
    bool reaches = false;
    tni_scope s = {0};
    tn_tensor *x = batched(&s, c);
    c->bias = bias_as_input(&s, c);
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
        if (st < 1 || di < 1 || (op >= st && op >= di)) {
            s.st = tn_fail(TN_E_SHAPE, 5,
                           "output padding must be smaller than either stride or dilation");
            break;
        }
        if (pad < 0) {
            s.st = tn_fail(TN_E_SHAPE, 4, "negative padding is not supported");
            break;
        }
        if (st > limit || di > limit || pad > limit || k > limit || n > limit) {
            s.st = tn_fail(TN_E_VALUE, 4, "%s: a size is negative or too large", c->name);
            break;
        }
        size[d + 2] = (n - 1) * st - 2 * pad + di * (k - 1) + op + 1;
        further[2 * (c->n - 1 - d) + 1] = op / st;
        reaches |= op >= st;
    }
    if (s.st == TN_OK && reaches) {
        /* The output reaches beyond what the last input sees by more than a stride: zeros stand there. */
        tn_tensor *longer = NULL;
        tn_status st = tn_constant_pad_nd(x, tn_ints_of(further, 2 * (int64_t)c->n),
                                          tn_scalar_int(0), &longer);
        x = scope_take(&s, st, longer);
    }
    return unbatched(&s, c, run_conv(&s, c, x, size), ret);
}

tn_status tni_composite_conv1d(const void *args, tn_tensor **rets) {
    const tn_conv1d_args *a = args;
    conv c = {"conv1d",  1,          a->input,    a->weight,          a->bias,
              a->stride, a->padding, a->dilation, .groups = a->groups};
    return forward(&c, &rets[0]);
}

tn_status tni_composite_conv2d(const void *args, tn_tensor **rets) {
    const tn_conv2d_args *a = args;
    conv c = {"conv2d",  2,          a->input,    a->weight,          a->bias,
              a->stride, a->padding, a->dilation, .groups = a->groups};
    return forward(&c, &rets[0]);
}

tn_status tni_composite_conv3d(const void *args, tn_tensor **rets) {
    const tn_conv3d_args *a = args;
    conv c = {"conv3d",  3,          a->input,    a->weight,          a->bias,
              a->stride, a->padding, a->dilation, .groups = a->groups};
    return forward(&c, &rets[0]);
}

tn_status tni_composite_conv1d_padding(const void *args, tn_tensor **rets) {
    const tn_conv1d_padding_args *a = args;
    conv c = {"conv1d", 1, a->input, a->weight, a->bias, a->stride, .groups = a->groups};
    c.dilation = a->dilation;
    return forward_named(&c, a->padding, &rets[0]);
}

tn_status tni_composite_conv2d_padding(const void *args, tn_tensor **rets) {
    const tn_conv2d_padding_args *a = args;
    conv c = {"conv2d", 2, a->input, a->weight, a->bias, a->stride, .groups = a->groups};
    c.dilation = a->dilation;
    return forward_named(&c, a->padding, &rets[0]);
}

tn_status tni_composite_conv3d_padding(const void *args, tn_tensor **rets) {
    const tn_conv3d_padding_args *a = args;
    conv c = {"conv3d", 3, a->input, a->weight, a->bias, a->stride, .groups = a->groups};
    c.dilation = a->dilation;
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

/* ---- Gradients --------------------------------------------------------------------------------*/

/* For complex numbers each gradient takes the conjugate of the other factor. */

/* The sum over all but the channel dimension: the gradient of a bias. */
static tn_tensor *bias_sum(tni_scope *s, tn_tensor *g) {
    int64_t dims[TN_MAX_DIMS];
    int32_t n = 0;
    for (int32_t d = 0; d < tn_tensor_ndim(g); d++) {
        if (d != 1) dims[n++] = d;
    }
    return scope_sum(s, g, tn_ints_of(dims, n), 0);
}

/* A convolution and its two gradients, each of which has the other two for gradients; all with the
 * same options. */
typedef struct faces {
    tni_scope s;
    tn_ints stride, padding, dilation;
    int64_t groups;
} faces;

#define FACES(a)                                                                                   \
    { {0}, (a)->stride, (a)->padding, (a)->dilation, (a)->groups }

static tn_tensor *conj_of(faces *f, const tn_view *v) {
    return scope_unary(&f->s, tn_conj, tni_t(v));
}

static tn_tensor *product(faces *f, tn_tensor *input, tn_tensor *weight) {
    tn_tensor *r = NULL;
    if (f->s.st != TN_OK) return NULL;
    tn_status st = tn__conv(input, weight, NULL, f->stride, f->padding, f->dilation, f->groups, &r);
    return scope_take(&f->s, st, r);
}

static tn_tensor *by_input(faces *f, tn_tensor *g, tn_tensor *weight, const tn_view *input) {
    tn_tensor *r = NULL;
    if (f->s.st != TN_OK) return NULL;
    tn_status st = tn__conv_backward_input(g, weight, NULL, tni_shape_ints(tni_t(input)), f->stride,
                                           f->padding, f->dilation, f->groups, &r);
    return scope_take(&f->s, st, r);
}

static tn_tensor *by_weight(faces *f, tn_tensor *g, tn_tensor *input, const tn_view *weight) {
    tn_tensor *r = NULL;
    if (f->s.st != TN_OK) return NULL;
    tn_status st = tn__conv_backward_weight(g, input, tni_shape_ints(tni_t(weight)), f->stride,
                                            f->padding, f->dilation, f->groups, &r);
    return scope_take(&f->s, st, r);
}

tn_status tni_grad__conv(tn_gctx *c) {
    const tn__conv_args *a = c->args;
    faces f = FACES(a);
    tn_tensor *g = c->g[0], *grads[3] = {NULL};
    if (TN_GNEEDS(c, 0)) grads[0] = by_input(&f, g, conj_of(&f, a->weight), a->input);
    if (TN_GNEEDS(c, 1)) grads[1] = by_weight(&f, g, conj_of(&f, a->input), a->weight);
    if (TN_GNEEDS(c, 2)) grads[2] = bias_sum(&f.s, g);
    return scope_give(&f.s, c, grads, TN_COUNT(grads));
}

/* y = the input gradient of a convolution (or a transposed convolution), inputs grad, weight,
 * bias */
tn_status tni_grad__conv_backward_input(tn_gctx *c) {
    const tn__conv_backward_input_args *a = c->args;
    faces f = FACES(a);
    tn_tensor *g = c->g[0], *grads[3] = {NULL};
    if (TN_GNEEDS(c, 0)) grads[0] = product(&f, g, conj_of(&f, a->weight));
    if (TN_GNEEDS(c, 1)) grads[1] = by_weight(&f, conj_of(&f, a->grad), g, a->weight);
    if (TN_GNEEDS(c, 2)) grads[2] = bias_sum(&f.s, g);
    return scope_give(&f.s, c, grads, TN_COUNT(grads));
}

/* y = the weight gradient of a convolution, inputs grad, input */
tn_status tni_grad__conv_backward_weight(tn_gctx *c) {
    const tn__conv_backward_weight_args *a = c->args;
    faces f = FACES(a);
    tn_tensor *g = c->g[0], *grads[2] = {NULL};
    if (TN_GNEEDS(c, 0)) grads[0] = product(&f, conj_of(&f, a->input), g);
    if (TN_GNEEDS(c, 1)) grads[1] = by_input(&f, conj_of(&f, a->grad), g, a->input);
    return scope_give(&f.s, c, grads, TN_COUNT(grads));
}
