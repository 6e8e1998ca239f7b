/* rnn_tmpl.c: the pointwise part of a step of recurrent networks for one element type: LSTM and GRU,
 * forward and backward. All operands are packed; a state has n elements to a row, gates 3 n or 4 n.
 *
 * family: rnn; types: float; isa: each */
#include <tenon/args_rnn.h>

#include "common/tmpl.h"

#include "common/scalar.h"
#include "cpu_priv.h"
#include "map_wide.h"

/* sigmoid and tanh of whole vectors, where pointwise operators have them. */
#if TMPL_DTYPE == TMPL_F32 && defined(WIDE_sigmoid) && defined(WIDE_tanh)
#define WIDE_GATES 1
#endif

enum { OPERANDS = 6, GRAIN = 512 /* elements of the state */ };

typedef struct job {
    int64_t n;
    const T *in[OPERANDS];
    T *out[3];
} job;

/* Elements [begin, end) of the state, which lie in one row. */
typedef void (*row_body)(const job *j, int64_t row, int64_t begin, int64_t end);

typedef struct rows_job {
    job j;
    row_body body;
} rows_job;

static tn_status rows_of(void *arg, int64_t begin, int64_t end) {
    const rows_job *r = arg;
    int64_t n = r->j.n;
    while (begin < end) {
        int64_t row = begin / n, next = (row + 1) * n < end ? (row + 1) * n : end;
        r->body(&r->j, row, begin - row * n, next - row * n);
        begin = next;
    }
    return TN_OK;
}

/* inputs and outputs in the order of the operator's signature, the state `like` among them. */
static tn_status run(row_body body, const tn_view *like, const tn_view *const *in, int nin,
                     const tn_view *const *out, int nout) {
    rows_job r = {.j = {.n = like->ndim ? like->shape[like->ndim - 1] : 1}, .body = body};
    for (int i = 0; i < nin; i++) r.j.in[i] = in[i] ? in[i]->data : NULL;
    for (int i = 0; i < nout; i++) r.j.out[i] = out[i]->data;
    return like->numel ? cpu_parallel(like->numel, GRAIN, rows_of, &r) : TN_OK;
}

/* What p says of element i; 0 where there is no p. */
TMPL_INLINE A load_some(const T *p, int64_t i) { return p ? LOAD(p[i]) : K_(0); }

/* ---- LSTM: gates in the order input, forget, cell, output --------------------------------------*/

#ifdef WIDE_GATES
/* What m elements of a gate are made of: parts of the input and of the state. */
TMPL_INLINE vec gate_sum(const T *x, const T *h, int64_t at, int64_t m) {
    return vec_load_n(x + at, m, 0) + vec_load_n(h + at, m, 0);
}

static void lstm_row(const job *j, int64_t row, int64_t begin, int64_t end) {
    int64_t n = j->n, at = row * n, wide = row * 4 * n;
    const T *x = j->in[0] + wide, *h = j->in[1] + wide, *c = j->in[2] + at;
    T *y = j->out[0] + at, *cell = j->out[1] + at, *kept = j->out[2] + wide;
    for (int64_t k = begin, m; k < end; k += m) {
        m = end - k < VL ? end - k : VL;
        vec i = wide_sigmoid(gate_sum(x, h, k, m)), f = wide_sigmoid(gate_sum(x, h, n + k, m));
        vec g = wide_tanh(gate_sum(x, h, 2 * n + k, m));
        vec o = wide_sigmoid(gate_sum(x, h, 3 * n + k, m));
        vec v = f * vec_load_n(c + k, m, 0) + i * g;
        vec_store_n(cell + k, v, m);
        vec_store_n(y + k, o * wide_tanh(v), m);
        vec_store_n(kept + k, i, m);
        vec_store_n(kept + n + k, f, m);
        vec_store_n(kept + 2 * n + k, g, m);
        vec_store_n(kept + 3 * n + k, o, m);
    }
}
#else
static void lstm_row(const job *j, int64_t row, int64_t begin, int64_t end) {
    int64_t n = j->n, at = row * n, wide = row * 4 * n;
    const T *x = j->in[0] + wide, *h = j->in[1] + wide, *c = j->in[2] + at;
    T *y = j->out[0] + at, *cell = j->out[1] + at, *kept = j->out[2] + wide;
    TMPL_VECTOR
    for (int64_t k = begin; k < end; k++) {
        A i = f_sigmoid(LOAD(x[k]) + LOAD(h[k]));
        A f = f_sigmoid(LOAD(x[n + k]) + LOAD(h[n + k]));
        A g = f_tanh(LOAD(x[2 * n + k]) + LOAD(h[2 * n + k]));
        A o = f_sigmoid(LOAD(x[3 * n + k]) + LOAD(h[3 * n + k]));
        A v = f * LOAD(c[k]) + i * g;
        cell[k] = STORE(v);
        y[k] = STORE(o * f_tanh(v));
        kept[k] = STORE(i);
        kept[n + k] = STORE(f);
        kept[2 * n + k] = STORE(g);
        kept[3 * n + k] = STORE(o);
    }
}
#endif

TMPL_INLINE void lstm_back_loop(const job *j, int64_t row, int64_t begin, int64_t end, const T *gh,
                                const T *gc, const T *more) {
    int64_t n = j->n, at = row * n, wide = row * 4 * n;
    const T *kept = j->in[3] + wide, *c = j->in[4] + at, *cell = j->in[5] + at;
    T *sum = j->out[0] + wide, *to_c = j->out[1] + at;
    TMPL_VECTOR
    for (int64_t k = begin; k < end; k++) {
        A i = LOAD(kept[k]), f = LOAD(kept[n + k]);
        A g = LOAD(kept[2 * n + k]), o = LOAD(kept[3 * n + k]);
        A top = f_tanh(LOAD(cell[k])), dh = load_some(gh, at + k);
        A d = f__tanh_backward(dh * o, top) + load_some(gc, at + k);
        A di = d * g + load_some(more, wide + k),
          df = d * LOAD(c[k]) + load_some(more, wide + n + k);
        A dg = d * i + load_some(more, wide + 2 * n + k);
        A dout = dh * top + load_some(more, wide + 3 * n + k);
        sum[k] = STORE(f__sigmoid_backward(di, i));
        sum[n + k] = STORE(f__sigmoid_backward(df, f));
        sum[2 * n + k] = STORE(f__tanh_backward(dg, g));
        sum[3 * n + k] = STORE(f__sigmoid_backward(dout, o));
        to_c[k] = STORE(d * f);
    }
}

/* The usual cases have loops of their own, without questions in them. */
static void lstm_back_row(const job *j, int64_t row, int64_t begin, int64_t end) {
    const T *gh = j->in[0], *gc = j->in[1], *more = j->in[2];
    if (more)
        lstm_back_loop(j, row, begin, end, gh, gc, more);
    else if (gh && gc)
        lstm_back_loop(j, row, begin, end, gh, gc, NULL);
    else
        lstm_back_loop(j, row, begin, end, gh, gh ? NULL : gc, NULL);
}

static tn_status lstm_step(const tn_call *call, const void *args) {
    const tn__lstm_step_args *a = args;
    const tn_view *in[] = {a->gates_x, a->gates_h, a->c}, *out[] = {a->h, a->cell, a->gates};
    (void)call;
    return run(lstm_row, a->c, in, 3, out, 3);
}

static tn_status lstm_step_backward(const tn_call *call, const void *args) {
    const tn__lstm_step_backward_args *a = args;
    const tn_view *in[] = {a->grad_h, a->grad_cell, a->grad_gates, a->gates, a->c, a->cell};
    const tn_view *out[] = {a->grad_sum, a->grad_c};
    (void)call;
    return run(lstm_back_row, a->c, in, 6, out, 2);
}

/* ---- GRU: gates in the order reset, update, new ------------------------------------------------*/

#ifdef WIDE_GATES
static void gru_row(const job *j, int64_t row, int64_t begin, int64_t end) {
    int64_t n = j->n, at = row * n;
    const T *x = j->in[0] + 3 * at, *h = j->in[1] + 3 * at, *state = j->in[2] + at;
    T *y = j->out[0] + at, *kept = j->out[1] + 4 * at;
    for (int64_t k = begin, m; k < end; k += m) {
        m = end - k < VL ? end - k : VL;
        vec r = wide_sigmoid(gate_sum(x, h, k, m)), z = wide_sigmoid(gate_sum(x, h, n + k, m));
        vec own = vec_load_n(h + 2 * n + k, m, 0);
        vec fresh = wide_tanh(vec_load_n(x + 2 * n + k, m, 0) + r * own);
        vec_store_n(y + k, (vec_load_n(state + k, m, 0) - fresh) * z + fresh, m);
        vec_store_n(kept + k, r, m);
        vec_store_n(kept + n + k, z, m);
        vec_store_n(kept + 2 * n + k, fresh, m);
        vec_store_n(kept + 3 * n + k, own, m);
    }
}
#else
static void gru_row(const job *j, int64_t row, int64_t begin, int64_t end) {
    int64_t n = j->n, at = row * n;
    const T *x = j->in[0] + 3 * at, *h = j->in[1] + 3 * at, *state = j->in[2] + at;
    T *y = j->out[0] + at, *kept = j->out[1] + 4 * at;
    TMPL_VECTOR
    for (int64_t k = begin; k < end; k++) {
        A r = f_sigmoid(LOAD(x[k]) + LOAD(h[k]));
        A z = f_sigmoid(LOAD(x[n + k]) + LOAD(h[n + k]));
        A own = LOAD(h[2 * n + k]), fresh = f_tanh(LOAD(x[2 * n + k]) + r * own);
        y[k] = STORE((LOAD(state[k]) - fresh) * z + fresh);
        kept[k] = STORE(r);
        kept[n + k] = STORE(z);
        kept[2 * n + k] = STORE(fresh);
        kept[3 * n + k] = STORE(own);
    }
}
#endif

TMPL_INLINE void gru_back_loop(const job *j, int64_t row, int64_t begin, int64_t end, const T *g,
                               const T *more) {
    int64_t n = j->n, at = row * n, wide = row * 4 * n;
    const T *kept = j->in[2] + wide, *state = j->in[3] + at;
    T *to_x = j->out[0] + 3 * at, *to_h = j->out[1] + 3 * at, *to_state = j->out[2] + at;
    TMPL_VECTOR
    for (int64_t k = begin; k < end; k++) {
        A r = LOAD(kept[k]), z = LOAD(kept[n + k]);
        A fresh = LOAD(kept[2 * n + k]), own = LOAD(kept[3 * n + k]), d = load_some(g, at + k);
        A dn = f__tanh_backward(d - d * z + load_some(more, wide + 2 * n + k), fresh);
        A dz = d * (LOAD(state[k]) - fresh) + load_some(more, wide + n + k);
        A dr = f__sigmoid_backward(dn * own + load_some(more, wide + k), r);
        dz = f__sigmoid_backward(dz, z);
        to_x[k] = STORE(dr);
        to_x[n + k] = STORE(dz);
        to_x[2 * n + k] = STORE(dn);
        to_h[k] = STORE(dr);
        to_h[n + k] = STORE(dz);
        to_h[2 * n + k] = STORE(dn * r + load_some(more, wide + 3 * n + k));
        to_state[k] = STORE(d * z);
    }
}

static void gru_back_row(const job *j, int64_t row, int64_t begin, int64_t end) {
    const T *g = j->in[0], *more = j->in[1];
    if (g && !more)
        gru_back_loop(j, row, begin, end, g, NULL);
    else
        gru_back_loop(j, row, begin, end, g, more);
}

static tn_status gru_step(const tn_call *call, const void *args) {
    const tn__gru_step_args *a = args;
    const tn_view *in[] = {a->gates_x, a->gates_h, a->h}, *out[] = {a->state, a->gates};
    (void)call;
    return run(gru_row, a->h, in, 3, out, 2);
}

static tn_status gru_step_backward(const tn_call *call, const void *args) {
    const tn__gru_step_backward_args *a = args;
    const tn_view *in[] = {a->grad_state, a->grad_gates, a->gates, a->h};
    const tn_view *out[] = {a->grad_gates_x, a->grad_gates_h, a->grad_h};
    (void)call;
    return run(gru_back_row, a->h, in, 4, out, 3);
}

#define ROW(op, fn)                                                                                \
    { #op, TN_SIG_##op, fn, NULL, TMPL_DTYPE, 0, TN_K_CAPTURE_SAFE, 0 }
static const tn_kernel_row rows[] = {
    ROW(_lstm_step, lstm_step),
    ROW(_lstm_step_backward, lstm_step_backward),
    ROW(_gru_step, gru_step),
    ROW(_gru_step_backward, gru_step_backward),
};
const cpu_rows TN_(cpu_rnn_rows) = CPU_ROWS_OF(rows);
