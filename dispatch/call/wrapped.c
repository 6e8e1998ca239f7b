/* wrapped.c: calls with a tensor among their arguments that the host language computes.
 *
 * A run function that meets one says TN_DECLINE, as to a sparse tensor, and the call comes here by way of
 * the fallback. Composites without a gradient of their own are recorded through their parts, so that
 * these come here; all others are one call of the host and one entry of the tape. */
#include "call_priv.h"
#include "sparse_priv.h"
#include "wrapped_priv.h"

static _Atomic(tn_wrapped_call) host_call;

void tn_wrapped_set_call(tn_wrapped_call call) {
    atomic_store_explicit(&host_call, call, memory_order_release);
}

tn_wrapped_call tni_wrapped_host(void) {
    return atomic_load_explicit(&host_call, memory_order_acquire);
}

tn_tensor *tni_wrapped_written(const tn_op *op, void *args) {
    if (op->nin == 0 || tni_is_list(tni_in_field(op, 0))) return NULL;
    tn_tensor *self = tni_in_slot(op, args, 0);
    if (op->flags & TNI_OP_INPLACE_ONLY) return self;
    tni_span outs = tni_given(op, args);
    return outs.n > 0 && outs.v[0] == self ? self : NULL;
}

static tn_status fail_out(const tn_op *op) {
    return tn_fail(TN_E_UNSUPPORTED, -1,
                   "%s(): out= takes no part in calls with tensors of classes that have "
                   "__torch_dispatch__",
                   op->info.name);
}

static tn_status run_whole(const tn_op *op, void *args, tn_wrapped_ask ask, tn_tensor **rets) {
    tn_wrapped_call call = tni_wrapped_host();
    tn_tensor *self = tni_wrapped_written(op, args);
    uint64_t any = tni_input_words(op, args);
    tni_span given = tni_given(op, args);
    for (int64_t i = 0; i < given.n; i++)
        if (given.v[i] && given.v[i] != self) return fail_out(op);
    if (self) TN_TRY(tni_check_given_sparse(op, args, self, true, any));
    tni_grad_off();
    tn_status st = call(ask, &op->info, args, self != NULL, rets);
    tni_grad_on();
    if (st == TN_OK && self) tni_bump_version(self);
    return st == TN_OK ? tni_record_call(op, args, any, rets) : st;
}

tn_status tni_run_wrapped(const tn_op *op, void *args, tn_tensor **rets) {
    tn_wrapped_call call = tni_wrapped_host();
    bool parts = !op->grad && op->info.kind == TN_OP_COMPOSITE;
    if (!call) return tn_fail(TN_E_STATE, -1, "no host computes wrapped tensors");
    tni_results_clear(op, rets);
    tn_status st = TN_DECLINE;
    if (!tni_wrapped_written(op, args)) st = call(TN_WRAPPED_PARTS, &op->info, args, 0, rets);
    if (st == TN_DECLINE && !(parts && tni_recording(tni_input_words(op, args))))
        st = run_whole(op, args, parts ? TN_WRAPPED_EITHER : TN_WRAPPED_WHOLE, rets);
    if (st == TN_DECLINE && parts) return tni_run_parts(op, args, rets);
    if (st != TN_OK) tni_results_drop(op, rets);
    return st;
}
