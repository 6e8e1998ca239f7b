/* grid.c: images at the places of a grid and the derivatives of that: host side of kernels/grid.cu.
 *
 * family: grid */
#include "image.h"

#include <tenon/args_vision.h>

/* By mode. */
typedef cuda_float_kernels grid_kernels[3];
#define GRID_KERNELS(what)                                                                         \
    {                                                                                              \
        [TN_GRID_SAMPLE_BILINEAR] = CUDA_FLOAT_KERNELS(grid, what##_linear),                       \
        [TN_GRID_SAMPLE_NEAREST] = CUDA_FLOAT_KERNELS(grid, what##_nearest),                       \
        [TN_GRID_SAMPLE_BICUBIC] = CUDA_FLOAT_KERNELS(grid, what##_cubic),                         \
    }
static grid_kernels values_kernels = GRID_KERNELS(grid_values),
                    moves_kernels = GRID_KERNELS(grid_moves),
                    neighbours_kernels = GRID_KERNELS(grid_neighbours);
static cuda_float_kernels join_kernels = CUDA_FLOAT_KERNELS(grid, grid_join);

static tn_status packed(const tn_call *call, const tn_view *v, const void **ret) {
    return v ? cuda_packed(call, v, ret) : TN_OK;
}

/* What all kernels have: `sizes` are the image's. */
static tn_status start(const tn_call *call, const int64_t *sizes, const tn_view *grid,
                       const tn_view *along, const tn_view *y, cuda_grid_args *a) {
    a->axes = grid->ndim - 2;
    a->channels = sizes[1];
    a->plane = a->points = 1;
    for (int32_t d = 0; d < a->axes; d++) {
        a->size[d] = sizes[1 + a->axes - d];
        a->plane = room_mul(a->plane, a->size[d]);
        a->points *= grid->shape[1 + d];
    }
    if (a->plane > INT32_MAX || !tn_view_is_contiguous(y)) return TN_DECLINE;
    a->y = y->data;
    tn_status st = packed(call, grid, &a->grid);
    return st == TN_OK ? packed(call, along, &a->along) : st;
}

/* Groups of channels, of which a thread takes one. */
static int64_t groups_of(const cuda_grid_args *a) {
    return (a->channels + CUDA_GRID_CHANNELS - 1) / CUDA_GRID_CHANNELS;
}

static tn_status grid_sample(const tn_call *call, const void *args) {
    const tn__grid_sample_args *in = args;
    cuda_grid_args a = {.padding = (int32_t)in->padding, .corners = in->align_corners != 0};
    if (in->out->numel == 0) return TN_OK;
    tn_status st = start(call, in->input->shape, in->grid, in->along, in->out, &a);
    if (st == TN_OK) st = packed(call, in->input, &a.image);
    if (st != TN_OK) return st;
    a.numel = in->input->shape[0] * groups_of(&a) * a.points;
    return cuda_launch_each(call, cuda_float_kernel(call, values_kernels[in->mode]), a.numel, &a);
}

/* How values, times `grad`, change as places move; and again as these move `along`, which may be NULL. */
static tn_status move_places(const tn_call *call, const tn_view *input, const tn_view *grid,
                             const tn_view *along, const tn_view *grad, const tn_view *out,
                             int64_t mode, cuda_grid_args *a) {
    if (out->numel == 0) return TN_OK;
    tn_status st = start(call, input->shape, grid, along, out, a);
    if (st == TN_OK) st = packed(call, grad, &a->grad);
    if (st == TN_OK) st = packed(call, input, &a->image);
    a->numel = grid->shape[0] * a->points;
    if (st != TN_OK) return st;
    return cuda_launch_each(call, cuda_float_kernel(call, moves_kernels[mode]), a->numel, a);
}

static tn_status grid_sample_grid(const tn_call *call, const void *args) {
    const tn__grid_sample_grid_args *in = args;
    cuda_grid_args a = {.padding = (int32_t)in->padding, .corners = in->align_corners != 0};
    return move_places(call, in->input, in->grid, NULL, in->grad, in->out, in->mode, &a);
}

static tn_status grid_sample_curve(const tn_call *call, const void *args) {
    const tn__grid_sample_curve_args *in = args;
    cuda_grid_args a = {.padding = (int32_t)in->padding, .corners = in->align_corners != 0};
    return move_places(call, in->input, in->grid, in->along, in->grad, in->out, in->mode, &a);
}

/* ---- The gradient of the image ------------------------------------------------------------------*/

/* Images are taken a few at a time, so that the tables of neighbours stay small. */
enum { MOST_TAPS = 1 << 23 };

static int64_t products_of(const cuda_grid_args *a, int64_t mode) {
    int64_t side = mode == TN_GRID_SAMPLE_BICUBIC ? 4 : mode == TN_GRID_SAMPLE_NEAREST ? 1 : 2;
    return a->axes == 2 ? side * side : side * side * side;
}

static tn_status make_tables(const tn_call *call, cuda_grid_args *a, int64_t taps) {
    void *at = NULL, *sorted = NULL, *position = NULL;
    size_t item = (size_t)cuda_sum_bytes(call);
    tn_status st = room_scratch(call, taps, sizeof(int64_t), &at);
    if (st == TN_OK) st = room_scratch(call, taps, sizeof(int64_t), &sorted);
    if (st == TN_OK) st = room_scratch(call, taps, sizeof(int64_t), &position);
    if (st == TN_OK) st = room_scratch(call, taps, item, &a->weight);
    a->at = at;
    a->sorted = sorted;
    a->position = position;
    return st;
}

/* Images first .. first + n - 1. */
static tn_status join(const tn_call *call, cuda_grid_args *a, int64_t mode, int64_t n) {
    a->numel = n * a->points;
    a->taps = a->numel * products_of(a, mode);
    a->outside = n * a->plane;
    tn_view keys = {
        .word = TN_I64 | TN_W_CONTIGUOUS, .numel = a->taps, .data = a->at, .dl_bits = 64};
    cuda_kernel *find = cuda_float_kernel(call, neighbours_kernels[mode]);
    tn_status st = cuda_launch_each(call, find, a->numel, a);
    if (st == TN_OK) st = cuda_sort(call, &keys, a->sorted, a->position);
    if (st != TN_OK) return st;
    return cuda_launch_each(call, cuda_float_kernel(call, join_kernels), a->taps * groups_of(a), a);
}

static tn_status grid_sample_input(const tn_call *call, const void *args) {
    const tn__grid_sample_input_args *in = args;
    cuda_grid_args a = {.padding = (int32_t)in->padding, .corners = in->align_corners != 0};
    int64_t batch = in->grid->shape[0];
    if (in->out->numel == 0) return TN_OK;
    tn_status st = start(call, in->out->shape, in->grid, in->along, in->out, &a);
    if (st != TN_OK) return st;
    int64_t each = room_mul(a.points, products_of(&a, in->mode)), most = MOST_TAPS;
    if (each >= UINT32_MAX) return TN_DECLINE; /* more than are sorted */
    st = cuda_zero(call, in->out);
    if (st != TN_OK || a.points == 0) return st;
    most = each < most ? most / each : 1;
    if (most > batch) most = batch;
    st = packed(call, in->grad, &a.grad);
    if (st == TN_OK) st = make_tables(call, &a, most * each);
    for (; a.first < batch && st == TN_OK; a.first += most) {
        int64_t left = batch - a.first;
        st = join(call, &a, in->mode, left < most ? left : most);
    }
    return st;
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(_grid_sample, grid_sample),
    CUDA_FLOAT_ROWS(_grid_sample_input, grid_sample_input),
    CUDA_FLOAT_ROWS(_grid_sample_grid, grid_sample_grid),
    CUDA_FLOAT_ROWS(_grid_sample_curve, grid_sample_curve),
};
const cuda_rows cuda_grid_rows = CUDA_ROWS_OF(rows);
