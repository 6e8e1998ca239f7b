/* rnn_layers.c: all layers of a recurrent network at once, `_rnn_layers`: shape rules and gradients. */
#include <tenon/args_rnn.h>
#include <tenon/ops_create.h>
#include <tenon/ops_rnn.h>
#include <tenon/ops_shape.h>

#include "nn_priv.h"
#include "op_rnn.h"

/* ---- Shape rules: rnn.c has checked the sizes of states and weights ----------------------------*/

tn_status tni_infer__rnn_room(tn_infer *inf, const void *args) {
    const tn__rnn_room_args *a = args;
    return tni_infer_expect(inf, 1, a->room, 0, NULL, TN_I64);
}

static tn_status check_rows(const tn_infer *inf, int32_t arg, const tn_view *x, const tn_view *h0,
                            tn_ints sizes) {
    int64_t rows = 0;
    bool over = false;
    for (int64_t i = 0; i < sizes.n; i++) over |= __builtin_add_overflow(rows, sizes.v[i], &rows);
    if (!over && x->ndim == 2 && h0->ndim == 3 && sizes.n > 0 && x->shape[0] == rows) return TN_OK;
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

/* ---- Gradients --------------------------------------------------------------------------------*/

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
