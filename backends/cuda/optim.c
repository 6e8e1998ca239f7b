/* optim.c: optimizer steps, norms and scaling over lists of tensors, many of them in one launch: host
 * side of kernels/optim.cu. */
#include "cuda_priv.h"

#include <math.h>
#include <string.h>

#include <tenon/args_optim.h>

#include "../common/adam.h"
#include "kernels/args_optim.h"

static cuda_float_kernels sgd_kernels = CUDA_FLOAT_KERNELS(optim, sgd_step),
                          advance_kernels = CUDA_FLOAT_KERNELS(optim, adam_advance),
                          adam_kernels = CUDA_FLOAT_KERNELS(optim, adam_step),
                          scale_kernels = CUDA_FLOAT_KERNELS(optim, scale_step),
                          unscale_kernels = CUDA_FLOAT_KERNELS(optim, unscale_step),
                          norm_parts_kernels = CUDA_FLOAT_KERNELS(optim, norm_parts),
                          norm_finish_kernels = CUDA_FLOAT_KERNELS(optim, norm_finish);

_Static_assert(sizeof(cuda_step_args) <= 4096, "more than a kernel takes by value");

/* ---- Lists -------------------------------------------------------------------------------------*/

/* The state of an optimizer: lists that go beside the parameters; an empty one is left out. */
typedef struct step_lists {
    const tn_views *list[CUDA_LISTS];
    const cuda_adam_size *sizes; /* by tensor, or NULL */
    const tn_views *counters;    /* on the device, or NULL */
} step_lists;

/* Adds tensor i; false when there is no room for it. */
static bool add_tensor(cuda_step_args *a, const step_lists *l, int64_t i) {
    cuda_step_tensor *t = &a->tensor[a->n];
    int64_t n = l->list[0]->v[i]->numel, blocks = (n + CUDA_CHUNK - 1) / CUDA_CHUNK;
    if (a->n == CUDA_TENSORS || blocks > INT32_MAX - a->first[a->n]) return false;
    for (int k = 0; k < CUDA_LISTS; k++)
        t->data[k] = l->list[k] && l->list[k]->n ? l->list[k]->v[i]->data : NULL;
    t->n = n;
    t->size = l->sizes ? l->sizes[i] : (cuda_adam_size){0, 0};
    t->counter = l->counters ? l->counters->v[i]->data : NULL;
    a->first[a->n + 1] = a->first[a->n] + (int32_t)blocks;
    a->n++;
    return true;
}

/* Takes the tensors from *i on that fit into one launch, and moves *i behind them; false: the first
 * of them is too large for any. */
static bool take_tensors(cuda_step_args *a, const step_lists *l, int64_t *i) {
    a->n = 0;
    while (*i < l->list[0]->n && add_tensor(a, l, *i)) (*i)++;
    return a->n > 0;
}

/* A block for each chunk of the tensors that were taken. */
static tn_status launch_chunks(const tn_call *call, cuda_float_kernels kernels,
                               const cuda_step_args *a) {
    if (a->first[a->n] == 0) return TN_OK;
    return cuda_launch(call, cuda_float_kernel(call, kernels), a->first[a->n], CUDA_BLOCK, a);
}

static tn_status run_steps(const tn_call *call, cuda_float_kernels kernels, cuda_step_args *a,
                           const step_lists *l) {
    tn_status st = TN_OK;
    for (int64_t i = 0; i < l->list[0]->n && st == TN_OK;) {
        if (!take_tensors(a, l, &i)) return TN_DECLINE;
        st = launch_chunks(call, kernels, a);
    }
    return st;
}

/* ---- Optimizer steps ---------------------------------------------------------------------------*/

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
    step_lists l = {.list = {&in->params, &in->grads, &in->momenta}};
    return run_steps(call, sgd_kernels, &a, &l);
}

/* Advances a counter, which lives on the host, and returns its new value. */
static double advance(tn_view *counter) {
    if (counter->dl_bits == 64) return *(double *)counter->data += 1.0;
    return (double)(*(float *)counter->data += 1.0f);
}

/* Part of a list. */
static tn_views slice(tn_views all, int64_t begin, int64_t n) {
    return (tn_views){n > 0 ? all.v + begin : NULL, n};
}

static cuda_step_args adam_args(const tn__adam_step_args *in) {
    bool decays = in->weight_decay != 0.0;
    return (cuda_step_args){.sign = in->maximize ? -1 : 1,
                            .decay = in->weight_decay,
                            .lr = in->lr,
                            .beta1 = in->beta1,
                            .beta2 = in->beta2,
                            .shrink =
                                decays && in->decoupled ? 1.0 - in->lr * in->weight_decay : 1.0,
                            .toward = 1.0 - in->beta1,
                            .square = 1.0 - in->beta2,
                            .eps = in->eps,
                            .coupled = decays && !in->decoupled,
                            .wide_counters = in->steps.v[0]->dl_bits == 64};
}

/* Counters on the host: tensors begin .. begin + n - 1, at most CUDA_TENSORS. */
static tn_status adam_some(const tn_call *call, const tn__adam_step_args *in, int64_t begin,
                           int64_t n) {
    cuda_adam_size sizes[CUDA_TENSORS];
    cuda_step_args a = adam_args(in);
    for (int64_t i = 0; i < n; i++)
        adam_size(in->lr, in->beta1, in->beta2, advance(in->steps.v[begin + i]),
                  &sizes[i].minus_step, &sizes[i].root);
    const tn_views part[] = {slice(in->params, begin, n), slice(in->grads, begin, n),
                             slice(in->exp_avgs, begin, n), slice(in->exp_avg_sqs, begin, n),
                             slice(in->max_exp_avg_sqs, begin, in->amsgrad ? n : 0)};
    step_lists l = {.list = {&part[0], &part[1], &part[2], &part[3], &part[4]}, .sizes = sizes};
    return run_steps(call, adam_kernels, &a, &l);
}

/* Counters on the device: nothing here depends on how many steps there were, so a graph can hold it. */
static tn_status adam_counted_there(const tn_call *call, const tn__adam_step_args *in) {
    cuda_step_args a = adam_args(in);
    step_lists l = {.list = {&in->params, &in->grads, &in->exp_avgs, &in->exp_avg_sqs,
                             in->amsgrad ? &in->max_exp_avg_sqs : NULL},
                    .counters = &in->steps};
    void *sizes = NULL;
    tn_status st = call->host->scratch(call, sizeof *a.sizes * CUDA_TENSORS, &sizes);
    a.sizes = sizes;
    for (int64_t i = 0; i < in->params.n && st == TN_OK;) {
        if (!take_tensors(&a, &l, &i)) return TN_DECLINE;
        st = cuda_launch(call, cuda_float_kernel(call, advance_kernels), 1, CUDA_TENSORS, &a);
        if (st == TN_OK) st = launch_chunks(call, adam_kernels, &a);
    }
    return st;
}

static tn_status adam_step(const tn_call *call, const void *args) {
    const tn__adam_step_args *in = args;
    tn_status st = TN_OK;
    if (tn_view_device(in->steps.v[0]) != 0) return adam_counted_there(call, in);
    for (int64_t i = 0; i < in->params.n && st == TN_OK; i += CUDA_TENSORS) {
        int64_t left = in->params.n - i;
        st = adam_some(call, in, i, left < CUDA_TENSORS ? left : CUDA_TENSORS);
    }
    return st;
}

/* ---- Scaling and norms -------------------------------------------------------------------------*/

static tn_status scale_step(const tn_call *call, const void *args) {
    const tn__scale_step_args *in = args;
    cuda_step_args a = {.factor = in->factor->data};
    step_lists l = {.list = {&in->tensors}};
    return run_steps(call, scale_kernels, &a, &l);
}

static tn_status unscale_step(const tn_call *call, const void *args) {
    const tn__unscale_step_args *in = args;
    cuda_step_args a = {.unscale = in->factor, .found = in->found->data};
    step_lists l = {.list = {&in->tensors}};
    return run_steps(call, unscale_kernels, &a, &l);
}

static int64_t count_chunks(tn_views tensors) {
    int64_t chunks = 0;
    for (int64_t i = 0; i < tensors.n; i++)
        chunks += (tensors.v[i]->numel + CUDA_CHUNK - 1) / CUDA_CHUNK;
    return chunks;
}

static tn_status norms_step(const tn_call *call, const void *args) {
    const tn__norms_step_args *in = args;
    cuda_step_args a = {.norm = isinf(in->p)   ? CUDA_NORM_LARGEST
                                : in->p == 2.0 ? CUDA_NORM_SQUARES
                                               : CUDA_NORM_ABS};
    step_lists l = {.list = {&in->tensors}};
    void *parts = NULL;
    uint64_t bytes = sizeof *a.parts * (uint64_t)count_chunks(in->tensors);
    tn_status st = call->host->scratch(call, bytes, &parts);
    a.parts = parts;
    for (int64_t i = 0, begin = 0; i < in->tensors.n && st == TN_OK; begin = i) {
        if (!take_tensors(&a, &l, &i)) return TN_DECLINE;
        a.norms = (char *)in->out->data + begin * tn_view_itemsize(in->out);
        st = launch_chunks(call, norm_parts_kernels, &a);
        if (st == TN_OK)
            st = cuda_launch(call, cuda_float_kernel(call, norm_finish_kernels), a.n, CUDA_BLOCK,
                             &a);
        a.parts += a.first[a.n];
    }
    return st;
}

static const tn_kernel_row rows[] = {
    CUDA_FLOAT_ROWS(_sgd_step, sgd_step),     CUDA_FLOAT_ROWS(_adam_step, adam_step),
    CUDA_FLOAT_ROWS(_scale_step, scale_step), CUDA_FLOAT_ROWS(_unscale_step, unscale_step),
    CUDA_FLOAT_ROWS(_norms_step, norms_step),
};
const cuda_rows cuda_optim_rows = CUDA_ROWS_OF(rows);
