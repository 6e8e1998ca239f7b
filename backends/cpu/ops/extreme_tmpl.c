/* extreme_tmpl.c: where the largest or smallest element stands, for one element type with an
 * order: argmax, max and min along a dimension, running extremes; runs of equal elements; binary
 * search.
 *
 * A NaN counts as larger and as smaller than everything; of equal elements the first is named (the
 * last in running extremes).
 *
 * family: extreme; types: real; isa: each */
#include <math.h>
#include <stdlib.h>

#include <tenon/args_index.h>
#include <tenon/args_reduce.h>

#include "common/tmpl.h"

#include "axis.h"
#include "copy.h"
#include "cpu_priv.h"
#include "walk.h"

enum {
    GRAIN = 1 << 13,
    LANES = 256 / sizeof(A),
    ABREAST = 64,          /* rows that go along together */
    SHORT = 48,            /* packed rows up to this length are turned to lie side by side */
    LINE = 64 / sizeof(T), /* elements of a cache line */
    LOOKUPS = 8,           /* values that are looked up together */
    TURNS = 127            /* that an int8 counts */
};

#if TMPL_IS_FLOAT
#define IS_NAN(x) ((x) != (x))
#else
#define IS_NAN(x) false
#endif

/* x takes the place of best. */
static inline bool beats(A x, A best, bool largest) {
    if (IS_NAN(best)) return false;
    return (largest ? x > best : x < best) || IS_NAN(x);
}

/* As wide as an element, so that vector code needs no conversions. */
#if TMPL_DTYPE == TMPL_F64 || TMPL_DTYPE == TMPL_I64
typedef int64_t mask;
#elif TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_I32 || TMPL_IS_HALF
typedef int32_t mask;
#elif TMPL_DTYPE == TMPL_I16
typedef int16_t mask;
#else
typedef int8_t mask;
#endif

typedef struct best {
    A value;
    int64_t at;
} best;

/* ---- One row -----------------------------------------------------------------------------------*/

/* The extreme of packed elements without its place, in lanes that compilers turn into vectors;
 * *ret_nan says that one is NaN and the extreme void. */
static A extreme_of(const T *x, int64_t n, bool largest, bool *ret_nan) {
    A lane[LANES];
    mask nan[LANES] = {0};
    int64_t i = 0;
    for (int l = 0; l < LANES; l++) lane[l] = LOAD(x[0]);
    if (largest) {
        for (; i + LANES <= n; i += LANES) {
            TMPL_VECTOR
            for (int l = 0; l < LANES; l++) {
                A v = LOAD(x[i + l]);
                lane[l] = v > lane[l] ? v : lane[l];
                nan[l] |= (mask)IS_NAN(v);
            }
        }
    } else {
        for (; i + LANES <= n; i += LANES) {
            TMPL_VECTOR
            for (int l = 0; l < LANES; l++) {
                A v = LOAD(x[i + l]);
                lane[l] = v < lane[l] ? v : lane[l];
                nan[l] |= (mask)IS_NAN(v);
            }
        }
    }
    A m = lane[0];
    int any = IS_NAN(m);
    for (int l = 0; l < LANES; l++) {
        m = (largest ? lane[l] > m : lane[l] < m) ? lane[l] : m;
        any |= nan[l] != 0;
    }
    for (; i < n; i++) {
        A v = LOAD(x[i]);
        m = (largest ? v > m : v < m) ? v : m;
        any |= IS_NAN(v);
    }
    *ret_nan = any != 0;
    return m;
}

/* The first place that holds m, or a NaN; there is one. */
static int64_t place_of(const T *x, int64_t n, A m, bool nan) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        mask found = 0;
        TMPL_VECTOR
        for (int l = 0; l < LANES; l++) {
            A v = LOAD(x[i + l]);
            found |= (mask)(nan ? IS_NAN(v) : v == m);
        }
        if (found) break;
    }
    for (; i + 1 < n; i++) {
        A v = LOAD(x[i]);
        if (nan ? IS_NAN(v) : v == m) break;
    }
    return i;
}

/* Of packed elements: first the extreme, then the first place that has it. */
static best best_packed(const T *x, int64_t n, bool largest) {
    bool nan = false;
    A m = extreme_of(x, n, largest, &nan);
    int64_t at = place_of(x, n, m, nan);
    return (best){LOAD(x[at]), at};
}

static tn_status best_strided(const T *x, int64_t step, int64_t n, bool largest, best *ret) {
    best b = {LOAD(x[0]), 0};
    cpu_stretch s = {.n = n, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin; i < s.end; i++) {
            A v = LOAD(x[i * step]);
            if (beats(v, b.value, largest)) b = (best){v, i};
        }
    }
    *ret = b;
    return s.st;
}

/* ---- Along a dimension -------------------------------------------------------------------------*/

typedef struct job {
    axis ax;
    const T *x;
    T *values; /* packed, by row; NULL: not wanted */
    int64_t *indices;
    bool largest;
} job;

static void put_best(const job *j, int64_t row, best b) {
    if (j->values) j->values[row] = STORE(b.value);
    j->indices[row] = b.at;
}

/* One line of `count` elements, the turn-th of a block, against the best so far. */
TMPL_INLINE void take_line(A *value, mask *turn_of, const T *line, int64_t count, mask turn,
                           const bool largest) {
    TMPL_VECTOR
    for (int64_t c = 0; c < count; c++) {
        A v = LOAD(line[c]), m = value[c];
        mask better = (mask)((largest ? v > m : v < m) | (IS_NAN(v) & !IS_NAN(m)));
        value[c] = better ? v : m;
        turn_of[c] = better ? turn : turn_of[c];
    }
}

/* Rows that lie side by side go along the dimension together, so that memory is read in order, in
 * blocks short enough that a place within one is as wide as an element. Where nothing lies between
 * the lines, several short ones are taken as one, and each column's candidates compared at the end. */
static tn_status abreast(const job *j, const T *x, int64_t step, int64_t row, int64_t count) {
    A value[ABREAST];
    mask turn_of[ABREAST];
    int64_t at[ABREAST], n = j->ax.n;
    int64_t times = step == count && n >= ABREAST / count ? ABREAST / count : 1;
    int64_t width = times * count, whole = n / times;
    for (int64_t c = 0; c < width; c++) {
        value[c] = LOAD(x[c]);
        at[c] = c / count;
    }
    cpu_stretch s = {.n = whole, .cost = ABREAST};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin; i < s.end; i += TURNS) {
            mask turns = (mask)(s.end - i < TURNS ? s.end - i : TURNS);
            const T *line = x + i * times * step;
            for (int64_t c = 0; c < width; c++) turn_of[c] = -1;
            for (mask t = 0; t < turns; t++, line += times * step) {
                if (j->largest)
                    take_line(value, turn_of, line, width, t, true);
                else
                    take_line(value, turn_of, line, width, t, false);
            }
            for (int64_t c = 0; c < width; c++)
                if (turn_of[c] >= 0) at[c] = (i + turn_of[c]) * times + c / count;
        }
    }
    for (int64_t c = 0; c < count; c++) {
        best b = {value[c], at[c]};
        for (int64_t k = c + count; k < width; k += count) {
            bool tie = value[k] == b.value || (IS_NAN(value[k]) && IS_NAN(b.value));
            if (beats(value[k], b.value, j->largest) || (tie && at[k] < b.at))
                b = (best){value[k], at[k]};
        }
        for (int64_t i = whole * times; i < n; i++) {
            A v = LOAD(x[i * step + c]);
            if (beats(v, b.value, j->largest)) b = (best){v, i};
        }
        put_best(j, row + c, b);
    }
    return s.st;
}

/* Packed rows that are too short to be worth vectors of their own. */
static tn_status short_rows(const job *j, const T *x, int64_t row, int64_t count) {
    T turned[SHORT * ABREAST];
    const int64_t item = sizeof(T);
    cpu_gather_tile(turned, ABREAST * item, x, j->ax.next[0] * item, j->ax.n, count, sizeof(T));
    return abreast(j, turned, ABREAST, row, count);
}

/* Whether neighbouring rows are neighbours in memory, and elements of a row are not. */
static bool side_by_side(const axis *ax) {
    return ax->ndim > 0 && ax->next[0] == 1 && ax->step[0] != 1;
}

static tn_status some_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const axis *ax = &j->ax;
    int64_t at[AXIS_MAX];
    bool side = side_by_side(ax), brief = ax->ndim > 0 && ax->step[0] == 1 && ax->n <= SHORT;
    tn_status st = TN_OK;
    for (int64_t r = begin; r < end && st == TN_OK;) {
        int64_t left = side || brief ? ax->run - r % ax->run : 1,
                count = left < end - r ? left : end - r;
        if (count > ABREAST) count = ABREAST;
        axis_offset(ax, r, at);
        const T *x = j->x + at[0];
        if (side) {
            st = abreast(j, x, ax->step[0], r, count);
        } else if (brief) {
            st = short_rows(j, x, r, count);
        } else {
            best b;
            if (ax->step[0] == 1)
                b = best_packed(x, ax->n, j->largest);
            else
                st = best_strided(x, ax->step[0], ax->n, j->largest, &b);
            put_best(j, r, b);
        }
        r += count;
    }
    return st;
}

static tn_status along(const tn_view *x, tn_view *values, tn_view *indices, int64_t dim,
                       bool largest) {
    job j = {.x = x->data,
             .values = values ? values->data : NULL,
             .indices = indices->data,
             .largest = largest};
    axis_init(&j.ax, 1, &x, dim);
    if (x->numel == 0) return TN_OK;
    int64_t grain = GRAIN / j.ax.n + 1;
    if (side_by_side(&j.ax) && grain < LINE) grain = LINE;
    return cpu_parallel(j.ax.rows, grain, some_rows, &j);
}

#if !TMPL_IS_BOOL
/* ---- Of everything -----------------------------------------------------------------------------*/

enum { BLOCK = 1 << 14 };

typedef struct whole {
    const tn_view *x;
    walk w;
    best *blocks;
    bool largest;
} whole;

/* The order is the logical one, so that equal elements of strided tensors are told apart rightly. Of
 * packed ones the place within the block is left to of_all: only the best block's is wanted. */
static tn_status some_blocks(void *arg, int64_t begin, int64_t end) {
    const whole *j = arg;
    for (int64_t b = begin; b < end; b++) {
        int64_t from = b * BLOCK, n = j->x->numel - from < BLOCK ? j->x->numel - from : BLOCK;
        best m;
        if (tn_view_is_contiguous(j->x)) {
            bool nan = false;
            m = (best){extreme_of((const T *)j->x->data + from, n, j->largest, &nan), from};
#if TMPL_IS_FLOAT
            if (nan) m.value = (A)NAN;
#endif
        } else {
            walk_at p;
            walk_seek(&j->w, from, &p);
            const char *data = j->x->data;
            m = (best){LOAD(*(const T *)(const void *)(data + p.offset[0])), from};
            for (int64_t i = 1; i < n; i++) {
                walk_next(&j->w, &p);
                A v = LOAD(*(const T *)(const void *)(data + p.offset[0]));
                if (beats(v, m.value, j->largest)) m = (best){v, from + i};
            }
        }
        j->blocks[b] = m;
    }
    return TN_OK;
}

static tn_status of_all(const tn_call *call, const tn_view *x, tn_view *out, bool largest) {
    int64_t blocks = (x->numel + BLOCK - 1) / BLOCK;
    whole j = {.x = x, .largest = largest};
    void *room = NULL;
    tn_status st = room_scratch(call, blocks, sizeof(best), &room);
    if (st != TN_OK) return st;
    j.blocks = room;
    walk_init(&j.w, 1);
    for (int32_t d = 0; d < x->ndim; d++) {
        int64_t step = walk_step_of(x, d);
        walk_add(&j.w, x->shape[d], &step);
    }
    st = cpu_parallel(blocks, 1, some_blocks, &j);
    if (st != TN_OK) return st;
    best m = j.blocks[0];
    for (int64_t b = 1; b < blocks; b++)
        if (beats(j.blocks[b].value, m.value, largest)) m = j.blocks[b];
    if (tn_view_is_contiguous(x)) {
        int64_t n = x->numel - m.at < BLOCK ? x->numel - m.at : BLOCK;
        m.at += place_of((const T *)x->data + m.at, n, m.value, IS_NAN(m.value));
    }
    *(int64_t *)out->data = m.at;
    return TN_OK;
}

static tn_status argmax(const tn_call *call, const void *args) {
    const tn_argmax_args *a = args;
    if (a->dim.has) return along(a->input, NULL, a->out, a->dim.value, true);
    return of_all(call, a->input, a->out, true);
}

static tn_status argmin(const tn_call *call, const void *args) {
    const tn_argmin_args *a = args;
    if (a->dim.has) return along(a->input, NULL, a->out, a->dim.value, false);
    return of_all(call, a->input, a->out, false);
}
#endif

static tn_status max_dim(const tn_call *call, const void *args) {
    const tn_max_dim_args *a = args;
    (void)call;
    return along(a->input, a->values, a->indices, a->dim, true);
}

static tn_status min_dim(const tn_call *call, const void *args) {
    const tn_min_dim_args *a = args;
    (void)call;
    return along(a->input, a->values, a->indices, a->dim, false);
}

/* ---- Running extremes --------------------------------------------------------------------------*/

typedef struct running {
    axis ax;
    const T *x;
    T *values;
    int64_t *indices;
    bool largest;
} running;

/* Most elements are behind m, which costs one comparison. */
TMPL_INLINE tn_status running_row(const running *j, const T *x, T *values, int64_t *indices,
                                  const bool largest) {
    const int64_t *step = j->ax.step;
    T stored = x[0];
    A m = LOAD(stored);
    int64_t k = 0;
    cpu_stretch s = {.n = j->ax.n, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin; i < s.end; i++) {
            A v = LOAD(x[i * step[0]]);
            if (!(largest ? v < m : v > m) && (!IS_NAN(m) || IS_NAN(v))) {
                m = v;
                stored = x[i * step[0]];
                k = i;
            }
            values[i * step[1]] = stored;
            indices[i * step[2]] = k;
        }
    }
    return s.st;
}

static tn_status running_rows(void *arg, int64_t begin, int64_t end) {
    const running *j = arg;
    const axis *ax = &j->ax;
    tn_status st = TN_OK;
    for (int64_t r = begin; r < end && st == TN_OK; r++) {
        int64_t at[AXIS_MAX];
        axis_offset(ax, r, at);
        const T *x = j->x + at[0];
        T *values = j->values + at[1];
        int64_t *indices = j->indices + at[2];
        st = j->largest ? running_row(j, x, values, indices, true)
                        : running_row(j, x, values, indices, false);
    }
    return st;
}

static tn_status run_along(const tn_view *x, tn_view *values, tn_view *indices, int64_t dim,
                           bool largest) {
    const tn_view *views[] = {x, values, indices};
    running j = {
        .x = x->data, .values = values->data, .indices = indices->data, .largest = largest};
    axis_init(&j.ax, 3, views, dim);
    if (x->numel == 0) return TN_OK;
    return cpu_parallel(j.ax.rows, GRAIN / j.ax.n + 1, running_rows, &j);
}

static tn_status cummax(const tn_call *call, const void *args) {
    const tn_cummax_args *a = args;
    (void)call;
    return run_along(a->input, a->values, a->indices, a->dim, true);
}

static tn_status cummin(const tn_call *call, const void *args) {
    const tn_cummin_args *a = args;
    (void)call;
    return run_along(a->input, a->values, a->indices, a->dim, false);
}

/* ---- Runs of equal elements --------------------------------------------------------------------*/

/* The runs are counted first, since results have their size; then a run's place is written by each of its
 * elements, so that nothing depends on a branch that data decides. */
static tn_status unique_consecutive(const tn_call *call, const void *args) {
    const tn__unique_consecutive_args *a = args;
    const T *x = a->input->data;
    int64_t n = a->input->numel, runs = n > 0, *inverse = a->inverse_indices->data;
    cpu_stretch s = {.n = n - 1, .cost = 1};
    while (n > 0 && cpu_next_stretch(&s)) {
        int64_t more = 0;
        for (int64_t i = s.begin; i < s.end; i++) more += LOAD(x[i]) != LOAD(x[i + 1]);
        runs += more;
    }
    tn_status st = s.st;
    if (st == TN_OK) st = call->host->resize_output(call, a->output, 1, &runs);
    if (st == TN_OK) st = call->host->resize_output(call, a->counts, 1, &runs);
    if (st != TN_OK || n == 0) return st;
    T *out = a->output->data, first = x[0];
    int64_t *counts = a->counts->data, run = 0, begin = 0;
    s = (cpu_stretch){.n = n, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin; i < s.end; i++) {
            bool differs = LOAD(x[i]) != LOAD(x[i > 0 ? i - 1 : 0]) && i > 0;
            run += differs;
            begin = differs ? i : begin;
            first = differs ? x[i] : first;
            inverse[i] = run;
            counts[run] = i + 1 - begin;
            out[run] = first;
        }
    }
    return s.st;
}

/* ---- Binary search -----------------------------------------------------------------------------*/

#if !TMPL_IS_BOOL
typedef struct lookup {
    const T *seq, *x;
    int64_t *out;
    int64_t length, per_row; /* per_row: elements of x for one sequence; 0: one sequence for all */
    bool right;
} lookup;

/* How many of the `length` elements of seq stand before each of LOOKUPS values of x: those that are
 * smaller, with `right` those that are not larger. Halves are chosen by masks, since branches would be
 * foreseen wrongly every other time, and the values' loads do not wait for each other's. A NaN goes past
 * everything: !(m > v) is not m <= v. */
static inline __attribute__((always_inline)) void
lookup_together(const T *seq, int64_t length, bool right, const A *v, int64_t *at) {
    int64_t left = length, half;
    TMPL_UNROLL
    for (int k = 0; k < LOOKUPS; k++) at[k] = 0;
    for (; left > 0; left = left > 1 ? left - half : 0) {
        half = left > 1 ? left / 2 : 1;
        TMPL_UNROLL
        for (int k = 0; k < LOOKUPS; k++) {
            A m = LOAD(seq[at[k] + half - 1]);
            at[k] += half & -(int64_t)(right ? !(m > v[k]) : !(m >= v[k]));
        }
    }
}

static tn_status lookup_range(void *arg, int64_t begin, int64_t end) {
    const lookup *j = arg;
    for (int64_t i = begin, m; i < end; i += m) {
        int64_t row = j->per_row ? i / j->per_row : 0, at[LOOKUPS];
        int64_t last = j->per_row && (row + 1) * j->per_row < end ? (row + 1) * j->per_row : end;
        A v[LOOKUPS];
        m = last - i < LOOKUPS ? last - i : LOOKUPS;
        for (int64_t k = 0; k < LOOKUPS; k++) v[k] = LOAD(j->x[i + (k < m ? k : 0)]);
        if (j->right)
            lookup_together(j->seq + row * j->length, j->length, true, v, at);
        else
            lookup_together(j->seq + row * j->length, j->length, false, v, at);
        memcpy(j->out + i, at, (size_t)m * sizeof *at);
    }
    return TN_OK;
}

static tn_status searchsorted(const tn_call *call, const void *args) {
    const tn__searchsorted_args *a = args;
    const tn_view *seq = a->sorted_sequence, *x = a->input;
    lookup j = {.seq = seq->data, .x = x->data, .out = a->out->data, .right = a->right != 0};
    (void)call;
    j.length = seq->shape[seq->ndim - 1];
    j.per_row = seq->ndim > 1 ? x->shape[x->ndim - 1] : 0;
    return cpu_parallel(x->numel, GRAIN / 16, lookup_range, &j);
}
#endif

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, 0, 0 }
static const tn_kernel_row rows[] = {
    ROW(max_dim, max_dim),
    ROW(min_dim, min_dim),
    ROW(cummax, cummax),
    ROW(cummin, cummin),
    ROW(_unique_consecutive, unique_consecutive),
#if !TMPL_IS_BOOL
    ROW(argmax, argmax),
    ROW(argmin, argmin),
    ROW(_searchsorted, searchsorted),
#endif
};
const cpu_rows TN_(cpu_extreme_rows) = CPU_ROWS_OF(rows);
