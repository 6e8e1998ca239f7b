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
#include "pack.h"
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

/* The rest of a row that is no vector: the row's last VL elements, of which the last `rest` are new;
 * or the whole row where it is shorter. */
VEC_INLINE vec rest_load(const T *x, int64_t n, A fill) {
    return n >= VL ? vec_load_t(x + n - VL) : vec_load_t_n(x, n, fill);
}

VEC_INLINE void rest_store(T *out, vec v, int64_t n) {
    if (n >= VL) {
        vec_store_t(out + n - VL, v);
    } else {
        vec_store_t_n(out, v, n);
    }
}

/* v with 0 in the lanes that rest_load read again or filled. */
VEC_INLINE vec rest_only(vec v, int64_t n) {
    vec_mask keep = n >= VL ? ~vec_first(VL - n % VL) : vec_first(n);
    return (vec)((vec_mask)v & keep);
}

static A row_max(const T *x, int64_t n) {
    vec m = vec_all(-(A)INFINITY), m2 = m, m3 = m, m4 = m;
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        m = vec_max(vec_load_t(x + i), m);
        m2 = vec_max(vec_load_t(x + i + VL), m2);
        m3 = vec_max(vec_load_t(x + i + 2 * VL), m3);
        m4 = vec_max(vec_load_t(x + i + 3 * VL), m4);
    }
    for (; i + VL <= n; i += VL) m = vec_max(vec_load_t(x + i), m);
    if (i < n) m2 = vec_max(rest_load(x, n, -(A)INFINITY), m2);
    return vec_max_of(vec_max(vec_max(m, m2), vec_max(m3, m4)));
}

/* Sum of exp(x - m); stores the terms in e, which may be x, unless it is NULL. */
TMPL_INLINE A row_exp_sum(const T *x, A m, A *e, int64_t n) {
    vec s[VEC_TURN] = {0}, shift = vec_all(m), rest = vec_all(0);
    int64_t i = 0;
    if (n % VL) rest = rest_load(x, n, -(A)INFINITY);
    for (; i + VEC_TURN * VL <= n; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++) {
            vec v = vec_exp(vec_load_t(x + i + k * VL) - shift);
            s[k] += v;
            if (e) vec_store(e + i + k * VL, v);
        }
    }
    for (; i + VL <= n; i += VL) {
        vec v = vec_exp(vec_load_t(x + i) - shift);
        s[0] += v;
        if (e) vec_store(e + i, v);
    }
    if (i < n) {
        vec v = vec_exp(rest - shift);
        s[VEC_TURN - 1] += rest_only(v, n);
        if (e && n >= VL) vec_store(e + n - VL, v);
        if (e && n < VL) vec_store_n(e, v, n);
    }
    return vec_sum_turns(s);
}

static A row_sum(const T *x, int64_t n) {
    vec s[VEC_TURN] = {0};
    int64_t i = 0;
    for (; i + VEC_TURN * VL <= n; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++) s[k] += vec_load_t(x + i + k * VL);
    }
    for (; i + VL <= n; i += VL) s[0] += vec_load_t(x + i);
    if (i < n) s[0] += rest_only(rest_load(x, n, 0), n);
    return vec_sum_turns(s);
}

static A row_dot(const T *x, const T *y, int64_t n) {
    vec s[VEC_TURN] = {0};
    int64_t i = 0;
    for (; i + VEC_TURN * VL <= n; i += VEC_TURN * VL) {
        TMPL_UNROLL
        for (int k = 0; k < VEC_TURN; k++)
            s[k] += vec_load_t(x + i + k * VL) * vec_load_t(y + i + k * VL);
    }
    for (; i + VL <= n; i += VL) s[0] += vec_load_t(x + i) * vec_load_t(y + i);
    if (i < n) s[0] += rest_only(rest_load(x, n, 0) * rest_load(y, n, 0), n);
    return vec_sum_turns(s);
}

/* e and out may be the same. */
static void row_scale(const A *e, A scale, T *out, int64_t n) {
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
    (void)e;
    for (int64_t i = 0; i < n; i++) out[i] *= scale;
#else
    int64_t i = 0;
    for (; i + VL <= n; i += VL) vec_store_t(out + i, vec_load(e + i) * scale);
    if (i < n) vec_store_t_n(out + i, vec_load_n(e + i, n - i, 0) * scale, n - i);
#endif
}

VEC_INLINE vec row_value(const int kind, vec x, vec y, vec most, vec sum) {
    if (kind == LOG_SOFTMAX) return x - most - sum;
    if (kind == SOFTMAX_BACKWARD) return (x - sum) * y;
    return x - vec_exp(y) * sum;
}

/* What the rows of a kind are made of: `sum` is that of the row, for LOG_SOFTMAX its logarithm. The
 * result may lie where x or y does. */
TMPL_INLINE void row_values(const int kind, const T *x, const T *y, A most, A sum, T *out,
                            int64_t n) {
    const vec m = vec_all(most), s = vec_all(sum), none = vec_all(0);
    const bool two = kind != LOG_SOFTMAX;
    vec rest = none;
    int64_t i = 0;
    if (n % VL) {
        vec with = two ? rest_load(y, n, 0) : none;
        rest = row_value(kind, rest_load(x, n, 0), with, m, s);
    }
    for (; i + VL <= n; i += VL) {
        vec with = two ? vec_load_t(y + i) : none;
        vec_store_t(out + i, row_value(kind, vec_load_t(x + i), with, m, s));
    }
    if (i < n) rest_store(out, rest, n);
}

static void row_write(int kind, const T *x, const T *y, const A *e, A most, A sum, T *out,
                      int64_t n) {
    switch (kind) {
    case SOFTMAX: row_scale(e, 1 / sum, out, n); return;
    case LOG_SOFTMAX: row_values(LOG_SOFTMAX, x, y, most, sum, out, n); return;
    case SOFTMAX_BACKWARD: row_values(SOFTMAX_BACKWARD, x, y, most, sum, out, n); return;
    default: row_values(LOG_SOFTMAX_BACKWARD, x, y, most, sum, out, n);
    }
}

static A row_part_sum(int kind, const T *x, const T *y, A most, A *e, int64_t n) {
    switch (kind) {
    case SOFTMAX: return row_exp_sum(x, most, e, n);
    case LOG_SOFTMAX: return row_exp_sum(x, most, NULL, n);
    case SOFTMAX_BACKWARD: return row_dot(x, y, n);
    default: return row_sum(x, n);
    }
}

/* A row of at most VL elements, with the sums of a longer one. */
TMPL_INLINE void row_few(const int kind, const T *x, const T *y, T *out, int64_t n) {
    vec_mask own = vec_first(n);
    vec a = vec_load_t_n(x, n, kind < SOFTMAX_BACKWARD ? -(A)INFINITY : 0), v = a;
    vec with = y ? vec_load_t_n(y, n, 0) : vec_all(0), most = vec_all(0);
    if (kind < SOFTMAX_BACKWARD) {
        most = vec_all(vec_max_of(vec_max(a, vec_all(-(A)INFINITY))));
        v = vec_exp(a - most);
    } else if (kind == SOFTMAX_BACKWARD) {
        v = a * with;
    }
    A sum = vec_sum((vec)((vec_mask)v & own));
    if (kind == SOFTMAX)
        v = v * (1 / sum);
    else
        v = row_value(kind, a, with, most,
                      vec_all(kind == LOG_SOFTMAX ? (A)log((double)sum) : sum));
    vec_store_t_n(out, v, n);
}

/* e: room for n terms, read by SOFTMAX alone. */
static tn_status row_packed(int kind, const T *x, const T *y, A *e, T *out, int64_t n) {
    if (n <= VL) {
        switch (kind) {
        case SOFTMAX: row_few(SOFTMAX, x, y, out, n); break;
        case LOG_SOFTMAX: row_few(LOG_SOFTMAX, x, y, out, n); break;
        case SOFTMAX_BACKWARD: row_few(SOFTMAX_BACKWARD, x, y, out, n); break;
        default: row_few(LOG_SOFTMAX_BACKWARD, x, y, out, n);
        }
        return TN_OK;
    }
    A most = -(A)INFINITY, sum = 0;
    bool forward = kind == SOFTMAX || kind == LOG_SOFTMAX;
    cpu_stretch m = {.n = forward ? n : 0, .cost = 1}, s = {.n = n, .cost = 1}, w = s;
    while (cpu_next_stretch(&m)) {
        A here = row_max(x + m.begin, m.end - m.begin);
        if (here > most) most = here;
    }
    while (m.st == TN_OK && cpu_next_stretch(&s)) {
        const T *from = y ? y + s.begin : NULL;
        sum += row_part_sum(kind, x + s.begin, from, most, e + s.begin, s.end - s.begin);
    }
    if (kind == LOG_SOFTMAX) sum = (A)log((double)sum);
    while (m.st == TN_OK && s.st == TN_OK && cpu_next_stretch(&w)) {
        const T *from = y ? y + w.begin : NULL;
        row_write(kind, x + w.begin, from, e + w.begin, most, sum, out + w.begin, w.end - w.begin);
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

/* A row, packed: the row itself where it is that already, else a copy in `room`. */
static tn_status row_in(const T *x, int64_t step, int64_t n, T *room, const T **ret) {
    *ret = step == 1 ? x : room;
    cpu_stretch s = {.n = step == 1 ? 0 : n, .cost = 1};
    while (cpu_next_stretch(&s))
        for (int64_t i = s.begin; i < s.end; i++) room[i] = x[i * step];
    return s.st;
}

/* room: for n terms, and for three rows. */
static tn_status one_row(const job *j, const int64_t *at, A *e, T *room) {
    int64_t n = j->ax.n, so = j->ax.step[j->ax.count - 1];
    int backward = j->kind >= SOFTMAX_BACKWARD;
    T *out = j->out + at[j->ax.count - 1], *to = so == 1 ? out : room + 2 * n;
    const T *x, *y = NULL;
    tn_status st = row_in(j->in[0] + at[0], j->ax.step[0], n, room, &x);
    if (st == TN_OK && backward) st = row_in(j->in[1] + at[1], j->ax.step[1], n, room + n, &y);
    if (st != TN_OK) return st;
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
    e = to; /* the terms stand where the result will */
#endif
    st = row_packed(j->kind, x, y, e, to, n);
    if (to == out || st != TN_OK) return st;
    cpu_stretch s = {.n = n, .cost = 1};
    while (cpu_next_stretch(&s))
        for (int64_t i = s.begin; i < s.end; i++) out[i * so] = to[i];
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
    tn_status st = cpu_room(ax->n, sizeof(A) + 3 * sizeof(T), &bytes, &room);
    if (st) return st;
    for (int64_t r = begin; r < end && st == TN_OK;) {
        axis_offset(ax, r, at);
        if (side && end - r >= SIDE && ax->run - r % ax->run >= SIDE) {
            for (int k = 0; k < SIDE && st == TN_OK; k += VL)
                st = columns(j, j->in[0] + at[0] + k, j->in[1] ? j->in[1] + at[1] + k : NULL,
                             j->out + at[last] + k);
            r += SIDE;
        } else {
            st = one_row(j, at, room, (T *)(void *)((A *)room + ax->n));
            r++;
        }
    }
    cpu_free(NULL, 0, room, bytes);
    return st;
}

/* Rows that are neither packed nor side by side become so in a copy, which is made by tiles. */
static tn_status lay(const tn_call *call, const tn_view **v, int64_t dim, tn_view *copy,
                     int64_t *strides) {
    const tn_view *x = *v;
    int64_t step = 1;
    for (int32_t d = x->ndim - 1; d >= 0; d--) {
        if (x->shape[d] > 1 && x->strides[d] == 1 && (d == dim || d == x->ndim - 1)) return TN_OK;
        strides[d] = step;
        step *= x->shape[d];
    }
    if (tn_view_is_contiguous(x)) return TN_OK;
    const void *data;
    tn_status st = cpu_packed(call, x, &data);
    *copy = *x;
    copy->data = (void *)(uintptr_t)data;
    copy->strides = strides;
    *v = copy;
    return st;
}

static tn_status run(const tn_call *call, int kind, const tn_view *x, const tn_view *y,
                     const tn_view *out, int64_t dim) {
    if (out->numel == 0) return TN_OK;
    tn_view copies[2];
    int64_t strides[2][TN_MAX_DIMS];
    tn_status st = lay(call, &x, dim, &copies[0], strides[0]);
    if (st == TN_OK && y) st = lay(call, &y, dim, &copies[1], strides[1]);
    if (st != TN_OK) return st;
    const tn_view *views[3] = {x, y ? y : out, out};
    job j = {.kind = kind, .in = {x->data, y ? y->data : NULL}, .out = out->data};
    axis_init(&j.ax, y ? 3 : 2, views, dim);
    int64_t grain = 1 + 8192 / j.ax.n;
    if (grain < j.ax.rows && j.ax.step[0] != 1) grain = (grain + SIDE - 1) / SIDE * SIDE;
    return cpu_parallel(j.ax.rows, grain, rows_of, &j);
}

static tn_status softmax(const tn_call *call, const void *args) {
    const tn_softmax_args *a = args;
    return run(call, SOFTMAX, a->input, NULL, a->out, a->dim);
}

static tn_status log_softmax(const tn_call *call, const void *args) {
    const tn_log_softmax_args *a = args;
    return run(call, LOG_SOFTMAX, a->input, NULL, a->out, a->dim);
}

static tn_status softmax_backward(const tn_call *call, const void *args) {
    const tn__softmax_backward_args *a = args;
    return run(call, SOFTMAX_BACKWARD, a->grad, a->y, a->out, a->dim);
}

static tn_status log_softmax_backward(const tn_call *call, const void *args) {
    const tn__log_softmax_backward_args *a = args;
    return run(call, LOG_SOFTMAX_BACKWARD, a->grad, a->y, a->out, a->dim);
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
