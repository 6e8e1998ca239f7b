/* grad_rnn.c: gradients of recurrent networks: of a step, and of all layers at once. The gates that a
 * step keeps are results like the others: in a second backward pass a gradient comes to them, too. */
#include "scope_priv.h"

tn_status tni_grad__lstm_step(tn_gctx *c);
tn_status tni_grad__gru_step(tn_gctx *c);
tn_status tni_grad__rnn_layers(tn_gctx *c);
tn_status tni_grad__rnn_layers_backward(tn_gctx *c);
tn_status tni_composite__lstm_step_backward(const void *args, tn_tensor **rets);
tn_status tni_composite__gru_step_backward(const void *args, tn_tensor **rets);

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

/* ---- All layers at once ------------------------------------------------------------------------*/

/* Each weight's part of `all`, where they lie one after the other. `first` is the first weight's place
 * among the inputs. */
static tn_status give_params(tn_gctx *c, tn_views params, int64_t first, tn_tensor *all) {
    int64_t at = 0;
    for (int64_t i = 0; i < params.n; i++) {
        const tn_view *p = params.v[i];
        if (TN_GNEEDS(c, first + i)) {
            tn_tensor *part = NULL;
            TN_TRY(tn_narrow(all, 0, at, p->numel, &part));
            tn_status st = tn_reshape(part, tn_ints_of(p->shape, p->ndim), &c->ret[first + i]);
            tn_tensor_unref(&part);
            if (st != TN_OK) return st;
        }
        at += p->numel;
    }
    return TN_OK;
}

tn_status tni_grad__rnn_layers(tn_gctx *c) {
    const tn__rnn_layers_args *a = c->args;
    tn_tensor *grads[4] = {NULL}, *gy = tn_tensor_ref(c->g[0]);
    tn_tensor *kept[2] = {tni_t(a->y), tni_t(a->reserve)};
    int64_t states = a->c0 ? 2 : 1;
    tn_status st = TN_OK;
    if (!c->g[0] && !c->g[1] && !c->g[2]) return TN_OK;
    if (!gy) st = tn_zeros_like(kept[0], -1, -1, TN_FORMAT_CONTIGUOUS, &gy);
    if (st == TN_OK)
        st = tn__rnn_layers_backward(
            gy, c->g[1], a->c0 ? c->g[2] : NULL, tni_t(a->input), tni_t(a->h0), tni_t(a->c0),
            tni_tensors_of(a->params), (tn_tensors){kept, 2}, a->sizes, a->mode, a->has_biases,
            a->num_layers, a->bidirectional, &grads[0], &grads[1], &grads[2], &grads[3]);
    for (int64_t i = 0; i <= states && st == TN_OK; i++)
        if (TN_GNEEDS(c, i)) c->ret[i] = tn_tensor_ref(grads[i]);
    if (st == TN_OK) st = give_params(c, a->params, 3, grads[3]);
    tn_tensor_unref(&gy);
    for (int i = 0; i < 4; i++) tn_tensor_unref(&grads[i]);
    return st;
}

tn_status tni_grad__rnn_layers_backward(tn_gctx *c) {
    (void)c;
    return tn_fail(
        TN_E_STATE, -1,
        "second derivatives of a recurrent network are not implemented by cuDNN: compute it "
        "under `with backends.cudnn.flags(enabled=False)`");
}
