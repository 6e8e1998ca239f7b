/* norm_cudnn.c: batch_norm in training by cuDNN, whose engines take float32 with channels last. They have
 * no inference. */
#include "norm.h"

#include <string.h>

#include "dnn_plan.h"

/* The operands by their numbers in cuDNN. Those up to GRAD_X are of x's sizes, up to GRAD_BIAS there is
 * a number for each channel. */
enum { X = 1, Y, GRAD, GRAD_X, MEAN, RSTD, SCALE, BIAS, GRAD_SCALE, GRAD_BIAS, EPS, OPERANDS };

enum { MOST_DIMS = 5, GROUP = 4 /* channels that are loaded at once */ };

/* Everything that a plan depends on but the device. */
typedef struct norm_key {
    cuda_dnn_key all;
    int64_t dims, size[MOST_DIMS];
} norm_key;

/* ---- The graph: one operation ------------------------------------------------------------------*/

static void link(cuda_dnn_build *b, const norm_key *k, cudnnBackendDescriptor_t op, unsigned name,
                 int64_t id) {
    cuda_dnn_tensor t = {.id = id,
                         .dims = k->dims,
                         .alignment = k->all.alignment,
                         .type = CUDNN_F32,
                         .by_value = id == EPS};
    for (int64_t d = 0; d < k->dims; d++)
        t.size[d] = id <= GRAD_X || (id <= GRAD_BIAS && d == 1) ? k->size[d] : 1;
    int64_t stride = t.size[1];
    t.stride[1] = 1;
    for (int64_t d = k->dims - 1; d >= 2; stride *= t.size[d--]) t.stride[d] = stride;
    t.stride[0] = stride;
    cuda_dnn_link(b, op, name, cuda_dnn_make_tensor(b, &t));
}

static void describe_forward(cuda_dnn_build *b, const norm_key *k, cudnnBackendDescriptor_t op) {
    const int32_t mode = CUDNN_NORM_BATCH, phase = CUDNN_NORM_TRAINING;
    cuda_dnn_set(b, op, CUDNN_NORM_MODE, CUDNN_IS_NORM, 1, &mode);
    cuda_dnn_set(b, op, CUDNN_NORM_PHASE, CUDNN_IS_PHASE, 1, &phase);
    link(b, k, op, CUDNN_NORM_X, X);
    link(b, k, op, CUDNN_NORM_MEAN, MEAN);
    link(b, k, op, CUDNN_NORM_RSTD, RSTD);
    link(b, k, op, CUDNN_NORM_SCALE, SCALE);
    link(b, k, op, CUDNN_NORM_BIAS, BIAS);
    link(b, k, op, CUDNN_NORM_EPS, EPS);
    link(b, k, op, CUDNN_NORM_Y, Y);
}

static void describe_backward(cuda_dnn_build *b, const norm_key *k, cudnnBackendDescriptor_t op) {
    const int32_t mode = CUDNN_NORM_BATCH;
    cuda_dnn_set(b, op, CUDNN_NORM_BACK_MODE, CUDNN_IS_NORM, 1, &mode);
    link(b, k, op, CUDNN_NORM_BACK_X, X);
    link(b, k, op, CUDNN_NORM_BACK_MEAN, MEAN);
    link(b, k, op, CUDNN_NORM_BACK_RSTD, RSTD);
    link(b, k, op, CUDNN_NORM_BACK_GRAD, GRAD);
    link(b, k, op, CUDNN_NORM_BACK_SCALE, SCALE);
    link(b, k, op, CUDNN_NORM_GRAD_SCALE, GRAD_SCALE);
    link(b, k, op, CUDNN_NORM_GRAD_BIAS, GRAD_BIAS);
    link(b, k, op, CUDNN_NORM_GRAD_X, GRAD_X);
}

static cudnnBackendDescriptor_t describe(cuda_dnn_build *b, const cuda_dnn_key *key,
                                         cudnnHandle_t handle) {
    cudnnBackendDescriptor_t op = cuda_dnn_make(b, (unsigned)key->operation);
    bool forward = key->operation == CUDNN_NORM_FORWARD;
    (forward ? describe_forward : describe_backward)(b, (const norm_key *)key, op);
    cuda_dnn_finish(b, op);
    return cuda_dnn_make_graph(b, handle, &op, 1);
}

/* ---- What cuDNN takes --------------------------------------------------------------------------*/

/* A variance wants two elements of each channel, and not all engines count beyond 32 bits. The library
 * compiles a kernel for each plan, which takes half a second: small tensors do not earn that back. */
static bool takes(const tn_call *call, const tn_view *x, const tn_view *weight) {
    return call->dtype == TN_F32 && weight && x->numel > x->shape[1] && x->numel <= INT32_MAX &&
           x->numel >= cuda_option_value(CUDA_CUDNN_NORM_LEAST) && x->shape[1] % GROUP == 0 &&
           cuda_dnn_wanted();
}

static bool is_last(const tn_view *v) { return (v->word & TN_W_CHANNELS_LAST) != 0; }

/* `data` is by operands, NULL for those that the operation has not. */
static tn_status run(const tn_call *call, unsigned operation, const tn_view *x,
                     const void *const *data) {
    cuda_device *d = NULL;
    norm_key key;
    memset(&key, 0, sizeof key);
    key.all = cuda_dnn_key_of(call, operation);
    key.all.alignment = 16;
    key.dims = x->ndim;
    memcpy(key.size, x->shape, (size_t)x->ndim * sizeof key.size[0]);
    for (int id = X; id < EPS; id++)
        if ((uintptr_t)data[id] % 16 != 0) return TN_DECLINE;
    tn_status st = cuda_enter(call->device_index, &d);
    if (st != TN_OK) return st;
    return cuda_dnn_run(call, d,
                        &(cuda_dnn_problem){.key = &key.all,
                                            .bytes = sizeof key,
                                            .describe = describe,
                                            .data = data + 1,
                                            .operands = OPERANDS - 1});
}

tn_status cuda_batch_norm_by_cudnn(const tn_call *call, const tn_native_batch_norm_args *in) {
    const tn_view *x = in->input;
    const float eps = (float)in->eps;
    if (!takes(call, x, in->weight) || !in->training || !in->bias || !is_last(x) || !is_last(in->y))
        return TN_DECLINE;
    const void *data[OPERANDS] = {[X] = x->data,
                                  [Y] = in->y->data,
                                  [MEAN] = in->save_mean->data,
                                  [RSTD] = in->save_invstd->data,
                                  [SCALE] = in->weight->data,
                                  [BIAS] = in->bias->data,
                                  [EPS] = &eps};
    return run(call, CUDNN_NORM_FORWARD, x, data);
}

tn_status cuda_batch_norm_backward_by_cudnn(const tn_call *call,
                                            const tn__batch_norm_backward_args *in) {
    const tn_view *x = in->input;
    if (!takes(call, x, in->weight) || !in->training || !in->need_input || !in->need_weight ||
        !in->need_bias || !is_last(x) || !is_last(in->grad) || !is_last(in->grad_input))
        return TN_DECLINE;
    const void *data[OPERANDS] = {[X] = x->data,
                                  [GRAD] = in->grad->data,
                                  [GRAD_X] = in->grad_input->data,
                                  [MEAN] = in->mean->data,
                                  [RSTD] = in->invstd->data,
                                  [SCALE] = in->weight->data,
                                  [GRAD_SCALE] = in->grad_weight->data,
                                  [GRAD_BIAS] = in->grad_bias->data};
    return run(call, CUDNN_NORM_BACKWARD, x, data);
}
