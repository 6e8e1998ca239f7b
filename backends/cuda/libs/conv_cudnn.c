/* conv_cudnn.c: convolutions by cuDNN: what their plans depend on, and how they are described. Where no
 * engine serves, our own kernels do. */
#include "conv.h"

#include <string.h>

#include "dnn_plan.h"

/* ---- Which convolution -------------------------------------------------------------------------*/

/* Of the three operations: type and the first of its attributes, in the order of cudnn.h's list. */
static const struct {
    unsigned type, alpha, beta, conv, w, x, y;
} operations[] = {
    [CUDA_CONV_FORWARD] = {CUDNN_FORWARD, CUDNN_FORWARD_ALPHA, CUDNN_FORWARD_BETA,
                           CUDNN_FORWARD_CONV, CUDNN_FORWARD_W, CUDNN_FORWARD_X, CUDNN_FORWARD_Y},
    [CUDA_CONV_INPUT] = {CUDNN_INPUT, CUDNN_INPUT_ALPHA, CUDNN_INPUT_BETA, CUDNN_INPUT_CONV,
                         CUDNN_INPUT_W, CUDNN_INPUT_X, CUDNN_INPUT_Y},
    [CUDA_CONV_WEIGHT] = {CUDNN_WEIGHT, CUDNN_WEIGHT_ALPHA, CUDNN_WEIGHT_BETA, CUDNN_WEIGHT_CONV,
                          CUDNN_WEIGHT_W, CUDNN_WEIGHT_X, CUDNN_WEIGHT_Y},
};

/* Everything that a plan depends on but the device. */
typedef struct conv_key {
    cuda_dnn_key all;
    int64_t kind, dims; /* of windows: 2 or 3 */
    int64_t last;       /* channels lie last, in all three */
    int64_t x[5], w[5], y[5], stride[3], pad[3], dilation[3];
} conv_key;

/* Images and channels, then the last `dims` of three dimensions. */
static void put_sizes(int64_t *to, int64_t dims, int64_t n, int64_t channels, const int64_t *size) {
    to[0] = n;
    to[1] = channels;
    memcpy(to + 2, size + 3 - dims, (size_t)dims * sizeof *to);
}

static void make_key(const tn_call *call, cuda_device *d, cuda_conv_kind kind, const cuda_conv *c,
                     bool last, const void *const *data, conv_key *ret_key) {
    conv_key *k = ret_key;
    memset(k, 0, sizeof *k);
    k->all = cuda_dnn_key_of(call, operations[kind].type);
    k->all.alignment = cuda_dnn_alignment(data, 3);
    /* Timing waits, which a stream that is recorded must not. */
    k->all.benchmark =
        cuda_option_value(CUDA_CUDNN_BENCHMARK) != 0 && atomic_load(&d->captures) == 0;
    k->kind = (int64_t)kind;
    k->last = last;
    k->dims = c->x->ndim == 5 ? 3 : 2; /* engines take no single dimension */
    int64_t first = 3 - k->dims;
    size_t bytes = (size_t)k->dims * sizeof(int64_t);
    put_sizes(k->x, k->dims, c->images, c->groups * c->ci, c->s.in);
    put_sizes(k->w, k->dims, c->groups * c->co, c->ci, c->s.window);
    put_sizes(k->y, k->dims, c->images, c->groups * c->co, c->s.out);
    memcpy(k->stride, c->s.stride + first, bytes);
    memcpy(k->pad, c->s.pad + first, bytes);
    memcpy(k->dilation, c->s.dilation + first, bytes);
}

/* ---- Descriptors -------------------------------------------------------------------------------*/

static cudnnBackendDescriptor_t make_tensor(cuda_dnn_build *b, const conv_key *k, int64_t id,
                                            const int64_t *sizes) {
    cuda_dnn_tensor t = {.id = id,
                         .type = cuda_dnn_type(k->all.dtype),
                         .dims = k->dims + 2,
                         .alignment = k->all.alignment};
    int64_t size = k->last ? sizes[1] : 1;
    for (int64_t d = t.dims - 1; d >= 0; d--) {
        bool inner = k->last && d == 1;
        t.size[d] = sizes[d];
        t.stride[d] = inner ? 1 : size;
        if (!inner) size *= sizes[d];
    }
    return cuda_dnn_make_tensor(b, &t);
}

static cudnnBackendDescriptor_t make_convolution(cuda_dnn_build *b, const conv_key *k) {
    int32_t compute = k->all.dtype == TN_F64 ? CUDNN_F64 : CUDNN_F32, mode = CUDNN_CORRELATION;
    cudnnBackendDescriptor_t c = cuda_dnn_make(b, CUDNN_CONV);
    cuda_dnn_set(b, c, CUDNN_CONV_COMPUTE, CUDNN_IS_DATA_TYPE, 1, &compute);
    cuda_dnn_set(b, c, CUDNN_CONV_MODE, CUDNN_IS_MODE, 1, &mode);
    cuda_dnn_set(b, c, CUDNN_CONV_DIMS, CUDNN_IS_INT64, 1, &k->dims);
    cuda_dnn_set(b, c, CUDNN_CONV_DILATION, CUDNN_IS_INT64, k->dims, k->dilation);
    cuda_dnn_set(b, c, CUDNN_CONV_STRIDE, CUDNN_IS_INT64, k->dims, k->stride);
    cuda_dnn_set(b, c, CUDNN_CONV_PAD_BEFORE, CUDNN_IS_INT64, k->dims, k->pad);
    cuda_dnn_set(b, c, CUDNN_CONV_PAD_AFTER, CUDNN_IS_INT64, k->dims, k->pad);
    cuda_dnn_finish(b, c);
    return c;
}

enum { ID_X = 1, ID_W, ID_Y };

/* A graph of one operation: what is made = 1 * convolution + 0 * what is there. */
static cudnnBackendDescriptor_t make_graph(cuda_dnn_build *b, const cuda_dnn_key *key,
                                           cudnnHandle_t handle) {
    const conv_key *k = (const conv_key *)key;
    const double alpha = 1, beta = 0;
    const float alpha32 = 1, beta32 = 0;
    bool wide = k->all.dtype == TN_F64;
    unsigned number = wide ? CUDNN_IS_DOUBLE : CUDNN_IS_FLOAT;
    cudnnBackendDescriptor_t x = make_tensor(b, k, ID_X, k->x), w = make_tensor(b, k, ID_W, k->w),
                             y = make_tensor(b, k, ID_Y, k->y), c = make_convolution(b, k),
                             op = cuda_dnn_make(b, operations[k->kind].type);
    cuda_dnn_link(b, op, operations[k->kind].conv, c);
    cuda_dnn_link(b, op, operations[k->kind].x, x);
    cuda_dnn_link(b, op, operations[k->kind].w, w);
    cuda_dnn_link(b, op, operations[k->kind].y, y);
    cuda_dnn_set(b, op, operations[k->kind].alpha, number, 1,
                 wide ? (const void *)&alpha : &alpha32);
    cuda_dnn_set(b, op, operations[k->kind].beta, number, 1, wide ? (const void *)&beta : &beta32);
    cuda_dnn_finish(b, op);
    return cuda_dnn_make_graph(b, handle, &op, 1);
}

/* ---- A convolution -----------------------------------------------------------------------------*/

/* Engines know no empty tensors, and not all count beyond 32 bits. */
static bool takes(const cuda_conv *c) {
    return c->x->numel > 0 && c->w->numel > 0 && c->x->numel <= INT32_MAX &&
           c->y->numel <= INT32_MAX;
}

static bool is_last(const tn_view *v) {
    return cuda_conv_lies(v, true) && !cuda_conv_lies(v, false);
}

/* Tensor cores take channels last, and engines for packed images turn those around first. Engines
 * without tensor cores take packed ones. */
static bool prefers_last(const tn_call *call, const cuda_conv *c) {
    bool narrow = call->dtype == TN_F16 || call->dtype == TN_BF16;
    bool tf32 = call->dtype == TN_F32 && cuda_option_value(CUDA_CUDNN_TF32) != 0;
    return (narrow || tf32) && (is_last(c->x) || is_last(c->y));
}

/* All three lie in one order: what does not is copied. */
static tn_status run_in_order(const tn_call *call, cuda_device *d, cuda_conv_kind kind,
                              const cuda_conv *c, bool last) {
    const tn_view *const views[] = {c->x, c->w, c->y};
    static const int made_by[] = {2, 0, 1};
    const int made = made_by[kind];
    const void *data[3];
    cuda_conv_room room[3];
    conv_key key;
    tn_status st = TN_OK;
    for (int i = 0; i < 3 && st == TN_OK; i++) {
        bool lies = cuda_conv_lies(views[i], last);
        if (!lies) st = cuda_conv_lend(call, views[i], last, &room[i]);
        if (!lies && st == TN_OK && i != made) st = cuda_copy_view(call, &room[i].view, views[i]);
        data[i] = lies ? views[i]->data : room[i].view.data;
    }
    if (st != TN_OK) return st;
    make_key(call, d, kind, c, last, data, &key);
    st = cuda_dnn_run(call, d,
                      &(cuda_dnn_problem){.key = &key.all,
                                          .bytes = sizeof key,
                                          .describe = make_graph,
                                          .data = data,
                                          .operands = 3});
    if (st != TN_OK || cuda_conv_lies(views[made], last)) return st;
    return cuda_copy_view(call, views[made], &room[made].view);
}

tn_status cuda_conv_by_cudnn(const tn_call *call, cuda_conv_kind kind, const cuda_conv *c) {
    cuda_device *d = NULL;
    if (!cuda_dnn_wanted() || !takes(c)) return TN_DECLINE;
    tn_status st = cuda_enter(call->device_index, &d);
    if (st != TN_OK) return st;
    st = prefers_last(call, c) ? run_in_order(call, d, kind, c, true) : TN_DECLINE;
    if (st == TN_DECLINE) st = run_in_order(call, d, kind, c, false);
    return st == TN_OK ? cuda_conv_add_bias(call, c, kind == CUDA_CONV_FORWARD ? c->y : c->x) : st;
}
