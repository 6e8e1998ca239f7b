/* upsample.c: nearest and bilinear upsampling and their gradients: host side of kernels/upsample.cu.
 *
 * family: upsample */
#include "image.h"

#include <string.h>

#include <tenon/args_conv.h>

static cuda_float_kernels kernels = CUDA_FLOAT_KERNELS(upsample, upsample),
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
static tn_status run(const tn_call *call, cuda_float_kernels by_dtype, const tn_view *x,
                     const tn_view *y, const resampling *r) {
    cuda_upsample_args a;
    memset(&a, 0, sizeof a);
    if (!cuda_planes_of(x, &a.x) || !tn_view_is_contiguous(y)) return TN_DECLINE;
    a.y = y->data;
    a.numel = y->numel;
    a.channels = cuda_channels_of(y);
    cuda_plane_size(r->small, a.small);
    cuda_plane_size(r->large, a.large);
    for (int d = 0; d < 2; d++) a.ratio[d] = ratio_of(r, d, (double)a.small[d], (double)a.large[d]);
    a.linear = r->linear;
    a.corners = r->corners;
    return cuda_launch_each(call, cuda_float_kernel(call, by_dtype), a.numel, &a);
}

static tn_status nearest(const tn_call *call, const void *args) {
    const tn_upsample_nearest2d_args *a = args;
    const resampling r = {a->input, a->out, {a->scales_h, a->scales_w}, false, false};
    return run(call, kernels, a->input, a->out, &r);
}

static tn_status nearest_backward(const tn_call *call, const void *args) {
    const tn__upsample_nearest2d_backward_args *a = args;
    const resampling r = {a->out, a->grad, {a->scales_h, a->scales_w}, false, false};
    return run(call, backward_kernels, a->grad, a->out, &r);
}

static tn_status bilinear(const tn_call *call, const void *args) {
    const tn_upsample_bilinear2d_args *a = args;
    const resampling r = {
        a->input, a->out, {a->scales_h, a->scales_w}, true, a->align_corners != 0};
    return run(call, kernels, a->input, a->out, &r);
}

static tn_status bilinear_backward(const tn_call *call, const void *args) {
    const tn__upsample_bilinear2d_backward_args *a = args;
    const resampling r = {a->out, a->grad, {a->scales_h, a->scales_w}, true, a->align_corners != 0};
    return run(call, backward_kernels, a->grad, a->out, &r);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(upsample_nearest2d, nearest),
    CUDA_FLOAT_ROWS(_upsample_nearest2d_backward, nearest_backward),
    CUDA_FLOAT_ROWS(upsample_bilinear2d, bilinear),
    CUDA_FLOAT_ROWS(_upsample_bilinear2d_backward, bilinear_backward),
};
const cuda_rows cuda_upsample_rows = CUDA_ROWS_OF(rows);
