/* watched.c: a thread whose calls all come to the host language, whatever their tensors are.
 *
 * A layer sees them. A call comes whole, below the tape, and is recorded as the operator that it is;
 * composites come as what they are made of where the host says so. */
#include "sparse_priv.h"
#include "wrapped_priv.h"

static tn_status note_views(const tn_op *op, const void *args, tn_tensor **rets) {
    tn_tensor *base = tni_in_slot(op, args, 0);
    tni_span outs = tni_results(op, rets);
    for (int64_t i = 0; i < outs.n && tni_ag.note_view; i++)
        if (outs.v[i] != base && outs.v[i]->storage == base->storage)
            TN_TRY(tni_ag.note_view(op, args, base, outs.v[i]));
    return TN_OK;
}

static tn_status see_whole(const tn_op *op, void *args, uint64_t any, bool parts,
                           tn_tensor **rets) {
    tn_wrapped_call call = tni_wrapped_host();
    tn_tensor *self = tni_wrapped_written(op, args);
    tn_wrapped_ask ask = parts ? TN_WRAPPED_EITHER : TN_WRAPPED_SEEN;
    if (self) TN_TRY(tni_check_given_sparse(op, args, self, true, any));
    bool recorded = op->grad && tni_recording(any);
    if (recorded) tni_grad_off();
    tn_status st = call(recorded ? TN_WRAPPED_WHOLE : ask, &op->info, args, self != NULL, rets);
    if (recorded) tni_grad_on();
    tn_wrapped_watch(0); /* the host may have left it on */
    if (!recorded) return st;
    if (st == TN_OK) st = tni_record_call(op, args, any, rets);
    if (st == TN_OK && op->info.kind == TN_OP_VIEW) st = note_views(op, args, rets);
    return st;
}

static bool has_other_out(const tn_op *op, void *args) {
    tn_tensor *self = tni_wrapped_written(op, args);
    tni_span given = tni_given(op, args);
    for (int64_t i = 0; i < given.n; i++)
        if (given.v[i] && given.v[i] != self) return true;
    return false;
}

static tn_status on_watched(void *ctx, tn_layer_call *next, const tn_op_info *info, void *args,
                            tn_tensor **rets) {
    const tn_op *op = (const void *)info;
    tn_wrapped_call call = tni_wrapped_host();
    uint64_t any = tni_input_words(op, args);
    bool parts = !op->grad && info->kind == TN_OP_COMPOSITE;
    (void)ctx;
    if (!call || has_other_out(op, args)) return tn_layer_next(next, info, args, rets);
    if (tni_has_late(op, args)) TN_TRY(tni_settle_args(op, args));
    tn_status st = TN_DECLINE;
    tn_wrapped_watch(1);
    if (!tni_wrapped_written(op, args)) st = call(TN_WRAPPED_PARTS, info, args, 0, rets);
    tn_wrapped_watch(0);
    if (st == TN_DECLINE && !(parts && tni_recording(any)))
        st = see_whole(op, args, any, parts, rets);
    if (st == TN_DECLINE && parts) {
        tn_wrapped_watch(1);
        st = tni_run_parts(op, args, rets);
        tn_wrapped_watch(0);
    } else if (st != TN_OK) {
        tni_results_drop(op, rets);
    }
    return st;
}

/* The layer; added when it is first asked for. */
static int32_t layer_id(void) {
    static const tn_layer layer = {.name = "tenon.watch", .priority = 1 << 20, .call = on_watched};
    static _Atomic int32_t known = -1;
    int32_t id = atomic_load_explicit(&known, memory_order_acquire);
    if (id >= 0 ||
        (tn_layer_register(&layer, &id) != TN_OK && tn_layer_find("tenon.watch", &id) != TN_OK))
        return id;
    atomic_store_explicit(&known, id, memory_order_release);
    return id;
}

int tn_wrapped_watch(int on) { return tn_layer_enable(layer_id(), on); }
