/* pool.c: max_pool2d, avg_pool2d, adaptive_avg_pool2d and their gradients: host side of
 * kernels/pool.cu.
 *
 * family: pool */
#include "image.h"

#include <string.h>

#include <tenon/args_conv.h>

static cuda_float_kernels max_kernels = CUDA_FLOAT_KERNELS(pool, pool_max),
                          max_2_kernels = CUDA_FLOAT_KERNELS(pool, pool_max_2),
                          max_3_kernels = CUDA_FLOAT_KERNELS(pool, pool_max_3),
                          ranges_kernels = CUDA_FLOAT_KERNELS(pool, pool_ranges),
                          pick_kernels = CUDA_FLOAT_KERNELS(pool, pool_pick),
                          max_backward_kernels = CUDA_FLOAT_KERNELS(pool, pool_max_backward),
                          average_kernels = CUDA_FLOAT_KERNELS(pool, pool_average),
                          average_backward_kernels =
                              CUDA_FLOAT_KERNELS(pool, pool_average_backward);

/* `x` is read, `y` written; of the two, `whole` has the planes before pooling. */
static tn_status start(const tn_call *call, const tn_view *x, const tn_view *y,
                       const tn_view *whole, cuda_pool_args *ret_args) {
    cuda_pool_args *a = ret_args;
    memset(a, 0, sizeof *a);
    if (!cuda_planes_of(x, &a->x) || !tn_view_is_contiguous(y)) return TN_DECLINE;
    a->y = y->data;
    a->numel = y->numel;
    a->channels = cuda_channels_of(y);
    a->lanes = 1;
    cuda_plane_size(whole, a->size);
    cuda_plane_size(whole == x ? y : x, a->pooled);
    a->op = (uint64_t)(uintptr_t)call->op->name;
    return cuda_fault_of(call, &a->fault);
}

static void set_windows(cuda_pool_args *a, tn_ints kernel, tn_ints stride, tn_ints padding) {
    for (int d = 0; d < 2; d++) {
        a->kernel[d] = kernel.v[d];
        a->step[d] = stride.n > 0 ? stride.v[d] : kernel.v[d];
        a->pad[d] = padding.v[d];
        a->dilation[d] = 1;
    }
}

/* ---- Maxima ------------------------------------------------------------------------------------*/

/* Whether places in a plane, and what windows have to do with them, fit in 32 bits. */
static bool is_narrow(const cuda_pool_args *a) {
    const int64_t most = 1 << 28;
    int64_t reach = 0;
    if (a->numel > INT32_MAX || a->channels > INT32_MAX) return false;
    for (int d = 0; d < 2; d++) {
        int64_t stride = a->x.stride[2 + d] < 0 ? -a->x.stride[2 + d] : a->x.stride[2 + d];
        if (a->size[d] >= most || a->step[d] >= most || a->pad[d] >= most ||
            a->dilation[d] >= most || stride > INT32_MAX)
            return false;
        reach += a->size[d] * stride;
    }
    return reach <= INT32_MAX && a->size[0] * a->size[1] <= INT32_MAX;
}

static cuda_kernel *max_kernel(const tn_call *call, const cuda_pool_args *a) {
    bool square = a->kernel[0] == a->kernel[1] && is_narrow(a);
    if (square && a->kernel[0] == 2) return cuda_float_kernel(call, max_2_kernels);
    if (square && a->kernel[0] == 3) return cuda_float_kernel(call, max_3_kernels);
    return cuda_float_kernel(call, max_kernels);
}

static tn_status max_pool(const tn_call *call, const void *args) {
    const tn_max_pool2d_with_indices_args *in = args;
    cuda_pool_args a;
    tn_status st = start(call, in->input, in->y, in->input, &a);
    if (st != TN_OK) return st;
    if (!tn_view_is_contiguous(in->indices)) return TN_DECLINE;
    set_windows(&a, in->kernel_size, in->stride, in->padding);
    for (int d = 0; d < 2; d++) a.dilation[d] = in->dilation.v[d];
    a.index = in->indices->data;
    return cuda_launch_each(call, max_kernel(call, &a), a.numel, &a);
}

/* Cuts y into tiles: a part of a plane, or of several small planes all. */
static void set_tiles(cuda_pool_args *a, int64_t bytes) {
    int64_t size = a->size[0] * a->size[1], most = CUDA_POOL_TILE(bytes);
    a->planes = a->numel / size;
    a->arrivals = a->planes * a->pooled[0] * a->pooled[1];
    a->chunks = (a->arrivals + CUDA_POOL_CHUNK - 1) / CUDA_POOL_CHUNK;
    a->each = size > most ? 1 : most / size;
    a->tiles = (size + most - 1) / most;
    a->tile = size > most ? (size + a->tiles - 1) / a->tiles : a->each * size;
}

/* The gradient that arrives at the maxima goes back to where they were. */
static tn_status max_pool_backward(const tn_call *call, const void *args) {
    const tn__max_pool2d_backward_args *in = args;
    cuda_pool_args a;
    void *ranges = NULL;
    tn_status st = start(call, in->grad, in->out, in->out, &a);
    if (st != TN_OK || a.numel == 0) return st;
    if (!cuda_planes_of(in->indices, &a.places)) return TN_DECLINE;
    a.packed_places = tn_view_is_contiguous(in->indices);
    a.packed_x = tn_view_is_contiguous(in->grad);
    set_tiles(&a, cuda_sum_bytes(call));
    if (a.tiles > 1 && a.chunks > 0) {
        st = room_scratch(call, a.chunks, sizeof(cuda_pool_range), &ranges);
        if (st != TN_OK) return st;
        a.ranges = ranges;
        st = cuda_launch_each(call, cuda_float_kernel(call, ranges_kernels), a.chunks * 32, &a);
        if (st != TN_OK) return st;
    }
    return cuda_launch(call, cuda_float_kernel(call, max_backward_kernels),
                       (a.planes + a.each - 1) / a.each * a.tiles, CUDA_POOL_CHUNK, &a);
}

static tn_status max_pool_gather(const tn_call *call, const void *args) {
    const tn__max_pool2d_gather_args *in = args;
    cuda_pool_args a;
    tn_status st = start(call, in->input, in->out, in->input, &a);
    if (st != TN_OK) return st;
    if (!cuda_planes_of(in->indices, &a.places)) return TN_DECLINE;
    return cuda_launch_each(call, cuda_float_kernel(call, pick_kernels), a.numel, &a);
}

/* ---- Averages ----------------------------------------------------------------------------------*/

/* Large windows are shared by the threads of a warp. */
enum { LARGE_WINDOW = 64 };

static tn_status average(const tn_call *call, cuda_pool_args *a) {
    if (a->numel == 0) return TN_OK;
    int64_t window = a->adaptive ? (a->size[0] / a->pooled[0] + 1) * (a->size[1] / a->pooled[1] + 1)
                                 : a->kernel[0] * a->kernel[1];
    if (window >= LARGE_WINDOW) a->lanes = 32;
    return cuda_launch_each(call, cuda_float_kernel(call, average_kernels), a->numel * a->lanes, a);
}

static tn_status average_backward(const tn_call *call, const cuda_pool_args *a) {
    return cuda_launch_each(call, cuda_float_kernel(call, average_backward_kernels), a->numel, a);
}

static void set_divisor(cuda_pool_args *a, bool count_pad, tn_opt_int given) {
    a->count_pad = count_pad;
    a->divisor = given.has ? given.value : 0;
}

static tn_status avg_pool(const tn_call *call, const void *args) {
    const tn_avg_pool2d_args *in = args;
    cuda_pool_args a;
    tn_status st = start(call, in->input, in->out, in->input, &a);
    if (st != TN_OK || a.numel == 0) return st;
    set_windows(&a, in->kernel_size, in->stride, in->padding);
    set_divisor(&a, in->count_include_pad != 0, in->divisor_override);
    return average(call, &a);
}

static tn_status avg_pool_backward(const tn_call *call, const void *args) {
    const tn__avg_pool2d_backward_args *in = args;
    cuda_pool_args a;
    tn_status st = start(call, in->grad, in->out, in->out, &a);
    if (st != TN_OK || a.numel == 0) return st;
    set_windows(&a, in->kernel_size, in->stride, in->padding);
    set_divisor(&a, in->count_include_pad != 0, in->divisor_override);
    return average_backward(call, &a);
}

static tn_status adaptive_avg_pool(const tn_call *call, const void *args) {
    const tn__adaptive_avg_pool2d_args *in = args;
    cuda_pool_args a;
    tn_status st = start(call, in->input, in->out, in->input, &a);
    if (st != TN_OK || a.numel == 0) return st;
    a.adaptive = 1;
    return average(call, &a);
}

static tn_status adaptive_avg_pool_backward(const tn_call *call, const void *args) {
    const tn__adaptive_avg_pool2d_backward_args *in = args;
    cuda_pool_args a;
    tn_status st = start(call, in->grad, in->out, in->out, &a);
    if (st != TN_OK || a.numel == 0) return st;
    a.adaptive = 1;
    return average_backward(call, &a);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(max_pool2d_with_indices, max_pool),
    CUDA_FLOAT_ROWS(_max_pool2d_backward, max_pool_backward),
    CUDA_FLOAT_ROWS(_max_pool2d_gather, max_pool_gather),
    CUDA_FLOAT_ROWS(avg_pool2d, avg_pool),
    CUDA_FLOAT_ROWS(_avg_pool2d_backward, avg_pool_backward),
    CUDA_FLOAT_ROWS(_adaptive_avg_pool2d, adaptive_avg_pool),
    CUDA_FLOAT_ROWS(_adaptive_avg_pool2d_backward, adaptive_avg_pool_backward),
};
const cuda_rows cuda_pool_rows = CUDA_ROWS_OF(rows);
