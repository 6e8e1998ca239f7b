/* conv_depthwise.c: convolutions whose groups have one channel, host side of kernels/conv.cu: a product
 * of matrices would have a single row there. */
#include "conv_ways.h"

#include <string.h>

enum { PART_PLACES = 8192, MOST_PARTS = 64 /* of the sum over images */ };

static cuda_float_kernels forward_kernels = CUDA_FLOAT_KERNELS(conv, conv_depthwise),
                          input_kernels = CUDA_FLOAT_KERNELS(conv, conv_depthwise_input),
                          weight_kernels = CUDA_FLOAT_KERNELS(conv, conv_depthwise_weight),
                          finish_kernels = CUDA_FLOAT_KERNELS(conv, conv_depthwise_finish);

static cuda_depthwise_args read_args(const cuda_conv *c) {
    cuda_depthwise_args a;
    memset(&a, 0, sizeof a);
    a.s = c->s;
    a.x = cuda_images_of(c->x);
    a.y = cuda_images_of(c->y);
    a.images = c->images;
    a.channels = (uint32_t)c->groups;
    a.each = (uint32_t)c->co;
    a.taps = (uint32_t)c->taps;
    return a;
}

/* A block for every tile of every plane of what is made. */
static tn_status make_planes(const tn_call *call, cuda_float_kernels kernels, const cuda_conv *c,
                             int64_t planes, int64_t size) {
    cuda_depthwise_args a = read_args(c);
    void *bias = NULL;
    tn_status st = cuda_conv_packed(call, c->w, &a.w);
    if (st == TN_OK && c->bias) st = cuda_conv_packed(call, c->bias, &bias);
    if (st != TN_OK) return st;
    a.bias = bias;
    uint32_t threads = cuda_conv_threads(size, &a.tiles);
    return cuda_launch(call, cuda_float_kernel(call, kernels), planes * a.tiles, threads, &a);
}

tn_status cuda_depthwise_forward(const tn_call *call, const cuda_conv *c) {
    return make_planes(call, forward_kernels, c, c->images * c->groups * c->co, c->places);
}

tn_status cuda_depthwise_input(const tn_call *call, const cuda_conv *c) {
    return make_planes(call, input_kernels, c, c->images * c->groups, c->pixels);
}

/* Two stages, whose cut depends on sizes alone. */
tn_status cuda_depthwise_weight(const tn_call *call, const cuda_conv *c) {
    cuda_depthwise_args a = read_args(c);
    int64_t elements = room_mul3(c->groups, c->co, c->taps), item = call->dtype == TN_F64 ? 8 : 4;
    int64_t parts = room_mul(c->images, c->places) / PART_PLACES;
    uint32_t tiles;
    if (parts > MOST_PARTS) parts = MOST_PARTS;
    if (parts > c->images) parts = c->images;
    if (parts < 1) parts = 1;
    a.span = (c->images + parts - 1) / parts;
    a.parts = (uint32_t)parts;
    a.w = c->w->data;
    tn_status st = room_scratch(call, room_mul(parts, elements), (size_t)item, &a.partial);
    if (st != TN_OK) return st;
    uint32_t threads = cuda_conv_threads(c->places, &tiles);
    st = cuda_launch(call, cuda_float_kernel(call, weight_kernels), elements * parts, threads, &a);
    if (st != TN_OK) return st;
    return cuda_launch(call, cuda_float_kernel(call, finish_kernels),
                       (elements + CUDA_BLOCK - 1) / CUDA_BLOCK, CUDA_BLOCK, &a);
}
