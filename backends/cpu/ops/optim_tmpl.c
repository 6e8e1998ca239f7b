/* optim_tmpl.c: optimizer steps, norms and scaling over lists of tensors, one pass for all of them.
 *
 * The elements of all tensors count as one long row, cut among the threads wherever it falls; `start`
 * says where each tensor begins. Tensors of one parameter are dense and in one axis order, so element
 * i of the memory of each belongs together. Arithmetic follows the single-tensor definition of each
 * optimizer, operation by operation.
 *
 * family: optim; types: float; isa: each */
#include <math.h>
#include <stdatomic.h>

#include <tenon/args_optim.h>

#include "common/adam.h"
#include "common/rules.h"
#include "common/tmpl.h"
#include "cpu_priv.h"

enum { LISTS = 5, GRAIN = 8192, BLOCK = 16384, LANES = 16 };

typedef struct row {
    tn_views list[LISTS]; /* list 0 decides about sizes */
    const int64_t *start; /* n + 1 */
} row;

/* Fills start[0 .. n] and returns the number of elements. */
static int64_t measure(tn_views list, int64_t *start) {
    int64_t total = 0;
    for (int64_t i = 0; i < list.n; i++) {
        start[i] = total;
        total += list.v[i]->numel;
    }
    start[list.n] = total;
    return total;
}

/* The tensor that holds element `at`: the last one that starts at or before it. */
static int64_t tensor_at(const row *r, int64_t at) {
    int64_t low = 0, high = r->list[0].n;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (r->start[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static T *memory(const row *r, int list, int64_t i) {
    return list < LISTS && r->list[list].n ? (T *)r->list[list].v[i]->data : NULL;
}

/* ---- Gradient descent --------------------------------------------------------------------------*/

typedef struct sgd_job {
    row r;
    A sign, decay, momentum, keep, minus_lr;
    bool decays, uses_momentum, nesterov, first;
} sgd_job;

TMPL_INLINE void sgd_loop(const sgd_job *j, T *p, const T *g, T *b, int64_t n, bool decays,
                          bool uses, bool first, bool nesterov) {
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) {
        A w = LOAD(p[i]), d = LOAD(g[i]) * j->sign;
        if (decays) d = d + j->decay * w;
        if (uses) {
            A m = first ? d : LOAD(b[i]) * j->momentum + j->keep * d;
            b[i] = STORE(m);
            d = nesterov ? d + j->momentum * m : m;
        }
        p[i] = STORE(w + j->minus_lr * d);
    }
}

static void sgd_some(const sgd_job *j, T *p, const T *g, T *b, int64_t n) {
    if (!j->uses_momentum && !j->decays)
        sgd_loop(j, p, g, b, n, false, false, false, false);
    else if (!j->uses_momentum)
        sgd_loop(j, p, g, b, n, true, false, false, false);
    else if (j->first)
        sgd_loop(j, p, g, b, n, j->decays, true, true, j->nesterov);
    else if (j->nesterov)
        sgd_loop(j, p, g, b, n, j->decays, true, false, true);
    else
        sgd_loop(j, p, g, b, n, j->decays, true, false, false);
}

static tn_status sgd_body(void *arg, int64_t begin, int64_t end) {
    const sgd_job *j = arg;
    for (int64_t i = tensor_at(&j->r, begin); begin < end; i++) {
        int64_t at = begin - j->r.start[i], n = j->r.start[i + 1] - begin;
        if (n > end - begin) n = end - begin;
        if (n <= 0) continue;
        T *b = memory(&j->r, 2, i);
        sgd_some(j, memory(&j->r, 0, i) + at, memory(&j->r, 1, i) + at, b ? b + at : NULL, n);
        begin += n;
    }
    return TN_OK;
}

static tn_status sgd_step(const tn_call *call, const void *args) {
    const tn__sgd_step_args *a = args;
    void *start;
    tn_status st = room_scratch(call, a->params.n + 1, sizeof(int64_t), &start);
    if (st != TN_OK) return st;
    sgd_job j = {.r = {.list = {a->params, a->grads, a->momenta}, .start = start},
                 .sign = (A)(a->maximize ? -1 : 1),
                 .decay = (A)a->weight_decay,
                 .momentum = (A)a->momentum,
                 .keep = (A)(1.0 - a->dampening),
                 .minus_lr = (A)-a->lr,
                 .decays = a->weight_decay != 0.0,
                 .uses_momentum = a->momenta.n != 0,
                 .nesterov = a->nesterov != 0,
                 .first = a->first != 0};
    return cpu_parallel(measure(a->params, start), GRAIN, sgd_body, &j);
}

/* ---- Adam --------------------------------------------------------------------------------------*/

typedef struct adam_job {
    row r;
    const adam_size *size; /* by tensor */
    A sign, decay, toward, beta2, square, eps;
    bool decays, amsgrad, decoupled;
} adam_job;

TMPL_INLINE void adam_loop(const adam_job *j, const adam_size *size, T *const *t, int64_t n,
                           bool coupled, bool amsgrad) {
    T *p = t[0], *m = t[2], *v = t[3], *top = t[4];
    const T *grad = t[1];
    bool far = j->toward >= (A)0.5;
    A toward = j->toward, back = 1 - j->toward;
    A minus_step = (A)size->minus_step, all_root = (A)size->root, shrink = (A)size->shrink;
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) {
        A w = LOAD(p[i]) * shrink, g = LOAD(grad[i]) * j->sign;
        if (coupled) g = g + j->decay * w;
        A mean = LOAD(m[i]);
        mean = far ? g - (g - mean) * back : mean + toward * (g - mean);
        A square = LOAD(v[i]) * j->beta2 + j->square * g * g, under = square;
        m[i] = STORE(mean);
        v[i] = STORE(square);
        if (amsgrad) {
            A old = LOAD(top[i]);
            under = old > square || old != old ? old : square;
            top[i] = STORE(under);
        }
        A root = sizeof(A) == 8 ? (A)sqrt((double)under) : (A)sqrtf((float)under);
        p[i] = STORE(w + minus_step * mean / (root / all_root + j->eps));
    }
}

static tn_status adam_body(void *arg, int64_t begin, int64_t end) {
    const adam_job *j = arg;
    for (int64_t i = tensor_at(&j->r, begin); begin < end; i++) {
        int64_t at = begin - j->r.start[i], n = j->r.start[i + 1] - begin;
        if (n > end - begin) n = end - begin;
        if (n <= 0) continue;
        T *t[LISTS];
        for (int k = 0; k < LISTS; k++) {
            t[k] = memory(&j->r, k, i);
            if (t[k]) t[k] += at;
        }
        bool coupled = j->decays && !j->decoupled;
        if (j->amsgrad)
            adam_loop(j, &j->size[i], t, n, coupled, true);
        else if (coupled)
            adam_loop(j, &j->size[i], t, n, true, false);
        else
            adam_loop(j, &j->size[i], t, n, false, false);
        begin += n;
    }
    return TN_OK;
}

static tn_status adam_step(const tn_call *call, const void *args) {
    const tn__adam_step_args *a = args;
    int64_t n = a->params.n;
    void *start, *room;
    tn_status st = room_scratch(call, n + 1, sizeof(int64_t), &start);
    if (st != TN_OK) return st;
    st = room_scratch(call, n, sizeof(adam_size), &room);
    if (st != TN_OK) return st;
    adam_size *size = room;
    bool decoupled = a->decoupled != 0;
    double last = -1.0;
    for (int64_t i = 0; i < n; i++) {
        double step = step_advance(a->steps.v[i]->data, a->steps.v[i]->dl_bits == 64);
        size[i] = step == last ? size[i - 1]
                               : adam_size_of(a->lr, a->beta1, a->beta2,
                                              decoupled ? a->weight_decay : 0.0, step);
        last = step;
    }
    adam_job j = {
        .r = {.list = {a->params, a->grads, a->exp_avgs, a->exp_avg_sqs, a->max_exp_avg_sqs},
              .start = start},
        .size = size,
        .sign = (A)(a->maximize ? -1 : 1),
        .decay = (A)a->weight_decay,
        .toward = (A)(1.0 - a->beta1),
        .beta2 = (A)a->beta2,
        .square = (A)(1.0 - a->beta2),
        .eps = (A)a->eps,
        .decays = a->weight_decay != 0.0,
        .amsgrad = a->amsgrad != 0,
        .decoupled = decoupled};
    return cpu_parallel(measure(a->params, start), GRAIN, adam_body, &j);
}

/* ---- The other optimizers ----------------------------------------------------------------------*/

typedef struct rule_job {
    row r;
    rule_options options;
    const rule_size *size; /* by tensor */
    A sign;
} rule_job;

/* `uses` has a bit for each state there is. */
TMPL_INLINE void rule_loop(int rule, int uses, const rule_values *values, A sign, T *const *t,
                           int64_t n) {
    rule_values v = *values;
    for (int k = 0; k < RULE_STATES; k++) v.uses[k] = uses >> k & 1;
    T *p = t[0], *s0 = t[2], *s1 = t[3], *s2 = t[4];
    const T *g = t[1];
    TMPL_VECTOR
    for (int64_t i = 0; i < n; i++) {
        A s[RULE_STATES] = {uses & 1 ? LOAD(s0[i]) : 0, uses & 2 ? LOAD(s1[i]) : 0,
                            uses & 4 ? LOAD(s2[i]) : 0};
        p[i] = STORE(rule_move(rule, &v, LOAD(p[i]), LOAD(g[i]) * sign, s));
        if (uses & 1) s0[i] = STORE(s[0]);
        if (uses & 2) s1[i] = STORE(s[1]);
        if (uses & 4) s2[i] = STORE(s[2]);
    }
}

/* Each rule has a loop of its own, and each choice of states that it may have. */
static void rule_some(const rule_job *j, const rule_values *v, T *const *t, int64_t n) {
    A sign = j->sign;
    switch (j->options.rule) {
    case RULE_RMSPROP:
        if (!t[3] && !t[4])
            rule_loop(RULE_RMSPROP, 1, v, sign, t, n);
        else if (!t[4])
            rule_loop(RULE_RMSPROP, 3, v, sign, t, n);
        else if (!t[3])
            rule_loop(RULE_RMSPROP, 5, v, sign, t, n);
        else
            rule_loop(RULE_RMSPROP, 7, v, sign, t, n);
        break;
    case RULE_ADAGRAD: rule_loop(RULE_ADAGRAD, 1, v, sign, t, n); break;
    case RULE_ADADELTA: rule_loop(RULE_ADADELTA, 3, v, sign, t, n); break;
    case RULE_ADAMAX: rule_loop(RULE_ADAMAX, 3, v, sign, t, n); break;
    case RULE_NADAM: rule_loop(RULE_NADAM, 3, v, sign, t, n); break;
    case RULE_RADAM: rule_loop(RULE_RADAM, 3, v, sign, t, n); break;
    case RULE_ASGD: rule_loop(RULE_ASGD, 1, v, sign, t, n); break;
    default: rule_loop(RULE_RPROP, 3, v, sign, t, n); break;
    }
}

static tn_status rule_body(void *arg, int64_t begin, int64_t end) {
    const rule_job *j = arg;
    for (int64_t i = tensor_at(&j->r, begin); begin < end; i++) {
        int64_t at = begin - j->r.start[i], n = j->r.start[i + 1] - begin;
        if (n > end - begin) n = end - begin;
        if (n <= 0) continue;
        rule_values v = rule_values_of(&j->options, &j->size[i]);
        T *t[LISTS];
        for (int k = 0; k < LISTS; k++) {
            t[k] = memory(&j->r, k, i);
            if (t[k]) t[k] += at;
        }
        rule_some(j, &v, t, n);
        begin += n;
    }
    return TN_OK;
}

_Static_assert((int)RULE_RMSPROP == TN_RULE_STEP_RMSPROP && (int)RULE_RPROP == TN_RULE_STEP_RPROP,
               "kernels and core mean the same rules");

/* Advances the counters of tensor i, and says how long its step is. */
static rule_size rule_advance(const tn__rule_step_args *a, const rule_options *o, int64_t i) {
    const tn_views *state[RULE_STATES] = {&a->first, &a->second, &a->third};
    int wide = a->steps.v[i]->dl_bits == 64, numbers = rule_numbers(o->rule);
    double number[RULE_NUMBERS] = {0};
    for (int k = 0; k < numbers; k++)
        number[k] = step_number(state[RULE_STATES - numbers + k]->v[i]->data, wide);
    double step = step_advance(a->steps.v[i]->data, wide);
    rule_size size = rule_size_of(o, o->lr, step, wide, number);
    for (int k = 0; k < numbers; k++)
        step_set_number(state[RULE_STATES - numbers + k]->v[i]->data, wide, number[k]);
    return size;
}

static tn_status rule_step(const tn_call *call, const void *args) {
    const tn__rule_step_args *a = args;
    int64_t n = a->params.n;
    void *start, *room;
    tn_status st = room_scratch(call, n + 1, sizeof(int64_t), &start);
    if (st != TN_OK) return st;
    st = room_scratch(call, n, sizeof(rule_size), &room);
    if (st != TN_OK) return st;
    rule_size *size = room;
    rule_job j = {
        .r = {.list = {a->params, a->grads, a->first, a->second, a->third}, .start = start},
        .options = {.lr = a->lr,
                    .a = a->a,
                    .b = a->b,
                    .c = a->c,
                    .d = a->d,
                    .eps = a->eps,
                    .decay = a->weight_decay,
                    .rule = (int32_t)a->rule,
                    .decoupled = a->decoupled != 0},
        .size = size,
        .sign = (A)(a->maximize ? -1 : 1)};
    for (int64_t i = 0; i < n; i++) size[i] = rule_advance(a, &j.options, i);
    for (int k = 0; k < rule_numbers(j.options.rule); k++) j.r.list[LISTS - 1 - k] = (tn_views){0};
    return cpu_parallel(measure(a->params, start), GRAIN, rule_body, &j);
}

/* ---- Scaling -----------------------------------------------------------------------------------*/

typedef struct scale_job {
    row r;
    A factor;
} scale_job;

static tn_status scale_body(void *arg, int64_t begin, int64_t end) {
    const scale_job *j = arg;
    for (int64_t i = tensor_at(&j->r, begin); begin < end; i++) {
        int64_t at = begin - j->r.start[i], n = j->r.start[i + 1] - begin;
        if (n > end - begin) n = end - begin;
        if (n <= 0) continue;
        T *x = memory(&j->r, 0, i) + at;
        TMPL_VECTOR
        for (int64_t k = 0; k < n; k++) x[k] = STORE(LOAD(x[k]) * j->factor);
        begin += n;
    }
    return TN_OK;
}

static tn_status scale_step(const tn_call *call, const void *args) {
    const tn__scale_step_args *a = args;
    double factor = *(const double *)a->factor->data;
    void *start;
    if (factor == 1.0) return TN_OK;
    tn_status st = room_scratch(call, a->tensors.n + 1, sizeof(int64_t), &start);
    if (st != TN_OK) return st;
    scale_job j = {.r = {.list = {a->tensors}, .start = start}, .factor = (A)factor};
    return cpu_parallel(measure(a->tensors, start), 2 * GRAIN, scale_body, &j);
}

typedef struct unscale_job {
    row r;
    A factor;
    _Atomic bool *found;
} unscale_job;

static bool unscale_some(T *x, int64_t n, A factor) {
    bool bad = false;
    for (int64_t i = 0; i < n; i++) {
        A v = LOAD(x[i]);
        bad |= !(v - v == (A)0); /* infinite or NaN */
        x[i] = STORE(v * factor);
    }
    return bad;
}

static tn_status unscale_body(void *arg, int64_t begin, int64_t end) {
    const unscale_job *j = arg;
    for (int64_t i = tensor_at(&j->r, begin); begin < end; i++) {
        int64_t at = begin - j->r.start[i], n = j->r.start[i + 1] - begin;
        if (n > end - begin) n = end - begin;
        if (n <= 0) continue;
        if (unscale_some(memory(&j->r, 0, i) + at, n, j->factor)) atomic_store(j->found, true);
        begin += n;
    }
    return TN_OK;
}

static tn_status unscale_step(const tn_call *call, const void *args) {
    const tn__unscale_step_args *a = args;
    void *start;
    _Atomic bool found = false;
    tn_status st = room_scratch(call, a->tensors.n + 1, sizeof(int64_t), &start);
    if (st != TN_OK) return st;
    unscale_job j = {
        .r = {.list = {a->tensors}, .start = start}, .factor = (A)a->factor, .found = &found};
    st = cpu_parallel(measure(a->tensors, start), 2 * GRAIN, unscale_body, &j);
    if (found) *(float *)a->found->data = 1.0f;
    return st;
}

/* ---- Norms -------------------------------------------------------------------------------------
 * Each tensor is cut into blocks of its own; the sums of the blocks are added in their order, so the
 * result does not depend on the number of threads. */

typedef enum norm_kind { SUM_ABS, SUM_SQUARES, LARGEST } norm_kind;

typedef struct norm_job {
    row r; /* start counts blocks */
    double *sum;
    norm_kind kind;
} norm_job;

TMPL_INLINE double join(norm_kind kind, double a, double b) {
    if (kind != LARGEST) return a + b;
    return a > b || a != a ? a : b;
}

TMPL_INLINE double block_sum(const T *x, int64_t n, norm_kind kind) {
    double lane[LANES] = {0.0};
    for (int64_t i = 0; i + LANES <= n; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            double v = fabs((double)LOAD(x[i + k]));
            lane[k] = join(kind, kind == SUM_SQUARES ? v * v : v, lane[k]);
        }
    }
    for (int64_t i = n - n % LANES; i < n; i++) {
        double v = fabs((double)LOAD(x[i]));
        lane[i % LANES] = join(kind, kind == SUM_SQUARES ? v * v : v, lane[i % LANES]);
    }
    double sum = lane[0];
    for (int k = 1; k < LANES; k++) sum = join(kind, sum, lane[k]);
    return sum;
}

static double some_norm(const T *x, int64_t n, norm_kind kind) {
    if (kind == SUM_SQUARES) return block_sum(x, n, SUM_SQUARES);
    if (kind == SUM_ABS) return block_sum(x, n, SUM_ABS);
    return block_sum(x, n, LARGEST);
}

static tn_status norm_body(void *arg, int64_t begin, int64_t end) {
    const norm_job *j = arg;
    int64_t i = tensor_at(&j->r, begin);
    for (int64_t b = begin; b < end; b++) {
        while (b >= j->r.start[i + 1]) i++;
        int64_t at = (b - j->r.start[i]) * BLOCK, n = j->r.list[0].v[i]->numel - at;
        j->sum[b] = some_norm(memory(&j->r, 0, i) + at, n < BLOCK ? n : BLOCK, j->kind);
    }
    return TN_OK;
}

static tn_status norms_step(const tn_call *call, const void *args) {
    const tn__norms_step_args *a = args;
    int64_t n = a->tensors.n, blocks = 0, total = 0;
    void *room, *sums;
    tn_status st = room_scratch(call, n + 1, sizeof(int64_t), &room);
    if (st != TN_OK) return st;
    int64_t *start = room;
    for (int64_t i = 0; i < n; i++) {
        start[i] = blocks;
        blocks += (a->tensors.v[i]->numel + BLOCK - 1) / BLOCK;
        total += a->tensors.v[i]->numel;
    }
    start[n] = blocks;
    st = room_scratch(call, blocks + 1, sizeof(double), &sums);
    if (st != TN_OK) return st;
    norm_kind kind = isinf(a->p) ? LARGEST : a->p == 2.0 ? SUM_SQUARES : SUM_ABS;
    norm_job j = {.r = {.list = {a->tensors}, .start = start}, .sum = sums, .kind = kind};
    int64_t grain = blocks > 0 ? 1 + 2 * GRAIN / (1 + total / blocks) : 1;
    st = cpu_parallel(blocks, grain, norm_body, &j);
    for (int64_t i = 0; st == TN_OK && i < n; i++) {
        double sum = 0.0;
        for (int64_t b = start[i]; b < start[i + 1]; b++) sum = join(kind, sum, j.sum[b]);
        if (kind == SUM_SQUARES) sum = sqrt(sum);
        if (a->out->dl_bits == 64)
            ((double *)a->out->data)[i] = sum;
        else
            ((float *)a->out->data)[i] = (float)sum;
    }
    return st;
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(_sgd_step, sgd_step),         ROW(_adam_step, adam_step),   ROW(_scale_step, scale_step),
    ROW(_unscale_step, unscale_step), ROW(_norms_step, norms_step), ROW(_rule_step, rule_step),
};
const cpu_rows TN_(cpu_optim_rows) = CPU_ROWS_OF(rows);
