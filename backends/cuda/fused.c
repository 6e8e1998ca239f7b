/* fused.c: softmax and its kin, cross entropy, optimizer steps: host side of kernels/fused.cu. */
#include "cuda_priv.h"

#include <math.h>
#include <string.h>

#include <tenon/args_loss.h>
#include <tenon/args_norm.h>
#include <tenon/args_optim.h>

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

/* ---- Optimizer steps ---------------------------------------------------------------------------*/

static cuda_float_kernels sgd_kernels = CUDA_FLOAT_KERNELS(fused, sgd_step),
                          adam_kernels = CUDA_FLOAT_KERNELS(fused, adam_step);

/* The state of an optimizer: lists that go beside the parameters; an empty one is left out. */
typedef struct step_lists {
    const tn_views *list[4];
    const double *minus_steps, *roots; /* by tensor, or NULL */
} step_lists;

/* Adds tensor i; false when there is no room for it. */
static bool add_tensor(cuda_step_args *a, const step_lists *l, int64_t i) {
    cuda_step_tensor *t = &a->tensor[a->n];
    int64_t n = l->list[0]->v[i]->numel, blocks = (n + CUDA_CHUNK - 1) / CUDA_CHUNK;
    if (a->n == CUDA_TENSORS || blocks > INT32_MAX - a->first[a->n]) return false;
    for (int k = 0; k < 4; k++)
        t->data[k] = l->list[k] && l->list[k]->n ? l->list[k]->v[i]->data : NULL;
    t->n = n;
    t->minus_step = l->minus_steps ? l->minus_steps[i] : 0;
    t->root = l->roots ? l->roots[i] : 0;
    a->first[a->n + 1] = a->first[a->n] + (int32_t)blocks;
    a->n++;
    return true;
}

/* As many tensors as fit share a launch. */
static tn_status run_steps(const tn_call *call, cuda_float_kernels kernels, cuda_step_args *a,
                           const step_lists *l) {
    tn_status st = TN_OK;
    for (int64_t i = 0; i < l->list[0]->n && st == TN_OK;) {
        a->n = 0;
        while (i < l->list[0]->n && add_tensor(a, l, i)) i++;
        if (a->n == 0) return TN_DECLINE;
        if (a->first[a->n] > 0)
            st = cuda_launch(call, cuda_float_kernel(call, kernels), a->first[a->n], CUDA_BLOCK, a);
    }
    return st;
}

static tn_status sgd_step(const tn_call *call, const void *args) {
    const tn__sgd_step_args *in = args;
    cuda_step_args a = {.sign = in->maximize ? -1 : 1,
                        .decay = in->weight_decay,
                        .momentum = in->momentum,
                        .keep = 1.0 - in->dampening,
                        .minus_lr = -in->lr,
                        .decays = in->weight_decay != 0.0,
                        .nesterov = in->nesterov != 0,
                        .is_first = in->first != 0};
    step_lists l = {.list = {&in->params, &in->grads, &in->momenta, NULL}};
    return run_steps(call, sgd_kernels, &a, &l);
}

/* Advances a counter, which lives on the host, and returns its new value. */
static double advance(tn_view *counter) {
    if (counter->dl_bits == 64) return *(double *)counter->data += 1.0;
    return (double)(*(float *)counter->data += 1.0f);
}

/* Part of a list. */
static tn_views slice(tn_views all, int64_t begin, int64_t n) {
    return (tn_views){all.v + begin, n};
}

/* Tensors begin .. begin + n - 1, at most CUDA_TENSORS. */
static tn_status adam_some(const tn_call *call, const tn__adam_step_args *in, int64_t begin,
                           int64_t n) {
    bool decays = in->weight_decay != 0.0;
    double minus_steps[CUDA_TENSORS], roots[CUDA_TENSORS];
    for (int64_t i = 0; i < n; i++) {
        double step = advance(in->steps.v[begin + i]);
        minus_steps[i] = -(in->lr / (1.0 - pow(in->beta1, step)));
        roots[i] = sqrt(1.0 - pow(in->beta2, step));
    }
    cuda_step_args a = {.sign = in->maximize ? -1 : 1,
                        .decay = in->weight_decay,
                        .shrink = decays && in->decoupled ? 1.0 - in->lr * in->weight_decay : 1.0,
                        .toward = 1.0 - in->beta1,
                        .beta2 = in->beta2,
                        .square = 1.0 - in->beta2,
                        .eps = in->eps,
                        .coupled = decays && !in->decoupled};
    const tn_views part[] = {slice(in->params, begin, n), slice(in->grads, begin, n),
                             slice(in->exp_avgs, begin, n), slice(in->exp_avg_sqs, begin, n)};
    step_lists l = {.list = {&part[0], &part[1], &part[2], &part[3]},
                    .minus_steps = minus_steps,
                    .roots = roots};
    return run_steps(call, adam_kernels, &a, &l);
}

static tn_status adam_step(const tn_call *call, const void *args) {
    const tn__adam_step_args *in = args;
    tn_status st = TN_OK;
    if (in->amsgrad) return TN_DECLINE;
    for (int64_t i = 0; i < in->steps.n; i++)
        if (tn_view_device(in->steps.v[i]) != 0) return TN_DECLINE;
    for (int64_t i = 0; i < in->params.n && st == TN_OK; i += CUDA_TENSORS) {
        int64_t left = in->params.n - i;
        st = adam_some(call, in, i, left < CUDA_TENSORS ? left : CUDA_TENSORS);
    }
    return st;
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(softmax, softmax),
    CUDA_FLOAT_ROWS(log_softmax, log_softmax),
    CUDA_FLOAT_ROWS(_softmax_backward, softmax_backward),
    CUDA_FLOAT_ROWS(_log_softmax_backward, log_softmax_backward),
    CUDA_FLOAT_ROWS(_cross_entropy, cross_entropy),
    CUDA_FLOAT_ROWS(_cross_entropy_backward, cross_entropy_backward),
    CUDA_FLOAT_ROWS(_sgd_step, sgd_step),
    CUDA_FLOAT_ROWS(_adam_step, adam_step),
};
const cuda_rows cuda_fused_rows;
const cuda_rows cuda_fused_rows = CUDA_ROWS_OF(rows);
