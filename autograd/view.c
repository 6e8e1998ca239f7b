/* view.c: views and changes in place.
 *
 * Note [Views]. A tracked view keeps its root base; its geometry relative to the base is its own shape,
 * strides and offset. Changing a view in place changes the base: the base's history becomes a "slices"
 * node, which runs the gradient of the change on the view's part of the gradient and lets the rest pass.
 * The other views of that base learn of it late: the storage's version has moved since their grad_fn was
 * made, and whoever asks for it next gets one made anew, as_strided of the base as it is now. */
#include <stdlib.h>

#include <tenon/args_shape.h>
#include <tenon/ops_create.h>
#include <tenon/ops_shape.h>

#include "sparse_priv.h"
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
    view->meta->version = tn_tensor_version(view);
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
    return tni_record(op, &args, &t, 1);
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

tn_status tni_view_refresh(tn_tensor *t) {
    tn_tensor *base = tni_base(t);
    if (!base || t->meta->origin == TNI_VIEW_NO_GRAD || !(base->v.word & TN_W_GRAD)) return TN_OK;
    uint32_t version = tn_tensor_version(t);
    if (!(t->v.word & TN_W_GRAD) || (t->meta->version == version && !t->meta->stale)) return TN_OK;
    TN_TRY(regenerate(t, base));
    t->meta->version = version;
    t->meta->stale = 0;
    return TN_OK;
}

/* ---- Before a change in place ------------------------------------------------------------------*/

static tn_status check_origin(tn_tensor *view) {
    char name[96] = "a function";
    if (view->meta->origin == TNI_VIEW_NO_GRAD)
        return tn_fail(
            TN_E_STATE, -1,
            "A view was created in no_grad mode and is being modified inplace with grad "
            "mode enabled. Given that this use case is ambiguous and error-prone, it is "
            "forbidden. You can clarify your code by moving both the view and the inplace "
            "either both inside the no_grad block (if you don't want the inplace to be "
            "tracked) or both outside (if you want the inplace to be tracked).");
    if (view->meta->origin == TNI_VIEW_MULTIPLE) {
        tn_node_short_name(view->grad_fn, name,
                           sizeof name); /* leaves it alone where there is none */
        return tn_fail(TN_E_STATE, -1,
                       "Output %u of %s is a view and is being modified inplace. This view is the "
                       "output of a function that returns multiple views. Such functions do not "
                       "allow the output views to be modified inplace. You should replace the "
                       "inplace operation by an out-of-place one.",
                       (unsigned)view->output_nr, name);
    }
    return TN_OK;
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
    tn_status st = tni_is_sparse(t) ? tni_sparse_fork(t, ret_copy) : tni_clone_like(t, t, ret_copy);
    tni_grad_on();
    if (st == TN_OK && t->grad_fn) tni_set_grad_fn(*ret_copy, t->grad_fn, t->output_nr);
    return st;
}

tn_status tni_check_inplace(const tn_op *op, const void *args, tn_tensor *out) {
    tn_tensor *base = tni_base(out);
    tni_agt.original_of = NULL;
    tn_tensor_unref(&tni_agt.original);
    if (base) {
        TN_TRY(check_origin(out));
        if ((out->v.word & TN_W_GRAD) && tn_is_leaf(base) && (base->v.word & TN_W_GRAD))
            return tn_fail(TN_E_STATE, -1,
                           "a view of a leaf Variable that requires grad is being used in an "
                           "in-place operation.");
    }
    if ((out->v.word & TN_W_GRAD) && tn_is_leaf(out))
        return tn_fail(
            TN_E_STATE, -1,
            "a leaf Variable that requires grad is being used in an in-place operation.");
    if (op->grad && needs_original(op, args)) {
        TN_TRY(tni_copy_original(out, &tni_agt.original));
        tni_agt.original_of = out;
    }
    return TN_OK;
}

/* ---- After it ----------------------------------------------------------------------------------*/

static tn_status move_cell(tn_tensor *t, tn_node *n, uint32_t nr) {
    tn_agmeta *m = tni_meta_seen(t);
    if (!m || !m->cell) return TN_OK;
    TN_TRY(tni_cell_move(m->cell, m->cell_node, n, nr));
    tn_node *old = m->cell_node;
    m->cell_node = tn_node_ref(n);
    if (old) tni_node_unref(old);
    return TN_OK;
}

static tn_status geometry(const tn_tensor *t, tn_tensor **ret_tensor) {
    return tni_header_new(tn_view_dtype(&t->v), tn_tensor_device(t), t->v.ndim, t->v.shape,
                          t->v.strides, ret_tensor);
}

static tn_status slices_new(tn_tensor *view, tn_tensor *base, tn_node *inner, tn_node **ret_node) {
    tn_node *n = tni_node_new(TNI_NODE_SLICES, inner->op, inner->nedges, 1, base->v.ndim,
                              sizeof(tni_slices), 0, 0);
    if (!n) return TN_E_MEMORY;
    tni_slices *s = tni_node_args(n);
    tni_edge *to = tni_node_edges(n), *from = tni_node_edges(inner);
    *s = (tni_slices){NULL, NULL, NULL, 0};
    tni_node_set_out(n, 0, base);
    tn_status st = geometry(base, &s->base);
    if (st == TN_OK) st = geometry(view, &s->view);
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
        TN_TRY(move_cell(t, n, nr));
        tni_set_grad_fn(t, n, nr);
        tn_agmeta *m = tni_meta_seen(t);
        if (m && m->views) tni_meta_mark_views(m);
        return TN_OK;
    }
    TN_TRY(slices_new(t, base, n, &history));
    tn_status st = move_cell(base, history, 0);
    if (st == TN_OK) {
        tni_set_grad_fn(base, history, 0);
        tni_set_grad_fn(t, NULL, 0);
        t->meta->stale = 1;
        tni_meta_mark_views(base->meta);
        if (t->meta->cell) st = tni_view_refresh(t);
        if (st == TN_OK && t->grad_fn) st = move_cell(t, t->grad_fn, t->output_nr);
    }
    tni_node_unref(history);
    return st;
}

tn_status tni_slices_history(tn_node *n, tn_tensor *t) {
    const tni_slices *s = tni_node_args(n);
    tn_tensor *base;
    if ((s->base->v.word ^ t->v.word) & TN_W_DTYPE)
        return tn_fail(
            TN_E_UNSUPPORTED, -1,
            "the second derivative of a change in place is not known where the view reads "
            "the tensor as another dtype");
    TN_TRY(geometry(s->base, &base));
    tni_set_grad_fn(base, n, 0);
    tn_status st = record_window(base, t, 0, t, s->offset);
    tn_tensor_unref(&base);
    return st;
}

/* ---- Backward of a change through a view -------------------------------------------------------*/

/* The part of `whole`, which has the base's geometry, that the view covers. */
static tn_status part(const tni_slices *s, tn_tensor *whole, tn_tensor **ret_part) {
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

/* dst's elements become src's, or zero; recorded when recording is on. */
static tn_status overwrite(tn_tensor *dst, tn_tensor *src) {
    tn_tensor *same = NULL;
    tn_status st = src ? tn_copy_(dst, src, 0, &same) : tn_zero_(dst, &same);
    tn_tensor_unref(&same);
    return st;
}

tn_status tni_slices_apply(tn_node *n, tn_tensor *g, uint64_t needs, tn_tensor **ret) {
    const tni_slices *s = tni_node_args(n);
    tn_tensor *whole = NULL, *window = NULL, *mine = NULL;
    tn_tensor **inner = calloc(n->nedges ? n->nedges : 1, sizeof *inner);
    if (!inner) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    const tni_out *o = tni_node_out(s->inner, 0);
    tn_status st;
    if ((st = tni_clone_like(g, s->base, &whole))) goto out;
    if ((st = part(s, whole, &window))) goto out;
    if ((st = tni_clone_like(window, window, &mine))) goto out;
    if (s->inner->kind == TNI_NODE_HOST)
        st = tni_node_apply(s->inner, &mine, needs, inner);
    else
        st = tni_op_apply(s->inner, n, &mine, needs, inner);
    if (st) goto out;
    if (needs & 1u) {
        if (inner[0] && (st = tni_fit(&inner[0], o->word, o->ndim, o->shape, n, 0))) goto out;
        if ((st = overwrite(window, inner[0]))) goto out;
        ret[0] = whole;
        whole = NULL;
    }
    for (uint32_t i = 1; i < n->nedges; i++) {
        ret[i] = inner[i];
        inner[i] = NULL;
    }
out:
    tn_tensor_unref(&whole);
    tn_tensor_unref(&window);
    tn_tensor_unref(&mine);
    for (uint32_t i = 0; i < n->nedges; i++) tn_tensor_unref(&inner[i]);
    free(inner);
    return st;
}
