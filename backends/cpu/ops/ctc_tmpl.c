/* ctc_tmpl.c: connectionist temporal classification, for one element type.
 *
 * A target of n labels is written with a blank before, between and behind them: 2n + 1 places. alpha[t, s]
 * is the logarithm of the probability that the first t + 1 steps end at place s, beta[t, s] that the
 * steps from t on begin there (Graves et al. 2006, equations 6 to 16). As PyTorch has it, the
 * gradient takes log_probs for normalised: the part that softmax adds is in it already.
 *
 * family: ctc; types: f32 f64 */
#include <math.h>

#include <tenon/args_loss.h>

#include "common/tmpl.h"

#include "common/ctc.h"

#include "cpu_priv.h"
#include "pack.h"

#define NEVER CTC_NEVER

typedef struct job {
    int64_t steps, batch, classes, width, blank;
    int zero_infinity;
    const T *x;             /* (steps, batch, classes) */
    const int64_t *targets; /* (batch, row) where row is not 0, else one sample after the other */
    int64_t row;
    const int64_t *times, *lengths; /* (batch) */
    int64_t *start;                 /* (batch): where a sample's labels begin */
    const T *loss_in, *g;           /* (batch) */
    T *loss, *y;
    const T *alpha_in; /* (batch, steps, width) */
    T *alpha;
    A *room; /* backward, (batch, 2 width + classes) */
} job;

/* The label at place s of a sample's target. */
static int64_t label(const job *j, int64_t sample, int64_t s) {
    return s & 1 ? j->targets[j->start[sample] + s / 2] : j->blank;
}

/* Whether place s may follow place s - 2: labels that differ need no blank in between. */
static int skips(const job *j, int64_t sample, int64_t s) {
    return s > 1 && (s & 1) && label(j, sample, s) != label(j, sample, s - 2);
}

static A log_prob(const job *j, int64_t t, int64_t sample, int64_t class) {
    return LOAD(j->x[(t * j->batch + sample) * j->classes + class]);
}

/* ---- Arguments --------------------------------------------------------------------------------*/

static tn_status check_sample(const tn_call *call, const job *j, int64_t sample, int64_t all) {
    const tn_host *host = call->host;
    int64_t n = j->lengths[sample], steps = j->times[sample], longest = j->width / 2;
    if (steps < 0 || steps > j->steps)
        return host->fail(TN_E_SHAPE, 2,
                          "Expected input_lengths to have value at most %lld, but got value %lld",
                          (long long)j->steps, (long long)steps);
    if (n < 0 || n > longest || n > all - j->start[sample])
        return host->fail(TN_E_SHAPE, 3,
                          "Expected target_lengths to be at least 0 and to fit into targets, but "
                          "got value %lld",
                          (long long)n);
    for (int64_t k = 0; k < n; k++) {
        int64_t class = j->targets[j->start[sample] + k];
        if (class < 0 || class >= j->classes)
            return host->fail(TN_E_INDEX, 1, "Target %lld is out of bounds.", (long long)class);
    }
    return TN_OK;
}

static tn_status prepare(const tn_call *call, const tn_view *x, const tn_view *targets,
                         const tn_view *times, const tn_view *lengths, int64_t width, job *j) {
    const void *p[4];
    void *start;
    tn_status st = cpu_packed(call, x, &p[0]);
    if (!st) st = cpu_packed(call, targets, &p[1]);
    if (!st) st = cpu_packed(call, times, &p[2]);
    if (!st) st = cpu_packed(call, lengths, &p[3]);
    if (!st) st = room_scratch(call, room_add(x->shape[1], 1), sizeof(int64_t), &start);
    if (st) return st;
    j->steps = x->shape[0];
    j->batch = x->shape[1];
    j->classes = x->shape[2];
    j->width = width;
    j->x = p[0];
    j->targets = p[1];
    j->times = p[2];
    j->lengths = p[3];
    j->row = targets->ndim == 2 ? targets->shape[1] : 0;
    j->start = start;
    int64_t at = 0;
    for (int64_t i = 0; i < j->batch && !st; i++) {
        j->start[i] = at;
        st = check_sample(call, j, i, targets->ndim == 2 ? at + j->row : targets->numel);
        at += targets->ndim == 2 ? j->row : j->lengths[i];
    }
    return st;
}

/* ---- Forward ----------------------------------------------------------------------------------*/

static tn_status forward_one(const job *j, int64_t sample) {
    int64_t steps = j->times[sample], places = 2 * j->lengths[sample] + 1;
    T *alpha = j->alpha + sample * j->steps * j->width;
    cpu_stretch all = {.n = j->steps * j->width, .cost = 1};
    while (cpu_next_stretch(&all))
        for (int64_t i = all.begin; i < all.end; i++) alpha[i] = STORE(NEVER);
    if (all.st != TN_OK) return all.st;
    if (steps == 0) {
        j->loss[sample] = STORE(places == 1 ? (A)0 : -NEVER);
        return TN_OK;
    }
    for (int64_t s = 0; s < 2 && s < places; s++)
        alpha[s] = STORE(log_prob(j, 0, sample, label(j, sample, s)));
    for (int64_t t = 1; t < steps; t++) {
        const T *last = alpha + (t - 1) * j->width;
        for (int64_t s = 0; s < places; s++) {
            A one = s > 0 ? LOAD(last[s - 1]) : NEVER;
            A two = skips(j, sample, s) ? LOAD(last[s - 2]) : NEVER;
            A sum = ctc_plus(LOAD(last[s]), one, two);
            alpha[t * j->width + s] = STORE(sum + log_prob(j, t, sample, label(j, sample, s)));
        }
        tn_status st = t % 256 == 0 ? cpu_poll() : TN_OK;
        if (st) return st;
    }
    const T *end = alpha + (steps - 1) * j->width;
    A total = LOAD(end[places - 1]);
    if (places > 1) total = ctc_plus(total, LOAD(end[places - 2]), NEVER);
    j->loss[sample] = STORE(-total);
    return TN_OK;
}

static tn_status forward_samples(void *arg, int64_t begin, int64_t end) {
    tn_status st = TN_OK;
    for (int64_t i = begin; i < end && !st; i++) st = forward_one(arg, i);
    return st;
}

static tn_status ctc_loss(const tn_call *call, const void *args) {
    const tn__ctc_loss_args *a = args;
    job j = {.blank = a->blank, .loss = a->y->data, .alpha = a->log_alpha->data};
    tn_status st = prepare(call, a->log_probs, a->targets, a->input_lengths, a->target_lengths,
                           a->log_alpha->shape[2], &j);
    return st ? st : cpu_parallel(j.batch, 1, forward_samples, &j);
}

/* ---- Backward ---------------------------------------------------------------------------------*/

/* beta of step t out of that of step t + 1, which may be NULL. */
static void step_back(const job *j, int64_t sample, int64_t t, const A *next, A *beta) {
    int64_t places = 2 * j->lengths[sample] + 1;
    for (int64_t s = places - 1; s >= 0; s--) {
        A sum = s >= places - 2 ? (A)0 : NEVER;
        if (next) {
            A one = s + 1 < places ? next[s + 1] : NEVER;
            A two = s + 2 < places && skips(j, sample, s + 2) ? next[s + 2] : NEVER;
            sum = ctc_plus(next[s], one, two);
        }
        beta[s] = sum + log_prob(j, t, sample, label(j, sample, s));
    }
}

static tn_status backward_one(const job *j, int64_t sample) {
    int64_t steps = j->times[sample], places = 2 * j->lengths[sample] + 1;
    A loss = LOAD(j->loss_in[sample]), g = LOAD(j->g[sample]);
    if (loss == -NEVER && j->zero_infinity) steps = 0;
    A *beta = j->room + sample * (2 * j->width + j->classes), *next = NULL;
    A *sums = beta + 2 * j->width;
    for (int64_t t = steps - 1; t >= 0; t--) {
        A *now = next == beta ? beta + j->width : beta;
        const T *alpha = j->alpha_in + (sample * j->steps + t) * j->width;
        step_back(j, sample, t, next, now);
        for (int64_t c = 0; c < j->classes; c++) sums[c] = NEVER;
        for (int64_t s = 0; s < places; s++) {
            A *sum = &sums[label(j, sample, s)];
            *sum = ctc_plus(*sum, LOAD(alpha[s]) + now[s], NEVER);
        }
        T *y = j->y + (t * j->batch + sample) * j->classes;
        for (int64_t c = 0; c < j->classes; c++) {
            A v = ctc_slope(sums[c], loss, log_prob(j, t, sample, c), g);
            y[c] = STORE(v);
        }
        next = now;
        tn_status st = t % 256 == 0 ? cpu_poll() : TN_OK;
        if (st) return st;
    }
    for (int64_t t = steps; t < j->steps; t++) {
        T *y = j->y + (t * j->batch + sample) * j->classes;
        for (int64_t c = 0; c < j->classes; c++) y[c] = STORE((A)0);
    }
    return TN_OK;
}

static tn_status backward_samples(void *arg, int64_t begin, int64_t end) {
    tn_status st = TN_OK;
    for (int64_t i = begin; i < end && !st; i++) st = backward_one(arg, i);
    return st;
}

static tn_status ctc_loss_backward(const tn_call *call, const void *args) {
    const tn__ctc_loss_backward_args *a = args;
    job j = {.blank = a->blank, .zero_infinity = (int)a->zero_infinity, .y = a->out->data};
    int64_t width = a->log_alpha->shape[2];
    const void *p[3];
    void *room;
    tn_status st =
        prepare(call, a->log_probs, a->targets, a->input_lengths, a->target_lengths, width, &j);
    if (!st) st = cpu_packed(call, a->grad, &p[0]);
    if (!st) st = cpu_packed(call, a->y, &p[1]);
    if (!st) st = cpu_packed(call, a->log_alpha, &p[2]);
    int64_t each = room_add(room_mul(2, width), j.classes);
    if (!st) st = room_scratch(call, room_add(room_mul(each, j.batch), 1), sizeof(A), &room);
    if (st) return st;
    j.g = p[0];
    j.loss_in = p[1];
    j.alpha_in = p[2];
    j.room = room;
    return cpu_parallel(j.batch, 1, backward_samples, &j);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(_ctc_loss, ctc_loss),
    ROW(_ctc_loss_backward, ctc_loss_backward),
};
const cpu_rows TN_(cpu_ctc_rows) = CPU_ROWS_OF(rows);
