/* sequence_tmpl.c: _arange_ and _linspace_ for one element type. An element's value follows from its
 * place alone.
 *
 * family: sequence; types: all; isa: each; small: all */
#include <complex.h>
#include <math.h>

#include <tenon/args_create.h>

#include "common/tmpl.h"
#include "cpu_priv.h"

enum { GRAIN = 1 << 13 };

/* 32-bit places, where they suffice, become floating point numbers by vector instructions. */
enum { NEAR = 1 << 30 };

typedef struct sequence {
    T *out;
    int64_t n;
    tn_scalar start, step; /* _linspace_: start and end */
} sequence;

#if TMPL_IS_FLOAT
static A number(const tn_scalar *s) { return (A)s->re; }
#elif TMPL_IS_COMPLEX
static A number(const tn_scalar *s) { return (A)((RA)s->re + (RA)s->im * I); }
#endif

/* out[i] = f(i) for i of [begin, end); f may use `top`, the last place. */
#define FILL(type, begin, end, f)                                                                  \
    do {                                                                                           \
        const type top = (type)(q->n - 1), stop = (type)(end);                                     \
        (void)top;                                                                                 \
        for (type i = (type)(begin); i < stop; i++) out[i] = f(i);                                 \
    } while (0)

static tn_status arange_range(void *arg, int64_t begin, int64_t end) {
    const sequence *q = arg;
    const double first = q->start.re, step = q->step.re;
    T *out = q->out;
#if TMPL_IS_INT || TMPL_IS_BOOL
    if (q->start.kind < TN_CAT_FLOAT && q->step.kind < TN_CAT_FLOAT) {
        uint64_t x = (uint64_t)q->start.i, by = (uint64_t)q->step.i;
        for (int64_t i = begin; i < end; i++) out[i] = (T)(x + (uint64_t)i * by);
        return TN_OK;
    }
#define AT(i) ((T)(int64_t)(first + (double)(i)*step))
#else
#define AT(i) STORE((A)(first + (double)(i)*step))
#endif
    if (q->n <= NEAR)
        FILL(int32_t, begin, end, AT);
    else
        FILL(int64_t, begin, end, AT);
#undef AT
    return TN_OK;
}

static tn_status arange(const tn_call *call, const void *args) {
    const tn__arange__args *a = args;
    sequence q = {a->self->data, a->self->numel, a->start, a->step};
    (void)call;
    return cpu_parallel(q.n, GRAIN, arange_range, &q);
}

/* Both halves count from their own end, so that the ends are exact. One rounding an element, as
 * PyTorch's x86 builds have it: the middle of a sequence around zero is what the step was rounded by. */
#if TMPL_IS_COMPLEX
#define FUSED(a, b, c) ((a) * (b) + (c))
#else
#define FUSED(a, b, c) _Generic((A)0, float : fmaf, default : fma)(a, b, c)
#endif
/* Every step of half precision is rounded to it, as PyTorch has it. */
#define ROUNDED(a) LOAD(STORE(a))

static tn_status linspace_range(void *arg, int64_t begin, int64_t end) {
    const sequence *q = arg;
    const int64_t n = q->n, gaps = n > 1 ? n - 1 : 1, half = n == 1 ? 1 : n / 2;
    T *out = q->out;
#if TMPL_IS_INT || TMPL_IS_BOOL
    const double first = q->start.re, last = q->step.re, step = (last - first) / (double)gaps;
#define RISING(i) ((T)(int64_t)(first + step * (double)(i)))
#define FALLING(i) ((T)(int64_t)(last - step * (double)(top - (i))))
#elif TMPL_IS_HALF
    const A first = ROUNDED(number(&q->start)), last = ROUNDED(number(&q->step));
    const A step = ROUNDED(ROUNDED(last - first) / ROUNDED((A)gaps));
#define RISING(i) STORE(first + ROUNDED(step * ROUNDED((A)(i))))
#define FALLING(i) STORE(last - ROUNDED(step * ROUNDED((A)(top - (i)))))
#else
    const A first = number(&q->start), last = number(&q->step), step = (last - first) / (A)gaps;
#define RISING(i) STORE(FUSED(step, (A)(i), first))
#define FALLING(i) STORE(FUSED(-step, (A)(top - (i)), last))
#endif
    const int64_t middle = begin > half ? begin : end < half ? end : half;
    if (n <= NEAR) {
        FILL(int32_t, begin, middle, RISING);
        FILL(int32_t, middle, end, FALLING);
    } else {
        FILL(int64_t, begin, middle, RISING);
        FILL(int64_t, middle, end, FALLING);
    }
    return TN_OK;
}

static tn_status linspace(const tn_call *call, const void *args) {
    const tn__linspace__args *a = args;
    sequence q = {a->self->data, a->self->numel, a->start, a->end};
    (void)call;
    return cpu_parallel(q.n, GRAIN, linspace_range, &q);
}

static const tn_kernel_row rows[] = {
    {"_arange_", TN_SIG__arange_, arange, NULL, TMPL_DTYPE, 0, 0, 0},
    {"_linspace_", TN_SIG__linspace_, linspace, NULL, TMPL_DTYPE, 0, 0, 0},
};
const cpu_rows TN_(cpu_sequence_rows) = CPU_ROWS_OF(rows);
