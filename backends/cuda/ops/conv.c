/* conv.c: convolutions and their gradients: reads a call, and picks the way that serves it.
 *
 * family: conv */
#include "conv_ways.h"

#include <tenon/op_args.h>

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

/* Our own kernels make packed results. */
static tn_status run_packed(const tn_call *call, cuda_conv_kind kind, cuda_conv *c) {
    const tn_view **made = cuda_conv_made(c, kind), *to = *made;
    cuda_conv_room room;
    if (cuda_conv_lies(to, false)) return run_own(call, kind, c);
    tn_status st = cuda_conv_lend(call, to, false, &room);
    if (st != TN_OK) return st;
    *made = &room.view;
    st = run_own(call, kind, c);
    return st == TN_OK ? cuda_copy_view(call, to, &room.view) : st;
}

static tn_status run(const tn_call *call, cuda_conv_kind kind, cuda_conv *c, const steps *by) {
    const tn_view *made = *cuda_conv_made(c, kind);
    void *room = NULL;
    if (made->numel == 0) return TN_OK;
    read_shape(c, by);
    c->room = &room;
    if (!fits(c) || !(cuda_conv_lies(made, false) || cuda_conv_lies(made, true))) return TN_DECLINE;
    tn_status st = prefers_own(call, c) ? TN_DECLINE : cuda_conv_by_cudnn(call, kind, c);
    return st == TN_DECLINE ? run_packed(call, kind, c) : st;
}

static tn_status forward(const tn_call *call, const void *args) {
    const tn__conv_args *a = args;
    const steps by = {a->stride, a->padding, a->dilation, a->groups};
    cuda_conv c = {.x = a->input, .w = a->weight, .y = a->out, .bias = a->bias};
    return run(call, CUDA_CONV_FORWARD, &c, &by);
}

static tn_status backward_input(const tn_call *call, const void *args) {
    const tn__conv_backward_input_args *a = args;
    const steps by = {a->stride, a->padding, a->dilation, a->groups};
    cuda_conv c = {.x = a->out, .w = a->weight, .y = a->grad, .bias = a->bias};
    return run(call, CUDA_CONV_INPUT, &c, &by);
}

static tn_status backward_weight(const tn_call *call, const void *args) {
    const tn__conv_backward_weight_args *a = args;
    const steps by = {a->stride, a->padding, a->dilation, a->groups};
    cuda_conv c = {.x = a->input, .w = a->out, .y = a->grad};
    return run(call, CUDA_CONV_WEIGHT, &c, &by);
}

#define LAID_ROW(op, fn, dtype) CUDA_ROW(op, fn, dtype, TN_K_CAPTURE_SAFE | TN_K_LAID)
#define LAID_ROWS(op, fn)                                                                          \
    LAID_ROW(op, fn, TN_F16), LAID_ROW(op, fn, TN_BF16), LAID_ROW(op, fn, TN_F32),                 \
        LAID_ROW(op, fn, TN_F64)

static const tn_kernel_row rows[] = {
    LAID_ROWS(_conv, forward),
    LAID_ROWS(_conv_backward_input, backward_input),
    CUDA_FLOAT_ROWS(_conv_backward_weight, backward_weight),
};
const cuda_rows cuda_conv_rows = CUDA_ROWS_OF(rows);
