/* recompute.c: the gradient of a composite whose results a kernel has made. There are no parts that were recorded,
 * so the composite runs again on the arguments that were saved, is recorded this time, and is differentiated. */
#include <stdlib.h>

#include <tenon/autograd.h>
#include <tenon/ops_shape.h>

#include "call_priv.h"
#include "tape_priv.h"

typedef struct again {
    tn_gctx *c;
    tn_tensor **in; /* by input, lists flattened: what stands for those that want a gradient */
    int64_t nin;
    union {
        tn_tensor *one[TNI_MAX_OUTS];
        tn_tensor_list list;
    } outs;
    tn_tensor **lists[TN_MAX_OPERANDS];
    _Alignas(16) char args[TNI_MAX_ARGS_BYTES];
} again;

/* One tensor may be several arguments, each with a gradient of its own. In a pass that is recorded the stand-in
 * keeps the history, so that the gradient has one. */
static tn_status stand_in(tn_tensor *t, bool recorded, tn_tensor **ret) {
    if (recorded) return tn_view_as(t, t, ret);
    TN_TRY(tni_detach(t, ret));
    return tn_set_requires_grad(*ret, 1);
}

static tn_status fill_args(again *a, bool recorded) {
    const tn_op *op = a->c->op;
    int64_t at = 0;
    memcpy(a->args, a->c->args, op->args_bytes);
    for (int i = 0; i < op->nin; i++) {
        tni_span s = tni_in_span(op, a->c->args, i),
                 *own = tni_field_at(tni_in_field(op, i), a->args);
        tn_tensor **to = (tn_tensor **)(void *)own;
        if (tni_is_list(tni_in_field(op, i))) {
            to = a->lists[i] = calloc((size_t)(s.n > 0 ? s.n : 1), sizeof *to);
            if (!to) return tn_fail(TN_E_MEMORY, -1, "out of memory");
            own->v = to;
        }
        for (int64_t k = 0; k < s.n; k++, at++) {
            to[k] = s.v[k];
            if (!s.v[k] || !TN_GNEEDS(a->c, at)) continue;
            TN_TRY(stand_in(s.v[k], recorded, &a->in[at]));
            to[k] = a->in[at];
        }
    }
    tni_span given = tni_given(op, a->args);
    for (int64_t i = 0; i < given.n; i++) given.v[i] = NULL;
    return TN_OK;
}

static tn_status compose(again *a, bool recorded) {
    uint32_t off = tni_tls.no_grad;
    tni_tls.no_grad = 0;
    tn_status st = fill_args(a, recorded);
    if (st == TN_OK) st = tni_compose(a->c->op, a->args, a->outs.one);
    if (st != TN_OK) tni_results_clear(a->c->op, a->outs.one);
    tni_tls.no_grad = off;
    return st;
}

/* From the results that have a history to the stand-ins. */
static tn_status differentiate(again *a, bool recorded) {
    tn_tensor *outs[TNI_MAX_OUTS], *grads[TNI_MAX_OUTS], *inputs[64], *found[64] = {NULL};
    int64_t n = 0, ninputs = 0;
    for (int i = 0; i < a->c->op->nout; i++) {
        tn_tensor *t = a->outs.one[i];
        if (!t || !a->c->g[i] || !tn_requires_grad(t)) continue;
        outs[n] = t;
        grads[n++] = a->c->g[i];
    }
    for (int64_t k = 0; k < a->nin && n > 0; k++)
        if (a->in[k]) inputs[ninputs++] = a->in[k];
    if (ninputs == 0) return TN_OK;
    TN_TRY(tn_grad(outs, grads, n, inputs, ninputs, recorded, recorded, 1, found));
    for (int64_t k = 0, at = 0; k < a->nin; k++)
        if (a->in[k]) a->c->ret[k] = found[at++];
    return TN_OK;
}

tn_status tni_recompute(tn_gctx *c) {
    again a = {.c = c};
    bool recorded = tni_tls.no_grad == 0;
    for (int i = 0; i < c->op->nin; i++) a.nin += tni_in_span(c->op, c->args, i).n;
    tni_results_clear(c->op, a.outs.one);
    a.in = calloc((size_t)(a.nin > 0 ? a.nin : 1), sizeof *a.in);
    if (!a.in) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tn_status st = compose(&a, recorded);
    if (st == TN_OK) st = differentiate(&a, recorded);
    tni_results_drop(c->op, a.outs.one);
    for (int64_t k = 0; k < a.nin; k++)
        if (a.in[k]) tn_tensor_unref(&a.in[k]);
    for (int i = 0; i < c->op->nin; i++) free(a.lists[i]);
    free(a.in);
    return st;
}
