/* patches.c: windows of images as columns and back, and elements moved between channels and places.
 * The messages are PyTorch's. */
#include <tenon/args_vision.h>
#include <tenon/ops_conv.h>
#include <tenon/ops_create.h>
#include <tenon/ops_vision.h>

#include "nn_priv.h"
#include "op_vision.h"

/* ---- Windows as columns ------------------------------------------------------------------------*/

/* By dimension: 0 of rows, 1 of columns. */
typedef struct sliding {
    const int64_t *kernel, *dilation, *padding, *stride;
    int64_t size[2];   /* of the image */
    int64_t padded[2]; /* of the image with its padding */
    int64_t count[2];  /* windows; below 1: none fits */
} sliding;

static tn_status check_pair(tn_ints pair, int64_t least, const char *what, const char *wanted,
                            const char *each) {
    if (pair.n != 2)
        return tn_fail(TN_E_STATE, -1, "%s should be 2 numbers, but got %lld", what,
                       (long long)pair.n);
    if (pair.v[0] >= least && pair.v[1] >= least) return TN_OK;
    return tn_fail(TN_E_STATE, -1, "%s should be %s, but got %s_height: %lld %s_width: %lld", what,
                   wanted, each, (long long)pair.v[0], each, (long long)pair.v[1]);
}

static tn_status fail_size(void) {
    return tn_fail(TN_E_STATE, -1, "the windows reach further than sizes can be");
}

/* How many windows there are; `size` is that of the image. */
static tn_status find_windows(tn_ints kernel, tn_ints dilation, tn_ints padding, tn_ints stride,
                              const int64_t *size, sliding *ret) {
    TN_TRY(check_pair(kernel, 1, "kernel size", "greater than zero", "kernel"));
    TN_TRY(check_pair(dilation, 1, "dilation", "greater than zero", "dilation"));
    TN_TRY(check_pair(padding, 0, "padding", "non-negative", "pad"));
    TN_TRY(check_pair(stride, 1, "stride", "greater than zero", "stride"));
    *ret = (sliding){kernel.v, dilation.v, padding.v, stride.v, {size[0], size[1]}, {0}, {0}};
    for (int d = 0; d < 2; d++) {
        int64_t reach;
        if (__builtin_mul_overflow(padding.v[d], 2, &ret->padded[d]) ||
            __builtin_add_overflow(ret->padded[d], size[d], &ret->padded[d]) ||
            __builtin_mul_overflow(kernel.v[d] - 1, dilation.v[d], &reach) || reach == INT64_MAX)
            return fail_size();
        int64_t room = ret->padded[d] - reach - 1;
        ret->count[d] = room < 0 ? 0 : room / stride.v[d] + 1;
    }
    return TN_OK;
}

/* Planes that may stand in batches, which may be none; nothing else is empty. ndim: of a batch. */
static tn_status check_planes(const tn_view *in, int32_t ndim, const char *wanted,
                              bool *ret_batched) {
    bool batched = in->ndim == ndim, whole = batched || in->ndim == ndim - 1;
    for (int32_t d = batched; d < in->ndim; d++) whole &= in->shape[d] > 0;
    *ret_batched = batched;
    if (whole) return TN_OK;
    return tn_fail(TN_E_STATE, 0, "Expected %s for input, but got: %s", wanted,
                   tni_shape_text_of(in));
}

#define PAIR(v) (long long)(v)[0], (long long)(v)[1]

/* Elements of one window, with several planes; false: more than sizes can be. */
static bool count_taps(const sliding *w, int64_t planes, int64_t *ret_taps) {
    return !__builtin_mul_overflow(w->kernel[0], w->kernel[1], ret_taps) &&
           !__builtin_mul_overflow(*ret_taps, planes, ret_taps);
}

static tn_tensor *every(tni_scope *s, tn_tensor *t, int64_t dim, int64_t first, int64_t end,
                        int64_t step) {
    const tn_opt_int start = {first, 1}, stop = {end, 1};
    return SCOPE(s, tn_slice(t, dim, start, stop, step, scope_slot(s)));
}

tn_status tni_composite_im2col(const void *args, tn_tensor **rets) {
    const tn_im2col_args *a = args;
    const tn_view *in = a->input;
    tni_scope s = {0};
    sliding w;
    int64_t taps;
    bool batched;
    TN_TRY(check_planes(in, 4,
                        "3D or 4D (batch mode) tensor with possibly 0 batch size and other "
                        "non-zero dimensions",
                        &batched));
    TN_TRY(find_windows(a->kernel_size, a->dilation, a->padding, a->stride,
                        in->shape + in->ndim - 2, &w));
    if (w.count[0] < 1 || w.count[1] < 1)
        return tn_fail(
            TN_E_STATE, -1,
            "Given input with spatial size (%lld, %lld), kernel_size=(%lld, %lld), "
            "dilation=(%lld, %lld), padding=(%lld, %lld), calculated shape of the array "
            "of sliding blocks as (%lld, %lld), but its components must be at least one.",
            PAIR(w.size), PAIR(w.kernel), PAIR(w.dilation), PAIR(w.padding), PAIR(w.count));
    const int64_t pad[] = {w.padding[1], w.padding[1], w.padding[0], w.padding[0]};
    tn_tensor *x = batched ? tni_t(in) : scope_unsqueeze(&s, tni_t(in), 0);
    if (pad[0] || pad[2])
        x = SCOPE(&s, tn_constant_pad_nd(x, tn_ints_of(pad, 4), tn_scalar_int(0), scope_slot(&s)));
    for (int d = 0; d < 2; d++) { /* (N, C, rows, columns, kernel, kernel) in the end */
        int64_t reach = (w.kernel[d] - 1) * w.dilation[d] + 1;
        x = SCOPE(&s, tn_unfold(x, 2 + d, reach, w.stride[d], scope_slot(&s)));
        x = every(&s, x, -1, 0, reach, w.dilation[d]);
    }
    x = scope_permute(&s, x, TN_INTS(0, 1, 4, 5, 2, 3));
    if (s.st == TN_OK && !count_taps(&w, in->shape[in->ndim - 3], &taps)) s.st = fail_size();
    if (s.st == TN_OK) {
        const int64_t shape[] = {x->v.shape[0], taps, w.count[0] * w.count[1]};
        x = scope_reshape(&s, x, tn_ints_of(shape + !batched, 2 + batched));
    }
    return scope_finish(&s, x, rets);
}

static tn_status check_columns(const tn_view *in, const sliding *w, int64_t taps) {
    int32_t batched = in->ndim == 3;
    if (in->shape[batched] % taps)
        return tn_fail(TN_E_STATE, 0,
                       "Expected size of input's dimension 1 to be divisible by the product of "
                       "kernel_size, but got input.size(1)=%lld and kernel_size=(%lld, %lld).",
                       (long long)in->shape[batched], PAIR(w->kernel));
    int64_t windows;
    if (__builtin_mul_overflow(w->count[0], w->count[1], &windows)) windows = -1;
    if (in->shape[batched + 1] != windows)
        return tn_fail(TN_E_STATE, 0,
                       "Given output_size=(%lld, %lld), kernel_size=(%lld, %lld), "
                       "dilation=(%lld, %lld), padding=(%lld, %lld), stride=(%lld, %lld), expected "
                       "size of input's dimension 2 to match the calculated number of sliding "
                       "blocks %lld * %lld = %lld, but got input.size(2)=%lld.",
                       PAIR(w->size), PAIR(w->kernel), PAIR(w->dilation), PAIR(w->padding),
                       PAIR(w->stride), PAIR(w->count), (long long)windows,
                       (long long)in->shape[batched + 1]);
    return TN_OK;
}

tn_status tni_composite_col2im(const void *args, tn_tensor **rets) {
    const tn_col2im_args *a = args;
    const tn_view *in = a->input;
    tn_tensor *sum = NULL;
    tni_scope s = {0};
    sliding w;
    int64_t taps;
    bool batched;
    TN_TRY(check_planes(in, 3,
                        "2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
                        "non-zero dimensions",
                        &batched));
    TN_TRY(check_pair(a->output_size, 1, "output size", "greater than zero", "output"));
    TN_TRY(find_windows(a->kernel_size, a->dilation, a->padding, a->stride, a->output_size.v, &w));
    if (!count_taps(&w, 1, &taps)) return fail_size();
    TN_TRY(check_columns(in, &w, taps));
    int64_t n = batched ? in->shape[0] : 1, planes = in->shape[batched] / taps;
    const int64_t parts[] = {n, planes, w.kernel[0], w.kernel[1], w.count[0], w.count[1]};
    const int64_t wide[] = {n, planes, w.padded[0], w.padded[1]};
    tn_tensor *windows = scope_reshape(&s, tni_t(in), tn_ints_of(parts, 6));
    sum = SCOPE(&s, tn_new_zeros(tni_t(in), tn_ints_of(wide, 4), -1, -1, scope_slot(&s)));
    for (int64_t tap = 0; tap < taps && s.st == TN_OK; tap++) {
        tni_scope one = {0};
        int64_t at[2] = {tap / w.kernel[1], tap % w.kernel[1]};
        tn_tensor *to = sum, *from = scope_select(&one, windows, 2, at[0]);
        from = scope_select(&one, from, 2, at[1]);
        for (int d = 0; d < 2; d++) {
            int64_t first = at[d] * w.dilation[d];
            to = every(&one, to, 2 + d, first, first + (w.count[d] - 1) * w.stride[d] + 1,
                       w.stride[d]);
        }
        if (one.st == TN_OK) one.st = tn_add_(to, from, tn_scalar_int(1));
        s.st = scope_finish(&one, NULL, NULL);
    }
    for (int d = 0; d < 2; d++) sum = scope_narrow(&s, sum, 2 + d, w.padding[d], w.size[d]);
    sum = SCOPE(&s, tn_contiguous(sum, TN_FORMAT_CONTIGUOUS, scope_slot(&s)));
    return scope_finish(&s, batched ? sum : scope_select(&s, sum, 0, 0), rets);
}

/* ---- Between channels and places ---------------------------------------------------------------*/

static tn_status check_image(const tn_view *in, const char *op, int64_t factor, const char *name) {
    if (in->ndim < 3)
        return tn_fail(TN_E_STATE, 0,
                       "%s expects input to have at least 3 dimensions, but got input with %d "
                       "dimension(s)",
                       op, (int)in->ndim);
    if (factor < 1)
        return tn_fail(TN_E_STATE, 1, "%s expects a positive %s, but got %lld", op, name,
                       (long long)factor);
    if (in->ndim > TN_MAX_DIMS - 2)
        return tn_fail(TN_E_STATE, 0, "%s expects input to have at most %d dimensions, but got %d",
                       op, TN_MAX_DIMS - 2, (int)in->ndim);
    return TN_OK;
}

/* Takes the last dimensions apart, reorders them and joins them again; `parts` and `order` count from
 * the first of these, of which there are 5, and `joined` has their 3 sizes. */
static tn_status regroup(const tn_view *in, const int64_t *parts, const int64_t *order,
                         const int64_t *joined, tn_tensor **rets) {
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS], dims[TN_MAX_DIMS];
    int32_t lead = in->ndim - 3;
    for (int32_t d = 0; d < lead; d++) {
        shape[d] = in->shape[d];
        dims[d] = d;
    }
    for (int32_t d = 0; d < 5; d++) {
        shape[lead + d] = parts[d];
        dims[lead + d] = lead + order[d];
    }
    tn_tensor *x = scope_reshape(&s, tni_t(in), tn_ints_of(shape, lead + 5));
    x = scope_permute(&s, x, tn_ints_of(dims, lead + 5));
    for (int32_t d = 0; d < 3; d++) shape[lead + d] = joined[d];
    return scope_finish(&s, scope_reshape(&s, x, tn_ints_of(shape, lead + 3)), rets);
}

tn_status tni_composite_pixel_shuffle(const void *args, tn_tensor **rets) {
    const tn_pixel_shuffle_args *a = args;
    const int64_t r = a->upscale_factor, *size, order[] = {0, 3, 1, 4, 2};
    int64_t square, joined[3];
    TN_TRY(check_image(a->input, "pixel_shuffle", r, "upscale_factor"));
    size = a->input->shape + a->input->ndim - 3;
    if (__builtin_mul_overflow(r, r, &square)) square = INT64_MAX;
    if (size[0] % square)
        return tn_fail(TN_E_STATE, 0,
                       "pixel_shuffle expects its input's 'channel' dimension to be divisible by "
                       "the square of upscale_factor, but input.size(-3)=%lld is not divisible by "
                       "%lld",
                       (long long)size[0], (long long)square);
    joined[0] = size[0] / square;
    if (__builtin_mul_overflow(size[1], r, &joined[1]) ||
        __builtin_mul_overflow(size[2], r, &joined[2]))
        return fail_size();
    const int64_t parts[] = {joined[0], r, r, size[1], size[2]};
    return regroup(a->input, parts, order, joined, rets);
}

tn_status tni_composite_pixel_unshuffle(const void *args, tn_tensor **rets) {
    const tn_pixel_unshuffle_args *a = args;
    const int64_t r = a->downscale_factor, *size, order[] = {0, 2, 4, 1, 3};
    int64_t joined[3];
    TN_TRY(check_image(a->input, "pixel_unshuffle", r, "downscale_factor"));
    size = a->input->shape + a->input->ndim - 3;
    for (int d = 1; d < 3; d++)
        if (size[d] % r)
            return tn_fail(TN_E_STATE, 0,
                           "pixel_unshuffle expects %s to be divisible by downscale_factor, but "
                           "input.size(%d)=%lld is not divisible by %lld",
                           d == 1 ? "height" : "width", d - 3, (long long)size[d], (long long)r);
    if (__builtin_mul_overflow(size[0], r, &joined[0]) ||
        __builtin_mul_overflow(joined[0], r, &joined[0]))
        return fail_size();
    joined[1] = size[1] / r;
    joined[2] = size[2] / r;
    const int64_t parts[] = {size[0], joined[1], r, joined[2], r};
    return regroup(a->input, parts, order, joined, rets);
}

tn_status tni_composite_channel_shuffle(const void *args, tn_tensor **rets) {
    const tn_channel_shuffle_args *a = args;
    const tn_view *in = a->input;
    tni_scope s = {0};
    int64_t shape[TN_MAX_DIMS];
    if (in->ndim < 3 || in->ndim == TN_MAX_DIMS)
        return tn_fail(TN_E_STATE, 0,
                       "channel_shuffle expects input with > 2 dims, but got input with sizes %s",
                       tni_shape_text_of(in));
    if (a->groups < 1)
        return tn_fail(TN_E_STATE, 1,
                       "Number of groups to divide channels in must be positive. Value of "
                       "groups:%lld",
                       (long long)a->groups);
    if (in->shape[1] % a->groups)
        return tn_fail(TN_E_STATE, 1,
                       "Number of channels must be divisible by groups. Got %lld channels and %lld "
                       "groups.",
                       (long long)in->shape[1], (long long)a->groups);
    shape[0] = in->shape[0];
    shape[1] = a->groups;
    shape[2] = in->shape[1] / a->groups;
    for (int32_t d = 2; d < in->ndim; d++) shape[d + 1] = in->shape[d];
    tn_tensor *x = scope_reshape(&s, tni_t(in), tn_ints_of(shape, in->ndim + 1));
    x = scope_transpose(&s, x, 1, 2);
    return scope_finish(&s, scope_reshape(&s, x, tn_ints_of(in->shape, in->ndim)), rets);
}
