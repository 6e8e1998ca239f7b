/* inplace.c: changes in place: what is refused before the call, how history is written after it (Note [Views] in
 * view.c). */
#include "sparse_priv.h"
#include "program_priv.h"
#include "tape_priv.h"

/* ---- Before a change in place ------------------------------------------------------------------*/

static tn_status check_origin(const tn_tensor *view) {
    return view->meta->origin == TNI_VIEW_PLAIN ? TN_OK : tni_refuse_view(view, false);
}

/* True when the call's gradient will read the target as it is now. */
static bool needs_original(const tn_op *op, const void *args) {
    const tn_field *f = &op->fields[op->in_field[0]];
    if (!(f->flags & TNI_FIELD_SAVED)) return false;
    unsigned readers = (unsigned)f->flags >> TNI_FIELD_READERS_SHIFT;
    for (int i = 0; i < op->nin && i < 8; i++) {
        const tn_field *in = &op->fields[op->in_field[i]];
        const void *p = (const char *)args + in->offset;
        if (readers && !(readers >> i & 1u)) continue;
        if (in->kind == TN_F_TENSORS) return true;
        const tn_tensor *t = *(const tn_tensor *const *)p;
        if (t && (in->flags & TNI_FIELD_DIFF) && (t->v.word & TN_W_GRAD)) return true;
    }
    return false;
}

/* Second derivatives go through the copy, so it stands where t stands now. */
tn_status tni_copy_original(tn_tensor *t, tn_tensor **ret_copy) {
    if (t->v.word & TN_W_GRAD) TN_TRY(tni_view_refresh(t));
    tni_grad_off();
    tn_status st = tni_p_record_clone(t, ret_copy);
    if (st == TN_DECLINE)
        st = tni_is_sparse(t) ? tni_sparse_fork(t, ret_copy) : tni_clone_like(t, t, ret_copy);
    tni_grad_on();
    if (st == TN_OK && t->grad_fn) tni_set_grad_fn(*ret_copy, t->grad_fn, t->output_nr);
    return st;
}

static tn_status refuse_view_of_leaf(void) {
    return tn_fail(TN_E_STATE, -1,
                   "a view of a leaf Variable that requires grad is being used in an in-place "
                   "operation.");
}

tn_status tni_check_inplace(const tn_op *op, const void *args, tn_tensor *out) {
    tn_tensor *base = tni_base(out);
    if (!args) { /* not recorded: a write that the base's history would not know of */
        if (!base || !(base->v.word & TN_W_GRAD)) return TN_OK;
        if (!tni_follows_base(out->meta)) return check_origin(out);
        return tn_is_leaf(base) ? refuse_view_of_leaf() : TN_OK;
    }
    tni_agt.original_of = NULL;
    tn_tensor_unref(&tni_agt.original);
    if (base) {
        TN_TRY(check_origin(out));
        if ((base->v.word & TN_W_GRAD) && tn_is_leaf(base)) return refuse_view_of_leaf();
    }
    if ((out->v.word & TN_W_GRAD) && tn_is_leaf(out))
        return tn_fail(
            TN_E_STATE, -1,
            "a leaf Variable that requires grad is being used in an in-place operation.");
    if (TN_UNLIKELY(tni_tls.transform)) TN_TRY(tni_check_captured(op, out));
    if (op->grad && needs_original(op, args)) {
        TN_TRY(tni_copy_original(out, &tni_agt.original));
        tni_agt.original_of = out;
    }
    return TN_OK;
}

/* ---- After it ----------------------------------------------------------------------------------*/

static tn_status slices_new(tn_tensor *view, tn_tensor *base, tn_node *inner, tn_node **ret_node) {
    tn_node *n = tni_node_new(TNI_NODE_SLICES, inner->op, inner->nedges, 1, base->v.ndim,
                              sizeof(tni_slices), 0, 0);
    if (!n) return TN_E_MEMORY;
    tni_slices *s = tni_node_args(n);
    tni_edge *to = tni_node_edges(n), *from = tni_node_edges(inner);
    *s = (tni_slices){NULL, NULL, NULL, 0};
    tni_node_set_out(n, 0, base);
    tn_status st = tni_geometry(base, &s->base);
    if (st == TN_OK) st = tni_geometry(view, &s->view);
    if (st == TN_OK && (base->v.word & TN_W_GRAD)) st = tni_edge_of(base, &to[0]);
    if (st != TN_OK) {
        tni_node_unref(n);
        return st;
    }
    int64_t size = tn_view_itemsize(&view->v);
    s->offset = tn_tensor_storage_offset(view) -
                tn_tensor_storage_offset(base) * tn_view_itemsize(&base->v) / size;
    s->inner = tn_node_ref(inner);
    for (uint32_t i = 1; i < n->nedges; i++) {
        to[i] = from[i];
        from[i].to = 0;
    }
    tni_edge_drop(&from[0]);
    *ret_node = n;
    return TN_OK;
}

tn_status tni_rebase(tn_tensor *t, tn_node *n, uint32_t nr) {
    tn_tensor *base = tni_base(t);
    tn_node *history = n;
    if (!tni_writes_base(t)) {
        TN_TRY(tni_move_cell(t, n, nr));
        tni_set_grad_fn(t, n, nr);
        tn_agmeta *m = tni_meta_seen(t);
        if (m && m->views) tni_meta_mark_views(m);
        return TN_OK;
    }
    TN_TRY(slices_new(t, base, n, &history));
    tn_status st = tni_move_cell(base, history, 0);
    if (st == TN_OK) {
        tni_set_grad_fn(base, history, 0);
        tni_set_grad_fn(t, NULL, 0);
        t->meta->stale = 1;
        tni_meta_mark_views(base->meta);
        if (t->meta->cell) st = tni_view_refresh(t);
    }
    tni_node_unref(history);
    return st;
}
