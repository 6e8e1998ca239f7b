/* scan_tmpl.c: running sums, products and logsumexps along a dimension, for one element type.
 *
 * Where neighbouring rows lie side by side, the walk goes along the dimension with all of them
 * abreast, so that memory is read in order.
 *
 * family: scan; types: all; isa: each; small: all */
#include <complex.h>
#include <math.h>

#include <tenon/args_norm.h>

#include "common/tmpl.h"

#include "axis.h"
#include "cpu_priv.h"
#include "half.h"

/* What is carried along a row: twice as wide as single precision, as PyTorch's is on the CPU, for the
 * roundings of a long row add up. */
#if TMPL_DTYPE == TMPL_F32
#define S double
#elif TMPL_DTYPE == TMPL_C64
#define S double _Complex
#else
#define S A
#endif

enum { CUMSUM, CUMPROD, LOGCUMSUMEXP };

typedef struct job {
    axis ax;
    int kind;
    const T *x;
    T *y;
} job;

/* Integers wrap: unsigned arithmetic has no overflow. */
#if TMPL_IS_INT
static A plus(A a, A b) { return (A)((uint64_t)(int64_t)a + (uint64_t)(int64_t)b); }
static A times(A a, A b) { return (A)((uint64_t)(int64_t)a * (uint64_t)(int64_t)b); }
#else
static S plus(S a, S b) { return a + b; }
static S times(S a, S b) { return a * b; }
#endif

#if TMPL_IS_COMPLEX
static S log_plus(S a, S b) {
    double _Complex top = creal(a) > creal(b) ? a : b, low = creal(a) > creal(b) ? b : a;
    if (a != a || b != b) return (S)CMPLX(NAN, NAN);
    if (creal(low) == creal(top) && isinf(creal(top))) /* their difference is none */
        return (S)(creal(low) < 0 ? low : clog(cexp(low) + cexp(top)));
    return (S)(top + clog(1.0 + cexp(low - top)));
}
#elif TMPL_IS_FLOAT
static S log_plus(S a, S b) {
    S top = a > b || a != a ? a : b, low = a > b || a != a ? b : a;
    if (top == low && isinf(top)) return top;
    return (S)((double)top + log1p(exp((double)low - (double)top)));
}
#endif

static S step(int kind, S sum, S x) {
#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
    if (kind == LOGCUMSUMEXP) return log_plus(sum, x);
#endif
    return kind == CUMSUM ? plus(sum, x) : times(sum, x);
}

/* What a row begins with: nothing in front of its first element. */
static S first_of(int kind, S x) {
#if TMPL_IS_COMPLEX
    if (kind == LOGCUMSUMEXP) return log_plus((S)CMPLX(-INFINITY, 0), x);
#endif
    (void)kind;
    return x;
}

static tn_status one_row(const job *j, const T *x, T *y) {
    int64_t sx = j->ax.step[0], sy = j->ax.step[1];
    S sum = first_of(j->kind, LOAD_ONE(x[0]));
    y[0] = STORE_ONE((A)sum);
    cpu_stretch s = {.n = j->ax.n, .cost = 1};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin > 0 ? s.begin : 1; i < s.end; i++) {
            sum = step(j->kind, sum, LOAD_ONE(x[i * sx]));
            y[i * sy] = STORE_ONE((A)sum);
        }
    }
    return s.st;
}

/* `count` rows abreast; sums in S so that half precision does not round at every step. */
enum { ABREAST = 64 };
static tn_status side_by_side(const job *j, const T *x, T *y, int64_t count) {
    int64_t sx = j->ax.step[0], sy = j->ax.step[1];
    S sum[ABREAST];
    for (int64_t c = 0; c < count; c++) {
        sum[c] = first_of(j->kind, LOAD(x[c]));
        y[c] = STORE((A)sum[c]);
    }
    cpu_stretch s = {.n = j->ax.n, .cost = ABREAST};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin > 0 ? s.begin : 1; i < s.end; i++) {
            const T *from = x + i * sx;
            T *to = y + i * sy;
            for (int64_t c = 0; c < count; c++) {
                sum[c] = step(j->kind, sum[c], LOAD(from[c]));
                to[c] = STORE((A)sum[c]);
            }
        }
    }
    return s.st;
}

/* Some rows at a time, so that a sum need not wait for its last addition. */
enum { TOGETHER = 4 };
TMPL_INLINE tn_status some_rows(int kind, const job *j, const T *x, T *y) {
    int64_t sx = j->ax.step[0], sy = j->ax.step[1];
    const T *from[TOGETHER];
    T *to[TOGETHER];
    S sum[TOGETHER];
    for (int r = 0; r < TOGETHER; r++) {
        from[r] = x + r * j->ax.next[0];
        to[r] = y + r * j->ax.next[1];
        sum[r] = LOAD_ONE(from[r][0]);
        to[r][0] = from[r][0];
    }
    cpu_stretch s = {.n = j->ax.n, .cost = TOGETHER};
    while (cpu_next_stretch(&s)) {
        for (int64_t i = s.begin > 0 ? s.begin : 1; i < s.end; i++) {
            TMPL_UNROLL
            for (int r = 0; r < TOGETHER; r++) {
                sum[r] = step(kind, sum[r], LOAD_ONE(from[r][i * sx]));
                to[r][i * sy] = STORE_ONE((A)sum[r]);
            }
        }
    }
    return s.st;
}

static tn_status rows_of(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const axis *ax = &j->ax;
    int64_t at[AXIS_MAX];
    tn_status st = TN_OK;
    for (int64_t r = begin; r < end && st == TN_OK;) {
        axis_offset(ax, r, at);
        int64_t count = ax->run - r % ax->run;
        if (count > end - r) count = end - r;
        if (count > ABREAST) count = ABREAST;
        if (count > 1 && ax->next[0] == 1 && ax->next[1] == 1) {
            st = side_by_side(j, j->x + at[0], j->y + at[1], count);
            r += count;
        } else if (count >= TOGETHER && j->kind != LOGCUMSUMEXP) {
            const T *x = j->x + at[0];
            T *y = j->y + at[1];
            st = j->kind == CUMSUM ? some_rows(CUMSUM, j, x, y) : some_rows(CUMPROD, j, x, y);
            r += TOGETHER;
        } else {
            st = one_row(j, j->x + at[0], j->y + at[1]);
            r++;
        }
    }
    return st;
}

static tn_status run(int kind, const tn_view *x, const tn_view *y, int64_t dim) {
    if (y->numel == 0) return TN_OK;
    const tn_view *views[2] = {x, y};
    job j = {.kind = kind, .x = x->data, .y = y->data};
    axis_init(&j.ax, 2, views, dim);
    int64_t grain = 1 + 8192 / j.ax.n;
    if (j.ax.step[0] != 1 && grain < ABREAST) grain = ABREAST;
    return cpu_parallel(j.ax.rows, grain, rows_of, &j);
}

static tn_status cumsum(const tn_call *call, const void *args) {
    const tn_cumsum_args *a = args;
    (void)call;
    return run(CUMSUM, a->input, a->out, a->dim);
}

static tn_status cumprod(const tn_call *call, const void *args) {
    const tn_cumprod_args *a = args;
    (void)call;
    return run(CUMPROD, a->input, a->out, a->dim);
}

#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
static tn_status logcumsumexp(const tn_call *call, const void *args) {
    const tn_logcumsumexp_args *a = args;
    (void)call;
    return run(LOGCUMSUMEXP, a->input, a->out, a->dim);
}
#endif

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(cumsum, cumsum),
    ROW(cumprod, cumprod),
#if TMPL_IS_FLOAT || TMPL_IS_COMPLEX
    ROW(logcumsumexp, logcumsumexp),
#endif
};
const cpu_rows TN_(cpu_scan_rows) = CPU_ROWS_OF(rows);
