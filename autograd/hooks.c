/* hooks.c: callbacks on tensors and nodes are registered, gradients of tensors that are no leaves are kept. */
#include <stdlib.h>

#include "os_priv.h"
#include "tape_priv.h"

/* ---- Registration ------------------------------------------------------------------------------*/

tn_status tn_hook_tensor(tn_tensor *t, tn_tensor_hook_fn fn, void *ctx, void (*release)(void *ctx),
                         tn_hook **ret_hook) {
    tn_hook h = {.kind = TNI_HOOK_TENSOR, .fn.tensor = fn, .ctx = ctx, .release = release};
    tn_node *n;
    int64_t nr;
    if (!t || !fn) return tn_fail(TN_E_TYPE, 0, "a hook needs a tensor and a function");
    if (!tn_requires_grad(t))
        return tn_fail(TN_E_STATE, 0,
                       "cannot register a hook on a tensor that doesn't require gradient");
    TN_TRY(tn_grad_fn(t, &n, &nr));
    h.nr = (uint32_t)nr;
    if (n) {
        tni_extra *x = tni_node_extra(n);
        return x ? tni_hook_add(&x->hooks, h, ret_hook) : TN_E_MEMORY;
    }
    tn_agmeta *m = tni_meta(t);
    return m ? tni_hook_add(&m->hooks, h, ret_hook) : TN_E_MEMORY;
}

static tn_status add_to_leaf(tn_tensor *t, tn_hook h, bool given, tn_hook **ret_hook) {
    if (!t || !given) return tn_fail(TN_E_TYPE, 0, "a hook needs a tensor and a function");
    if (!tn_requires_grad(t))
        return tn_fail(TN_E_STATE, 0,
                       "cannot register a hook on a tensor that doesn't require gradient");
    if (!tn_is_leaf(t))
        return tn_fail(TN_E_STATE, 0,
                       "post accumulate grad hooks cannot be registered on non-leaf tensors");
    tn_agmeta *m = tni_meta(t);
    return m ? tni_hook_add(&m->hooks, h, ret_hook) : TN_E_MEMORY;
}

tn_status tn_hook_leaf(tn_tensor *t, tn_leaf_hook_fn fn, void *ctx, void (*release)(void *ctx),
                       tn_hook **ret_hook) {
    tn_hook h = {.kind = TNI_HOOK_LEAF, .fn.leaf = fn, .ctx = ctx, .release = release};
    return add_to_leaf(t, h, fn != NULL, ret_hook);
}

tn_status tn_hook_leaf_pre(tn_tensor *t, tn_pre_hook_fn fn, void *ctx, void (*release)(void *ctx),
                           tn_hook **ret_hook) {
    tn_hook h = {.kind = TNI_HOOK_PRE, .fn.pre = fn, .ctx = ctx, .release = release};
    return add_to_leaf(t, h, fn != NULL, ret_hook);
}

tn_status tn_hook_leaf_post(tn_tensor *t, tn_post_hook_fn fn, void *ctx, void (*release)(void *ctx),
                            tn_hook **ret_hook) {
    tn_hook h = {.kind = TNI_HOOK_POST, .fn.post = fn, .ctx = ctx, .release = release};
    return add_to_leaf(t, h, fn != NULL, ret_hook);
}

tn_status tn_hook_node_pre(tn_node *n, tn_pre_hook_fn fn, void *ctx, void (*release)(void *ctx),
                           tn_hook **ret_hook) {
    tn_hook h = {.kind = TNI_HOOK_PRE, .fn.pre = fn, .ctx = ctx, .release = release};
    if (!n || !fn) return tn_fail(TN_E_TYPE, 0, "a hook needs a node and a function");
    tni_extra *x = tni_node_extra(n);
    return x ? tni_hook_add(&x->hooks, h, ret_hook) : TN_E_MEMORY;
}

tn_status tn_hook_node_post(tn_node *n, tn_post_hook_fn fn, void *ctx, void (*release)(void *ctx),
                            tn_hook **ret_hook) {
    tn_hook h = {.kind = TNI_HOOK_POST, .fn.post = fn, .ctx = ctx, .release = release};
    if (!n || !fn) return tn_fail(TN_E_TYPE, 0, "a hook needs a node and a function");
    tni_extra *x = tni_node_extra(n);
    return x ? tni_hook_add(&x->hooks, h, ret_hook) : TN_E_MEMORY;
}

/* ---- What a tensor keeps alive -----------------------------------------------------------------*/

enum { MAX_REACH = 1 << 14 }; /* nodes; a collector must not take for ever */

typedef struct reach {
    tn_reach_fn fn;
    void *arg;
    const tn_node **left;
    size_t n, room, seen;
} reach;

static void show_hooks(const reach *r, const tn_hook *list) {
    tni_ag_lock();
    for (const tn_hook *h = list; h; h = h->next)
        if (h->release) r->fn(r->arg, h->ctx, h->release);
    tni_ag_unlock();
}

/* Notes n to be looked at, if it has one owner only. */
static void reach_node(reach *r, const tn_node *n) {
    if (!n || r->seen == MAX_REACH) return;
    if (atomic_load_explicit(&n->refs, memory_order_acquire) != 1) return;
    if (r->n == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        const tn_node **grown = realloc(r->left, sizeof *grown * room);
        if (!grown) return;
        r->left = grown;
        r->room = room;
    }
    r->seen++;
    r->left[r->n++] = n;
}

static void show_nodes(reach *r) {
    while (r->n > 0) {
        const tn_node *n = r->left[--r->n];
        const tni_host_data *h = n->kind == TNI_NODE_HOST ? tni_node_args(n) : NULL;
        const tni_slices *s = n->kind == TNI_NODE_SLICES ? tni_node_args(n) : NULL;
        if (h && h->cb.release) r->fn(r->arg, h->cb.ctx, h->cb.release);
        if (s) reach_node(r, s->inner);
        if (n->extra) {
            show_hooks(r, n->extra->hooks);
            if (n->extra->host.release) r->fn(r->arg, n->extra->host.data, n->extra->host.release);
        }
        for (uint32_t i = 0; i < n->nedges; i++)
            reach_node(r, tni_key_node(tni_node_edges(n)[i].to));
    }
    free(r->left);
}

void tn_tensor_reach(const tn_tensor *t, tn_reach_fn fn, void *arg) {
    reach r = {fn, arg, NULL, 0, 0, 0};
    const tn_agmeta *m = tni_meta_seen(t);
    if (m) show_hooks(&r, m->hooks);
    reach_node(&r, t->grad_fn);
    show_nodes(&r);
}

void tn_node_reach(const tn_node *n, tn_reach_fn fn, void *arg) {
    reach r = {fn, arg, NULL, 0, 0, 0};
    reach_node(&r, n);
    show_nodes(&r);
}

/* ---- Kept gradients ----------------------------------------------------------------------------*/

tn_status tn_retain_grad(tn_tensor *t) {
    tn_node *n;
    int64_t nr;
    if (!t || !tn_requires_grad(t))
        return tn_fail(TN_E_STATE, 0, "can't retain_grad on Tensor that has requires_grad=False");
    TN_TRY(tn_grad_fn(t, &n, &nr));
    if (!n) return TN_OK; /* leaves keep theirs anyway */
    tn_agmeta *m = tni_meta(t);
    if (!m) return TN_E_MEMORY;
    if (m->cell) return TN_OK;
    tni_grad_cell *c = calloc(1, sizeof *c);
    if (!c) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    atomic_store_explicit(&c->refs, 1, memory_order_relaxed);
    c->grad = tn_grad_ref(t);
    tn_status st = tni_cell_move(c, NULL, n, (uint32_t)nr);
    if (st != TN_OK) {
        tni_cell_unref(c);
        return st;
    }
    tni_ag_lock();
    tn_tensor *moved = m->grad;
    m->grad = NULL;
    m->cell = c;
    tni_ag_unlock();
    tn_tensor_unref(&moved);
    m->cell_node = tn_node_ref(n);
    return TN_OK;
}

int tn_retains_grad(const tn_tensor *t) {
    const tn_agmeta *m = t ? tni_meta_seen(t) : NULL;
    return m && m->cell;
}
