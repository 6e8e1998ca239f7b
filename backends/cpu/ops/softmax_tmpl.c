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

static void row_packed(int kind, const A *x, const A *y, A *out, int64_t n) {
    int64_t i = 0;
    if (kind == SOFTMAX) {
        A scale = 1 / row_exp_sum(x, row_max(x, n), out, n);
        for (; i < n; i++) out[i] *= scale;
    } else if (kind == LOG_SOFTMAX) {
        A m = row_max(x, n), lse = (A)log((double)row_exp_sum(x, m, NULL, n));
        for (; i < n; i++) out[i] = x[i] - m - lse;
    } else if (kind == SOFTMAX_BACKWARD) {
        A s = row_dot(x, y, n);
        for (; i < n; i++) out[i] = (x[i] - s) * y[i];
    } else {
        A s = row_sum(x, n);
        for (; i + VL <= n; i += VL) {
            vec_store(out + i, vec_load(x + i) - vec_exp(vec_load(y + i)) * s);
        }
        if (i < n) {
            vec p = vec_exp(vec_load_n(y + i, n - i, 0));
            vec_store_n(out + i, vec_load_n(x + i, n - i, 0) - p * s, n - i);
        }
    }
}

/* ---- VL rows of SIDE side by side -------------------------------------------------------------*/

static void columns(const job *j, const T *x, const T *y, T *out) {
    int64_t n = j->ax.n, sx = j->ax.step[0], sy = j->ax.step[1], so = j->ax.step[j->ax.count - 1];
    vec m = vec_all(-(A)INFINITY), s = vec_all(0);
    if (j->kind == SOFTMAX || j->kind == LOG_SOFTMAX) {
        for (int64_t i = 0; i < n; i++) m = vec_max(vec_load_t(x + i * sx), m);
        for (int64_t i = 0; i < n; i++) s += vec_exp(vec_load_t(x + i * sx) - m);
    }
    if (j->kind == SOFTMAX) {
        vec scale = (A)1 / s;
        for (int64_t i = 0; i < n; i++) {
            vec_store_t(out + i * so, vec_exp(vec_load_t(x + i * sx) - m) * scale);
        }
    } else if (j->kind == LOG_SOFTMAX) {
        A t[VL];
        vec_store(t, s);
        for (int k = 0; k < VL; k++) t[k] = (A)log((double)t[k]);
        vec lse = vec_load(t);
        for (int64_t i = 0; i < n; i++) vec_store_t(out + i * so, vec_load_t(x + i * sx) - m - lse);
    } else if (j->kind == SOFTMAX_BACKWARD) {
        for (int64_t i = 0; i < n; i++) s += vec_load_t(x + i * sx) * vec_load_t(y + i * sy);
        for (int64_t i = 0; i < n; i++) {
            vec_store_t(out + i * so, (vec_load_t(x + i * sx) - s) * vec_load_t(y + i * sy));
        }
    } else {
        for (int64_t i = 0; i < n; i++) s += vec_load_t(x + i * sx);
        for (int64_t i = 0; i < n; i++) {
            vec p = vec_exp(vec_load_t(y + i * sy));
            vec_store_t(out + i * so, vec_load_t(x + i * sx) - p * s);
        }
    }
}

/* ---- All rows ---------------------------------------------------------------------------------*/

/* A row as packed A: the row itself where it is that already, else a copy in `room`. */
static const A *row_in(const T *x, int64_t step, int64_t n, A *room) {
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
    if (step == 1) return x;
#endif
    for (int64_t i = 0; i < n; i++) room[i] = LOAD(x[i * step]);
    return room;
}

static void one_row(const job *j, const int64_t *at, A *room) {
    int64_t n = j->ax.n, so = j->ax.step[j->ax.count - 1];
    int backward = j->kind >= SOFTMAX_BACKWARD;
    T *out = j->out + at[j->ax.count - 1];
    const A *x = row_in(j->in[0] + at[0], j->ax.step[0], n, room);
    const A *y = backward ? row_in(j->in[1] + at[1], j->ax.step[1], n, room + n) : NULL;
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
    A *to = so == 1 ? out : room + 2 * n;
#else
    A *to = room + 2 * n;
#endif
    row_packed(j->kind, x, y, to, n);
    if ((void *)to == (void *)out) return;
    for (int64_t i = 0; i < n; i++) out[i * so] = STORE(to[i]);
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
    for (int64_t r = begin; r < end;) {
        axis_offset(ax, r, at);
        if (side && end - r >= SIDE && ax->run - r % ax->run >= SIDE) {
            for (int k = 0; k < SIDE; k += VL)
                columns(j, j->in[0] + at[0] + k, j->in[1] ? j->in[1] + at[1] + k : NULL,
                        j->out + at[last] + k);
            r += SIDE;
        } else {
            one_row(j, at, room);
            r++;
        }
    }
    cpu_free(NULL, 0, room, bytes);
    return TN_OK;
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
