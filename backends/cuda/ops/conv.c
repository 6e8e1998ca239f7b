/* conv.c: convolutions and their gradients: reads a call, and picks the way that serves it.
 *
 * family: conv */
#include "conv.h"

#include <tenon/args_conv.h>

/* ---- What the ways share -----------------------------------------------------------------------*/

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

/* ---- Reading a call ----------------------------------------------------------------------------*/

typedef struct steps {
    tn_ints stride, pad, dilation;
    int64_t groups;
} steps;

static void read_shape(cuda_conv *c, const steps *by) {
    cuda_conv_shape *s = &c->s;
    int32_t missing = 5 - c->x->ndim;
    c->taps = c->pixels = c->places = 1;
    for (int32_t d = 0; d < 3; d++) {
        int32_t from = d - missing;
        s->in[d] = from < 0 ? 1 : c->x->shape[from + 2];
        s->out[d] = from < 0 ? 1 : c->y->shape[from + 2];
        s->window[d] = from < 0 ? 1 : c->w->shape[from + 2];
        s->stride[d] = from < 0 ? 1 : by->stride.v[from];
        s->pad[d] = from < 0 ? 0 : by->pad.v[from];
        s->dilation[d] = from < 0 ? 1 : by->dilation.v[from];
        c->pixels *= s->in[d];
        c->places *= s->out[d];
        c->taps *= s->window[d];
    }
    c->images = c->x->shape[0];
    c->groups = by->groups;
    c->ci = c->w->shape[1];
    c->co = c->w->shape[0] / by->groups;
}

/* Whether kernels can count everything. */
static bool fits(const cuda_conv *c) {
    const int64_t most = INT32_MAX;
    for (int d = 0; d < 3; d++)
        if (c->s.in[d] + 2 * c->s.pad[d] > UINT32_MAX) return false;
    return c->images <= most && c->groups * c->ci <= most && c->w->numel <= most &&
           c->pixels <= most && c->places <= most;
}

/* ---- The ways ----------------------------------------------------------------------------------*/

static bool is_depthwise(const cuda_conv *c) { return c->ci == 1 && c->groups > 1; }

/* Such convolutions move memory more than they compute, and cuDNN's special engines for them are of half
 * precision: there it goes first. */
static bool prefers_own(const tn_call *call, const cuda_conv *c) {
    return is_depthwise(c) && (call->dtype == TN_F32 || call->dtype == TN_F64);
}

static tn_status run_own(const tn_call *call, cuda_conv_kind kind, const cuda_conv *c) {
    bool depthwise = is_depthwise(c);
    switch (kind) {
    case CUDA_CONV_FORWARD:
        return depthwise ? cuda_depthwise_forward(call, c) : cuda_columns_forward(call, c);
    case CUDA_CONV_INPUT:
        return depthwise ? cuda_depthwise_input(call, c) : cuda_columns_input(call, c);
    default: return depthwise ? cuda_depthwise_weight(call, c) : cuda_columns_weight(call, c);
    }
}

static tn_status run(const tn_call *call, cuda_conv_kind kind, cuda_conv *c, const steps *by,
                     const tn_view *made) {
    void *room = NULL;
    if (made->numel == 0) return TN_OK;
    read_shape(c, by);
    c->room = &room;
    if (!fits(c) || !tn_view_is_contiguous(made)) return TN_DECLINE;
    tn_status st = prefers_own(call, c) ? TN_DECLINE : cuda_conv_by_cudnn(call, kind, c);
    return st == TN_DECLINE ? run_own(call, kind, c) : st;
}

static tn_status forward(const tn_call *call, const void *args) {
    const tn__conv_args *a = args;
    const steps by = {a->stride, a->padding, a->dilation, a->groups};
    cuda_conv c = {.x = a->input, .w = a->weight, .y = a->out, .bias = a->bias};
    return run(call, CUDA_CONV_FORWARD, &c, &by, a->out);
}

static tn_status backward_input(const tn_call *call, const void *args) {
    const tn__conv_backward_input_args *a = args;
    const steps by = {a->stride, a->padding, a->dilation, a->groups};
    cuda_conv c = {.x = a->out, .w = a->weight, .y = a->grad, .bias = a->bias};
    return run(call, CUDA_CONV_INPUT, &c, &by, a->out);
}

static tn_status backward_weight(const tn_call *call, const void *args) {
    const tn__conv_backward_weight_args *a = args;
    const steps by = {a->stride, a->padding, a->dilation, a->groups};
    cuda_conv c = {.x = a->input, .w = a->out, .y = a->grad};
    return run(call, CUDA_CONV_WEIGHT, &c, &by, a->out);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(_conv, forward),
    CUDA_FLOAT_ROWS(_conv_backward_input, backward_input),
    CUDA_FLOAT_ROWS(_conv_backward_weight, backward_weight),
};
const cuda_rows cuda_conv_rows = CUDA_ROWS_OF(rows);
