/* view.c: views, and how their history follows that of their base.
 *
 * Note [Views]. A tracked view keeps its root base; its geometry relative to the base is its own shape,
 * strides and offset. Changing a view in place changes the base: the base's history becomes a "slices"
 * node, which runs the gradient of the change on the view's part of the gradient and lets the rest pass.
 * The other views of that base learn of it late: the storage's version has moved since their grad_fn was
 * made, and whoever asks for it next gets one made anew, as_strided of the base as it is now. */
#include <stdio.h>

#include <tenon/args_shape.h>
#include <tenon/ops_shape.h>

#include "tape_priv.h"

/* ---- The relation ------------------------------------------------------------------------------*/

tn_status tni_note_view(const tn_op *op, const void *args, tn_tensor *base, tn_tensor *view) {
    (void)args;
    if (!op->grad) return TN_OK; /* detach and the like: a view of the data, not of the history */
    if ((base->v.word & TN_W_INFERENCE) || (view->v.word & TN_W_LEAFVIEW)) return TN_OK;
    tn_tensor *root = tni_base(base);
    uint32_t origin = root ? base->meta->origin : TNI_VIEW_PLAIN;
    if (tni_tls.no_grad)
        origin = TNI_VIEW_NO_GRAD;
    else if (origin == TNI_VIEW_PLAIN && (op->flags & TNI_OP_LIST_OUT))
        origin = TNI_VIEW_MULTIPLE;
    TN_TRY(tni_meta_link(root ? root : base, view));
    view->meta->origin = origin;
    view->meta->version = tni_memory_version(view);
    return TN_OK;
}

/* Reads as a dtype of the other kind, so that as_strided can do the rest: a complex tensor as pairs of
 * numbers or the reverse. Recorded. */
static tn_status reinterpret(tn_tensor *base, int32_t dtype, tn_tensor **ret_tensor) {
    if (tn_view_dtype(&base->v) == dtype) {
        *ret_tensor = tn_tensor_ref(base);
        return TN_OK;
    }
    return tn_dtype_category(dtype) == TN_CAT_COMPLEX ? tn_view_as_complex(base, ret_tensor)
                                                      : tn_view_as_real(base, ret_tensor);
}

/* Makes t's history a window of `from` with the geometry `like`; offsets are those of their first
 * elements. */
static tn_status record_window(tn_tensor *from, const tn_tensor *like, int64_t own_offset,
                               tn_tensor *t, int64_t offset) {
    static _Atomic(tn_op *) found;
    tn_op *op = atomic_load_explicit(&found, memory_order_acquire);
    if (!op) {
        op = tni_op_find("_as_strided");
        if (!op) return tn_fail(TN_E_INTERNAL, -1, "there is no operator _as_strided");
        atomic_store_explicit(&found, op, memory_order_release);
    }
    tn__as_strided_args args = {
        .input = tni_v(from),
        .size = tn_ints_of(like->v.shape, like->v.ndim),
        .stride = tn_ints_of(like->v.strides, like->v.ndim),
        .offset = offset,
        .own_offset = own_offset,
        .out = tni_v(t),
    };
    return tni_ag.record(op, &args, &t, 1); /* as any call is recorded */
}

/* t holds what leaf holds, and stands for it in a pass that is recorded. */
tn_status tni_stand_for(tn_tensor *leaf, tn_tensor *t) {
    return record_window(leaf, leaf, 0, t, 0);
}

/* A new grad_fn of view t, from its base as it is now. */
static tn_status regenerate(tn_tensor *t, tn_tensor *base) {
    tn_tensor *from;
    uint32_t no_grad = tni_tls.no_grad;
    tni_tls.no_grad = 0;
    tn_status st = reinterpret(base, tn_view_dtype(&t->v), &from);
    if (st == TN_OK) {
        st = record_window(from, t, tn_tensor_storage_offset(from), t, tn_tensor_storage_offset(t));
        tn_tensor_unref(&from);
    }
    tni_tls.no_grad = no_grad;
    return st;
}

tn_status tni_move_cell(tn_tensor *t, tn_node *n, uint32_t nr) {
    tn_agmeta *m = tni_meta_seen(t);
    if (!m || !m->cell || m->cell_node == n) return TN_OK;
    TN_TRY(tni_cell_move(m->cell, m->cell_node, n, nr));
    tn_node *old = m->cell_node;
    m->cell_node = tn_node_ref(n);
    if (old) tni_node_unref(old);
    return TN_OK;
}

tn_status tni_view_refresh(tn_tensor *t) {
    tn_tensor *base = tni_base(t);
    if (!base || t->meta->origin == TNI_VIEW_NO_GRAD || !(base->v.word & TN_W_GRAD)) return TN_OK;
    uint32_t version = tni_memory_version(t);
    if (!(t->v.word & TN_W_GRAD) || (t->meta->version == version && !t->meta->stale)) return TN_OK;
    if (!tni_follows_base(t->meta)) return tni_refuse_view(t, true);
    TN_TRY(regenerate(t, base));
    t->meta->version = version;
    t->meta->stale = 0;
    return tni_move_cell(t, t->grad_fn, t->output_nr);
}

/* ---- What has a history of its own --------------------------------------------------------------*/

static const char *advice(const tn_tensor *view) {
    const tn_node *maker = view->grad_fn;
    bool several = maker && maker->nouts > 1;
    if (view->meta->origin == TNI_VIEW_NO_GRAD)
        return "Given that this use case is ambiguous and error-prone, it is forbidden. You can "
               "clarify your code by moving both the view and the inplace either both inside the "
               "no_grad block (if you don't want the inplace to be tracked) or both outside (if "
               "you want the inplace to be tracked).";
    if (view->meta->origin == TNI_VIEW_MULTIPLE || several)
        return "This view is the output of a function that returns multiple views. Such functions "
               "do not allow the output views to be modified inplace. You should replace the "
               "inplace operation by an out-of-place one.";
    return "This view was created inside a custom Function (or because an input was returned "
           "as-is) and the autograd logic to handle view+inplace would override the custom "
           "backward associated with the custom Function, leading to incorrect gradients. This "
           "behavior is forbidden. You can fix this by cloning the output of the custom Function.";
}

tn_status tni_refuse_view(const tn_tensor *view, bool base) {
    char name[96], of[160] = "A view";
    bool no_grad = view->meta->origin == TNI_VIEW_NO_GRAD || !view->grad_fn;
    if (view->grad_fn)
        snprintf(of, sizeof of, "Output %u of %s is a view%s", (unsigned)view->output_nr,
                 tn_node_short_name(view->grad_fn, name, sizeof name),
                 no_grad ? " of a view which" : "");
    const char *made = no_grad ? " was created in no_grad mode" : "";
    const char *changed = base ? "its base or another view of its base has been" : "is being";
    return tn_fail(TN_E_STATE, -1, "%s%s and %s modified inplace%s. %s", of, made, changed,
                   no_grad ? " with grad mode enabled" : "", advice(view));
}

/* ---- Windows of a changed base ------------------------------------------------------------------*/

tn_status tni_slices_history(tn_node *n, tn_tensor *t) {
    const tni_slices *s = tni_node_args(n);
    tn_tensor *base;
    if ((s->base->v.word ^ t->v.word) & TN_W_DTYPE)
        return tn_fail(
            TN_E_UNSUPPORTED, -1,
            "the second derivative of a change in place is not known where the view reads "
            "the tensor as another dtype");
    TN_TRY(tni_geometry(s->base, &base));
    tni_set_grad_fn(base, n, 0);
    tn_status st = record_window(base, t, 0, t, s->offset);
    tn_tensor_unref(&base);
    return st;
}

/* The part of `whole`, which has the base's geometry, that the view covers. */
tn_status tni_slices_part(const tni_slices *s, tn_tensor *whole, tn_tensor **ret_part) {
    const tn_view *v = &s->view->v;
    if (tni_tls.no_grad)
        return tni_view_new(whole, tn_view_dtype(v), v->ndim, v->shape, v->strides, s->offset,
                            ret_part);
    tn_tensor *from;
    TN_TRY(reinterpret(whole, tn_view_dtype(v), &from));
    tn_status st = tn_as_strided(from, tn_ints_of(v->shape, v->ndim),
                                 tn_ints_of(v->strides, v->ndim), tn_some_int(s->offset), ret_part);
    tn_tensor_unref(&from);
    return st;
}
