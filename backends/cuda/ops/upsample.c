/* upsample.c: nearest and bilinear upsampling and their gradients: host side of kernels/upsample.cu.
 *
 * family: upsample */
#include "image.h"

#include <string.h>

#include <tenon/args_conv.h>

static cuda_float_kernels kernels = CUDA_FLOAT_KERNELS(upsample, upsample),
                          tables_kernels = CUDA_FLOAT_KERNELS(upsample, upsample_tables),
                          backward_kernels = CUDA_FLOAT_KERNELS(upsample, upsample_backward);

typedef struct resampling {
    const tn_view *small, *large;
    tn_opt_float scale[2];
    bool linear, corners;
} resampling;

/* Elements of the small plane for one of the large plane. A single precision kernel rounds this once
 * more, which gives the float nearest to the quotient. */
static double ratio_of(const resampling *r, int d, double small, double large) {
    if (r->corners) return large > 1 ? (small - 1) / (large - 1) : 0;
    if (r->scale[d].has && r->scale[d].value > 0) return 1.0 / r->scale[d].value;
    return small / large;
}

/* `x` is read, `y` written. */
static tn_status start(const tn_view *x, const tn_view *y, const resampling *r,
                       cuda_upsample_args *ret_args) {
    cuda_upsample_args *a = ret_args;
    memset(a, 0, sizeof *a);
    if (!cuda_planes_of(x, &a->x) || !tn_view_is_contiguous(y)) return TN_DECLINE;
    a->y = y->data;
    a->numel = y->numel;
    a->channels = cuda_channels_of(y);
    cuda_plane_size(r->small, a->small);
    cuda_plane_size(r->large, a->large);
    for (int d = 0; d < 2; d++)
        a->ratio[d] = ratio_of(r, d, (double)a->small[d], (double)a->large[d]);
    a->linear = r->linear;
    a->corners = r->corners;
    return TN_OK;
}

static tn_status run(const tn_call *call, const tn_view *x, const tn_view *y, const resampling *r) {
    cuda_upsample_args a;
    tn_status st = start(x, y, r, &a);
    if (st != TN_OK) return st;
    return cuda_launch_each(call, cuda_float_kernel(call, kernels), a.numel, &a);
}

static tn_status run_backward(const tn_call *call, const tn_view *x, const tn_view *y,
                              const resampling *r) {
    cuda_upsample_args a;
    void *spans = NULL;
    tn_status st = start(x, y, r, &a);
    if (st != TN_OK || a.numel == 0) return st;
    int64_t weights = a.large[0] + a.large[1], elements = a.small[0] + a.small[1];
    st = room_scratch(call, weights, (size_t)cuda_sum_bytes(call), &a.weights);
    if (st == TN_OK) st = room_scratch(call, elements, sizeof(cuda_upsample_span), &spans);
    if (st != TN_OK) return st;
    a.spans = spans;
    st = cuda_launch_each(call, cuda_float_kernel(call, tables_kernels), weights + elements, &a);
    if (st != TN_OK) return st;
    return cuda_launch_each(call, cuda_float_kernel(call, backward_kernels), a.numel, &a);
}

static tn_status nearest(const tn_call *call, const void *args) {
    const tn_upsample_nearest2d_args *a = args;
    const resampling r = {a->input, a->out, {a->scales_h, a->scales_w}, false, false};
    return run(call, a->input, a->out, &r);
}

static tn_status nearest_backward(const tn_call *call, const void *args) {
    const tn__upsample_nearest2d_backward_args *a = args;
    const resampling r = {a->out, a->grad, {a->scales_h, a->scales_w}, false, false};
    return run_backward(call, a->grad, a->out, &r);
}

static tn_status bilinear(const tn_call *call, const void *args) {
    const tn_upsample_bilinear2d_args *a = args;
    const resampling r = {
        a->input, a->out, {a->scales_h, a->scales_w}, true, a->align_corners != 0};
    return run(call, a->input, a->out, &r);
}

static tn_status bilinear_backward(const tn_call *call, const void *args) {
    const tn__upsample_bilinear2d_backward_args *a = args;
    const resampling r = {a->out, a->grad, {a->scales_h, a->scales_w}, true, a->align_corners != 0};
    return run_backward(call, a->grad, a->out, &r);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(upsample_nearest2d, nearest),
    CUDA_FLOAT_ROWS(_upsample_nearest2d_backward, nearest_backward),
    CUDA_FLOAT_ROWS(upsample_bilinear2d, bilinear),
    CUDA_FLOAT_ROWS(_upsample_bilinear2d_backward, bilinear_backward),
};
const cuda_rows cuda_upsample_rows = CUDA_ROWS_OF(rows);
