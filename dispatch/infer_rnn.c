/* infer_rnn.c: shape rules of a step of recurrent networks. States are (..., n), gates (..., k n). */
#include <tenon/op_args.h>

#include "dispatch_priv.h"
#include "infer_priv.h"

tn_status tni_infer__lstm_step(tn_infer *inf, const void *args);
tn_status tni_infer__lstm_step_backward(tn_infer *inf, const void *args);
tn_status tni_infer__gru_step(tn_infer *inf, const void *args);
tn_status tni_infer__gru_step_backward(tn_infer *inf, const void *args);

enum { LSTM_GATES = 4, GRU_GATES = 3, GRU_KEPT = 4 };

/* The shape of `gates` numbers for each one of the state. */
static tn_status gates_of(const tn_infer *inf, int32_t arg, const tn_view *state, int64_t gates,
                          int64_t *ret_shape) {
    if (state->ndim < 1)
        return tn_fail(TN_E_SHAPE, arg, "%s(): argument '%s' must have at least one dimension",
                       inf->op->info.name, inf->op->fields[arg].name);
    for (int32_t d = 0; d < state->ndim; d++) ret_shape[d] = state->shape[d];
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
