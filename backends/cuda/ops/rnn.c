/* rnn.c: the pointwise part of a step of recurrent networks: host side of kernels/rnn.cu.
 *
 * family: rnn */
#include "cuda_priv.h"

#include <tenon/args_rnn.h>

#include "kernels/args/args_rnn.h"

static cuda_float_kernels lstm_kernels = CUDA_FLOAT_KERNELS(rnn, lstm_step),
                          lstm_backward_kernels = CUDA_FLOAT_KERNELS(rnn, lstm_step_backward),
                          gru_kernels = CUDA_FLOAT_KERNELS(rnn, gru_step),
                          gru_backward_kernels = CUDA_FLOAT_KERNELS(rnn, gru_step_backward);

/* A thread for each element of `state`; operands in the order of the signature, packed. */
static tn_status run(const tn_call *call, cuda_float_kernels kernels, const tn_view *state,
                     const tn_view *const *in, int32_t inputs, const tn_view *const *out,
                     int32_t outputs) {
    cuda_rnn_args a = {.numel = state->numel, .n = state->shape[state->ndim - 1]};
    if (a.numel == 0) return TN_OK;
    for (int32_t k = 0; k < inputs; k++) a.in[k] = in[k] ? in[k]->data : NULL;
    for (int32_t k = 0; k < outputs; k++) a.out[k] = out[k]->data;
    a.narrow = a.numel <= INT32_MAX;
    return cuda_launch_each(call, cuda_float_kernel(call, kernels), a.numel, &a);
}

static tn_status lstm_step(const tn_call *call, const void *args) {
    const tn__lstm_step_args *a = args;
    const tn_view *in[] = {a->gates_x, a->gates_h, a->c}, *out[] = {a->h, a->cell, a->gates};
    return run(call, lstm_kernels, a->c, in, 3, out, 3);
}

static tn_status lstm_step_backward(const tn_call *call, const void *args) {
    const tn__lstm_step_backward_args *a = args;
    const tn_view *in[] = {a->grad_h, a->grad_cell, a->grad_gates, a->gates, a->c, a->cell};
    const tn_view *out[] = {a->grad_sum, a->grad_c};
    return run(call, lstm_backward_kernels, a->c, in, 6, out, 2);
}

static tn_status gru_step(const tn_call *call, const void *args) {
    const tn__gru_step_args *a = args;
    const tn_view *in[] = {a->gates_x, a->gates_h, a->h}, *out[] = {a->state, a->gates};
    return run(call, gru_kernels, a->h, in, 3, out, 2);
}

static tn_status gru_step_backward(const tn_call *call, const void *args) {
    const tn__gru_step_backward_args *a = args;
    const tn_view *in[] = {a->grad_state, a->grad_gates, a->gates, a->h};
    const tn_view *out[] = {a->grad_gates_x, a->grad_gates_h, a->grad_h};
    return run(call, gru_backward_kernels, a->h, in, 4, out, 3);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(_lstm_step, lstm_step),
    CUDA_FLOAT_ROWS(_lstm_step_backward, lstm_step_backward),
    CUDA_FLOAT_ROWS(_gru_step, gru_step),
    CUDA_FLOAT_ROWS(_gru_step_backward, gru_step_backward),
};
const cuda_rows cuda_rnn_rows = CUDA_ROWS_OF(rows);
