/* optim.c: optimizer steps, norms and scaling over lists of tensors, many of them in one launch: host
 * side of kernels/optim.cu.
 *
 * family: optim */
#include "cuda_priv.h"

#include <math.h>
#include <string.h>

#include <tenon/args_optim.h>

#include "common/adam.h"
#include "common/rule_size.h"
#include "kernels/args/args_optim.h"

static cuda_float_kernels sgd_kernels = CUDA_FLOAT_KERNELS(optim, sgd_step),
                          advance_kernels = CUDA_FLOAT_KERNELS(optim, adam_advance),
                          adam_kernels = CUDA_FLOAT_KERNELS(optim, adam_step),
                          rule_advance_kernels = CUDA_FLOAT_KERNELS(optim, rule_advance),
                          rule_kernels = CUDA_FLOAT_KERNELS(optim, rule_step),
                          lists_kernels = CUDA_FLOAT_KERNELS(optim, lists_step),
                          scale_kernels = CUDA_FLOAT_KERNELS(optim, scale_step),
                          unscale_kernels = CUDA_FLOAT_KERNELS(optim, unscale_step),
                          norm_parts_kernels = CUDA_FLOAT_KERNELS(optim, norm_parts),
                          norm_finish_kernels = CUDA_FLOAT_KERNELS(optim, norm_finish);

_Static_assert(sizeof(cuda_step_args) <= 4096, "more than a kernel takes by value");

/* ---- Lists -------------------------------------------------------------------------------------*/

/* The state of an optimizer: lists that go beside the parameters; an empty one is left out. */
typedef struct step_lists {
    const tn_views *list[CUDA_LISTS];
    const cuda_step_size *sizes;             /* by tensor, or NULL */
    const tn_views *counters[CUDA_COUNTERS]; /* on the device, or NULL */
} step_lists;

static void *data_of(const tn_views *list, int64_t i) {
    return list && list->n ? list->v[i]->data : NULL;
}

/* Adds tensor i; false when there is no room for it. */
static bool add_tensor(cuda_step_args *a, const step_lists *l, int64_t i) {
    cuda_step_tensor *t = &a->tensor[a->n];
    int64_t n = l->list[0]->v[i]->numel, blocks = (n + CUDA_CHUNK - 1) / CUDA_CHUNK;
    if (a->n == CUDA_TENSORS || blocks > INT32_MAX - a->first[a->n]) return false;
    for (int k = 0; k < CUDA_LISTS; k++) t->data[k] = data_of(l->list[k], i);
    t->n = n;
    if (l->sizes)
        t->size = l->sizes[i];
    else
        for (int k = 0; k < CUDA_COUNTERS; k++) t->counter[k] = data_of(l->counters[k], i);
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

/* Counters on the device: `advances` moves them in one small launch before each step. Nothing here
 * depends on how many steps there were, so a graph can hold it. */
static tn_status run_counted_steps(const tn_call *call, cuda_float_kernels advances,
                                   cuda_float_kernels kernels, cuda_step_args *a,
                                   const step_lists *l) {
    void *sizes = NULL;
    tn_status st = room_scratch(call, CUDA_TENSORS, sizeof *a->sizes, &sizes);
    a->sizes = sizes;
    for (int64_t i = 0; i < l->list[0]->n && st == TN_OK;) {
        if (!take_tensors(a, l, &i)) return TN_DECLINE;
        st = cuda_launch(call, cuda_float_kernel(call, advances), 1, CUDA_TENSORS, a);
        if (st == TN_OK) st = launch_chunks(call, kernels, a);
    }
    return st;
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

static void set_rate(cuda_step_args *a, double lr, const tn_view *rate) {
    a->lr = lr;
    a->rate = rate ? rate->data : NULL;
    a->wide_rate = rate && rate->dl_bits == 64;
}

static bool counts_there(tn_views steps) { return tn_view_device(steps.v[0]) != 0; }

static tn_status sgd_step(const tn_call *call, const void *args) {
    const tn__sgd_step_args *in = args;
    cuda_step_args a = {.sign = in->maximize ? -1 : 1,
                        .decay = in->weight_decay,
                        .momentum = in->momentum,
                        .keep = 1.0 - in->dampening,
                        .decays = in->weight_decay != 0.0,
                        .nesterov = in->nesterov != 0,
                        .is_first = in->first != 0};
    step_lists l = {.list = {&in->params, &in->grads, &in->momenta}};
    set_rate(&a, in->lr, in->rate);
    return run_steps(call, sgd_kernels, &a, &l);
}

/* Part of a list. */
static tn_views slice(tn_views all, int64_t begin, int64_t n) {
    return (tn_views){n > 0 ? all.v + begin : NULL, n};
}

static cuda_step_args adam_args(const tn__adam_step_args *in) {
    bool decays = in->weight_decay != 0.0, decoupled = in->decoupled != 0;
    cuda_step_args a = {.sign = in->maximize ? -1 : 1,
                        .decay = in->weight_decay,
                        .beta1 = in->beta1,
                        .beta2 = in->beta2,
                        .own = decoupled ? in->weight_decay : 0.0,
                        .toward = 1.0 - in->beta1,
                        .square = 1.0 - in->beta2,
                        .eps = in->eps,
                        .coupled = decays && !decoupled,
                        .wide_counters = in->steps.v[0]->dl_bits == 64};
    set_rate(&a, in->lr, in->rate);
    return a;
}

/* Counters on the host: tensors begin .. begin + n - 1, at most CUDA_TENSORS. */
static tn_status adam_some(const tn_call *call, const tn__adam_step_args *in, int64_t begin,
                           int64_t n) {
    cuda_step_size sizes[CUDA_TENSORS];
    cuda_step_args a = adam_args(in);
    for (int64_t i = 0; i < n; i++) {
        double step = step_advance(in->steps.v[begin + i]->data, a.wide_counters);
        sizes[i].adam = adam_size_of(in->lr, in->beta1, in->beta2, a.own, step);
    }
    const tn_views part[] = {slice(in->params, begin, n), slice(in->grads, begin, n),
                             slice(in->exp_avgs, begin, n), slice(in->exp_avg_sqs, begin, n),
                             slice(in->max_exp_avg_sqs, begin, in->amsgrad ? n : 0)};
    step_lists l = {.list = {&part[0], &part[1], &part[2], &part[3], &part[4]}, .sizes = sizes};
    return run_steps(call, adam_kernels, &a, &l);
}

static tn_status adam_counted_there(const tn_call *call, const tn__adam_step_args *in) {
    cuda_step_args a = adam_args(in);
    step_lists l = {.list = {&in->params, &in->grads, &in->exp_avgs, &in->exp_avg_sqs,
                             in->amsgrad ? &in->max_exp_avg_sqs : NULL},
                    .counters = {&in->steps}};
    return run_counted_steps(call, advance_kernels, adam_kernels, &a, &l);
}

static tn_status adam_step(const tn_call *call, const void *args) {
    const tn__adam_step_args *in = args;
    tn_status st = TN_OK;
    if (counts_there(in->steps)) return adam_counted_there(call, in);
    for (int64_t i = 0; i < in->params.n && st == TN_OK; i += CUDA_TENSORS) {
        int64_t left = in->params.n - i;
        st = adam_some(call, in, i, left < CUDA_TENSORS ? left : CUDA_TENSORS);
    }
    return st;
}

/* ---- The other optimizers ----------------------------------------------------------------------*/

_Static_assert((int)RULE_RMSPROP == TN_RULE_STEP_RMSPROP &&
                   (int)RULE_ADAGRAD == TN_RULE_STEP_ADAGRAD &&
                   (int)RULE_ADADELTA == TN_RULE_STEP_ADADELTA &&
                   (int)RULE_ADAMAX == TN_RULE_STEP_ADAMAX &&
                   (int)RULE_NADAM == TN_RULE_STEP_NADAM && (int)RULE_RADAM == TN_RULE_STEP_RADAM &&
                   (int)RULE_ASGD == TN_RULE_STEP_ASGD && (int)RULE_RPROP == TN_RULE_STEP_RPROP,
               "kernels and core mean the same rules");

static cuda_step_args rule_args(const tn__rule_step_args *in) {
    cuda_step_args a = {.sign = in->maximize ? -1 : 1,
                        .rule = {.a = in->a,
                                 .b = in->b,
                                 .c = in->c,
                                 .d = in->d,
                                 .eps = in->eps,
                                 .decay = in->weight_decay,
                                 .rule = (int32_t)in->rule,
                                 .decoupled = in->decoupled != 0},
                        .wide_counters = in->steps.v[0]->dl_bits == 64};
    set_rate(&a, in->lr, in->rate);
    return a;
}

/* The lists of a rule's state: the last ones are numbers of whole tensors. */
static void sort_states(const tn__rule_step_args *in, const tn_views *ret_list[CUDA_LISTS],
                        const tn_views *ret_counters[CUDA_COUNTERS]) {
    const tn_views *state[RULE_STATES] = {&in->first, &in->second, &in->third};
    int numbers = rule_numbers((int)in->rule), tensors = RULE_STATES - numbers;
    ret_list[0] = &in->params;
    ret_list[1] = &in->grads;
    for (int k = 0; k < RULE_STATES; k++) ret_list[2 + k] = k < tensors ? state[k] : NULL;
    ret_counters[0] = &in->steps;
    for (int k = 0; k < RULE_NUMBERS; k++)
        ret_counters[1 + k] = k < numbers ? state[tensors + k] : NULL;
}

/* How long the step of tensor i is, which is counted on the host. */
static rule_size advance_rule(const cuda_step_args *a, const tn_views *const *counters, int64_t i) {
    double number[RULE_NUMBERS] = {0};
    int numbers = rule_numbers(a->rule.rule), wide = a->wide_counters;
    for (int k = 0; k < numbers; k++) number[k] = step_number(counters[1 + k]->v[i]->data, wide);
    double step = step_advance(counters[0]->v[i]->data, wide);
    rule_size size = rule_size_of(&a->rule, a->lr, step, wide, number);
    for (int k = 0; k < numbers; k++) step_set_number(counters[1 + k]->v[i]->data, wide, number[k]);
    return size;
}

/* Counters on the host: tensors begin .. begin + n - 1, at most CUDA_TENSORS. */
static tn_status rule_some(const tn_call *call, const tn__rule_step_args *in, int64_t begin,
                           int64_t n) {
    cuda_step_size sizes[CUDA_TENSORS];
    cuda_step_args a = rule_args(in);
    const tn_views *list[CUDA_LISTS], *counters[CUDA_COUNTERS];
    tn_views part[CUDA_LISTS];
    step_lists l = {.sizes = sizes};
    sort_states(in, list, counters);
    for (int64_t i = 0; i < n; i++) sizes[i].rule = advance_rule(&a, counters, begin + i);
    for (int k = 0; k < CUDA_LISTS; k++) {
        if (list[k] && list[k]->n) part[k] = slice(*list[k], begin, n);
        l.list[k] = list[k] && list[k]->n ? &part[k] : NULL;
    }
    return run_steps(call, rule_kernels, &a, &l);
}

static tn_status rule_step(const tn_call *call, const void *args) {
    const tn__rule_step_args *in = args;
    tn_status st = TN_OK;
    if (counts_there(in->steps)) {
        cuda_step_args a = rule_args(in);
        step_lists l = {.sizes = NULL};
        sort_states(in, l.list, l.counters);
        return run_counted_steps(call, rule_advance_kernels, rule_kernels, &a, &l);
    }
    for (int64_t i = 0; i < in->params.n && st == TN_OK; i += CUDA_TENSORS) {
        int64_t left = in->params.n - i;
        st = rule_some(call, in, i, left < CUDA_TENSORS ? left : CUDA_TENSORS);
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

_Static_assert((int)CUDA_LISTS_FILL == TN_LISTS_STEP_FILL &&
                   (int)CUDA_LISTS_SCALE == TN_LISTS_STEP_SCALE &&
                   (int)CUDA_LISTS_DIVIDE == TN_LISTS_STEP_DIVIDE &&
                   (int)CUDA_LISTS_SHIFT == TN_LISTS_STEP_SHIFT &&
                   (int)CUDA_LISTS_COPY == TN_LISTS_STEP_COPY &&
                   (int)CUDA_LISTS_ADD == TN_LISTS_STEP_ADD &&
                   (int)CUDA_LISTS_MUL == TN_LISTS_STEP_MUL &&
                   (int)CUDA_LISTS_LERP == TN_LISTS_STEP_LERP &&
                   (int)CUDA_LISTS_ADDCMUL == TN_LISTS_STEP_ADDCMUL &&
                   (int)CUDA_LISTS_ADDCDIV == TN_LISTS_STEP_ADDCDIV,
               "kernels and core mean the same changes");

static tn_status lists_step(const tn_call *call, const void *args) {
    const tn__lists_step_args *in = args;
    cuda_step_args a = {.how = (int32_t)in->how, .value = in->value};
    step_lists l = {.list = {&in->tensors, &in->second, &in->third}};
    return run_steps(call, lists_kernels, &a, &l);
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
    tn_status st = room_scratch(call, count_chunks(in->tensors), sizeof *a.parts, &parts);
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
    CUDA_FLOAT_ROWS(_norms_step, norms_step), CUDA_FLOAT_ROWS(_rule_step, rule_step),
    CUDA_FLOAT_ROWS(_lists_step, lists_step),
};
const cuda_rows cuda_optim_rows = CUDA_ROWS_OF(rows);
