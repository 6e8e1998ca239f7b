/* element_loss_tmpl.c: losses that compare element by element: their sum, and the gradient of the input.
 * Terms of a block of elements are made by a loop that is compiled for each loss, and added up while
 * they are in the first cache.
 *
 * family: element_loss; types: float; isa: each; fused */
#include <tenon/args_loss.h>

#include "common/element_loss.h"

#include "cpu_priv.h"
#include "half.h"
#include "pack.h"
#include "vec.h"

_Static_assert((int)COMPARE_SQUARE == TN_ELEMENT_LOSS_SQUARE &&
                   (int)COMPARE_ABSOLUTE == TN_ELEMENT_LOSS_ABSOLUTE &&
                   (int)COMPARE_SMOOTH == TN_ELEMENT_LOSS_SMOOTH &&
                   (int)COMPARE_HUBER == TN_ELEMENT_LOSS_HUBER &&
                   (int)COMPARE_ENTROPY == TN_ELEMENT_LOSS_ENTROPY &&
                   (int)COMPARE_LOGITS == TN_ELEMENT_LOSS_LOGITS &&
                   (int)COMPARE_DIVERGENCE == TN_ELEMENT_LOSS_DIVERGENCE &&
                   (int)COMPARE_LOG_DIVERGENCE == TN_ELEMENT_LOSS_LOG_DIVERGENCE,
               "kernels and core mean the same losses");

enum {
    BLOCK = 512, /* elements whose terms are made at once */
    SPAN = 4096, /* elements of one partial sum */
    OPERANDS = 4 /* input, target, weight, pos_weight */
};
enum { INPUT, TARGET, WEIGHT, POS_WEIGHT };

typedef struct job {
    int how;
    A number, scale; /* scale: of the gradient */
    int64_t n;
    const T *of[OPERANDS]; /* packed; weights may be NULL */
    double *partial;
    T *y;
} job;

/* n elements of T as A, in `room` unless they are what they have to be. */
static const A *widen(const T *x, int64_t n, A *room) {
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
    (void)n, (void)room;
    return x;
#elif TMPL_DTYPE == TMPL_F16 && defined(HALF_F16C)
    half_widen(room, x, n);
    return room;
#else
    for (int64_t i = 0; i < n; i++) room[i] = LOAD(x[i]);
    return room;
#endif
}

#define CASE_LOOP(how, fn)                                                                         \
    case how:                                                                                      \
        TMPL_VECTOR                                                                                \
        for (int64_t i = 0; i < n; i++) y[i] = fn(how, (compared){x[i], t[i], pos[i], number});    \
        break;
/* What `slope` asks for of n elements from `at` on, n at most BLOCK. */
static void compare(const job *j, int64_t at, int64_t n, bool slope, A *restrict y) {
    A room[OPERANDS][BLOCK];
    const A *of[OPERANDS], number = j->number;
    for (int k = 0; k < OPERANDS; k++) of[k] = j->of[k] ? widen(j->of[k] + at, n, room[k]) : NULL;
    const A *x = of[INPUT], *t = of[TARGET], *w = of[WEIGHT], *pos = of[POS_WEIGHT];
    if (!pos && j->how == COMPARE_LOGITS) {
        for (int64_t i = 0; i < n; i++) room[POS_WEIGHT][i] = 1;
        pos = room[POS_WEIGHT];
    }
    if (!pos) pos = x; /* others do not look at it */
    if (slope) {
        switch (j->how) {
            CASE_LOOP(COMPARE_SQUARE, compare_slope)
            CASE_LOOP(COMPARE_ABSOLUTE, compare_slope)
            CASE_LOOP(COMPARE_SMOOTH, compare_slope)
            CASE_LOOP(COMPARE_HUBER, compare_slope)
            CASE_LOOP(COMPARE_ENTROPY, compare_slope)
            CASE_LOOP(COMPARE_LOGITS, compare_slope)
            CASE_LOOP(COMPARE_DIVERGENCE, compare_slope)
            CASE_LOOP(COMPARE_LOG_DIVERGENCE, compare_slope)
        }
    } else {
        switch (j->how) {
            CASE_LOOP(COMPARE_SQUARE, compare_term)
            CASE_LOOP(COMPARE_ABSOLUTE, compare_term)
            CASE_LOOP(COMPARE_SMOOTH, compare_term)
            CASE_LOOP(COMPARE_HUBER, compare_term)
            CASE_LOOP(COMPARE_ENTROPY, compare_term)
            CASE_LOOP(COMPARE_LOGITS, compare_term)
            CASE_LOOP(COMPARE_DIVERGENCE, compare_term)
            CASE_LOOP(COMPARE_LOG_DIVERGENCE, compare_term)
        }
    }
    for (int64_t i = 0; w && i < n; i++) y[i] *= w[i];
}

static A sum_of(const A *y, int64_t n) {
    vec sum[VEC_TURN] = {0};
    int64_t i = 0;
    for (; i + VEC_TURN * VL <= n; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++) sum[k] += vec_load(y + i + k * VL);
    }
    A rest = 0;
    for (; i < n; i++) rest += y[i];
    return vec_sum_turns(sum) + rest;
}

static tn_status sum_spans(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    A y[BLOCK];
    for (int64_t s = begin; s < end; s++) {
        int64_t last = j->n - s * SPAN < SPAN ? j->n : (s + 1) * SPAN;
        double sum = 0.0;
        for (int64_t i = s * SPAN; i < last; i += BLOCK) {
            int64_t n = last - i < BLOCK ? last - i : BLOCK;
            compare(j, i, n, false, y);
            sum += (double)sum_of(y, n);
        }
        j->partial[s] = sum;
    }
    return TN_OK;
}

/* The operands in the order of the input's memory, where all have that, else row-major. */
static tn_status prepare(const tn_call *call, const tn_view *const *views, const tn_view *like,
                         job *ret) {
    bool alike = (like->word & TN_W_DENSE) != 0;
    for (int k = 0; k < OPERANDS; k++)
        for (int32_t d = 0; views[k] && d < like->ndim; d++)
            alike &= like->shape[d] == 1 || views[k]->strides[d] == like->strides[d];
    for (int k = 0; k < OPERANDS; k++) {
        const void *p = views[k] ? views[k]->data : NULL;
        tn_status st = views[k] && !alike ? cpu_packed(call, views[k], &p) : TN_OK;
        if (st) return st;
        ret->of[k] = p;
    }
    return TN_OK;
}

static tn_status element_loss(const tn_call *call, const void *args) {
    const tn__element_loss_args *a = args;
    const tn_view *views[OPERANDS] = {a->input, a->target, a->weight, a->pos_weight};
    job j = {.how = (int)a->how, .number = (A)a->number, .n = a->input->numel};
    int64_t spans = (j.n + SPAN - 1) / SPAN;
    double sum = 0.0;
    void *partial;
    tn_status st = prepare(call, views, a->input, &j);
    if (!st) st = room_scratch(call, spans + 1, sizeof(double), &partial);
    if (st) return st;
    j.partial = partial;
    st = cpu_parallel(spans, 2, sum_spans, &j);
    for (int64_t s = 0; s < spans && !st; s++) sum += j.partial[s];
    *(T *)a->out->data = STORE((A)(sum / a->divisor));
    return st;
}

static tn_status slope_spans(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    A y[BLOCK];
    int64_t last = end * BLOCK < j->n ? end * BLOCK : j->n;
    for (int64_t at = begin * BLOCK; at < last; at += BLOCK) {
        int64_t n = last - at < BLOCK ? last - at : BLOCK;
        compare(j, at, n, true, y);
        for (int64_t i = 0; i < n; i++) j->y[at + i] = STORE(y[i] * j->scale);
    }
    return TN_OK;
}

static tn_status element_loss_backward(const tn_call *call, const void *args) {
    const tn__element_loss_backward_args *a = args;
    const tn_view *views[OPERANDS] = {a->input, a->target, a->weight, a->pos_weight};
    A grad = LOAD(*(const T *)a->grad->data);
    job j = {.how = (int)a->how,
             .number = (A)a->number,
             .scale = grad / (A)a->divisor,
             .n = a->input->numel,
             .y = a->out->data};
    tn_status st = prepare(call, views, a->out, &j);
    return st ? st : cpu_parallel((j.n + BLOCK - 1) / BLOCK, 16, slope_spans, &j);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(_element_loss, element_loss),
    ROW(_element_loss_backward, element_loss_backward),
};
const cpu_rows TN_(cpu_element_loss_rows) = CPU_ROWS_OF(rows);
