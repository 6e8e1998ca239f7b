/* softmax_tmpl.c: softmax, log_softmax and their gradients for one element type.
 *
 * Rows that lie in memory one element after the other are worked on in place. Where instead
 * neighbouring rows lie side by side (softmax over a leading dimension), SIDE of them are computed in
 * vectors, one per lane. Anything else is gathered into a row first.
 *
 * family: softmax; types: float; isa: each; fused */
#include <tenon/args_norm.h>

#include "common/tmpl.h"

#include "axis.h"
#include "cpu_priv.h"
#include "vec.h"

enum { SOFTMAX, LOG_SOFTMAX, SOFTMAX_BACKWARD, LOG_SOFTMAX_BACKWARD };
enum { SIDE = 64 / sizeof(A) }; /* rows side by side that make a line of the cache */

typedef struct job {
    axis ax;
    int kind;
    const T *in[2]; /* forward: x; backward: the gradient and y */
    T *out;
} job;

/* ---- One row, packed --------------------------------------------------------------------------*/

static A row_max(const A *x, int64_t n) {
    vec m = vec_all(-(A)INFINITY), m2 = m, m3 = m, m4 = m;
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        m = vec_max(vec_load(x + i), m);
        m2 = vec_max(vec_load(x + i + VL), m2);
        m3 = vec_max(vec_load(x + i + 2 * VL), m3);
        m4 = vec_max(vec_load(x + i + 3 * VL), m4);
    }
    for (; i + VL <= n; i += VL) m = vec_max(vec_load(x + i), m);
    if (i < n) m2 = vec_max(vec_load_n(x + i, n - i, -(A)INFINITY), m2);
    return vec_max_of(vec_max(vec_max(m, m2), vec_max(m3, m4)));
}

/* Sum of exp(x - m); stores the terms in y unless it is NULL. */
static A row_exp_sum(const A *x, A m, A *y, int64_t n) {
    vec s[VEC_TURN] = {0}, shift = vec_all(m);
    int64_t i = 0;
    for (; i + VEC_TURN * VL <= n; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++) {
            vec e = vec_exp(vec_load(x + i + k * VL) - shift);
            s[k] += e;
            if (y) vec_store(y + i + k * VL, e);
        }
    }
    for (; i < n; i += VL) {
        int64_t left = n - i < VL ? n - i : VL;
        vec e = vec_exp(vec_load_n(x + i, left, -(A)INFINITY) - shift);
        A t[VL];
        vec_store(t, e);
        for (int64_t k = 0; k < left; k++) {
            if (y) y[i + k] = t[k];
        }
        for (int64_t k = left; k < VL; k++) t[k] = 0;
        s[0] += vec_load(t);
    }
    return vec_sum_turns(s);
}

static A row_sum(const A *x, int64_t n) {
    vec s[VEC_TURN] = {0};
    int64_t i = 0;
    for (; i + VEC_TURN * VL <= n; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++) s[k] += vec_load(x + i + k * VL);
    }
    for (; i < n; i += VL) s[0] += vec_load_n(x + i, n - i, 0);
    return vec_sum_turns(s);
}

static A row_dot(const A *x, const A *y, int64_t n) {
    vec s[VEC_TURN] = {0};
    int64_t i = 0;
    for (; i + VEC_TURN * VL <= n; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++)
            s[k] += vec_load(x + i + k * VL) * vec_load(y + i + k * VL);
    }
    for (; i < n; i += VL) s[0] += vec_load_n(x + i, n - i, 0) * vec_load_n(y + i, n - i, 0);
    return vec_sum_turns(s);
}

/* What the rows of a kind are made of: `sum` is that of the row, for LOG_SOFTMAX its logarithm. */
static void row_write(int kind, const A *x, const A *y, A most, A sum, A *out, int64_t n) {
    int64_t i = 0;
    if (kind == SOFTMAX) {
        A scale = 1 / sum;
        for (; i < n; i++) out[i] *= scale;
    } else if (kind == LOG_SOFTMAX) {
        for (; i < n; i++) out[i] = x[i] - most - sum;
    } else if (kind == SOFTMAX_BACKWARD) {
        for (; i < n; i++) out[i] = (x[i] - sum) * y[i];
    } else {
        for (; i + VL <= n; i += VL) {
            vec_store(out + i, vec_load(x + i) - vec_exp(vec_load(y + i)) * sum);
        }
        if (i < n) {
            vec p = vec_exp(vec_load_n(y + i, n - i, 0));
            vec_store_n(out + i, vec_load_n(x + i, n - i, 0) - p * sum, n - i);
        }
    }
}

static A row_part_sum(int kind, const A *x, const A *y, A most, A *out, int64_t n) {
    switch (kind) {
    case SOFTMAX: return row_exp_sum(x, most, out, n);
    case LOG_SOFTMAX: return row_exp_sum(x, most, NULL, n);
    case SOFTMAX_BACKWARD: return row_dot(x, y, n);
    default: return row_sum(x, n);
    }
}

static tn_status row_packed(int kind, const A *x, const A *y, A *out, int64_t n) {
    A most = -(A)INFINITY, sum = 0;
    bool forward = kind == SOFTMAX || kind == LOG_SOFTMAX;
    cpu_stretch m = {.n = forward ? n : 0, .cost = 1}, s = {.n = n, .cost = 1}, w = s;
    while (cpu_next_stretch(&m)) {
        A here = row_max(x + m.begin, m.end - m.begin);
        if (here > most) most = here;
    }
    while (m.st == TN_OK && cpu_next_stretch(&s)) {
        const A *from = y ? y + s.begin : NULL;
        sum += row_part_sum(kind, x + s.begin, from, most, out + s.begin, s.end - s.begin);
    }
    if (kind == LOG_SOFTMAX) sum = (A)log((double)sum);
    while (m.st == TN_OK && s.st == TN_OK && cpu_next_stretch(&w)) {
        const A *from = y ? y + w.begin : NULL;
        row_write(kind, x + w.begin, from, most, sum, out + w.begin, w.end - w.begin);
    }
    return m.st ? m.st : s.st ? s.st : w.st;
}

/* ---- VL rows of SIDE side by side -------------------------------------------------------------*/

static void columns_most(const job *j, const T *x, int64_t n, vec *most) {
    int64_t sx = j->ax.step[0];
    for (int64_t i = 0; i < n; i++) *most = vec_max(vec_load_t(x + i * sx), *most);
}

static void columns_sum(const job *j, const T *x, const T *y, int64_t n, vec most, vec *sum) {
    int64_t sx = j->ax.step[0], sy = j->ax.step[1];
    vec s = *sum;
    if (j->kind == SOFTMAX || j->kind == LOG_SOFTMAX) {
        for (int64_t i = 0; i < n; i++) s += vec_exp(vec_load_t(x + i * sx) - most);
    } else if (j->kind == SOFTMAX_BACKWARD) {
        for (int64_t i = 0; i < n; i++) s += vec_load_t(x + i * sx) * vec_load_t(y + i * sy);
    } else {
        for (int64_t i = 0; i < n; i++) s += vec_load_t(x + i * sx);
    }
    *sum = s;
}

/* sum: as row_write's; for SOFTMAX its inverse. */
static void columns_write(const job *j, const T *x, const T *y, T *out, int64_t n, vec most,
                          vec sum) {
    int64_t sx = j->ax.step[0], sy = j->ax.step[1], so = j->ax.step[j->ax.count - 1];
    if (j->kind == SOFTMAX) {
        for (int64_t i = 0; i < n; i++) {
            vec_store_t(out + i * so, vec_exp(vec_load_t(x + i * sx) - most) * sum);
        }
    } else if (j->kind == LOG_SOFTMAX) {
        for (int64_t i = 0; i < n; i++)
            vec_store_t(out + i * so, vec_load_t(x + i * sx) - most - sum);
    } else if (j->kind == SOFTMAX_BACKWARD) {
        for (int64_t i = 0; i < n; i++) {
            vec_store_t(out + i * so, (vec_load_t(x + i * sx) - sum) * vec_load_t(y + i * sy));
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            vec p = vec_exp(vec_load_t(y + i * sy));
            vec_store_t(out + i * so, vec_load_t(x + i * sx) - p * sum);
        }
    }
}

static vec vec_log_of(vec v) {
    A t[VL];
    vec_store(t, v);
    for (int k = 0; k < VL; k++) t[k] = (A)log((double)t[k]);
    return vec_load(t);
}

/* y and its steps are read in gradients only. */
static tn_status columns(const job *j, const T *x, const T *y, T *out) {
    int64_t n = j->ax.n, sx = j->ax.step[0], sy = j->ax.step[1], so = j->ax.step[j->ax.count - 1];
    bool forward = j->kind == SOFTMAX || j->kind == LOG_SOFTMAX;
    vec most = vec_all(-(A)INFINITY), sum = vec_all(0);
    cpu_stretch m = {.n = forward ? n : 0, .cost = SIDE}, s = {.n = n, .cost = SIDE}, w = s;
    while (cpu_next_stretch(&m)) columns_most(j, x + m.begin * sx, m.end - m.begin, &most);
    while (m.st == TN_OK && cpu_next_stretch(&s))
        columns_sum(j, x + s.begin * sx, y ? y + s.begin * sy : NULL, s.end - s.begin, most, &sum);
    if (j->kind == SOFTMAX) sum = (A)1 / sum;
    if (j->kind == LOG_SOFTMAX) sum = vec_log_of(sum);
    while (m.st == TN_OK && s.st == TN_OK && cpu_next_stretch(&w))
        columns_write(j, x + w.begin * sx, y ? y + w.begin * sy : NULL, out + w.begin * so,
                      w.end - w.begin, most, sum);
    return m.st ? m.st : s.st ? s.st : w.st;
}

/* ---- All rows ---------------------------------------------------------------------------------*/

/* A row as packed A: the row itself where it is that already, else a copy in `room`. */
static tn_status row_in(const T *x, int64_t step, int64_t n, A *room, const A **ret) {
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
    *ret = x;
    if (step == 1) return TN_OK;
#endif
    *ret = room;
    cpu_stretch s = {.n = n, .cost = 1};
    while (cpu_next_stretch(&s))
        for (int64_t i = s.begin; i < s.end; i++) room[i] = LOAD(x[i * step]);
    return s.st;
}

static tn_status one_row(const job *j, const int64_t *at, A *room) {
    int64_t n = j->ax.n, so = j->ax.step[j->ax.count - 1];
    int backward = j->kind >= SOFTMAX_BACKWARD;
    T *out = j->out + at[j->ax.count - 1];
    const A *x, *y = NULL;
    tn_status st = row_in(j->in[0] + at[0], j->ax.step[0], n, room, &x);
    if (st == TN_OK && backward) st = row_in(j->in[1] + at[1], j->ax.step[1], n, room + n, &y);
    if (st != TN_OK) return st;
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
    A *to = so == 1 ? out : room + 2 * n;
#else
    A *to = room + 2 * n;
#endif
    st = row_packed(j->kind, x, y, to, n);
    if ((void *)to == (void *)out || st != TN_OK) return st;
    cpu_stretch s = {.n = n, .cost = 1};
    while (cpu_next_stretch(&s))
        for (int64_t i = s.begin; i < s.end; i++) out[i * so] = STORE(to[i]);
    return s.st;
}

static tn_status rows_of(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const axis *ax = &j->ax;
    int last = ax->count - 1;
    int side = ax->step[0] != 1 && ax->next[0] == 1 && ax->next[last] == 1 && ax->next[1] == 1;
    uint64_t bytes;
    int64_t at[AXIS_MAX];
    void *room;
    tn_status st = cpu_room(ax->n, 3 * sizeof(A), &bytes, &room);
    if (st) return st;
    for (int64_t r = begin; r < end && st == TN_OK;) {
        axis_offset(ax, r, at);
        if (side && end - r >= SIDE && ax->run - r % ax->run >= SIDE) {
            for (int k = 0; k < SIDE && st == TN_OK; k += VL)
                st = columns(j, j->in[0] + at[0] + k, j->in[1] ? j->in[1] + at[1] + k : NULL,
                             j->out + at[last] + k);
            r += SIDE;
        } else {
            st = one_row(j, at, room);
            r++;
        }
    }
    cpu_free(NULL, 0, room, bytes);
    return st;
}

static tn_status run(int kind, const tn_view *x, const tn_view *y, const tn_view *out,
                     int64_t dim) {
    if (out->numel == 0) return TN_OK;
    const tn_view *views[3] = {x, y ? y : out, out};
    job j = {.kind = kind, .in = {x->data, y ? y->data : NULL}, .out = out->data};
    axis_init(&j.ax, y ? 3 : 2, views, dim);
    int64_t grain = 1 + 8192 / j.ax.n;
    if (grain < j.ax.rows && j.ax.step[0] != 1) grain = (grain + SIDE - 1) / SIDE * SIDE;
    return cpu_parallel(j.ax.rows, grain, rows_of, &j);
}

static tn_status softmax(const tn_call *call, const void *args) {
    const tn_softmax_args *a = args;
    (void)call;
    return run(SOFTMAX, a->input, NULL, a->out, a->dim);
}

static tn_status log_softmax(const tn_call *call, const void *args) {
    const tn_log_softmax_args *a = args;
    (void)call;
    return run(LOG_SOFTMAX, a->input, NULL, a->out, a->dim);
}

static tn_status softmax_backward(const tn_call *call, const void *args) {
    const tn__softmax_backward_args *a = args;
    (void)call;
    return run(SOFTMAX_BACKWARD, a->grad, a->y, a->out, a->dim);
}

static tn_status log_softmax_backward(const tn_call *call, const void *args) {
    const tn__log_softmax_backward_args *a = args;
    (void)call;
    return run(LOG_SOFTMAX_BACKWARD, a->grad, a->y, a->out, a->dim);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(softmax, softmax),
    ROW(log_softmax, log_softmax),
    ROW(_softmax_backward, softmax_backward),
    ROW(_log_softmax_backward, log_softmax_backward),
};
const cpu_rows TN_(cpu_softmax_rows) = CPU_ROWS_OF(rows);
