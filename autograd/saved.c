/* saved.c: tensors kept for backward outside of argument structs, version checks, and the hooks that
 * may pack what is saved. */
#include <stdio.h>
#include <stdlib.h>

#include "tape_priv.h"

/* ---- Versions ----------------------------------------------------------------------------------*/

tn_status tni_check_version(const tn_tensor *t, uint32_t version, const tn_node *maker,
                            uint32_t nr) {
    char name[96], of[160] = "";
    uint32_t now = tn_tensor_version(t);
    if (TN_LIKELY(now == version)) return TN_OK;
    if (maker)
        snprintf(of, sizeof of, ", which is output %u of %s,", (unsigned)nr,
                 tn_node_short_name(maker, name, sizeof name));
    return tn_fail(
        TN_E_STATE, -1,
        "one of the variables needed for gradient computation has been modified by an "
        "inplace operation: [torch.%sTensor %s]%s is at version %u; expected version %u "
        "instead. Hint: %s",
        tni_type_text(tn_view_dtype(&t->v)), tni_shape_text_of(&t->v), of, (unsigned)now,
        (unsigned)version,
        tni_agt.detect_anomaly
            ? "the operation named below failed to compute its gradient. The variable in "
              "question was changed in there or anywhere later."
            : "enable anomaly detection to find the operation that failed to compute its "
              "gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False).");
}

/* ---- Hooks -------------------------------------------------------------------------------------*/

tn_status tn_saved_hooks_push(const tn_saved_hooks *hooks) {
    if (!hooks || !hooks->pack || !hooks->unpack || !hooks->drop)
        return tn_fail(TN_E_VALUE, 0, "hooks of saved tensors need pack, unpack and drop");
    tni_hook_set *s = malloc(sizeof *s);
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    s->cb = *hooks;
    s->below = tni_agt.saved_hooks;
    tni_agt.saved_hooks = s;
    tni_agt.saved_depth++;
    return TN_OK;
}

void tn_saved_hooks_pop(void) {
    tni_hook_set *s = tni_agt.saved_hooks;
    if (!s) return;
    tni_agt.saved_hooks = s->below;
    tni_agt.saved_depth--;
    if (tni_agt.saved_floor > tni_agt.saved_depth) tni_agt.saved_floor = tni_agt.saved_depth;
    tni_hook_set_unref(s);
}

void tni_saved_hooks_unwind(void) {
    while (tni_agt.saved_depth > tni_agt.saved_floor) tn_saved_hooks_pop();
}

/* What pack itself computes is not packed again, and not recorded. */
static tn_status call_pack(tni_hook_set *s, tn_tensor *t, void **ret_handle) {
    tni_hook_set *active = tni_agt.saved_hooks;
    uint32_t depth = tni_agt.saved_depth, floor = tni_agt.saved_floor;
    tni_agt.saved_hooks = NULL;
    tni_agt.saved_depth = tni_agt.saved_floor = 0;
    tni_grad_off();
    tn_status st = s->cb.pack(s->cb.ctx, t, ret_handle);
    tni_grad_on();
    tni_saved_hooks_unwind();
    tni_agt.saved_hooks = active;
    tni_agt.saved_depth = depth;
    tni_agt.saved_floor = floor;
    return st;
}

tn_status tni_pack(tn_node *n, tni_hook_set *hooks, tn_tensor *t, uint32_t slot) {
    tni_extra *x = tni_node_extra(n);
    tni_packed_tensor p = {hooks, NULL, slot, tn_tensor_version(t), tni_packed_layout(t)};
    if (!x) return TN_E_MEMORY;
    if (x->npacked == x->packed_room) {
        uint32_t room = x->packed_room ? 2 * x->packed_room : 4;
        tni_packed_tensor *grown = realloc(x->packed, sizeof *grown * room);
        if (!grown) return tn_fail(TN_E_MEMORY, -1, "out of memory");
        x->packed = grown;
        x->packed_room = room;
    }
    TN_TRY(call_pack(hooks, t, &p.handle));
    atomic_fetch_add_explicit(&hooks->refs, 1, memory_order_relaxed);
    x->packed[x->npacked++] = p;
    return TN_OK;
}

tn_status tni_unpack(const tni_packed_tensor *p, tn_tensor **ret_tensor) {
    tn_tensor *t = NULL;
    TN_TRY(p->hooks->cb.unpack(p->hooks->cb.ctx, p->handle, &t));
    if (!t) return tn_fail(TN_E_TYPE, -1, "the unpack hook of a saved tensor returned no tensor");
    *ret_tensor = t;
    return TN_OK;
}

tn_status tni_unpacked_history(tni_edge e, tn_tensor **t) {
    tn_tensor *alias, *leaf = tni_key_leaf(e.to);
    if (!e.to || tni_tls.no_grad || ((*t)->v.word & TN_W_GRAD)) return TN_OK;
    TN_TRY(tni_detach(*t, &alias));
    tn_status st = TN_OK;
    if (leaf)
        st = tni_stand_for(leaf, alias);
    else
        tni_set_grad_fn(alias, tni_key_node(e.to), e.nr);
    tn_tensor_unref(st == TN_OK ? t : &alias);
    if (st == TN_OK) *t = alias;
    return st;
}

/* ---- Tensors that host functions keep ----------------------------------------------------------*/

struct tn_saved {
    tn_tensor *t;             /* NULL when packed */
    tni_packed_tensor packed; /* hooks NULL: not packed */
    uint32_t version, nr;
    bool is_output; /* of the owner: t is an alias without history */
    tni_edge edge;  /* owned; of a packed tensor that is no output: its history */
};

tn_status tn_saved_new(tn_tensor *t, tn_node *owner, tn_saved **ret_saved) {
    if (!t) return tn_fail(TN_E_TYPE, 0, "the tensor is NULL");
    tn_saved *s = calloc(1, sizeof *s);
    if (!s) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    tni_hook_set *hooks = tni_agt.saved_hooks;
    tn_status st = TN_OK;
    s->version = tn_tensor_version(t);
    s->is_output = owner && t->grad_fn == owner;
    s->nr = t->output_nr;
    if (s->is_output)
        st = tni_detach(t, &s->t);
    else
        s->t = tn_tensor_ref(t);
    bool recorded = hooks && !s->is_output && tn_requires_grad(t);
    if (st == TN_OK && recorded) st = tni_edge_of(t, &s->edge);
    if (st == TN_OK && hooks) {
        st = call_pack(hooks, s->t, &s->packed.handle);
        if (st == TN_OK) {
            atomic_fetch_add_explicit(&hooks->refs, 1, memory_order_relaxed);
            s->packed.hooks = hooks;
            tn_tensor_unref(&s->t);
        }
    }
    if (st != TN_OK) {
        tn_saved_free(&s);
        return st;
    }
    *ret_saved = s;
    return TN_OK;
}

tn_status tn_saved_unpack(tn_saved *s, tn_node *owner, tn_tensor **ret_tensor) {
    tn_tensor *t = NULL;
    if (!s) return tn_fail(TN_E_TYPE, 0, "the saved tensor is NULL");
    if (s->packed.hooks) {
        TN_TRY(tni_unpack(&s->packed, &t));
        tn_status st = tni_unpacked_history(s->edge, &t);
        if (st != TN_OK) {
            tn_tensor_unref(&t);
            return st;
        }
    } else {
        TN_TRY(tni_check_version(s->t, s->version, s->is_output ? owner : s->t->grad_fn, s->nr));
        t = tn_tensor_ref(s->t);
    }
    if (s->is_output && owner) {
        tn_tensor *alias;
        tn_status st = tni_detach(t, &alias);
        tn_tensor_unref(&t);
        TN_TRY(st);
        tni_set_grad_fn(alias, owner, s->nr);
        t = alias;
    }
    *ret_tensor = t;
    return TN_OK;
}

void tn_saved_free(tn_saved **s) {
    tn_saved *x = s ? *s : NULL;
    if (!x) return;
    *s = NULL;
    tn_tensor_unref(&x->t);
    tni_edge_drop(&x->edge);
    tni_packed_drop(&x->packed);
    free(x);
}
