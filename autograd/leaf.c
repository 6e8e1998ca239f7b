/* leaf.c: what a program may ask of a tensor and change: whether it requires a gradient, which node made it,
 * its .grad. */
#include "tape_priv.h"

/* ---- Facts -------------------------------------------------------------------------------------*/

int tn_requires_grad(tn_tensor *t) { return t && (t->v.word & TN_W_GRAD) != 0; }

int tn_is_leaf(tn_tensor *t) {
    tn_node *n = NULL;
    int64_t nr;
    if (!t || !(t->v.word & TN_W_GRAD)) return 1;
    if (t->grad_fn) return 0;
    return tn_grad_fn(t, &n, &nr) == TN_OK && !n;
}

tn_status tn_grad_fn(tn_tensor *t, tn_node **ret_node, int64_t *ret_nr) {
    if (!t) return tn_fail(TN_E_TYPE, 0, "the tensor is NULL");
    if (!ret_node || !ret_nr)
        return tn_fail(TN_E_TYPE, -1, "grad_fn(): the result has no place to go");
    if ((t->v.word & TN_W_LEAFVIEW) && (t->v.word & TN_W_GRAD)) TN_TRY(tni_view_refresh(t));
    *ret_node = t->grad_fn;
    *ret_nr = t->output_nr;
    return TN_OK;
}

tn_status tni_edge_of(tn_tensor *t, tni_edge *ret_edge) {
    tni_edge e = {0, 0, 0};
    if (TN_UNLIKELY(t->v.word & TN_W_LEAFVIEW)) TN_TRY(tni_view_refresh(t));
    if (!(t->v.word & TN_W_GRAD)) {
        *ret_edge = e;
        return TN_OK;
    }
    if (t->grad_fn) {
        e.to = (uintptr_t)tn_node_ref(t->grad_fn);
        e.nr = t->output_nr;
    } else {
        e.to = (uintptr_t)tn_tensor_ref(t) | TNI_LEAF;
    }
    *ret_edge = e;
    return TN_OK;
}

tn_tensor *tn_view_base(const tn_tensor *t) { return t ? tni_base(t) : NULL; }

/* ---- Changes -----------------------------------------------------------------------------------*/

tn_status tn_set_requires_grad(tn_tensor *t, int on) {
    if (!t) return tn_fail(TN_E_TYPE, 0, "the tensor is NULL");
    if (t->flags & TNI_T_STACK) return tn_fail(TN_E_TYPE, 0, "a number cannot require a gradient");
    if (on && tn_dtype_category(tn_view_dtype(&t->v)) < TN_CAT_FLOAT)
        return tn_fail(TN_E_STATE, 0,
                       "only Tensors of floating point and complex dtype can require gradients");
    if (!tn_is_leaf(t)) {
        if (on) return TN_OK;
        return tn_fail(TN_E_STATE, 0,
                       "you can only change requires_grad flags of leaf variables. If you want to "
                       "use a computed variable in a subgraph that doesn't require differentiation "
                       "use var_no_grad = var.detach().");
    }
    if (on && (t->v.word & TN_W_INFERENCE) && !tni_tls.inference)
        return tn_fail(TN_E_STATE, 0,
                       "Setting requires_grad=True on inference tensor outside InferenceMode is "
                       "not allowed.");
    if (on)
        t->v.word |= TN_W_GRAD;
    else
        t->v.word &= ~TN_W_GRAD;
    return TN_OK;
}

tn_tensor *tn_grad_get(const tn_tensor *t) {
    tn_agmeta *m = t ? tni_meta_seen(t) : NULL;
    return m ? *tni_grad_place(m) : NULL;
}

tn_tensor *tn_grad_ref(const tn_tensor *t) {
    tn_agmeta *m = t ? tni_meta_seen(t) : NULL;
    if (!m) return NULL;
    tni_ag_lock();
    tn_tensor *grad = tn_tensor_ref(*tni_grad_place(m));
    tni_ag_unlock();
    return grad;
}

static tn_status check_grad(const tn_tensor *t, const tn_tensor *grad) {
    if (grad == t) return tn_fail(TN_E_STATE, 1, "can't assign Variable as its own grad");
    if ((grad->v.word ^ t->v.word) & (TN_W_DEVICE | TN_W_INDEX))
        return tn_fail(
            TN_E_STATE, 1,
            "attempting to assign a gradient on device %s:%d to a tensor on device %s:%d. "
            "Please ensure that the gradient and the tensor are on the same device",
            tn_device_name(tn_view_device(&grad->v)), (int)tn_view_index(&grad->v),
            tn_device_name(tn_view_device(&t->v)), (int)tn_view_index(&t->v));
    if ((grad->v.word ^ t->v.word) & TN_W_DTYPE)
        return tn_fail(
            TN_E_STATE, 1,
            "attempting to assign a gradient with dtype '%s' to a tensor with dtype '%s'. "
            "The gradient must match the tensor's dtype.",
            tn_dtype_name(tn_view_dtype(&grad->v)), tn_dtype_name(tn_view_dtype(&t->v)));
    if (!tni_same_shape(&grad->v, &t->v))
        return tn_fail(
            TN_E_STATE, 1,
            "attempting to assign a gradient of size '%s' to a tensor of size '%s'. Please "
            "ensure that the gradient and the tensor are the same size",
            tni_shape_text_of(&grad->v), tni_shape_text_of(&t->v));
    return TN_OK;
}

tn_status tn_grad_set(tn_tensor *t, tn_tensor *grad) {
    if (!t) return tn_fail(TN_E_TYPE, 0, "the tensor is NULL");
    if (!grad && !tni_meta_seen(t)) return TN_OK;
    if (grad) TN_TRY(check_grad(t, grad));
    tn_agmeta *m = tni_meta(t);
    if (!m) return TN_E_MEMORY;
    tn_tensor **place = tni_grad_place(m);
    tni_ag_lock();
    tn_tensor *old = *place;
    *place = tn_tensor_ref(grad);
    tni_ag_unlock();
    tn_tensor_unref(&old);
    return TN_OK;
}

tn_status tn_data(tn_tensor *t, tn_tensor **ret_tensor) {
    if (!ret_tensor) return tn_fail(TN_E_TYPE, -1, "data(): the result has no place to go");
    tn_tensor *r;
    if (!t || (t->flags & TNI_T_STACK)) return tn_fail(TN_E_TYPE, 0, "data of what is no tensor");
    TN_TRY(tni_detach(t, &r));
    r->flags |= TNI_T_NO_VERSION;
    *ret_tensor = r;
    return TN_OK;
}

tn_status tn_detach_(tn_tensor *t) {
    if (!t) return tn_fail(TN_E_TYPE, 0, "the tensor is NULL");
    if (tni_base(t))
        return tn_fail(TN_E_STATE, 0, "Can't detach views in-place. Use detach() instead.");
    tni_set_grad_fn(t, NULL, 0);
    t->v.word &= ~TN_W_GRAD;
    return TN_OK;
}
