/* fused.c: softmax and its kin, cross entropy: host side of kernels/fused.cu. */
#include "cuda_priv.h"

#include <string.h>

#include <tenon/args_loss.h>
#include <tenon/args_norm.h>

/* ---- Softmax -----------------------------------------------------------------------------------*/

static cuda_float_kernels softmax_kernels = CUDA_FLOAT_KERNELS(fused, softmax),
                          log_softmax_kernels = CUDA_FLOAT_KERNELS(fused, log_softmax),
                          softmax_backward_kernels = CUDA_FLOAT_KERNELS(fused, softmax_backward),
                          log_softmax_backward_kernels =
                              CUDA_FLOAT_KERNELS(fused, log_softmax_backward);

static tn_status run_rows(const tn_call *call, cuda_float_kernels kernels,
                          const tn_view *const *views, int32_t n, int64_t dim) {
    cuda_rows_args a;
    if (views[0]->numel == 0) return TN_OK;
    tn_status st = cuda_rows_read(views, n, dim, &a);
    if (st != TN_OK) return st;
    return cuda_launch(call, cuda_float_kernel(call, kernels), (a.rows + a.width - 1) / a.width,
                       cuda_rows_threads(a.n, a.width), &a);
}

static tn_status softmax(const tn_call *call, const void *args) {
    const tn_softmax_args *a = args;
    const tn_view *views[] = {a->input, a->out};
    return run_rows(call, softmax_kernels, views, 2, a->dim);
}

static tn_status log_softmax(const tn_call *call, const void *args) {
    const tn_log_softmax_args *a = args;
    const tn_view *views[] = {a->input, a->out};
    return run_rows(call, log_softmax_kernels, views, 2, a->dim);
}

static tn_status softmax_backward(const tn_call *call, const void *args) {
    const tn__softmax_backward_args *a = args;
    const tn_view *views[] = {a->grad, a->y, a->out};
    return run_rows(call, softmax_backward_kernels, views, 3, a->dim);
}

static tn_status log_softmax_backward(const tn_call *call, const void *args) {
    const tn__log_softmax_backward_args *a = args;
    const tn_view *views[] = {a->grad, a->y, a->out};
    return run_rows(call, log_softmax_backward_kernels, views, 3, a->dim);
}

/* ---- Cross entropy -----------------------------------------------------------------------------*/

static cuda_float_kernels entropy_rows_kernels = CUDA_FLOAT_KERNELS(fused, entropy_rows),
                          entropy_finish_kernels = CUDA_FLOAT_KERNELS(fused, entropy_finish),
                          entropy_backward_kernels = CUDA_FLOAT_KERNELS(fused, entropy_backward);

/* Logits as (rows, classes); images of logits go another way. */
static tn_status read_logits(const tn_call *call, const tn_view *x, const tn_view *target,
                             cuda_entropy_args *ret_args) {
    cuda_entropy_args *a = ret_args;
    if (x->ndim > 2 || tn_view_dtype(target) != TN_I64) return TN_DECLINE;
    memset(a, 0, sizeof *a);
    a->x = x->data;
    a->rows = x->ndim == 2 ? x->shape[0] : 1;
    a->n = x->shape[x->ndim - 1];
    a->x_row = x->ndim == 2 ? x->strides[0] : 0;
    a->x_column = x->strides[x->ndim - 1];
    a->target = target->data;
    a->target_step = target->ndim ? target->strides[0] : 0;
    a->op = (uint64_t)(uintptr_t)call->op->name;
    return a->rows == 0 || a->n == 0 ? TN_DECLINE : cuda_fault_of(call, &a->fault);
}

static tn_status cross_entropy(const tn_call *call, const void *args) {
    const tn__cross_entropy_args *in = args;
    cuda_entropy_args a;
    void *parts = NULL;
    uint32_t threads = 32;
    tn_status st = read_logits(call, in->input, in->target, &a);
    if (st == TN_OK) st = call->host->scratch(call, (uint64_t)a.rows * sizeof(double), &parts);
    if (st != TN_OK) return st;
    a.parts = parts;
    a.y = in->y->data;
    a.lse = in->lse->data;
    a.count = in->count->data;
    a.reduction = (int32_t)in->reduction;
    a.ignore = in->ignore_index;
    while (threads < CUDA_BLOCK && (int64_t)threads < a.n) threads *= 2;
    st = cuda_launch(call, cuda_float_kernel(call, entropy_rows_kernels), a.rows, threads, &a);
    if (st != TN_OK) return st;
    return cuda_launch(call, cuda_float_kernel(call, entropy_finish_kernels), 1, CUDA_BLOCK, &a);
}

static tn_status cross_entropy_backward(const tn_call *call, const void *args) {
    const tn__cross_entropy_backward_args *in = args;
    cuda_entropy_args a;
    if (!tn_view_is_contiguous(in->out)) return TN_DECLINE;
    tn_status st = read_logits(call, in->input, in->target, &a);
    if (st != TN_OK) return st;
    a.grad = in->grad->data;
    a.grad_step = in->grad->ndim ? in->grad->strides[0] : 0;
    a.lse = in->lse->data;
    a.count = in->count->data;
    a.out = in->out->data;
    a.reduction = (int32_t)in->reduction;
    a.ignore = in->ignore_index;
    int64_t blocks = (a.rows * a.n + CUDA_BLOCK - 1) / CUDA_BLOCK;
    return cuda_launch(call, cuda_float_kernel(call, entropy_backward_kernels), blocks, CUDA_BLOCK,
                       &a);
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(softmax, softmax),
    CUDA_FLOAT_ROWS(log_softmax, log_softmax),
    CUDA_FLOAT_ROWS(_softmax_backward, softmax_backward),
    CUDA_FLOAT_ROWS(_log_softmax_backward, log_softmax_backward),
    CUDA_FLOAT_ROWS(_cross_entropy, cross_entropy),
    CUDA_FLOAT_ROWS(_cross_entropy_backward, cross_entropy_backward),
};
const cuda_rows cuda_fused_rows;
const cuda_rows cuda_fused_rows = CUDA_ROWS_OF(rows);
