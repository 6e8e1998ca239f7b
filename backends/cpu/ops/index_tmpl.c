/* index_tmpl.c: indexed writes that compute, for one element type: index_put_ and index_add_,
 * scatter; and the small kernels that make or look for values: _arange_, _linspace_, nonzero.
 *
 * family: indexed; types: all */
#include <complex.h>
#include <math.h>

#include <tenon/args_create.h>
#include <tenon/args_index.h>

#include "common/tmpl.h"

#include "index.h"

enum { GRAIN = 1 << 13 };

/* Integers wrap: unsigned arithmetic has no overflow. bool saturates. */
#if TMPL_IS_BOOL
static inline A plus(A a, A b) { return (A)(a | b); }
static inline A times(A a, A b) { return (A)(a & b); }
#elif TMPL_IS_INT
static inline A plus(A a, A b) { return (A)((uint64_t)(int64_t)a + (uint64_t)(int64_t)b); }
static inline A times(A a, A b) { return (A)((uint64_t)(int64_t)a * (uint64_t)(int64_t)b); }
#else
static inline A plus(A a, A b) { return a + b; }
static inline A times(A a, A b) { return a * b; }
#endif

static A number(const tn_scalar *s) {
#if TMPL_IS_COMPLEX
    return (A)((RA)s->re + (RA)s->im * I);
#elif TMPL_IS_FLOAT
    return (A)s->re;
#elif TMPL_IS_BOOL
    return s->i != 0 || s->re != 0.0;
#else
    return (A)s->i;
#endif
}

/* ---- index_put_, index_add_ --------------------------------------------------------------------*/

static void add_packed(T *a, const T *b, A alpha, int64_t count) {
    for (int64_t i = 0; i < count; i++) a[i] = STORE(plus(LOAD(a[i]), times(alpha, LOAD(b[i]))));
}

static void add_line(const void *ctx, char *a, int64_t step_a, char *b, int64_t step_b,
                     int64_t count) {
    A alpha = *(const A *)ctx;
    if (step_a == (int64_t)sizeof(T) && step_b == (int64_t)sizeof(T)) {
        add_packed((T *)(void *)a, (const T *)(const void *)b, alpha, count);
        return;
    }
    for (int64_t i = 0; i < count; i++, a += step_a, b += step_b) {
        T *to = (T *)(void *)a;
        *to = STORE(plus(LOAD(*to), times(alpha, LOAD(*(const T *)(const void *)b))));
    }
}

static tn_status TN_(index_put_)(const tn_call *call, const void *args) {
    const tn__index_put__args *a = args;
    slices s;
    A one = (A)1;
    tn_status st = slices_of_indices(&s, call, a->self, a->values, a->indices, a->first, a->dims.v);
    if (st != TN_OK) return st;
    return a->accumulate ? slices_write(&s, add_line, &one) : slices_move_into_a(&s);
}

static tn_status TN_(index_add_)(const tn_call *call, const void *args) {
    const tn_index_add__args *a = args;
    slices s;
    A alpha = number(&a->alpha);
    tn_status st = slices_of_vector(&s, call, a->self, a->source, a->index, a->dim);
    return st == TN_OK ? slices_write(&s, add_line, &alpha) : st;
}

#if TMPL_IS_FLOAT
#define IS_NAN(x) ((x) != (x))
#else
#define IS_NAN(x) false
#endif

/* ---- scatter -----------------------------------------------------------------------------------*/

typedef struct job {
    places p;
    int64_t how;
} job;

static inline A combine(int64_t how, A old, A x) {
    switch (how) {
    case TN_SCATTER_ADD: return plus(old, x);
    case TN_SCATTER_MULTIPLY: return times(old, x);
#if !TMPL_IS_COMPLEX
    case TN_SCATTER_AMAX: /* a NaN stays */ return IS_NAN(old) || old >= x ? old : x;
    case TN_SCATTER_AMIN: return IS_NAN(old) || old <= x ? old : x;
#endif
    default: return x;
    }
}

TMPL_INLINE void scatter_some(const places *p, int64_t how, int is32, char *self, const char *src,
                              const char *index, int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; l++) {
        int64_t i = index_load(index + l * p->last_step[2], is32);
        T *to = (T *)(void *)(self + l * p->last_step[0] + i * p->step[0]);
        A x = LOAD(*(const T *)(const void *)(src + l * p->last_step[1]));
        *to = STORE(combine(how, LOAD(*to), x));
    }
}

static tn_status scatter_line(const job *j, char *self, const char *src, const char *index) {
    const places *p = &j->p;
    cpu_stretch s = {.n = p->last, .cost = 1};
    while (cpu_next_stretch(&s)) {
        if (j->how == TN_SCATTER_ADD && !p->is32)
            scatter_some(p, TN_SCATTER_ADD, 0, self, src, index, s.begin, s.end);
        else
            scatter_some(p, j->how, p->is32, self, src, index, s.begin, s.end);
    }
    return s.st;
}

/* Lines that differ in other dimensions never meet; within one, equal places are met in order. */
static tn_status scatter_range(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const places *p = &j->p;
    walk_at at;
    tn_status st = TN_OK;
    walk_seek(&p->outer, begin, &at);
    for (int64_t r = begin; r < end && st == TN_OK; r++, walk_next(&p->outer, &at)) {
        const char *src = p->src + at.offset[1], *index = p->index + at.offset[2];
        cpu_stretch s = {.n = p->n, .cost = p->last};
        while (st == TN_OK && cpu_next_stretch(&s))
            for (int64_t n = s.begin; n < s.end && st == TN_OK; n++)
                st = scatter_line(j, p->self + at.offset[0], src + n * p->step[1],
                                  index + n * p->step[2]);
        if (st == TN_OK) st = s.st;
    }
    return st;
}

static tn_status TN_(scatter_)(const tn_call *call, const void *args) {
    const tn__scatter__args *a = args;
    job s = {.how = a->how};
    if (a->index->numel == 0) return TN_OK;
#if TMPL_IS_COMPLEX
    if (a->how == TN_SCATTER_AMAX || a->how == TN_SCATTER_AMIN)
        return call->host->fail(TN_E_DTYPE, 3, "scatter_reduce: complex numbers have no order");
#endif
    tn_status st = places_of(&s.p, call, a->self, a->src, a->index, a->dim);
    if (st != TN_OK) return st;
    return cpu_parallel(s.p.outer.numel, GRAIN / (s.p.n * s.p.last) + 1, scatter_range, &s);
}

/* ---- Sequences ---------------------------------------------------------------------------------*/

typedef struct sequence {
    T *out;
    int64_t n;
    const tn_scalar *start, *step; /* _linspace_: start and end */
} sequence;

static tn_status arange_range(void *arg, int64_t begin, int64_t end) {
    const sequence *q = arg;
    const tn_scalar *start = q->start, *step = q->step;
    for (int64_t i = begin; i < end; i++) {
#if TMPL_IS_INT || TMPL_IS_BOOL
        if (start->kind < TN_CAT_FLOAT && step->kind < TN_CAT_FLOAT)
            q->out[i] = (T)((uint64_t)start->i + (uint64_t)i * (uint64_t)step->i);
        else
            q->out[i] = (T)(int64_t)(start->re + (double)i * step->re);
#else
        q->out[i] = STORE((A)(start->re + (double)i * step->re));
#endif
    }
    return TN_OK;
}

static tn_status TN_(arange_)(const tn_call *call, const void *args) {
    const tn__arange__args *a = args;
    sequence q = {a->self->data, a->self->numel, &a->start, &a->step};
    (void)call;
    return cpu_parallel(q.n, GRAIN, arange_range, &q);
}

/* Both halves count from their own end, so that the ends are exact. One rounding an element, as PyTorch's
 * x86 builds have it: the middle of a sequence around zero is what the step was rounded by. */
#if TMPL_IS_COMPLEX
#define FUSED(a, b, c) ((a) * (b) + (c))
#else
#define FUSED(a, b, c) _Generic((A)0, float : fmaf, default : fma)(a, b, c)
#endif
static tn_status linspace_range(void *arg, int64_t begin, int64_t end) {
    const sequence *q = arg;
    int64_t n = q->n, gaps = n > 1 ? n - 1 : 1;
#if TMPL_IS_INT || TMPL_IS_BOOL
    double first = q->start->re, last = q->step->re, step = (last - first) / (double)gaps;
    for (int64_t i = begin; i < end; i++) {
        double x =
            i < n / 2 || n == 1 ? first + step * (double)i : last - step * (double)(n - 1 - i);
        q->out[i] = (T)(int64_t)x;
    }
#else
    A first = number(q->start), last = number(q->step), step = (last - first) / (A)gaps;
    for (int64_t i = begin; i < end; i++) {
        q->out[i] = STORE(i < n / 2 || n == 1 ? FUSED(step, (A)i, first)
                                              : FUSED(-step, (A)(n - 1 - i), last));
    }
#endif
    return TN_OK;
}

static tn_status TN_(linspace_)(const tn_call *call, const void *args) {
    const tn__linspace__args *a = args;
    sequence q = {a->self->data, a->self->numel, &a->start, &a->end};
    (void)call;
    return cpu_parallel(q.n, GRAIN, linspace_range, &q);
}

/* ---- nonzero -----------------------------------------------------------------------------------*/

typedef struct search {
    const tn_view *x;
    walk w;         /* over x, unmerged dimensions need the coordinates */
    int64_t *found; /* by block: how many, then where the block's rows begin */
    int64_t *out;
} search;

enum { BLOCK = 1 << 12 };

static void plain_walk(walk *w, const tn_view *x) {
    w->ndim = x->ndim;
    w->count = 1;
    w->numel = x->numel;
    for (int32_t d = 0; d < x->ndim; d++) {
        w->size[d] = x->shape[d];
        w->step[d][0] = x->strides[d] * (int64_t)sizeof(T);
    }
}

static inline bool nonzero_at(const search *s, const walk_at *p) {
    return LOAD(*(const T *)(const void *)((const char *)s->x->data + p->offset[0])) != (A)0;
}

static tn_status count_blocks(void *arg, int64_t begin, int64_t end) {
    const search *s = arg;
    int64_t numel = s->x->numel;
    for (int64_t b = begin; b < end; b++) {
        int64_t from = b * BLOCK, to = from + BLOCK < numel ? from + BLOCK : numel, n = 0;
        if (tn_view_is_contiguous(s->x)) {
            const T *x = s->x->data;
            for (int64_t i = from; i < to; i++) n += LOAD(x[i]) != (A)0;
        } else {
            walk_at p;
            walk_seek(&s->w, from, &p);
            for (int64_t i = from; i < to; i++, walk_next(&s->w, &p)) n += nonzero_at(s, &p);
        }
        s->found[b] = n;
    }
    return TN_OK;
}

static tn_status write_blocks(void *arg, int64_t begin, int64_t end) {
    const search *s = arg;
    int64_t numel = s->x->numel;
    int32_t ndim = s->x->ndim;
    for (int64_t b = begin; b < end; b++) {
        int64_t from = b * BLOCK, to = from + BLOCK < numel ? from + BLOCK : numel;
        int64_t *row = s->out + s->found[b] * ndim;
        walk_at p;
        if (tn_view_is_contiguous(s->x)) {
            const T *x = s->x->data;
            for (int64_t i = from; i < to; i++) {
                if (LOAD(x[i]) == (A)0) continue;
                int64_t rest = i;
                for (int32_t d = ndim - 1; d > 0; d--) {
                    row[d] = rest % s->w.size[d];
                    rest /= s->w.size[d];
                }
                row[0] = rest;
                row += ndim;
            }
            continue;
        }
        walk_seek(&s->w, from, &p);
        for (int64_t i = from; i < to; i++, walk_next(&s->w, &p)) {
            if (!nonzero_at(s, &p)) continue;
            for (int32_t d = 0; d < ndim; d++) *row++ = p.at[d];
        }
    }
    return TN_OK;
}

static tn_status TN_(nonzero)(const tn_call *call, const void *args) {
    const tn_nonzero_args *a = args;
    int64_t blocks = (a->input->numel + BLOCK - 1) / BLOCK, total = 0;
    search s = {.x = a->input};
    void *found = NULL;
    tn_status st = room_scratch(call, blocks + 1, sizeof *s.found, &found);
    if (st != TN_OK) return st;
    s.found = found;
    plain_walk(&s.w, a->input);
    st = cpu_parallel(blocks, 4, count_blocks, &s);
    if (st != TN_OK) return st;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t n = s.found[b];
        s.found[b] = total;
        total += n;
    }
    int64_t shape[2] = {total, a->input->ndim};
    st = call->host->resize_output(call, a->out, 2, shape);
    if (st != TN_OK || total == 0 || a->input->ndim == 0) return st;
    s.out = a->out->data;
    return cpu_parallel(blocks, 4, write_blocks, &s);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, TN_(fn), NULL, TMPL_DTYPE, 0, 0, 0 }
static const tn_kernel_row rows[] = {
    ROW(_index_put_, index_put_), ROW(index_add_, index_add_), ROW(_scatter_, scatter_),
    ROW(_arange_, arange_),       ROW(_linspace_, linspace_),  ROW(nonzero, nonzero),
};
const cpu_rows TN_(cpu_indexed_rows) = CPU_ROWS_OF(rows);
