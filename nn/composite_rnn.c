/* composite_rnn.c: a step of recurrent networks out of simpler operators: for devices without a kernel
 * for it, and for gradients that are recorded themselves (grad_rnn.c). */
#include "scope_priv.h"

tn_status tni_composite__lstm_step(const void *args, tn_tensor **rets);
tn_status tni_composite__lstm_step_backward(const void *args, tn_tensor **rets);
tn_status tni_composite__gru_step(const void *args, tn_tensor **rets);
tn_status tni_composite__gru_step_backward(const void *args, tn_tensor **rets);

/* ---- Pieces ------------------------------------------------------------------------------------*/

/* Part i of `gates`, each as wide as a state; NULL of NULL. */
static tn_tensor *gate(tni_scope *s, tn_tensor *gates, const tn_view *state, int64_t i) {
    int64_t n = state->shape[state->ndim - 1];
    return gates ? scope_narrow(s, gates, -1, i * n, n) : NULL;
}

static tn_tensor *join(tni_scope *s, tn_tensor **parts, int64_t n) {
    tn_tensor *r = NULL;
    if (s->st != TN_OK) return NULL;
    tn_status st = tn_cat((tn_tensors){parts, n}, -1, &r);
    return scope_take(s, st, r);
}

static tn_tensor *sigmoid(tni_scope *s, tn_tensor *x) { return scope_unary(s, tn_sigmoid, x); }
static tn_tensor *tanh_of(tni_scope *s, tn_tensor *x) { return scope_unary(s, tn_tanh, x); }

/* Sums and products where NULL stands for zeros. */
static tn_tensor *plus(tni_scope *s, tn_tensor *a, tn_tensor *b) {
    return !a ? b : !b ? a : scope_add(s, a, b);
}
static tn_tensor *times(tni_scope *s, tn_tensor *g, tn_tensor *x) {
    return g ? scope_mul(s, g, x) : NULL;
}
static tn_tensor *through(tni_scope *s, tni_binary backward, tn_tensor *g, tn_tensor *y) {
    return g ? scope_binary(s, backward, g, y) : NULL;
}

/* g (1 - x) */
static tn_tensor *times_rest(tni_scope *s, tn_tensor *g, tn_tensor *x) {
    return g ? scope_sub(s, g, scope_mul(s, g, x)) : NULL;
}

/* Zeros in place of NULL, of x's shape. */
static tn_tensor *filled(tni_scope *s, tn_tensor *g, tn_tensor *x) {
    tn_tensor *r = NULL;
    if (g || s->st != TN_OK) return g;
    tn_status st = tn_zeros_like(x, -1, -1, TN_FORMAT_PRESERVE, &r);
    return scope_take(s, st, r);
}

static void hand_out(tni_scope *s, tn_tensor *t, tn_tensor **ret) {
    if (s->st == TN_OK) *ret = tn_tensor_ref(t);
}

/* ---- LSTM: gates in the order input, forget, cell, output --------------------------------------*/

tn_status tni_composite__lstm_step(const void *args, tn_tensor **rets) {
    const tn__lstm_step_args *a = args;
    tni_scope s = {0};
    tn_tensor *sum = scope_add(&s, tni_t(a->gates_x), tni_t(a->gates_h));
    tn_tensor *y[4];
    for (int k = 0; k < 4; k++) {
        tn_tensor *x = gate(&s, sum, a->c, k);
        y[k] = k == 2 ? tanh_of(&s, x) : sigmoid(&s, x);
    }
    tn_tensor *cell = scope_add(&s, scope_mul(&s, y[1], tni_t(a->c)), scope_mul(&s, y[0], y[2]));
    tn_tensor *h = scope_mul(&s, y[3], tanh_of(&s, cell)), *kept = join(&s, y, 4);
    hand_out(&s, cell, &rets[1]);
    hand_out(&s, kept, &rets[2]);
    return scope_finish(&s, h, &rets[0]);
}

tn_status tni_composite__lstm_step_backward(const void *args, tn_tensor **rets) {
    const tn__lstm_step_backward_args *a = args;
    tni_scope s = {0};
    tn_tensor *gh = tni_t(a->grad_h), *more = tni_t(a->grad_gates), *y[4], *g[4];
    for (int k = 0; k < 4; k++) y[k] = gate(&s, tni_t(a->gates), a->c, k);
    tn_tensor *top = tanh_of(&s, tni_t(a->cell));
    tn_tensor *gc = through(&s, tn__tanh_backward, times(&s, gh, y[3]), top);
    gc = plus(&s, gc, tni_t(a->grad_cell));
    tn_tensor *to[4] = {times(&s, gc, y[2]), times(&s, gc, tni_t(a->c)), times(&s, gc, y[0]),
                        times(&s, gh, top)};
    for (int k = 0; k < 4; k++) {
        tn_tensor *all = plus(&s, to[k], gate(&s, more, a->c, k));
        g[k] = through(&s, k == 2 ? tn__tanh_backward : tn__sigmoid_backward, all, y[k]);
        g[k] = filled(&s, g[k], y[k]);
    }
    tn_tensor *grad_c = filled(&s, times(&s, gc, y[1]), y[1]), *sum = join(&s, g, 4);
    hand_out(&s, grad_c, &rets[1]);
    return scope_finish(&s, sum, &rets[0]);
}

/* ---- GRU: gates in the order reset, update, new; kept with the state's part of `new` ------------*/

tn_status tni_composite__gru_step(const void *args, tn_tensor **rets) {
    const tn__gru_step_args *a = args;
    tni_scope s = {0};
    tn_tensor *x[3], *h[3];
    for (int k = 0; k < 3; k++) x[k] = gate(&s, tni_t(a->gates_x), a->h, k);
    for (int k = 0; k < 3; k++) h[k] = gate(&s, tni_t(a->gates_h), a->h, k);
    tn_tensor *r = sigmoid(&s, scope_add(&s, x[0], h[0]));
    tn_tensor *z = sigmoid(&s, scope_add(&s, x[1], h[1]));
    tn_tensor *n = tanh_of(&s, scope_add(&s, x[2], scope_mul(&s, r, h[2])));
    tn_tensor *y = scope_add(&s, scope_mul(&s, scope_sub(&s, tni_t(a->h), n), z), n);
    tn_tensor *kept = join(&s, (tn_tensor *[]){r, z, n, h[2]}, 4);
    hand_out(&s, kept, &rets[1]);
    return scope_finish(&s, y, &rets[0]);
}

tn_status tni_composite__gru_step_backward(const void *args, tn_tensor **rets) {
    const tn__gru_step_backward_args *a = args;
    tni_scope s = {0};
    tn_tensor *g = tni_t(a->grad_state), *more = tni_t(a->grad_gates), *y[4], *extra[4];
    for (int k = 0; k < 4; k++) y[k] = gate(&s, tni_t(a->gates), a->h, k);
    for (int k = 0; k < 4; k++) extra[k] = gate(&s, more, a->h, k);
    tn_tensor *gn = plus(&s, times_rest(&s, g, y[1]), extra[2]);
    gn = filled(&s, through(&s, tn__tanh_backward, gn, y[2]), y[2]);
    tn_tensor *gz = g ? scope_mul(&s, g, scope_sub(&s, tni_t(a->h), y[2])) : NULL;
    gz = through(&s, tn__sigmoid_backward, plus(&s, gz, extra[1]), y[1]);
    gz = filled(&s, gz, y[1]);
    tn_tensor *gr = plus(&s, scope_mul(&s, gn, y[3]), extra[0]);
    gr = scope_binary(&s, tn__sigmoid_backward, gr, y[0]);
    tn_tensor *gm = plus(&s, scope_mul(&s, gn, y[0]), extra[3]);
    tn_tensor *gx = join(&s, (tn_tensor *[]){gr, gz, gn}, 3);
    tn_tensor *gh = join(&s, (tn_tensor *[]){gr, gz, gm}, 3);
    tn_tensor *grad_h = filled(&s, times(&s, g, y[1]), y[1]);
    hand_out(&s, gh, &rets[1]);
    hand_out(&s, grad_h, &rets[2]);
    return scope_finish(&s, gx, &rets[0]);
}
