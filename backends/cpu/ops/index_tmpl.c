/* index_tmpl.c: indexed writes that compute, for one element type: index_put_ and index_add_,
 * scatter; and nonzero.
 *
 * family: indexed; types: all */
#include <complex.h>

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

/* Slices of one element each: a call for each would take longer than the sum. */
typedef struct add_job {
    const slices *s;
    A alpha;
} add_job;

static tn_status add_elements(void *arg, int64_t begin, int64_t end) {
    const add_job *j = arg;
    const slices *s = j->s;
    const int64_t *at_a = s->at_a, *at_b = s->at_b;
    const A alpha = j->alpha;
    walk_at p;
    walk_seek(&s->prefix, begin, &p);
    for (int64_t i = begin; i < end; i++, walk_next(&s->prefix, &p)) {
        char *a = s->a + p.offset[0], *b = s->b + p.offset[1];
        cpu_stretch all = {.n = s->n, .cost = 1};
        while (cpu_next_stretch(&all)) {
            for (int64_t n = all.begin; n < all.end; n++) {
                T *to = (T *)(void *)(a + at_a[n]);
                const T *x = (const T *)(const void *)(b + at_b[n]);
#if defined(__GNUC__)
                if (n + 16 < all.n) __builtin_prefetch(a + at_a[n + 16], 1);
#endif
                *to = STORE(plus(LOAD(*to), times(alpha, LOAD(*x))));
            }
        }
        if (all.st != TN_OK) return all.st;
    }
    return TN_OK;
}

static tn_status slices_add(const slices *s, A alpha) {
    add_job j = {s, alpha};
    if (s->suffix.ndim > 0 || s->n == 0) return slices_write(s, add_line, &alpha);
    return cpu_parallel(s->prefix.numel, GRAIN / s->n + 1, add_elements, &j);
}

/* A vector by one packed vector of indices, which were checked: no offsets are made. */
static tn_status add_flat(const tn_index_add__args *a, A alpha) {
    const int64_t *index = a->index->data, step = a->source->ndim ? a->source->strides[0] : 0,
                  step_self = a->self->strides[0];
    const T *x = a->source->data;
    T *self = a->self->data;
    cpu_stretch s = {.n = a->index->numel, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t n = s.begin; n < s.end; n++) {
            T *to = self + index[n] * step_self;
            *to = STORE(plus(LOAD(*to), times(alpha, LOAD(x[n * step]))));
        }
    }
    return s.st;
}

static tn_status TN_(index_put_)(const tn_call *call, const void *args) {
    const tn__index_put__args *a = args;
    slices s;
    tn_status st = slices_of_indices(&s, call, a->self, a->values, a->indices, a->first, a->dims.v);
    if (st != TN_OK) return st;
    return a->accumulate ? slices_add(&s, (A)1) : slices_move_into_a(&s);
}

static tn_status TN_(index_add_)(const tn_call *call, const void *args) {
    const tn_index_add__args *a = args;
    const tn_view *index = a->index;
    slices s;
    if (a->self->ndim == 1 && tn_view_dtype(index) == TN_I64 && tn_view_is_contiguous(index) &&
        all_within(index->data, index->numel, a->self->shape[0]))
        return add_flat(a, number(&a->alpha));
    tn_status st = slices_of_vector(&s, call, a->self, a->source, a->index, a->dim);
    return st == TN_OK ? slices_add(&s, number(&a->alpha)) : st;
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
    const int64_t along = p->last_step[0], from = p->last_step[1], step = p->step[0];
    const int64_t next = p->last_step[2];
    for (int64_t l = begin; l < end; l++) {
        int64_t i = index_load(index + l * next, is32);
        T *to = (T *)(void *)(self + l * along + i * step);
        A x = LOAD(*(const T *)(const void *)(src + l * from));
        *to = STORE(combine(how, LOAD(*to), x));
    }
}

/* A packed line that goes to one place along dim, as an index that was expanded says. */
TMPL_INLINE void scatter_packed(int64_t how, T *to, const T *x, int64_t n) {
    for (int64_t l = 0; l < n; l++) to[l] = STORE(combine(how, LOAD(to[l]), LOAD(x[l])));
}

/* `how` is a constant wherever this is inlined: each kind has a loop of its own. */
TMPL_INLINE void scatter_stretch(const places *p, int64_t how, char *self, const char *src,
                                 const char *index, int64_t begin, int64_t end) {
    const int64_t packed = sizeof(T);
    if (p->last_step[2] == 0 && p->last_step[0] == packed && p->last_step[1] == packed) {
        T *to = (T *)(void *)(self + index_load(index, p->is32) * p->step[0]) + begin;
        scatter_packed(how, to, (const T *)(const void *)src + begin, end - begin);
    } else if (p->is32) {
        scatter_some(p, how, 1, self, src, index, begin, end);
    } else {
        scatter_some(p, how, 0, self, src, index, begin, end);
    }
}

static tn_status scatter_line(const job *j, char *self, const char *src, const char *index) {
    const places *p = &j->p;
    cpu_stretch s = {.n = p->last, .cost = 1};
    while (cpu_next_stretch(&s)) {
        switch (j->how) {
        case TN_SCATTER_ADD:
            scatter_stretch(p, TN_SCATTER_ADD, self, src, index, s.begin, s.end);
            break;
        case TN_SCATTER_MULTIPLY:
            scatter_stretch(p, TN_SCATTER_MULTIPLY, self, src, index, s.begin, s.end);
            break;
#if !TMPL_IS_COMPLEX
        case TN_SCATTER_AMAX:
            scatter_stretch(p, TN_SCATTER_AMAX, self, src, index, s.begin, s.end);
            break;
        case TN_SCATTER_AMIN:
            scatter_stretch(p, TN_SCATTER_AMIN, self, src, index, s.begin, s.end);
            break;
#endif
        default: scatter_stretch(p, TN_SCATTER_SET, self, src, index, s.begin, s.end);
        }
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
        w->step[d][0] = walk_step_of(x, d);
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

enum { SOME = 512 };

/* Writes the indices of what is not zero in x[from .. to), and returns where the next ones go. Places
 * are collected without a branch for each element, which half of the time would go the other way. */
static int64_t *write_packed(const search *s, int64_t from, int64_t to, int64_t *row) {
    const T *x = s->x->data;
    int32_t ndim = s->x->ndim;
    int64_t place[SOME], n = 0;
    for (int64_t i = from; i < to; i++) {
        place[n] = i;
        n += LOAD(x[i]) != (A)0;
    }
    if (ndim == 1) {
        memcpy(row, place, (size_t)n * sizeof *row);
        return row + n;
    }
    int64_t line = -1, width = s->w.size[ndim - 1]; /* line: the place where the last row began */
    for (int64_t k = 0; k < n; k++, row += ndim) {
        int64_t rest = place[k];
        if (line >= 0 && rest - line < width) {
            for (int32_t d = 0; d < ndim - 1; d++) row[d] = row[d - ndim];
            row[ndim - 1] = rest - line;
            continue;
        }
        for (int32_t d = ndim - 1; d > 0; d--) {
            row[d] = rest % s->w.size[d];
            rest /= s->w.size[d];
        }
        row[0] = rest;
        line = place[k] - row[ndim - 1];
    }
    return row;
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
            for (int64_t i = from; i < to; i += SOME)
                row = write_packed(s, i, to - i < SOME ? to : i + SOME, row);
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
    ROW(_index_put_, index_put_),
    ROW(index_add_, index_add_),
    ROW(_scatter_, scatter_),
    ROW(nonzero, nonzero),
};
const cpu_rows TN_(cpu_indexed_rows) = CPU_ROWS_OF(rows);
