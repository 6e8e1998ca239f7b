/* grad_rnn.c: gradients of a step of recurrent networks. The gates that a step keeps are results like
 * the others: in a second backward pass a gradient comes to them, too. */
#include "scope_priv.h"

tn_status tni_grad__lstm_step(tn_gctx *c);
tn_status tni_grad__gru_step(tn_gctx *c);
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
