/* conv_parts.c: what the ways to compute a convolution share. */
#include "conv.h"

cuda_images cuda_images_of(const tn_view *v) {
    cuda_images im = {v->data, v->strides[0], v->strides[1], {0, 0, 0}};
    for (int32_t d = 2; d < v->ndim; d++) im.at[d + 3 - v->ndim] = v->strides[d];
    return im;
}

tn_status cuda_conv_packed(const tn_call *call, const tn_view *v, void **ret_data) {
    int64_t strides[TN_MAX_DIMS], size = 1;
    tn_view packed = *v;
    const tn_view *views[] = {&packed, v};
    cuda_plan plan;
    *ret_data = v->data;
    if (v->numel == 0 || tn_view_is_contiguous(v)) return TN_OK;
    tn_status st = room_scratch(call, v->numel, (size_t)tn_view_itemsize(v), &packed.data);
    if (st != TN_OK) return st;
    for (int32_t d = v->ndim - 1; d >= 0; size *= v->shape[d--]) strides[d] = size;
    packed.strides = strides;
    st = cuda_plan_views(views, 2, &plan);
    if (st == TN_OK) st = cuda_copy_plan(call, tn_view_itemsize(v), &plan);
    *ret_data = packed.data;
    return st;
}

uint32_t cuda_conv_threads(int64_t elements, uint32_t *ret_tiles) {
    uint32_t threads = 32;
    while (threads < CUDA_BLOCK && (int64_t)threads < elements) threads *= 2;
    *ret_tiles = (uint32_t)((elements + threads - 1) / threads);
    return threads;
}

tn_status cuda_conv_add_bias(const tn_call *call, const cuda_conv *c, const tn_view *made) {
    static cuda_float_kernels kernels = CUDA_FLOAT_KERNELS(conv, conv_bias);
    cuda_bias_args a = {made->data, NULL, 0, 0, 0, 0};
    void *bias = NULL;
    if (!c->bias) return TN_OK;
    tn_status st = cuda_conv_packed(call, c->bias, &bias);
    if (st != TN_OK) return st;
    a.bias = bias;
    a.channels = (uint32_t)made->shape[1];
    a.size = made->numel / (made->shape[0] * made->shape[1]);
    uint32_t threads = cuda_conv_threads(a.size, &a.tiles);
    return cuda_launch(call, cuda_float_kernel(call, kernels),
                       made->shape[0] * made->shape[1] * a.tiles, threads, &a);
}
