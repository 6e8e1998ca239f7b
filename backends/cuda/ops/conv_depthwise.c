/* conv_depthwise.c: convolutions whose groups have one channel, host side of kernels/conv.cu: a product
 * of matrices would have a single row there. */
#include "conv_ways.h"

#include <string.h>

enum { PART_PLACES = 8192, MOST_PARTS = 64 /* of the sum over images */ };
enum { MOST_TURNS = 8, MANY_BLOCKS = 2048 /* of which threads do more at a time */ };

/* Of windows of any size, of 3 by 3 and of 5 by 5 taps. */
enum { ANY, SQUARE_3, SQUARE_5, WINDOWS };
#define DEPTHWISE_KERNELS(stem)                                                                    \
    {                                                                                              \
        CUDA_FLOAT_KERNELS(conv, stem), CUDA_FLOAT_KERNELS(conv, stem##_3),                        \
            CUDA_FLOAT_KERNELS(conv, stem##_5)                                                     \
    }
static cuda_float_kernels forward_kernels[WINDOWS] = DEPTHWISE_KERNELS(conv_depthwise),
                          input_kernels[WINDOWS] = DEPTHWISE_KERNELS(conv_depthwise_input),
                          weight_kernels[WINDOWS] = DEPTHWISE_KERNELS(conv_depthwise_weight),
                          finish_kernels = CUDA_FLOAT_KERNELS(conv, conv_depthwise_finish);

static int windows_of(const cuda_depthwise_args *a) {
    const cuda_conv_shape *s = &a->s;
    const int64_t most = 1 << 28; /* so that sums of a few have 32 bits */
    if (s->window[0] != 1 || s->in[0] != 1 || s->out[0] != 1 || s->pad[0] != 0) return ANY;
    for (int d = 1; d < 3; d++)
        if (s->in[d] >= most || s->out[d] >= most || s->stride[d] >= most || s->pad[d] >= most ||
            s->pad[d] <= -most || s->dilation[d] >= most / 4)
            return ANY;
    if (s->in[1] * s->in[2] > INT32_MAX || s->out[1] * s->out[2] > INT32_MAX) return ANY;
    if (s->window[1] != s->window[2]) return ANY;
    return s->window[1] == 3 ? SQUARE_3 : s->window[1] == 5 ? SQUARE_5 : ANY;
}

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
static tn_status make_planes(const tn_call *call, cuda_float_kernels *kernels, int windows,
                             const cuda_conv *c, cuda_depthwise_args *a, int64_t planes,
                             int64_t size) {
    void *bias = NULL;
    tn_status st = cuda_conv_packed(call, c->w, &a->w);
    if (st == TN_OK && c->bias) st = cuda_conv_packed(call, c->bias, &bias);
    if (st != TN_OK) return st;
    a->bias = bias;
    uint32_t threads = cuda_conv_threads(size, &a->tiles);
    a->turns = 1;
    while (windows != ANY && a->turns < MOST_TURNS && a->turns < a->tiles &&
           planes * a->tiles / a->turns > MANY_BLOCKS)
        a->turns *= 2;
    a->tiles = (a->tiles + a->turns - 1) / a->turns;
    return cuda_launch(call, cuda_float_kernel(call, kernels[windows]), planes * a->tiles, threads,
                       a);
}

tn_status cuda_depthwise_forward(const tn_call *call, const cuda_conv *c) {
    cuda_depthwise_args a = read_args(c);
    return make_planes(call, forward_kernels, windows_of(&a), c, &a, c->images * c->groups * c->co,
                       c->places);
}

tn_status cuda_depthwise_input(const tn_call *call, const cuda_conv *c) {
    cuda_depthwise_args a = read_args(c);
    bool next = a.s.stride[1] == 1 && a.s.stride[2] == 1 && a.each == 1;
    return make_planes(call, input_kernels, next ? windows_of(&a) : ANY, c, &a,
                       c->images * c->groups, c->pixels);
}

/* Two stages, whose cut depends on sizes alone. */
tn_status cuda_depthwise_weight(const tn_call *call, const cuda_conv *c) {
    cuda_depthwise_args a = read_args(c);
    int64_t elements = room_mul3(c->groups, c->co, c->taps);
    int64_t parts = room_mul(c->images, c->places) / PART_PLACES;
    uint32_t tiles;
    if (parts > MOST_PARTS) parts = MOST_PARTS;
    if (parts > c->images) parts = c->images;
    if (parts < 1) parts = 1;
    a.span = (c->images + parts - 1) / parts;
    a.parts = (uint32_t)parts;
    a.w = c->w->data;
    tn_status st =
        room_scratch(call, room_mul(parts, elements), (size_t)cuda_sum_bytes(call), &a.partial);
    if (st != TN_OK) return st;
    uint32_t threads = cuda_conv_threads(c->places, &tiles);
    int windows = windows_of(&a);
    int64_t blocks = windows == ANY ? elements * parts : c->groups * c->co * parts;
    st = cuda_launch(call, cuda_float_kernel(call, weight_kernels[windows]), blocks, threads, &a);
    if (st != TN_OK) return st;
    return cuda_launch_each(call, cuda_float_kernel(call, finish_kernels), elements, &a);
}
