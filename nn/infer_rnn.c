/* infer_rnn.c: shape rules of recurrent networks: of a step, whose states are (..., n) and gates
 * (..., k n), and of all layers at once. */
#include <tenon/op_args.h>

#include "dispatch_priv.h"
#include "infer_priv.h"

tn_status tni_infer__lstm_step(tn_infer *inf, const void *args);
tn_status tni_infer__lstm_step_backward(tn_infer *inf, const void *args);
tn_status tni_infer__gru_step(tn_infer *inf, const void *args);
tn_status tni_infer__gru_step_backward(tn_infer *inf, const void *args);
tn_status tni_infer__rnn_room(tn_infer *inf, const void *args);
tn_status tni_infer__rnn_layers(tn_infer *inf, const void *args);
tn_status tni_infer__rnn_layers_backward(tn_infer *inf, const void *args);

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

/* ---- All layers at once: nn/rnn.c has checked the sizes of states and weights ------------------*/

tn_status tni_infer__rnn_room(tn_infer *inf, const void *args) {
    const tn__rnn_room_args *a = args;
    return tni_infer_expect(inf, 1, a->room, 0, NULL, TN_I64);
}

static tn_status check_rows(const tn_infer *inf, int32_t arg, const tn_view *x, const tn_view *h0,
                            tn_ints sizes) {
    int64_t rows = 0;
    for (int64_t i = 0; i < sizes.n; i++) rows += sizes.v[i];
    if (x->ndim == 2 && h0->ndim == 3 && sizes.n > 0 && x->shape[0] == rows) return TN_OK;
    return tn_fail(TN_E_SHAPE, arg, "%s(): argument '%s' must have a row for each step of a sample",
                   inf->op->info.name, inf->op->fields[arg].name);
}

tn_status tni_infer__rnn_layers(tn_infer *inf, const void *args) {
    const tn__rnn_layers_args *a = args;
    const tn_view *h = a->h0;
    const int64_t none = 0, room = a->room;
    TN_TRY(check_rows(inf, 0, a->input, h, a->sizes));
    const int64_t y[2] = {a->input->shape[0], h->shape[2] * (a->bidirectional ? 2 : 1)};
    inf->out[3].dtype = TN_U8;
    TN_TRY(tni_infer_set(inf, 0, 2, y));
    TN_TRY(tni_infer_set(inf, 1, 3, h->shape));
    TN_TRY(a->c0 ? tni_infer_set(inf, 2, 3, a->c0->shape) : tni_infer_set(inf, 2, 1, &none));
    return tni_infer_set(inf, 3, 1, &room);
}

tn_status tni_infer__rnn_layers_backward(tn_infer *inf, const void *args) {
    const tn__rnn_layers_backward_args *a = args;
    int64_t n = 0;
    TN_TRY(check_rows(inf, 3, a->input, a->h0, a->sizes));
    if (a->kept.n != 2)
        return tn_fail(TN_E_VALUE, 7,
                       "_rnn_layers_backward(): argument 'kept' must be y and reserve");
    for (int64_t i = 0; i < a->params.n; i++) n += a->params.v[i]->numel;
    TN_TRY(tni_infer_set(inf, 0, 2, a->input->shape));
    TN_TRY(tni_infer_set(inf, 1, 3, a->h0->shape));
    if (a->c0) TN_TRY(tni_infer_set(inf, 2, 3, a->c0->shape));
    if (!a->c0) tni_infer_absent(inf, 2);
    return tni_infer_set(inf, 3, 1, &n);
}
