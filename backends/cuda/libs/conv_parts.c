/* conv_parts.c: what the ways to compute a convolution share. */
#include "conv.h"

cuda_images cuda_images_of(const tn_view *v) {
    cuda_images im = {v->data, v->strides[0], v->strides[1], {0, 0, 0}};
    for (int32_t d = 2; d < v->ndim; d++) im.at[d + 3 - v->ndim] = v->strides[d];
    return im;
}

bool cuda_conv_lies(const tn_view *v, bool last) {
    return v->numel == 0 || (v->word & (last ? TN_W_CHANNELS_LAST : TN_W_CONTIGUOUS));
}

tn_status cuda_conv_lend(const tn_call *call, const tn_view *v, bool last,
                         cuda_conv_room *ret_room) {
    int64_t size = last ? v->shape[1] : 1;
    ret_room->view = *v;
    ret_room->view.strides = ret_room->strides;
    for (int32_t d = v->ndim - 1; d >= 0; d--) {
        ret_room->strides[d] = last && d == 1 ? 1 : size;
        if (!last || d != 1) size *= v->shape[d];
    }
    return room_scratch(call, v->numel, (size_t)tn_view_itemsize(v), &ret_room->view.data);
}

tn_status cuda_conv_packed(const tn_call *call, const tn_view *v, void **ret_data) {
    const void *data = NULL;
    tn_status st = cuda_packed(call, v, &data);
    *ret_data = (void *)(uintptr_t)data;
    return st;
}

uint32_t cuda_conv_threads(int64_t elements, uint32_t *ret_tiles) {
    uint32_t threads = 32;
    while (threads < CUDA_BLOCK && (int64_t)threads < elements) threads *= 2;
    *ret_tiles = (uint32_t)((elements + threads - 1) / threads);
    return threads;
}

/* Pixels are rows of channels, to each of which the bias is added. */
static tn_status add_last(const tn_call *call, const tn_view *made, void *bias) {
    static cuda_float_kernels kernels = CUDA_FLOAT_KERNELS(conv, conv_bias_last);
    int64_t shape[2] = {made->numel / made->shape[1], made->shape[1]};
    int64_t strides[2] = {made->shape[1], 1}, same[2] = {0, 1};
    tn_view rows = *made, row = *made;
    const tn_view *views[] = {&rows, &rows, &row};
    cuda_plan plan;
    rows.ndim = row.ndim = 2;
    rows.shape = row.shape = shape;
    rows.strides = strides;
    row.strides = same;
    row.data = bias;
    tn_status st = cuda_plan_views(views, 3, &plan);
    return st == TN_OK ? cuda_launch_plan(call, cuda_float_kernel(call, kernels), &plan) : st;
}

tn_status cuda_conv_add_bias(const tn_call *call, const cuda_conv *c, const tn_view *made) {
    static cuda_float_kernels kernels = CUDA_FLOAT_KERNELS(conv, conv_bias);
    cuda_bias_args a = {made->data, NULL, 0, 0, 0, 0};
    void *bias = NULL;
    if (!c->bias) return TN_OK;
    tn_status st = cuda_conv_packed(call, c->bias, &bias);
    if (st != TN_OK) return st;
    if (!cuda_conv_lies(made, false)) return add_last(call, made, bias);
    a.bias = bias;
    a.channels = (uint32_t)made->shape[1];
    a.size = made->numel / (made->shape[0] * made->shape[1]);
    uint32_t threads = cuda_conv_threads(a.size, &a.tiles);
    return cuda_launch(call, cuda_float_kernel(call, kernels),
                       made->shape[0] * made->shape[1] * a.tiles, threads, &a);
}
