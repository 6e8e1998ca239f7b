/* hooks.c: callbacks on tensors and nodes, and the kept gradients of tensors that are no leaves.
 *
 * A hook that is removed while it runs gives its ctx back when it returns. Removed hooks stay in their
 * list until somebody next walks it. */
#include <stdlib.h>

#include "os_priv.h"
#include "tape_priv.h"

static tni_os_mutex lock = TNI_OS_MUTEX_INIT;
void tni_ag_lock(void) { tni_os_lock(&lock); }
void tni_ag_unlock(void) { tni_os_unlock(&lock); }

/* ---- References --------------------------------------------------------------------------------*/

static void give_back(tn_hook *h) {
    void (*release)(void *) = h->release;
    h->release = NULL;
    if (release) release(h->ctx);
}

static void hook_unref(tn_hook *h) {
    if (atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) != 1) return;
    give_back(h);
    free(h);
}

static tn_hook *hook_ref(tn_hook *h) {
    atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
    return h;
}

bool tni_hook_enter(tn_hook *h) {
    tni_ag_lock();
    bool live = !h->removed;
    h->running += live;
    tni_ag_unlock();
    return live;
}

void tni_hook_leave(tn_hook *h) {
    tni_ag_lock();
    bool last = --h->running == 0 && h->removed;
    tni_ag_unlock();
    if (last) give_back(h);
}

void tn_hook_remove(tn_hook **hook) {
    tn_hook *h = hook ? *hook : NULL;
    if (!h) return;
    *hook = NULL;
    tni_ag_lock();
    bool idle = !h->removed && h->running == 0;
    h->removed = 1;
    tni_ag_unlock();
    if (idle) give_back(h);
    hook_unref(h);
}

void tn_hook_forget(tn_hook **hook) {
    tn_hook *h = hook ? *hook : NULL;
    if (!h) return;
    *hook = NULL;
    hook_unref(h);
}

/* What the hooks hang on dies: they are removed, whether or not somebody holds their handles. */
void tni_hooks_free(tn_hook *list) {
    while (list) {
        tn_hook *h = list;
        list = h->next;
        tn_hook_remove(&h);
    }
}

/* ---- Lists -------------------------------------------------------------------------------------*/

/* Appends h; returns the removed hooks that were taken out on the way. */
static tn_hook *append(tn_hook **list, tn_hook *h) {
    tn_hook *gone = NULL;
    while (*list) {
        if ((*list)->removed) {
            tn_hook *r = *list;
            *list = r->next;
            r->next = gone;
            gone = r;
        } else {
            list = &(*list)->next;
        }
    }
    *list = h;
    return gone;
}

static tn_status add(tn_hook **list, tn_hook model, tn_hook **ret_hook) {
    tn_hook *h = malloc(sizeof *h);
    if (!h) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    *h = model;
    atomic_store_explicit(&h->refs, ret_hook ? 2 : 1, memory_order_relaxed);
    tni_ag_lock();
    tn_hook *gone = append(list, h);
    tni_ag_unlock();
    tni_hooks_free(gone);
    if (ret_hook) *ret_hook = h;
    return TN_OK;
}

tn_status tni_hooks_snapshot(tn_hook *const *list, int kind, tn_hook ***ret_hooks, int *ret_n) {
    int n = 0, k = 0;
    *ret_n = 0;
    *ret_hooks = NULL;
    if (!*list) return TN_OK;
    tni_ag_lock();
    for (const tn_hook *h = *list; h; h = h->next) n += h->kind == kind && !h->removed;
    tn_hook **found = n ? calloc((size_t)n, sizeof *found) : NULL;
    for (tn_hook *h = *list; found && h; h = h->next)
        if (h->kind == kind && !h->removed) found[k++] = hook_ref(h);
    tni_ag_unlock();
    if (n && !found) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    *ret_hooks = found;
    *ret_n = k;
    return TN_OK;
}

void tni_hooks_done(tn_hook **hooks, int n) {
    for (int i = 0; i < n; i++) hook_unref(hooks[i]);
    free(hooks);
}

tn_status tni_run_tensor_hooks(tn_hook *const *list, uint32_t nr, tn_tensor **g) {
    tn_hook **hooks;
    int n;
    tn_status st = tni_hooks_snapshot(list, TNI_HOOK_TENSOR, &hooks, &n);
    for (int i = 0; i < n && st == TN_OK; i++) {
        tn_tensor *other = NULL;
        if (hooks[i]->nr != nr || !tni_hook_enter(hooks[i])) continue;
        st = hooks[i]->fn.tensor(hooks[i]->ctx, *g, &other);
        tni_hook_leave(hooks[i]);
        if (!other) continue;
        tn_tensor_unref(g);
        *g = other;
    }
    tni_hooks_done(hooks, n);
    return st;
}

tn_status tni_run_leaf_hooks(tn_hook *const *list, tn_tensor *leaf) {
    tn_hook **hooks;
    int n;
    tn_status st = tni_hooks_snapshot(list, TNI_HOOK_LEAF, &hooks, &n);
    for (int i = 0; i < n && st == TN_OK; i++) {
        if (!tni_hook_enter(hooks[i])) continue;
        st = hooks[i]->fn.leaf(hooks[i]->ctx, leaf);
        tni_hook_leave(hooks[i]);
    }
    tni_hooks_done(hooks, n);
    return st;
}

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
        return x ? add(&x->hooks, h, ret_hook) : TN_E_MEMORY;
    }
    tn_agmeta *m = tni_meta(t);
    return m ? add(&m->hooks, h, ret_hook) : TN_E_MEMORY;
}

tn_status tn_hook_leaf(tn_tensor *t, tn_leaf_hook_fn fn, void *ctx, void (*release)(void *ctx),
                       tn_hook **ret_hook) {
    tn_hook h = {.kind = TNI_HOOK_LEAF, .fn.leaf = fn, .ctx = ctx, .release = release};
    if (!t || !fn) return tn_fail(TN_E_TYPE, 0, "a hook needs a tensor and a function");
    if (!tn_requires_grad(t))
        return tn_fail(TN_E_STATE, 0,
                       "cannot register a hook on a tensor that doesn't require gradient");
    if (!tn_is_leaf(t))
        return tn_fail(TN_E_STATE, 0,
                       "post accumulate grad hooks cannot be registered on non-leaf tensors");
    tn_agmeta *m = tni_meta(t);
    return m ? add(&m->hooks, h, ret_hook) : TN_E_MEMORY;
}

tn_status tn_hook_node_pre(tn_node *n, tn_pre_hook_fn fn, void *ctx, void (*release)(void *ctx),
                           tn_hook **ret_hook) {
    tn_hook h = {.kind = TNI_HOOK_PRE, .fn.pre = fn, .ctx = ctx, .release = release};
    if (!n || !fn) return tn_fail(TN_E_TYPE, 0, "a hook needs a node and a function");
    tni_extra *x = tni_node_extra(n);
    return x ? add(&x->hooks, h, ret_hook) : TN_E_MEMORY;
}

tn_status tn_hook_node_post(tn_node *n, tn_post_hook_fn fn, void *ctx, void (*release)(void *ctx),
                            tn_hook **ret_hook) {
    tn_hook h = {.kind = TNI_HOOK_POST, .fn.post = fn, .ctx = ctx, .release = release};
    if (!n || !fn) return tn_fail(TN_E_TYPE, 0, "a hook needs a node and a function");
    tni_extra *x = tni_node_extra(n);
    return x ? add(&x->hooks, h, ret_hook) : TN_E_MEMORY;
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

void tn_tensor_reach(const tn_tensor *t, tn_reach_fn fn, void *arg) {
    reach r = {fn, arg, NULL, 0, 0, 0};
    const tn_agmeta *m = tni_meta_seen(t);
    if (m) show_hooks(&r, m->hooks);
    reach_node(&r, t->grad_fn);
    while (r.n > 0) {
        const tn_node *n = r.left[--r.n];
        const tni_host_data *h = n->kind == TNI_NODE_HOST ? tni_node_args(n) : NULL;
        const tni_slices *s = n->kind == TNI_NODE_SLICES ? tni_node_args(n) : NULL;
        if (h && h->cb.release) fn(arg, h->cb.ctx, h->cb.release);
        if (s) reach_node(&r, s->inner);
        if (n->extra) {
            show_hooks(&r, n->extra->hooks);
            if (n->extra->host.release) fn(arg, n->extra->host.data, n->extra->host.release);
        }
        for (uint32_t i = 0; i < n->nedges; i++)
            reach_node(&r, tni_key_node(tni_node_edges(n)[i].to));
    }
    free(r.left);
}

/* ---- Kept gradients ----------------------------------------------------------------------------*/

void tni_cell_unref(tni_grad_cell *c) {
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
    tn_tensor_unref(&c->grad);
    free(c);
}

tn_status tni_cell_move(tni_grad_cell *c, tn_node *old, tn_node *n, uint32_t nr) {
    tni_extra *x = tni_node_extra(n);
    if (!x) return TN_E_MEMORY;
    tni_ag_lock();
    if (old && old->extra) {
        tni_grad_cell **p = &old->extra->cells;
        while (*p && *p != c) p = &(*p)->next;
        if (*p) {
            *p = c->next;
            atomic_fetch_sub_explicit(&c->refs, 1, memory_order_relaxed);
        }
    }
    c->nr = nr;
    c->next = x->cells;
    x->cells = c;
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    tni_ag_unlock();
    return TN_OK;
}

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
    tn_status st = tni_cell_move(c, NULL, n, (uint32_t)nr);
    if (st != TN_OK) {
        tni_cell_unref(c);
        return st;
    }
    m->cell = c;
    m->cell_node = tn_node_ref(n);
    return TN_OK;
}

int tn_retains_grad(const tn_tensor *t) {
    const tn_agmeta *m = t ? tni_meta_seen(t) : NULL;
    return m && m->cell;
}
