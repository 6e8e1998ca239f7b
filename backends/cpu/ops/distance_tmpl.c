/* distance_tmpl.c: distances between rows in the p-norm, and their gradient, for one element type.
 *
 * x1 is (n, p, m), x2 (n, r, m). Distances go over vectors of rows of x2, which are laid beside each
 * other for that (a column is r numbers side by side): so rows of two or three numbers fill vectors
 * as well as long ones, and each sum is made in the order of its numbers. A tile of columns stays in
 * cache while all rows of x1 pass. A gradient is added up row by row of x2, in vectors of its m numbers.
 *
 * family: distance; types: float; isa: each; fused */
#include <tenon/args_distance.h>

#include <math.h>
#include <string.h>

#include "common/room.h"
#include "common/scalar.h"
#include "common/tmpl.h"

#include "cpu_priv.h"
#include "pack.h"
#include "vec.h"

enum { TILE = 4 * VL }; /* rows of x2 that are worked on together */

enum kind { COUNT, SUM, ROOT, POWER, MOST }; /* p = 0, 1, 2, another, infinity */

typedef struct job {
    int64_t rows, r, m, tiles; /* rows of x1 in all batches are batches * rows */
    enum kind kind;
    A p;
    const T *x1, *x2, *grad, *distance;
    A *columns; /* of x2, (n, tiles, m, TILE), the last tile filled up */
    A *sums;    /* gradients before they are rounded */
    T *out;
} job;

static enum kind kind_of(double p) {
    return p == 0 ? COUNT : p == 1 ? SUM : p == 2 ? ROOT : p == (double)INFINITY ? MOST : POWER;
}

/* ---- Distances ---------------------------------------------------------------------------------*/

static inline void add_terms(enum kind kind, A p, A x, const A *restrict y, A *restrict sum) {
    for (int i = 0; i < TILE; i++) {
        A d = x - y[i], size = d < 0 ? -d : d;
        switch (kind) {
        case COUNT: sum[i] += d != d ? d : d != 0 ? (A)1 : (A)0; break;
        case SUM: sum[i] += size; break;
        case ROOT: sum[i] += d * d; break;
        case POWER: sum[i] += f_pow(size, p); break;
        case MOST: sum[i] = size > sum[i] || size != size ? size : sum[i]; break;
        }
    }
}

#define EACH_TERM(k)                                                                               \
    case k:                                                                                        \
        for (int64_t i = 0; i < m; i++) add_terms(k, p, LOAD(x[i]), columns + i * TILE, sum);      \
        break

static void row_terms(enum kind kind, A p, const T *x, const A *columns, int64_t m, A *sum) {
    memset(sum, 0, TILE * sizeof *sum);
    switch (kind) {
        EACH_TERM(COUNT);
        EACH_TERM(SUM);
        EACH_TERM(ROOT);
        EACH_TERM(POWER);
        EACH_TERM(MOST);
    }
}

static A norm_of(const job *j, A sum) {
    switch (j->kind) {
    case ROOT: return (A)sqrt((double)sum);
    case POWER: return (A)pow((double)sum, 1.0 / (double)j->p);
    default: return sum;
    }
}

static tn_status distance_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    tn_status st = TN_OK;
    while (begin < end && st == TN_OK) { /* rows of one batch, a tile of columns after the other */
        int64_t batch = begin / j->rows, last = (batch + 1) * j->rows;
        if (last > end) last = end;
        for (int64_t t = 0; t < j->tiles && st == TN_OK; t++) {
            const A *columns = j->columns + (batch * j->tiles + t) * j->m * TILE;
            int64_t n = j->r - t * TILE < TILE ? j->r - t * TILE : TILE;
            cpu_stretch s = {.n = last - begin, .cost = 1 + TILE * j->m};
            while (cpu_next_stretch(&s)) {
                for (int64_t i = begin + s.begin; i < begin + s.end; i++) {
                    A sum[TILE];
                    row_terms(j->kind, j->p, j->x1 + i * j->m, columns, j->m, sum);
                    for (int64_t k = 0; k < n; k++)
                        j->out[i * j->r + t * TILE + k] = STORE(norm_of(j, sum[k]));
                }
            }
            st = s.st;
        }
        begin = last;
    }
    return st;
}

/* Lays the rows of x2 beside each other. */
static tn_status lay_columns(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t t = begin; t < end; t++) {
        int64_t batch = t / j->tiles, first = t % j->tiles * TILE;
        A *to = j->columns + t * j->m * TILE;
        for (int64_t k = 0; k < TILE; k++) {
            const T *x = j->x2 + (batch * j->r + first + k) * j->m;
            for (int64_t i = 0; i < j->m; i++)
                to[i * TILE + k] = first + k < j->r ? LOAD(x[i]) : (A)0;
        }
    }
    return TN_OK;
}

/* The sizes of a call; *ret_batches: how many matrices there are. */
static job job_of(const tn_view *x1, const tn_view *x2, double p, int64_t *ret_batches) {
    int32_t d = x1->ndim;
    job j = {.rows = x1->shape[d - 2],
             .r = x2->shape[d - 2],
             .m = x1->shape[d - 1],
             .kind = kind_of(p),
             .p = (A)p};
    j.tiles = j.r / TILE + (j.r % TILE != 0);
    *ret_batches = 1;
    for (int32_t i = 0; i < d - 2; i++) *ret_batches *= x1->shape[i];
    return j;
}

/* Rows of x1 that make a piece of work. */
static int64_t grain_of(const job *j) { return 1 + 16384 / room_add(room_mul(j->r, j->m), 1); }

static tn_status cdist(const tn_call *call, const void *args) {
    const tn__cdist_args *a = args;
    const void *x1, *x2;
    void *columns;
    int64_t batches;
    if (a->out->numel == 0) return TN_OK;
    job j = job_of(a->x1, a->x2, a->p, &batches);
    tn_status st = cpu_packed(call, a->x1, &x1);
    if (!st) st = cpu_packed(call, a->x2, &x2);
    if (!st) st = room_scratch(call, room_mul3(batches, j.tiles, j.m), TILE * sizeof(A), &columns);
    if (st) return st;
    j.x1 = x1;
    j.x2 = x2;
    j.columns = columns;
    j.out = a->out->data;
    st = cpu_parallel(batches * j.tiles, 1 + 1024 / (j.m + 1), lay_columns, &j);
    return st ? st : cpu_parallel(batches * j.rows, grain_of(&j), distance_rows, &j);
}

/* ---- Gradients ---------------------------------------------------------------------------------*/

/* What one distance leaves of its gradient for each number of its rows. */
static A share_of(const job *j, A g, A distance) {
    switch (j->kind) {
    case COUNT: return 0;
    case ROOT: return distance == 0 ? (A)0 : g / distance;
    case POWER: return distance == 0 ? (A)0 : g / (A)pow((double)distance, (double)j->p - 1.0);
    default: return g;
    }
}

static inline void add_slopes(enum kind kind, A p, A share, A distance, int64_t m,
                              const T *restrict x, const T *restrict y, A *restrict to) {
    for (int64_t i = 0; i < m; i++) {
        A d = LOAD(x[i]) - LOAD(y[i]), size = d < 0 ? -d : d;
        A sign = (A)((d > 0) - (d < 0));
        switch (kind) {
        case COUNT: break;
        case SUM: to[i] += share * sign; break;
        case ROOT: to[i] += share * d; break;
        case POWER: to[i] += d == 0 ? (A)0 : share * sign * f_pow(size, p - 1); break;
        case MOST: to[i] += size == distance ? share * sign : (A)0; break;
        }
    }
}

#define EACH_SLOPE(k)                                                                              \
    case k: add_slopes(k, j->p, share, distance, j->m, x, y, to); break

static void row_slopes(const job *j, A share, A distance, const T *x, const T *y, A *to) {
    switch (j->kind) {
        EACH_SLOPE(COUNT);
        EACH_SLOPE(SUM);
        EACH_SLOPE(ROOT);
        EACH_SLOPE(POWER);
        EACH_SLOPE(MOST);
    }
}

static tn_status gradient_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    tn_status st = TN_OK;
    for (int64_t i = begin; i < end && st == TN_OK; i++) {
        const T *x = j->x1 + i * j->m, *y = j->x2 + i / j->rows * j->r * j->m;
        A *to = j->sums + i * j->m;
        for (int64_t k = 0; k < j->m; k++) to[k] = 0;
        cpu_stretch s = {.n = j->r, .cost = 1 + j->m};
        while (cpu_next_stretch(&s)) {
            for (int64_t k = s.begin; k < s.end; k++) {
                A distance = LOAD(j->distance[i * j->r + k]);
                A share = share_of(j, LOAD(j->grad[i * j->r + k]), distance);
                row_slopes(j, share, distance, x, y + k * j->m, to);
            }
        }
        st = s.st;
        for (int64_t k = 0; k < j->m; k++) j->out[i * j->m + k] = STORE(to[k]);
    }
    return st;
}

static tn_status cdist_backward(const tn_call *call, const void *args) {
    const tn__cdist_backward_args *a = args;
    const void *x1, *x2, *grad, *distance;
    void *sums;
    int64_t batches;
    if (a->out->numel == 0) return TN_OK;
    job j = job_of(a->x1, a->x2, a->p, &batches);
    tn_status st = cpu_packed(call, a->x1, &x1);
    if (!st) st = cpu_packed(call, a->x2, &x2);
    if (!st) st = cpu_packed(call, a->grad, &grad);
    if (!st) st = cpu_packed(call, a->distance, &distance);
    if (!st) st = room_scratch(call, a->out->numel, sizeof(A), &sums);
    if (st) return st;
    j.x1 = x1;
    j.x2 = x2;
    j.grad = grad;
    j.distance = distance;
    j.sums = sums;
    j.out = a->out->data;
    return cpu_parallel(batches * j.rows, grain_of(&j), gradient_rows, &j);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(_cdist, cdist),
    ROW(_cdist_backward, cdist_backward),
};
const cpu_rows TN_(cpu_distance_rows) = CPU_ROWS_OF(rows);
