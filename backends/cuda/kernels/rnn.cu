/* rnn.cu: the pointwise part of a step of LSTM and GRU, forward and backward, of one floating type. A
 * thread has one element of the state, and those of the gates that belong to it.
 *
 * types: float */
#include "device.h"

#include "args_rnn.h"
#include "scalar.h"

/* Where a thread's element lies: i in states, and of gates that are `gates` to a row, the first one. */
typedef struct rnn_place {
    int64_t i, row, column;
} rnn_place;

TMPL_INLINE bool rnn_find(const cuda_rnn_args &a, rnn_place *ret) {
    int64_t i = cuda_thread();
    if (i >= a.numel) return false;
    int64_t row = a.narrow ? (int64_t)((uint32_t)i / (uint32_t)a.n) : i / a.n;
    *ret = {i, row, i - row * a.n};
    return true;
}

/* The element's part in gate k of `gates`. */
TMPL_INLINE int64_t rnn_gate(const cuda_rnn_args &a, const rnn_place &p, int gates, int k) {
    return (p.row * gates + k) * a.n + p.column;
}

TMPL_INLINE A rnn_load(const cuda_rnn_args &a, int k, int64_t at) {
    return LOAD(((const T *)a.in[k])[at]);
}
/* The same of a gradient; 0 where none came. */
TMPL_INLINE A rnn_load_some(const cuda_rnn_args &a, int k, int64_t at) {
    return a.in[k] ? rnn_load(a, k, at) : (A)0;
}
TMPL_INLINE void rnn_store(const cuda_rnn_args &a, int k, int64_t at, A v) {
    ((T *)a.out[k])[at] = STORE(v);
}

/* The gradients of the four kept numbers, operand `grad`, and the numbers, which are the next one. */
TMPL_INLINE void rnn_load_kept(const cuda_rnn_args &a, const rnn_place &p, int grad, A *ret_y,
                               A *ret_more) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int64_t at = rnn_gate(a, p, 4, k);
        ret_y[k] = rnn_load(a, grad + 1, at);
        ret_more[k] = rnn_load_some(a, grad, at);
    }
}

/* ---- LSTM: gates in the order input, forget, cell, output --------------------------------------*/

KERNEL(TN_(lstm_step), cuda_rnn_args) {
    rnn_place p;
    if (!rnn_find(a, &p)) return;
    A x[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int64_t at = rnn_gate(a, p, 4, k);
        x[k] = rnn_load(a, 0, at) + rnn_load(a, 1, at);
    }
    A i = f_sigmoid(x[0]), f = f_sigmoid(x[1]), g = f_tanh(x[2]), o = f_sigmoid(x[3]);
    A cell = f * rnn_load(a, 2, p.i) + i * g;
    rnn_store(a, 0, p.i, o * f_tanh(cell));
    rnn_store(a, 1, p.i, cell);
    rnn_store(a, 2, rnn_gate(a, p, 4, 0), i);
    rnn_store(a, 2, rnn_gate(a, p, 4, 1), f);
    rnn_store(a, 2, rnn_gate(a, p, 4, 2), g);
    rnn_store(a, 2, rnn_gate(a, p, 4, 3), o);
}

/* in: gradients of h, cell and the kept gates; the gates; c before and after. */
KERNEL(TN_(lstm_step_backward), cuda_rnn_args) {
    rnn_place p;
    if (!rnn_find(a, &p)) return;
    A y[4], more[4];
    rnn_load_kept(a, p, 2, y, more);
    A top = f_tanh(rnn_load(a, 5, p.i)), gh = rnn_load_some(a, 0, p.i);
    A gc = f__tanh_backward(gh * y[3], top) + rnn_load_some(a, 1, p.i);
    A gi = gc * y[2] + more[0], gf = gc * rnn_load(a, 4, p.i) + more[1];
    A gg = gc * y[0] + more[2], go = gh * top + more[3];
    rnn_store(a, 0, rnn_gate(a, p, 4, 0), f__sigmoid_backward(gi, y[0]));
    rnn_store(a, 0, rnn_gate(a, p, 4, 1), f__sigmoid_backward(gf, y[1]));
    rnn_store(a, 0, rnn_gate(a, p, 4, 2), f__tanh_backward(gg, y[2]));
    rnn_store(a, 0, rnn_gate(a, p, 4, 3), f__sigmoid_backward(go, y[3]));
    rnn_store(a, 1, p.i, gc * y[1]);
}

/* ---- GRU: gates in the order reset, update, new; kept with the state's part of `new` ------------*/

KERNEL(TN_(gru_step), cuda_rnn_args) {
    rnn_place p;
    if (!rnn_find(a, &p)) return;
    A x[3], h[3];
#pragma unroll
    for (int k = 0; k < 3; k++) {
        int64_t at = rnn_gate(a, p, 3, k);
        x[k] = rnn_load(a, 0, at);
        h[k] = rnn_load(a, 1, at);
    }
    A r = f_sigmoid(x[0] + h[0]), z = f_sigmoid(x[1] + h[1]), fresh = f_tanh(x[2] + r * h[2]);
    rnn_store(a, 0, p.i, (rnn_load(a, 2, p.i) - fresh) * z + fresh);
    rnn_store(a, 1, rnn_gate(a, p, 4, 0), r);
    rnn_store(a, 1, rnn_gate(a, p, 4, 1), z);
    rnn_store(a, 1, rnn_gate(a, p, 4, 2), fresh);
    rnn_store(a, 1, rnn_gate(a, p, 4, 3), h[2]);
}

/* in: gradients of the state and the kept gates; the gates; the state before. */
KERNEL(TN_(gru_step_backward), cuda_rnn_args) {
    rnn_place p;
    if (!rnn_find(a, &p)) return;
    A y[4], more[4];
    rnn_load_kept(a, p, 1, y, more);
    A g = rnn_load_some(a, 0, p.i), r = y[0], z = y[1], fresh = y[2];
    A gn = f__tanh_backward(g - g * z + more[2], fresh);
    A gz = f__sigmoid_backward(g * (rnn_load(a, 3, p.i) - fresh) + more[1], z);
    A gr = f__sigmoid_backward(gn * y[3] + more[0], r);
    rnn_store(a, 0, rnn_gate(a, p, 3, 0), gr);
    rnn_store(a, 0, rnn_gate(a, p, 3, 1), gz);
    rnn_store(a, 0, rnn_gate(a, p, 3, 2), gn);
    rnn_store(a, 1, rnn_gate(a, p, 3, 0), gr);
    rnn_store(a, 1, rnn_gate(a, p, 3, 1), gz);
    rnn_store(a, 1, rnn_gate(a, p, 3, 2), gn * r + more[3]);
    rnn_store(a, 2, p.i, g * z);
}
