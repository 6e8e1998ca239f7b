/* loss_tmpl.c: negative log likelihood and cross entropy with class indices, for one element type.
 *
 * The input is seen as (n, c, s): n samples, c classes with stride s, s positions (1 for a
 * matrix of logits). _cross_entropy reads the logits once: maximum and sum of exponentials are
 * kept together, block by block, and the gradient needs the logits and these two only. They are kept
 * apart: a logarithm added to a large maximum would lose its last places.
 *
 * family: loss; types: float; isa: each; fused */
#include <tenon/args_loss.h>

#include "common/tmpl.h"

#include "cpu_priv.h"
#include "pack.h"
#include "vec.h"

/* Values of the `reduction` argument. */
enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

typedef struct job {
    int64_t n, c, s;
    int64_t ignore;
    int reduction;
    const T *x;
    const int64_t *target; /* (n, s) */
    const T *weight;       /* by class, or NULL */
    const T *g;            /* incoming gradient: one, or (n, s) without reduction */
    A scale;               /* of the gradient with a reduction */
    const A *most_in, *log_sum_in;
    A *most, *log_sum; /* (n, s) */
    T *y;              /* forward without reduction: (n, s); backward: like x */
    double *sums;      /* (n, 2): loss and weight of each sample */
} job;

static const char bad_target[] = "Target %lld is out of bounds.";

static tn_status check_targets(const tn_call *call, const job *j) {
    for (int64_t i = 0; i < j->n * j->s; i++) {
        int64_t t = j->target[i];
        if (t != j->ignore && (t < 0 || t >= j->c)) {
            return call->host->fail(TN_E_INDEX, 1, bad_target, (long long)t);
        }
    }
    return TN_OK;
}

static int64_t grain_of(const job *j) { return 1 + 16384 / (j->c * j->s + 1); }

/* Sizes, packed operands and range checks that all of these operators share. A 1-d input is one
 * sample. */
static tn_status prepare(const tn_call *call, int32_t ndim, const int64_t *shape,
                         const tn_view *target, const tn_view *weight, job *j) {
    const void *p;
    j->n = ndim == 1 ? 1 : shape[0];
    j->c = shape[ndim == 1 ? 0 : 1];
    j->s = 1;
    for (int32_t d = 2; d < ndim; d++) j->s *= shape[d];
    tn_status st = cpu_packed(call, target, &p);
    j->target = p;
    if (!st && weight) {
        st = cpu_packed(call, weight, &p);
        j->weight = p;
    }
    return st ? st : check_targets(call, j);
}

/* Adds the samples' sums in order and writes loss and total weight. */
static void finish(const job *j, T *y, T *total) {
    double loss = 0.0, weight = 0.0;
    for (int64_t i = 0; i < j->n; i++) {
        loss += j->sums[2 * i];
        weight += j->sums[2 * i + 1];
    }
    if (j->reduction != REDUCE_NONE) {
        A v = (A)(j->reduction == REDUCE_MEAN ? loss / weight : loss);
        *y = STORE(v);
    }
    A w = (A)weight;
    *total = STORE(w);
}

/* ---- nll_loss ---------------------------------------------------------------------------------*/

static tn_status nll_row(const job *j, int64_t i) {
    double loss = 0.0, weight = 0.0;
    cpu_stretch s = {.n = j->s, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t k = s.begin; k < s.end; k++) {
            int64_t t = j->target[i * j->s + k];
            A v = 0;
            if (t != j->ignore) {
                A w = j->weight ? LOAD(j->weight[t]) : (A)1;
                v = -w * LOAD(j->x[(i * j->c + t) * j->s + k]);
                loss += (double)v;
                weight += (double)w;
            }
            if (j->reduction == REDUCE_NONE) j->y[i * j->s + k] = STORE(v);
        }
    }
    j->sums[2 * i] = loss;
    j->sums[2 * i + 1] = weight;
    return s.st;
}

static tn_status nll_rows(void *arg, int64_t begin, int64_t end) {
    tn_status st = TN_OK;
    for (int64_t i = begin; i < end && st == TN_OK; i++) st = nll_row(arg, i);
    return st;
}

static tn_status nll_loss(const tn_call *call, const void *args) {
    const tn__nll_loss_args *a = args;
    job j = {.ignore = a->ignore_index, .reduction = (int)a->reduction, .y = a->y->data};
    const void *x;
    void *sums;
    tn_status st = prepare(call, a->input->ndim, a->input->shape, a->target, a->weight, &j);
    if (!st) st = cpu_packed(call, a->input, &x);
    if (!st) st = room_scratch(call, j.n + 1, 2 * sizeof(double), &sums);
    if (st) return st;
    j.x = x;
    j.sums = sums;
    st = cpu_parallel(j.n, 1 + 4096 / (j.s + 1), nll_rows, &j);
    if (!st) finish(&j, a->y->data, a->total_weight->data);
    return st;
}

/* The gradient's factor with a reduction: g, over the total weight for the mean. */
static A reduced_scale(int reduction, const tn_view *g, const tn_view *total) {
    A scale = LOAD(*(const T *)g->data);
    return reduction == REDUCE_MEAN ? scale / LOAD(*(const T *)total->data) : scale;
}

static tn_status nll_backward_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t row = j->c * j->s;
    for (int64_t i = begin; i < end; i++) {
        T *y = j->y + i * row;
        for (int64_t k = 0; k < row; k++) y[k] = STORE((A)0);
        for (int64_t k = 0; k < j->s; k++) {
            int64_t t = j->target[i * j->s + k];
            if (t == j->ignore) continue;
            A w = j->weight ? LOAD(j->weight[t]) : (A)1;
            A g = j->reduction == REDUCE_NONE ? LOAD(j->g[i * j->s + k]) : j->scale;
            A v = -w * g;
            y[t * j->s + k] = STORE(v);
        }
    }
    return TN_OK;
}

static tn_status nll_backward(const tn_call *call, const void *args) {
    const tn__nll_loss_backward_args *a = args;
    job j = {.ignore = a->ignore_index, .reduction = (int)a->reduction, .y = a->out->data};
    const void *g;
    tn_status st = prepare(call, a->out->ndim, a->out->shape, a->target, a->weight, &j);
    if (!st) st = cpu_packed(call, a->grad, &g);
    if (st) return st;
    j.g = g;
    if (j.reduction != REDUCE_NONE) j.scale = reduced_scale(j.reduction, a->grad, a->total_weight);
    return cpu_parallel(j.n, grain_of(&j), nll_backward_rows, &j);
}

/* The derivative of nll_loss in the direction of `input`: with a mean, over the given total. */
static tn_status nll_gather(const tn_call *call, const void *args) {
    const tn__nll_loss_gather_args *a = args;
    job j = {.ignore = a->ignore_index, .reduction = (int)a->reduction, .y = a->out->data};
    const void *x;
    void *sums;
    T unused[1];
    tn_status st = prepare(call, a->input->ndim, a->input->shape, a->target, a->weight, &j);
    if (!st) st = cpu_packed(call, a->input, &x);
    if (!st) st = room_scratch(call, j.n + 1, 2 * sizeof(double), &sums);
    if (st) return st;
    j.x = x;
    j.sums = sums;
    st = cpu_parallel(j.n, 1 + 4096 / (j.s + 1), nll_rows, &j);
    if (st || j.reduction == REDUCE_NONE) return st;
    T total = *(const T *)a->total_weight->data;
    j.reduction = REDUCE_SUM;
    finish(&j, a->out->data, unused);
    if (a->reduction == REDUCE_MEAN) {
        A v = LOAD(*(T *)a->out->data) / LOAD(total);
        *(T *)a->out->data = STORE(v);
    }
    return TN_OK;
}

/* ---- cross_entropy ----------------------------------------------------------------------------*/

/* log(sum(exp(x - max))) of c elements with stride s, and their maximum, reading each once: a
 * block's maximum rescales the sum so far. A block's elements are in cache for the second look. */
#define BLOCK ((int)(4096 / sizeof(A)))
static A log_sum_of(const T *x, int64_t c, int64_t s, A *room, A *ret_max) {
    A max = -(A)INFINITY;
    vec sum[VEC_TURN] = {0};
    for (int64_t at = 0; at < c; at += BLOCK) {
        int64_t n = c - at < BLOCK ? c - at : BLOCK, i = 0;
        const A *b = room;
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
        if (s == 1) b = x + at;
#endif
        if (b == room) {
            for (i = 0; i < n; i++) room[i] = LOAD(x[(at + i) * s]);
        }
        vec m = vec_all(max), m2 = m;
        for (i = 0; i + 2 * VL <= n; i += 2 * VL) {
            m = vec_max(vec_load(b + i), m);
            m2 = vec_max(vec_load(b + i + VL), m2);
        }
        for (; i < n; i += VL) m = vec_max(vec_load_n(b + i, n - i, -(A)INFINITY), m);
        A top = vec_max_of(vec_max(m, m2));
        if (top == -(A)INFINITY) {
            for (i = 0; i < n; i++) {
                if (b[i] != b[i]) return *ret_max = b[i];
            }
            continue;
        }
        if (max == -(A)INFINITY) {
            max = top; /* nothing has been added yet */
        } else if (max != top) {
            for (int k = 0; k < VEC_TURN; k++) sum[k] *= (A)exp((double)(max - top));
            max = top;
        }
        vec shift = vec_all(max);
        for (i = 0; i + VEC_TURN * VL <= n; i += VEC_TURN * VL) {
            TMPL_UNROLL
            for (int k = 0; k < VEC_TURN; k++) sum[k] += vec_exp(vec_load(b + i + k * VL) - shift);
        }
        for (; i + VL <= n; i += VL) sum[0] += vec_exp(vec_load(b + i) - shift);
        if (i < n) sum[0] += vec_exp(vec_load_n(b + i, n - i, -(A)INFINITY) - shift);
    }
    *ret_max = max;
    return max == -(A)INFINITY ? max : (A)log((double)vec_sum_turns(sum));
}

/* The same for SIDE positions that lie side by side. Sums of RISE classes are added to the others'
 * as wholes, so that a long sum loses no more than log_sum_of's. A position that has no finite or
 * positive maximum is left to log_sum_of. */
enum { SIDE = 64 / (int)sizeof(A), RISE = 64 };
static void log_sums_beside(const T *x, int64_t c, int64_t s, A *room, A *ret_most, A *ret_log) {
    vec most[SIDE / VL], sum[SIDE / VL] = {0};
    for (int k = 0; k < SIDE / VL; k++) most[k] = vec_all(-(A)INFINITY);
    for (int64_t q = 0; q < c; q++) {
        TMPL_UNROLL
        for (int k = 0; k < SIDE / VL; k++)
            most[k] = vec_max(vec_load_t(x + q * s + k * VL), most[k]);
    }
    for (int64_t at = 0; at < c; at += RISE) {
        int64_t end = c - at < RISE ? c : at + RISE;
        vec some[SIDE / VL] = {0};
        for (int64_t q = at; q < end; q++) {
            TMPL_UNROLL
            for (int k = 0; k < SIDE / VL; k++)
                some[k] += vec_exp(vec_load_t(x + q * s + k * VL) - most[k]);
        }
        for (int k = 0; k < SIDE / VL; k++) sum[k] += some[k];
    }
    for (int k = 0; k < SIDE / VL; k++) {
        vec_store(ret_most + k * VL, most[k]);
        vec_store(ret_log + k * VL, sum[k]);
    }
    for (int k = 0; k < SIDE; k++) {
        if (ret_most[k] == -(A)INFINITY)
            ret_log[k] = log_sum_of(x + k, c, s, room, ret_most + k);
        else
            ret_log[k] = (A)log((double)ret_log[k]);
    }
}

static tn_status entropy_row(const job *j, int64_t i) {
    A room[BLOCK];
    double loss = 0.0, count = 0.0;
    int64_t told = 0; /* positions whose sums are there */
    cpu_stretch s = {.n = j->s, .cost = j->c};
    while (cpu_next_stretch(&s)) {
        for (int64_t k = s.begin; k < s.end; k++) {
            const T *x = j->x + i * j->c * j->s + k;
            int64_t t = j->target[i * j->s + k];
            A *most_at = j->most + i * j->s + k, *log_at = j->log_sum + i * j->s + k, v = 0;
            if (k == told && j->s - k >= SIDE) {
                log_sums_beside(x, j->c, j->s, room, most_at, log_at);
                told += SIDE;
            } else if (k == told) {
                *log_at = log_sum_of(x, j->c, j->s, room, most_at);
                told++;
            }
            A most = *most_at, log_sum = *log_at;
            if (t != j->ignore) {
                v = log_sum - (LOAD(x[t * j->s]) - most);
                loss += (double)v;
                count += 1.0;
            }
            if (j->reduction == REDUCE_NONE) j->y[i * j->s + k] = STORE(v);
        }
    }
    j->sums[2 * i] = loss;
    j->sums[2 * i + 1] = count;
    return s.st;
}

static tn_status entropy_rows(void *arg, int64_t begin, int64_t end) {
    tn_status st = TN_OK;
    for (int64_t i = begin; i < end && st == TN_OK; i++) st = entropy_row(arg, i);
    return st;
}

static tn_status cross_entropy(const tn_call *call, const void *args) {
    const tn__cross_entropy_args *a = args;
    job j = {.ignore = a->ignore_index,
             .reduction = (int)a->reduction,
             .y = a->y->data,
             .most = a->most->data,
             .log_sum = a->log_sum->data};
    const void *x;
    void *sums;
    tn_status st = prepare(call, a->input->ndim, a->input->shape, a->target, NULL, &j);
    if (!st) st = cpu_packed(call, a->input, &x);
    if (!st) st = room_scratch(call, j.n + 1, 2 * sizeof(double), &sums);
    if (st) return st;
    j.x = x;
    j.sums = sums;
    st = cpu_parallel(j.n, grain_of(&j), entropy_rows, &j);
    if (st) return st;
    T count;
    finish(&j, a->y->data, &count);
    double total = 0.0;
    for (int64_t i = 0; i < j.n; i++) total += j.sums[2 * i + 1];
    *(A *)a->count->data = (A)total;
    return TN_OK;
}

/* exp(x - most - log_sum) * g, for a packed row. */
static void entropy_row_backward(const T *x, A most, A log_sum, A g, int64_t c, T *y) {
    int64_t i = 0;
    vec top = vec_all(most), shift = vec_all(log_sum), scale = vec_all(g);
    for (; i + VL <= c; i += VL) {
        vec_store_t(y + i, vec_exp(vec_load_t(x + i) - top - shift) * scale);
    }
    if (i < c) {
        vec p = vec_exp(vec_load_t_n(x + i, c - i, most) - top - shift);
        vec_store_t_n(y + i, p * scale, c - i);
    }
}

/* The probability of a class. */
static A entropy_p(T x, A most, A log_sum) { return (A)exp((double)(LOAD(x) - most - log_sum)); }

/* The probabilities of n positions that lie side by side, n <= ACROSS, times each position's g; 0
 * where keep is 0. */
enum { ACROSS = 256 };
typedef struct across {
    A most[ACROSS], log_sum[ACROSS], g[ACROSS];
    vec_int keep[ACROSS];
} across;

static void across_row(const across *a, const T *x, int64_t n, T *y) {
    for (int64_t k = 0; k < n; k += VL) {
        int64_t left = n - k;
        vec v = left >= VL ? vec_load_t(x + k) : vec_load_t_n(x + k, left, 0);
        vec_mask keep;
        memcpy(&keep, a->keep + k, sizeof keep);
        v = vec_exp(v - vec_load(a->most + k) - vec_load(a->log_sum + k)) * vec_load(a->g + k);
        v = (vec)((vec_mask)v & keep);
        if (left >= VL) {
            vec_store_t(y + k, v);
        } else {
            vec_store_t_n(y + k, v, left);
        }
    }
}

static A entropy_g(const job *j, int64_t at) {
    return j->reduction == REDUCE_NONE ? LOAD(j->g[at]) : j->scale;
}

/* Positions [k, k + n) of sample i. */
static tn_status across_positions(const job *j, int64_t i, int64_t k, int64_t n, across *a) {
    const int64_t c = j->c, s = j->s, first = i * s + k, *target = j->target + first;
    const T *x = j->x + i * c * s + k;
    T *y = j->y + i * c * s + k;
    memset(a, 0, sizeof *a);
    for (int64_t p = 0; p < n; p++) {
        a->most[p] = j->most_in[first + p];
        a->log_sum[p] = j->log_sum_in[first + p];
        a->g[p] = entropy_g(j, first + p);
        a->keep[p] = -(target[p] != j->ignore);
    }
    cpu_stretch all = {.n = c, .cost = n};
    while (cpu_next_stretch(&all))
        for (int64_t q = all.begin; q < all.end; q++) across_row(a, x + q * s, n, y + q * s);
    for (int64_t p = 0; p < n && all.st == TN_OK; p++) {
        if (!a->keep[p]) continue;
        A v = (entropy_p(x[target[p] * s + p], a->most[p], a->log_sum[p]) - 1) * a->g[p];
        y[target[p] * s + p] = STORE(v);
    }
    return all.st;
}

static tn_status entropy_backward_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t c = j->c, s = j->s;
    across a;
    tn_status st = TN_OK;
    for (int64_t i = begin; i < end && st == TN_OK; i++) {
        for (int64_t k = 0; s > 1 && k < s && st == TN_OK; k += ACROSS)
            st = across_positions(j, i, k, s - k < ACROSS ? s - k : ACROSS, &a);
        if (s != 1) continue;
        const T *x = j->x + i * c;
        T *y = j->y + i * c;
        int64_t t = j->target[i];
        A most = j->most_in[i], log_sum = j->log_sum_in[i], g = entropy_g(j, i);
        if (t == j->ignore) {
            for (int64_t q = 0; q < c; q++) y[q] = STORE((A)0);
            continue;
        }
        entropy_row_backward(x, most, log_sum, g, c, y);
        A v = (entropy_p(x[t], most, log_sum) - 1) * g;
        y[t] = STORE(v);
    }
    return st;
}

static tn_status cross_entropy_backward(const tn_call *call, const void *args) {
    const tn__cross_entropy_backward_args *a = args;
    job j = {.ignore = a->ignore_index, .reduction = (int)a->reduction, .y = a->out->data};
    const void *x, *g, *most, *log_sum;
    tn_status st = prepare(call, a->input->ndim, a->input->shape, a->target, NULL, &j);
    if (!st) st = cpu_packed(call, a->input, &x);
    if (!st) st = cpu_packed(call, a->grad, &g);
    if (!st) st = cpu_packed(call, a->most, &most);
    if (!st) st = cpu_packed(call, a->log_sum, &log_sum);
    if (st) return st;
    j.x = x;
    j.g = g;
    j.most_in = most;
    j.log_sum_in = log_sum;
    if (j.reduction != REDUCE_NONE) {
        j.scale = LOAD(*(const T *)g);
        if (j.reduction == REDUCE_MEAN) j.scale /= *(const A *)a->count->data;
    }
    return cpu_parallel(j.n, grain_of(&j), entropy_backward_rows, &j);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(_nll_loss, nll_loss),
    ROW(_nll_loss_backward, nll_backward),
    ROW(_nll_loss_gather, nll_gather),
    ROW(_cross_entropy, cross_entropy),
    ROW(_cross_entropy_backward, cross_entropy_backward),
};
const cpu_rows TN_(cpu_loss_rows) = CPU_ROWS_OF(rows);
