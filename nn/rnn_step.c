/* rnn_step.c: a step of recurrent networks: shape rules (states are (..., n), gates (..., k n)), the
 * step out of simpler operators, gradients. The gates that a step keeps are results like the others: in
 * a second backward pass a gradient comes to them, too. */
#include <string.h>

#include <tenon/args_rnn.h>
#include <tenon/ops_activation.h>
#include <tenon/ops_create.h>
#include <tenon/ops_index.h>
#include <tenon/ops_rnn.h>

#include "nn_priv.h"
#include "op_rnn.h"

/* ---- Shape rules ------------------------------------------------------------------------------*/

enum { LSTM_GATES = 4, GRU_GATES = 3, GRU_KEPT = 4 };

/* The shape of `gates` numbers for each one of the state. */
static tn_status gates_of(const tn_infer *inf, int32_t arg, const tn_view *state, int64_t gates,
                          int64_t *ret_shape) {
    if (state->ndim < 1)
        return tn_fail(TN_E_SHAPE, arg, "%s(): argument '%s' must have at least one dimension",
                       inf->op->info.name, inf->op->fields[arg].name);
    memcpy(ret_shape, state->shape, (size_t)state->ndim * sizeof *ret_shape);
    ret_shape[state->ndim - 1] *= gates;
    return TN_OK;
}

tn_status tni_infer__lstm_step(tn_infer *inf, const void *args) {
    const tn__lstm_step_args *a = args;
    const tn_view *c = a->c;
    int64_t wide[TN_MAX_DIMS];
    TN_TRY(gates_of(inf, 2, c, LSTM_GATES, wide));
    TN_TRY(tni_infer_expect(inf, 0, a->gates_x, c->ndim, wide, -1));
    TN_TRY(tni_infer_expect(inf, 1, a->gates_h, c->ndim, wide, -1));
    TN_TRY(tni_infer_set(inf, 0, c->ndim, c->shape));
    TN_TRY(tni_infer_set(inf, 1, c->ndim, c->shape));
    return tni_infer_set(inf, 2, c->ndim, wide);
}

tn_status tni_infer__lstm_step_backward(tn_infer *inf, const void *args) {
    const tn__lstm_step_backward_args *a = args;
    const tn_view *c = a->c;
    int64_t wide[TN_MAX_DIMS];
    TN_TRY(gates_of(inf, 4, c, LSTM_GATES, wide));
    TN_TRY(tni_infer_expect(inf, 0, a->grad_h, c->ndim, c->shape, -1));
    TN_TRY(tni_infer_expect(inf, 1, a->grad_cell, c->ndim, c->shape, -1));
    TN_TRY(tni_infer_expect(inf, 2, a->grad_gates, c->ndim, wide, -1));
    TN_TRY(tni_infer_expect(inf, 3, a->gates, c->ndim, wide, -1));
    TN_TRY(tni_infer_expect(inf, 5, a->cell, c->ndim, c->shape, -1));
    TN_TRY(tni_infer_set(inf, 0, c->ndim, wide));
    return tni_infer_set(inf, 1, c->ndim, c->shape);
}

tn_status tni_infer__gru_step(tn_infer *inf, const void *args) {
    const tn__gru_step_args *a = args;
    const tn_view *h = a->h;
    int64_t wide[TN_MAX_DIMS], kept[TN_MAX_DIMS];
    TN_TRY(gates_of(inf, 2, h, GRU_GATES, wide));
    TN_TRY(gates_of(inf, 2, h, GRU_KEPT, kept));
    TN_TRY(tni_infer_expect(inf, 0, a->gates_x, h->ndim, wide, -1));
    TN_TRY(tni_infer_expect(inf, 1, a->gates_h, h->ndim, wide, -1));
    TN_TRY(tni_infer_set(inf, 0, h->ndim, h->shape));
    return tni_infer_set(inf, 1, h->ndim, kept);
}

tn_status tni_infer__gru_step_backward(tn_infer *inf, const void *args) {
    const tn__gru_step_backward_args *a = args;
    const tn_view *h = a->h;
    int64_t wide[TN_MAX_DIMS], kept[TN_MAX_DIMS];
    TN_TRY(gates_of(inf, 3, h, GRU_GATES, wide));
    TN_TRY(gates_of(inf, 3, h, GRU_KEPT, kept));
    TN_TRY(tni_infer_expect(inf, 0, a->grad_state, h->ndim, h->shape, -1));
    TN_TRY(tni_infer_expect(inf, 1, a->grad_gates, h->ndim, kept, -1));
    TN_TRY(tni_infer_expect(inf, 2, a->gates, h->ndim, kept, -1));
    TN_TRY(tni_infer_set(inf, 0, h->ndim, wide));
    TN_TRY(tni_infer_set(inf, 1, h->ndim, wide));
    return tni_infer_set(inf, 2, h->ndim, h->shape);
}

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

/* ---- Gradients --------------------------------------------------------------------------------*/

/* Both kinds of gates are added, so they have one gradient. */
tn_status tni_grad__lstm_step(tn_gctx *c) {
    const tn__lstm_step_args *a = c->args;
    tn_tensor *grads[2] = {NULL};
    if (!c->g[0] && !c->g[1] && !c->g[2]) return TN_OK;
    if (tn_grad_enabled()) {
        tn__lstm_step_backward_args b = {.grad_h = tni_v(c->g[0]),
                                         .grad_cell = tni_v(c->g[1]),
                                         .grad_gates = tni_v(c->g[2]),
                                         .gates = a->gates,
                                         .c = a->c,
                                         .cell = a->cell};
        TN_TRY(tni_composite__lstm_step_backward(&b, grads));
    } else {
        TN_TRY(tn__lstm_step_backward(c->g[0], c->g[1], c->g[2], tni_t(a->gates), tni_t(a->c),
                                      tni_t(a->cell), &grads[0], &grads[1]));
    }
    if (TN_GNEEDS(c, 0)) c->ret[0] = tn_tensor_ref(grads[0]);
    if (TN_GNEEDS(c, 1)) c->ret[1] = tn_tensor_ref(grads[0]);
    if (TN_GNEEDS(c, 2)) c->ret[2] = tn_tensor_ref(grads[1]);
    tn_tensor_unref(&grads[0]);
    tn_tensor_unref(&grads[1]);
    return TN_OK;
}

tn_status tni_grad__gru_step(tn_gctx *c) {
    const tn__gru_step_args *a = c->args;
    tn_tensor *grads[3] = {NULL};
    if (!c->g[0] && !c->g[1]) return TN_OK;
    if (tn_grad_enabled()) {
        tn__gru_step_backward_args b = {.grad_state = tni_v(c->g[0]),
                                        .grad_gates = tni_v(c->g[1]),
                                        .gates = a->gates,
                                        .h = a->h};
        TN_TRY(tni_composite__gru_step_backward(&b, grads));
    } else {
        TN_TRY(tn__gru_step_backward(c->g[0], c->g[1], tni_t(a->gates), tni_t(a->h), &grads[0],
                                     &grads[1], &grads[2]));
    }
    for (int i = 0; i < 3; i++) {
        if (TN_GNEEDS(c, i)) c->ret[i] = tn_tensor_ref(grads[i]);
        tn_tensor_unref(&grads[i]);
    }
    return TN_OK;
}
