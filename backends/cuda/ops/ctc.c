/* ctc.c: connectionist temporal classification: host side of kernels/ctc.cu. What is out of range in
 * lengths and labels is reported by the device.
 *
 * family: ctc */
#include "cuda_priv.h"

#include <tenon/args_loss.h>

#include "kernels/args/args_ctc.h"

static cuda_float_kernels forwards = CUDA_FLOAT_KERNELS(ctc, ctc_forward),
                          betas = CUDA_FLOAT_KERNELS(ctc, ctc_beta),
                          backwards = CUDA_FLOAT_KERNELS(ctc, ctc_backward);

static tn_status start(const tn_call *call, const tn_view *x, const tn_view *targets,
                       const tn_view *times, const tn_view *lengths, cuda_ctc_args *a) {
    const void *labels = NULL, *at = NULL, *counts = NULL;
    tn_status st = cuda_packed(call, x, &a->x);
    if (st == TN_OK) st = cuda_packed(call, targets, &labels);
    if (st == TN_OK) st = cuda_packed(call, times, &at);
    if (st == TN_OK) st = cuda_packed(call, lengths, &counts);
    a->targets = labels;
    a->times = at;
    a->lengths = counts;
    a->steps = x->shape[0];
    a->batch = x->shape[1];
    a->classes = x->shape[2];
    a->row = targets->ndim == 2 ? targets->shape[1] : 0;
    a->labels = targets->numel;
    a->op = (uint64_t)(uintptr_t)call->op->name;
    return st == TN_OK ? cuda_fault_of(call, &a->fault) : st;
}

static tn_status ctc_loss(const tn_call *call, const void *args) {
    const tn__ctc_loss_args *in = args;
    cuda_ctc_args a = {.blank = in->blank,
                       .width = in->log_alpha->shape[2],
                       .loss = in->y->data,
                       .alpha = in->log_alpha->data};
    tn_status st =
        start(call, in->log_probs, in->targets, in->input_lengths, in->target_lengths, &a);
    if (st != TN_OK || a.batch == 0) return st;
    return cuda_launch(call, cuda_float_kernel(call, forwards), a.batch,
                       cuda_rows_threads(a.width, 1), &a);
}

static tn_status ctc_loss_backward(const tn_call *call, const void *args) {
    const tn__ctc_loss_backward_args *in = args;
    cuda_ctc_args a = {.blank = in->blank,
                       .width = in->log_alpha->shape[2],
                       .zero_infinity = in->zero_infinity != 0,
                       .y = in->out->data};
    const void *p[3];
    void *begin = NULL;
    if (in->out->numel == 0) return TN_OK;
    tn_status st =
        start(call, in->log_probs, in->targets, in->input_lengths, in->target_lengths, &a);
    if (st == TN_OK) st = cuda_packed(call, in->grad, &p[0]);
    if (st == TN_OK) st = cuda_packed(call, in->y, &p[1]);
    if (st == TN_OK) st = cuda_packed(call, in->log_alpha, &p[2]);
    if (st == TN_OK) st = room_scratch(call, a.batch, sizeof(int64_t), &begin);
    if (st == TN_OK)
        st = room_scratch(call, room_mul(room_mul(a.batch, a.steps), a.width),
                          (size_t)tn_view_itemsize(in->out), &a.beta);
    if (st != TN_OK) return st;
    a.grad = (void *)(uintptr_t)p[0];
    a.loss = (void *)(uintptr_t)p[1];
    a.alpha = (void *)(uintptr_t)p[2];
    a.start = begin;
    st = cuda_launch(call, cuda_float_kernel(call, betas), a.batch, cuda_rows_threads(a.width, 1),
                     &a);
    if (st != TN_OK) return st;
    return cuda_launch(call, cuda_float_kernel(call, backwards), a.steps * a.batch,
                       cuda_rows_threads(a.width > a.classes ? a.width : a.classes, 1), &a);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROW(_ctc_loss, ctc_loss, TN_F32),
    CUDA_FLOAT_ROW(_ctc_loss, ctc_loss, TN_F64),
    CUDA_FLOAT_ROW(_ctc_loss_backward, ctc_loss_backward, TN_F32),
    CUDA_FLOAT_ROW(_ctc_loss_backward, ctc_loss_backward, TN_F64),
};
const cuda_rows cuda_ctc_rows = CUDA_ROWS_OF(rows);
