/* reduce_tu.c: reductions of one element type: sum, mean, prod, amax, amin, all, any, var,
 * std, sums of squares and of what is not NaN.
 *
 * Note [Order of summation]
 * The elements behind one result are cut into spans of fixed size. Within a span LANES accumulators
 * take turns; every 16 turns they move up a level, so that no accumulator takes more than a few
 * terms of similar size. Partial results of spans are joined in pairs. None of this depends
 * on the number of threads, so neither do the bits of the result.
 *
 * Where the fastest dimension is kept, whole rows of accumulators (columns) run down instead.
 *
 * family: reduce; types: all; isa: each */
#include <float.h>
#include <math.h>

#include <tenon/args_reduce.h>

#include "common/scalar.h"
#include "copy.h"
#include "cpu_priv.h"
#if TMPL_IS_FLOAT
#include "vec.h"
#endif

#define LANES ((int)(256 / sizeof(A)))
#define FEW_LANES (LANES / 4) /* of short rows: a vector */
#define TURNS 16              /* of an accumulator before it moves up a level */
#define FEED (LANES * 96)     /* elements per call of lanes() */
#define LEVELS 4
#define SPAN 65536                     /* elements per unit of work */
#define TILE ((int)(2048 / sizeof(A))) /* columns per unit of work */

/* Elements at x as numbers: the j-th is GROUP_AT(g, x, j) behind GROUP(g, x, lanes). Compilers do not find
 * the instruction that converts f16. */
#if TMPL_DTYPE == TMPL_F16 && defined(HALF_F16C)
TMPL_INLINE void group_of(A *g, const T *x, const int lanes) {
    for (int j = 0; j < lanes; j += VL) vec_store(g + j, vec_load_t(x + j));
}
#define GROUP(g, x, lanes)                                                                         \
    A g[LANES];                                                                                    \
    group_of(g, x, lanes)
#define GROUP_AT(g, x, j) g[j]
#else
#define GROUP(g, x, lanes)
#define GROUP_AT(g, x, j) LOAD((x)[j])
#endif

/* As wide as an accumulator. */
#if TMPL_DTYPE == TMPL_F64
typedef uint64_t red_mask;
#else
typedef uint32_t red_mask;
#endif

typedef struct red_op {
    void (*lanes)(A *acc, const T *x, int64_t n, A center);
    void (*columns)(A *acc, const T *x, int64_t rows, int64_t pitch, int64_t n, const A *centers);
    void (*join)(A *a, const A *b, int64_t n);
    A (*fold)(A *a);
    void (*rows)(A *out, const T *x, int64_t rows, int64_t pitch, int64_t n, const A *centers);
    A (*few)(const T *x, int64_t n, int64_t stride, A center);
    void (*clear)(A *a, int64_t n);
} red_op;

#if TMPL_IS_FLOAT
/* The extreme of n >= VL packed elements. Smallest ones are the largest of the negatives; elements at
 * the end may be taken in twice. */
TMPL_INLINE A extreme_row(const T *x, int64_t n, bool largest) {
    const vec sign = vec_all(largest ? (A)1 : (A)-1);
    vec best[4];
    vec_mask bad = {0};
    red_mask any = 0, lane[VL];
    for (int k = 0; k < 4; k++) best[k] = vec_load_t(x) * sign;
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        vec v[4];
        for (int k = 0; k < 4; k++) v[k] = vec_load_t(x + i + k * VL);
        for (int k = 0; k < 4; k++) best[k] = vec_max(v[k] * sign, best[k]);
        for (int k = 0; k < 4; k++) bad |= v[k] != v[k];
    }
    for (; i < n; i += VL) {
        vec v = vec_load_t(x + (i + VL <= n ? i : n - VL));
        best[0] = vec_max(v * sign, best[0]);
        bad |= v != v;
    }
    A r = vec_max_of(vec_max(vec_max(best[0], best[1]), vec_max(best[2], best[3])));
    memcpy(lane, &bad, sizeof lane);
    for (int j = 0; j < VL; j++) any |= lane[j];
    return any ? (A)NAN : largest ? r : -r;
}
#endif

#include "common/reduce.h"
#if TMPL_IS_FLOAT
#define RED nansum
#define RED_INIT 0
#define RED_STEP(a, x) ((a) + ((x) == (x) ? (x) : (A)0))
#define RED_JOIN(a, b) ((a) + (b))
#include "reduce_tmpl.h"
#endif

/* ---- The job -----------------------------------------------------------------------------------*/

/* A set of dimensions: which of the plan's, in its order. */
typedef struct dims {
    int32_t n;
    int64_t count; /* product of the sizes */
    int64_t size[TN_MAX_DIMS], in[TN_MAX_DIMS], out[TN_MAX_DIMS];
} dims;

typedef struct job {
    const red_op *op;
    dims kept, gone;
    const char *in;
    char *out;
    const A *centers; /* by result, in the order of kept; or NULL */
    A *partial;       /* (results, spans), or (bands, spans, TILE) */
    int64_t spans, span;
    int64_t width, tiles; /* columns: how many along kept dimension 0, and in tiles */
} job;

static int64_t offset_in(const dims *d, int32_t first, int64_t index) {
    int64_t offset = 0;
    for (int32_t i = first; i < d->n; i++) {
        offset += index % d->size[i] * d->in[i];
        index /= d->size[i];
    }
    return offset;
}

static int64_t offset_out(const dims *d, int32_t first, int64_t index) {
    int64_t offset = 0;
    for (int32_t i = first; i < d->n; i++) {
        offset += index % d->size[i] * d->out[i];
        index /= d->size[i];
    }
    return offset;
}

/* ---- Lanes: the fastest dimension goes ---------------------------------------------------------*/

typedef struct cascade {
    const red_op *op;
    A center;
    int32_t used; /* levels that hold something */
    int32_t fill[LEVELS];
    A level[LEVELS][LANES];
} cascade;

static void feed(cascade *c, const T *x, int64_t n) {
    if (c->used == 0) {
        c->op->clear(c->level[0], LANES);
        c->fill[0] = 0;
        c->used = 1;
    }
    c->op->lanes(c->level[0], x, n, c->center);
    for (int32_t k = 0; ++c->fill[k] == TURNS && k < LEVELS - 1; k++) {
        if (k + 1 == c->used) {
            c->op->clear(c->level[k + 1], LANES);
            c->fill[k + 1] = 0;
            c->used++;
        }
        c->op->join(c->level[k + 1], c->level[k], LANES);
        c->op->clear(c->level[k], LANES);
        c->fill[k] = 0;
    }
}

/* Elements [begin, end) of the gone dimensions, from `at` on. */
static A reduce_span(const job *j, const char *at, int64_t begin, int64_t end, A center) {
    const dims *g = &j->gone;
    int64_t n0 = g->size[0], stride = g->in[0];
    if (end - begin <= LANES && (g->n == 1 || end - begin <= n0 - begin % n0)) {
        const char *x = at + offset_in(g, 0, begin);
        return j->op->few((const T *)(const void *)x, end - begin, stride, center);
    }
    cascade c; /* large: nothing is set that is not used */
    c.op = j->op;
    c.center = center;
    c.used = 0;
    _Alignas(64) T packed[FEED];
    int64_t fill = 0, col = begin % n0, row = begin / n0;
    bool direct = stride == (int64_t)sizeof(T) && (n0 >= LANES || g->n == 1);
    while (begin < end) {
        const char *x = at + offset_in(g, 1, row) + col * stride;
        int64_t n = n0 - col < end - begin ? n0 - col : end - begin;
        if (!direct && n > FEED - fill) n = FEED - fill;
        if (direct && n > FEED) n = FEED;
        if (direct) {
            feed(&c, (const T *)(const void *)x, n);
        } else {
            cpu_gather(packed + fill, x, n, stride, (int32_t)sizeof(T));
            fill += n;
        }
        begin += n;
        col += n;
        if (col == n0) {
            col = 0;
            row++;
        }
        if (fill == FEED || (fill && begin == end)) {
            feed(&c, packed, fill);
            fill = 0;
        }
    }
    for (int32_t k = 1; k < c.used; k++) c.op->join(c.level[0], c.level[k], LANES);
    return c.op->fold(c.level[0]);
}

/* Packed rows, each of which is one item. */
static tn_status row_items(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const dims *k = &j->kept;
    while (begin < end) {
        int64_t col = begin % k->size[0], left = k->size[0] - col;
        int64_t n = left < end - begin ? left : end - begin;
        const char *at = j->in + offset_in(k, 0, begin);
        j->op->rows(j->partial + begin, (const T *)(const void *)at, n,
                    k->in[0] / (int64_t)sizeof(T), j->gone.count,
                    j->centers ? j->centers + begin : NULL);
        begin += n;
    }
    return TN_OK;
}

static tn_status span_items(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t item = begin; item < end; item++) {
        int64_t result = item / j->spans, first = item % j->spans * j->span;
        int64_t last = j->gone.count - first < j->span ? j->gone.count : first + j->span;
        const char *at = j->in;
        at += j->kept.n == 1 ? result * j->kept.in[0] : offset_in(&j->kept, 0, result);
        A center = j->centers ? j->centers[result] : (A)0;
        j->partial[item] = reduce_span(j, at, first, last, center);
    }
    return TN_OK;
}

/* Joins n neighbouring rows of `width` partial results in pairs; the first row holds the result. */
static void join_pairs(const red_op *op, A *rows, int64_t n, int64_t width) {
    for (int64_t step = 1; step < n; step *= 2)
        for (int64_t i = 0; i + step < n; i += 2 * step)
            op->join(rows + i * width, rows + (i + step) * width, width);
}

/* ---- Columns: the fastest dimension stays ------------------------------------------------------*/

/* Rows go by groups of TURNS; where there is but one group, its sums are the result. */
static void run_columns(const job *j, const char *at, int64_t width, int64_t begin, int64_t end,
                        const A *centers, A *acc) {
    A level[2][TILE];
    const red_op *op = j->op;
    const dims *g = &j->gone;
    T packed[TILE];
    int64_t stride = j->kept.in[0], in_first = 0, in_second = 0;
    int64_t i0 = begin % g->size[0], row = begin / g->size[0];
    bool direct = stride == (int64_t)sizeof(T), one = end - begin <= TURNS;
    const char *base = at + offset_in(g, 1, row);
    A *first = one ? acc : level[0];
    op->clear(first, width);
    if (!one) op->clear(level[1], width);
    if (!one) op->clear(acc, width);
    while (begin < end) {
        const char *x = base + i0 * g->in[0];
        int64_t n = TURNS - in_first, left = g->size[0] - i0;
        if (n > left) n = left;
        if (n > end - begin) n = end - begin;
        if (!direct) {
            n = 1;
            cpu_gather(packed, x, width, stride, (int32_t)sizeof(T));
            x = (const char *)packed;
        }
        op->columns(first, (const T *)(const void *)x, n, g->in[0] / (int64_t)sizeof(T), width,
                    centers);
        begin += n;
        i0 += n;
        if (i0 == g->size[0]) {
            i0 = 0;
            base = at + offset_in(g, 1, ++row);
        }
        in_first += n;
        if (one || in_first < TURNS) continue;
        in_first = 0;
        op->join(level[1], level[0], width);
        op->clear(level[0], width);
        if (++in_second < TURNS) continue;
        in_second = 0;
        op->join(acc, level[1], width);
        op->clear(level[1], width);
    }
    if (one) return;
    op->join(level[1], level[0], width);
    op->join(acc, level[1], width);
}

/* A task: (outer, span, tile); a band is one tile of columns at one place of the other kept dimensions. Tasks
 * beside each other are tiles of the same rows: a thread that has a half of them reads whole rows. */
static tn_status column_items(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    int64_t plane = j->tiles * j->spans;
    for (int64_t task = begin; task < end; task++) {
        int64_t band = task / plane * j->tiles + task % j->tiles;
        int64_t span = task % plane / j->tiles, first = span * j->span;
        int64_t last = j->gone.count - first < j->span ? j->gone.count : first + j->span;
        int64_t outer = band / j->tiles, c0 = band % j->tiles * TILE;
        int64_t width = j->width - c0 < TILE ? j->width - c0 : TILE;
        const char *at = j->in + offset_in(&j->kept, 1, outer) + c0 * j->kept.in[0];
        const A *centers = j->centers ? j->centers + outer * j->width + c0 : NULL;
        run_columns(j, at, width, first, last, centers,
                    j->partial + (band * j->spans + span) * TILE);
    }
    return TN_OK;
}

/* ---- All results -------------------------------------------------------------------------------*/

/* Where a further dimension of the input is packed, it becomes the first one. */
static void packed_first(dims *d) {
    for (int32_t i = 1; i < d->n && d->in[0] != (int64_t)sizeof(T); i++) {
        if (d->in[i] != (int64_t)sizeof(T) || d->size[i] < 4) continue;
        int64_t size = d->size[0], in = d->in[0], out = d->out[0];
        d->size[0] = d->size[i];
        d->in[0] = d->in[i];
        d->out[0] = d->out[i];
        d->size[i] = size;
        d->in[i] = in;
        d->out[i] = out;
    }
}

static void read_plan(job *j, const tn_plan *p) {
    j->in = p->data[1];
    j->out = p->data[0];
    j->kept.n = j->gone.n = 0;
    j->kept.count = j->gone.count = 1;
    for (int32_t d = 0; d < p->ndim; d++) {
        dims *to = p->reduce_mask >> d & 1 ? &j->gone : &j->kept;
        to->size[to->n] = p->shape[d];
        to->in[to->n] = p->stride[d][1];
        to->out[to->n++] = p->stride[d][0];
        to->count *= p->shape[d];
    }
    packed_first(&j->kept);
    packed_first(&j->gone);
    if (j->gone.n == 0) {
        j->gone.n = 1;
        j->gone.size[0] = 1;
        j->gone.in[0] = sizeof(T);
    }
    if (j->kept.n == 0) {
        j->kept.n = 1;
        j->kept.size[0] = 1;
        j->kept.in[0] = j->kept.out[0] = sizeof(T);
    }
}

/* Few columns of a packed matrix: several rows count as one wide row, whose columns are joined
 * afterwards. Returns how many. */
static int64_t widen(job *j) {
    dims *k = &j->kept, *g = &j->gone;
    int64_t n0 = k->size[0], item = (int64_t)sizeof(T);
    if (k->n != 1 || g->n != 1 || k->in[0] != item || g->in[0] != n0 * item || n0 > TILE / 4)
        return 1;
    int64_t times = TILE / n0;
    while (g->size[0] % times) times--;
    k->size[0] = k->count = n0 * times;
    g->size[0] = g->count = g->size[0] / times;
    g->in[0] *= times;
    return times;
}

/* Writes results[0 .. kept.count), in the order of the kept dimensions. */
static tn_status reduce_lanes(job *j, A *results) {
    if (j->gone.count <= LANES && j->kept.count == 1 && j->gone.n == 1) {
        *results = j->op->few((const T *)(const void *)j->in, j->gone.count, j->gone.in[0],
                              j->centers ? *j->centers : (A)0);
        return TN_OK;
    }
    j->span = SPAN;
    j->spans = (j->gone.count + SPAN - 1) / SPAN;
    int64_t items = room_mul(j->kept.count, j->spans), per_item = j->gone.count / j->spans + 1;
    uint64_t bytes = 0;
    void *partial = results;
    tn_status st = TN_OK;
    if (j->spans > 1) st = cpu_room(items, sizeof(A), &bytes, &partial);
    if (st != TN_OK) return st;
    j->partial = partial;
    bool rows = j->gone.n == 1 && j->gone.in[0] == (int64_t)sizeof(T) && j->gone.count <= FEED;
    st = cpu_parallel(items, SPAN / 4 / per_item + 1, rows ? row_items : span_items, j);
    if (j->spans == 1) return st;
    for (int64_t r = 0; r < j->kept.count && st == TN_OK; r++) {
        join_pairs(j->op, j->partial + r * j->spans, j->spans, 1);
        results[r] = j->partial[r * j->spans];
    }
    cpu_free(NULL, 0, partial, bytes);
    return st;
}

static tn_status reduce_columns(job *j, A *results, int64_t times) {
    j->width = j->kept.size[0];
    j->tiles = (j->width + TILE - 1) / TILE;
    int64_t tile = j->width < TILE ? j->width : TILE;
    j->span = SPAN / tile;
    j->spans = (j->gone.count + j->span - 1) / j->span;
    int64_t bands = j->tiles * (j->kept.count / j->width), items = room_mul(bands, j->spans);
    int64_t rows = j->gone.count < j->span ? j->gone.count : j->span;
    uint64_t bytes;
    void *partial;
    tn_status st = cpu_room(items, TILE * sizeof(A), &bytes, &partial);
    if (st != TN_OK) return st;
    j->partial = partial;
    st = cpu_parallel(items, SPAN / 4 / (tile * rows) + 1, column_items, j);
    for (int64_t b = 0; b < bands && st == TN_OK; b++) {
        A *acc = j->partial + b * j->spans * TILE;
        int64_t c0 = b % j->tiles * TILE, n = j->width - c0 < TILE ? j->width - c0 : TILE;
        join_pairs(j->op, acc, j->spans, TILE);
        n /= times;
        for (int64_t t = 1; t < times; t++) j->op->join(acc, acc + t * n, n);
        memcpy(results + b / j->tiles * j->width + c0, acc, (size_t)n * sizeof(A));
    }
    cpu_free(NULL, 0, partial, bytes);
    return st;
}

static tn_status reduce_all(const tn_plan *p, const red_op *op, const A *centers, A *results) {
    job j; /* large: nothing is set that is not used */
    j.op = op;
    j.centers = centers;
    read_plan(&j, p);
    if (p->numel == 0) {
        op->clear(results, j.kept.count);
        return TN_OK;
    }
    /* Rows shorter than a vector are columns, too: neighbouring results are worked on at once. */
    bool columns = !(p->reduce_mask & 1) && p->reduce_mask != 0;
    if (j.gone.in[0] == (int64_t)sizeof(T) && j.kept.in[0] != (int64_t)sizeof(T)) columns = false;
    if (j.kept.in[0] == (int64_t)sizeof(T) && j.kept.count > 1) columns = p->reduce_mask != 0;
    bool apart = j.gone.in[0] != (int64_t)sizeof(T);
    bool short_rows =
        j.gone.n == 1 && j.gone.count <= (apart ? 32 : FEW_LANES - 1) && j.kept.size[0] >= 16;
    if (!columns && !short_rows) return reduce_lanes(&j, results);
    int64_t times = centers || !columns ? 1 : widen(&j);
    return j.kept.size[0] < 4 ? reduce_lanes(&j, results) : reduce_columns(&j, results, times);
}

/* ---- Kernels -----------------------------------------------------------------------------------*/

typedef enum finish { AS_IS, MEAN, VARIANCE, DEVIATION } finish;

#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
/* Sums of squares that become deviations, in place. */
typedef struct roots {
    job j;
    A *sums;
    double divisor;
} roots;

#if TMPL_IS_FLOAT && TMPL_DTYPE != TMPL_F64
/* The sum of what lies between elements and the center, or of its squares. */
static double sum_in_double(const dims *g, const char *at, double center, bool squares,
                            tn_status *ret_st) {
    cpu_stretch s = {.n = g->count, .cost = 1};
    double sum = 0;
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin, n; i < s.end; i += n) {
            const char *x = at + offset_in(g, 0, i);
            n = g->size[0] - i % g->size[0];
            if (n > s.end - i) n = s.end - i;
            for (int64_t k = 0; k < n; k++, x += g->in[0]) {
                double d = (double)LOAD(*(const T *)(const void *)x) - center;
                sum += squares ? d * d : d;
            }
        }
    }
    *ret_st = s.st;
    return sum;
}

/* Squares of numbers beyond 1e19 or below 1e-15 leave float, their root does not: such results are
 * computed again. */
static tn_status take_root(const roots *r, int64_t i) {
    const dims *g = &r->j.gone;
    const char *at = r->j.in + offset_in(&r->j.kept, 0, i);
    double sum = (double)r->sums[i], n = (double)g->count;
    tn_status st = TN_OK;
    if (!(sum >= n * 1e-30 && sum <= (double)FLT_MAX)) {
        double mean = sum_in_double(g, at, 0, false, &st) / n;
        if (st == TN_OK && isfinite(mean)) sum = sum_in_double(g, at, mean, true, &st);
    }
    r->sums[i] = (A)sqrt(sum / r->divisor);
    return st;
}
#elif TMPL_IS_FLOAT
static tn_status take_root(const roots *r, int64_t i) {
    r->sums[i] = sqrt(r->sums[i] / r->divisor);
    return TN_OK;
}
#else
static tn_status take_root(const roots *r, int64_t i) {
    r->sums[i] = COMPLEX_((RA)sqrt((double)RE_(r->sums[i]) / r->divisor), 0);
    return TN_OK;
}
#endif

static tn_status root_items(void *arg, int64_t begin, int64_t end) {
    tn_status st = TN_OK;
    for (int64_t i = begin; i < end && st == TN_OK; i++) st = take_root(arg, i);
    return st;
}
#endif

static void write_results(const tn_plan *p, const A *results, finish how, double divisor) {
    job j;
    read_plan(&j, p);
    int64_t n0 = j.kept.size[0];
    (void)how;
    (void)divisor;
    for (int64_t i = 0; i < j.kept.count; i += n0) {
        char *out = j.out + offset_out(&j.kept, 1, i / n0);
        for (int64_t c = 0; c < n0; c++) {
            char *to = out + c * j.kept.out[0];
            A r = results[i + c];
#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
            if (how != AS_IS) r = r / (RA)divisor;
#endif
#if TMPL_IS_COMPLEX
            if (how == VARIANCE) {
                *(R *)(void *)to = RE_(r);
                continue;
            }
#endif
            *(T *)(void *)to = STORE(r);
        }
    }
}

static int64_t kept_count(const tn_plan *p) {
    int64_t n = 1;
    for (int32_t d = 0; d < p->ndim; d++)
        if (!(p->reduce_mask >> d & 1)) n *= p->shape[d];
    return n;
}

/* Results live on the stack when they are few. */
#define FEW 64

static tn_status reduce_to(const tn_plan *p, const red_op *op, finish how, double correction) {
    A near[FEW], *results = near;
    int64_t n = kept_count(p);
    uint64_t bytes = 0;
    tn_status st = TN_OK;
    void *far = NULL, *centers = NULL;
    if (n == 0) return TN_OK;
    if (n > FEW) {
        st = cpu_room(n, sizeof(A), &bytes, &far);
        if (st != TN_OK) return st;
        results = far;
    }
    double divisor = (double)(p->numel / n);
#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
    if (how >= VARIANCE) {
        st = cpu_room(n, sizeof(A), &bytes, &centers);
        if (st != TN_OK) goto out;
        A *mean = centers;
        st = reduce_all(p, &op_sum, NULL, mean);
        if (st != TN_OK) goto out;
        for (int64_t i = 0; i < n; i++) mean[i] = mean[i] / (RA)divisor;
        divisor = divisor > 0 && divisor > correction ? divisor - correction : 0;
    }
#endif
    (void)correction;
    st = reduce_all(p, op, centers, results);
    if (st != TN_OK) goto out;
#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
    if (how == DEVIATION) {
        roots r;
        read_plan(&r.j, p);
        r.sums = results;
        r.divisor = divisor;
        st = cpu_parallel(n, 4096, root_items, &r);
        if (st != TN_OK) goto out;
        how = VARIANCE;
        divisor = 1;
    }
#endif
    write_results(p, results, how, divisor);
out:
    cpu_free(NULL, 0, far, bytes);
    cpu_free(NULL, 0, centers, bytes);
    return st;
}

#if TMPL_IS_BOOL
static tn_status all(const tn_call *call, const void *args) {
    (void)call;
    return reduce_to(((const tn__all_args *)args)->plan, &op_all, AS_IS, 0);
}

static tn_status any(const tn_call *call, const void *args) {
    (void)call;
    return reduce_to(((const tn__any_args *)args)->plan, &op_any, AS_IS, 0);
}

/* In the arithmetic of bool: sums are "or", products "and". */
static tn_status sum(const tn_call *call, const void *args) {
    (void)call;
    return reduce_to(((const tn_sum_args *)args)->plan, &op_any, AS_IS, 0);
}

static tn_status prod(const tn_call *call, const void *args) {
    (void)call;
    return reduce_to(((const tn__prod_args *)args)->plan, &op_all, AS_IS, 0);
}
#else
static tn_status sum(const tn_call *call, const void *args) {
    (void)call;
    return reduce_to(((const tn_sum_args *)args)->plan, &op_sum, AS_IS, 0);
}

static tn_status prod(const tn_call *call, const void *args) {
    (void)call;
    return reduce_to(((const tn__prod_args *)args)->plan, &op_prod, AS_IS, 0);
}
#endif

#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
static tn_status mean(const tn_call *call, const void *args) {
    (void)call;
    return reduce_to(((const tn_mean_args *)args)->plan, &op_sum, MEAN, 0);
}

static tn_status var(const tn_call *call, const void *args) {
    const tn__var_args *a = args;
    (void)call;
    return reduce_to(a->plan, &op_spread, VARIANCE, a->correction);
}

static tn_status std(const tn_call *call, const void *args) {
    const tn__std_args *a = args;
    (void)call;
    return reduce_to(a->plan, &op_spread, DEVIATION, a->correction);
}
#endif

#if TMPL_IS_FLOAT
static tn_status nansum(const tn_call *call, const void *args) {
    (void)call;
    return reduce_to(((const tn__nansum_args *)args)->plan, &op_nansum, AS_IS, 0);
}

static tn_status sum_squares(const tn_call *call, const void *args) {
    (void)call;
    return reduce_to(((const tn__sum_squares_args *)args)->plan, &op_spread, AS_IS, 0);
}
#endif

#if !TMPL_IS_COMPLEX
static tn_status amax(const tn_call *call, const void *args) {
    (void)call;
    return reduce_to(((const tn_amax_args *)args)->plan, &op_amax, AS_IS, 0);
}

static tn_status amin(const tn_call *call, const void *args) {
    (void)call;
    return reduce_to(((const tn_amin_args *)args)->plan, &op_amin, AS_IS, 0);
}
#endif

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
#if TMPL_IS_BOOL
    ROW(_all, all),       ROW(_any, any),
#endif
    ROW(sum, sum),        ROW(_prod, prod),
#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
    ROW(mean, mean),      ROW(_var, var),
    ROW(_std, std),
#endif
#if TMPL_IS_FLOAT
    ROW(_nansum, nansum), ROW(_sum_squares, sum_squares),
#endif
#if !TMPL_IS_COMPLEX
    ROW(amax, amax),      ROW(amin, amin),
#endif
};
const cpu_rows TN_(cpu_reduce_rows) = CPU_ROWS_OF(rows);
