/* extra.c: what hangs on a node or a leaf besides arguments: hooks, kept gradients, packed tensors.
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

tn_status tni_hook_add(tn_hook **list, tn_hook model, tn_hook **ret_hook) {
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

bool tni_hooks_any(tn_hook *const *list, int kind) {
    bool any = false;
    tni_ag_lock();
    for (const tn_hook *h = *list; h; h = h->next) any = any || (h->kind == kind && !h->removed);
    tni_ag_unlock();
    return any;
}

void tni_hooks_done(tn_hook **hooks, int n) {
    for (int i = 0; i < n; i++) hook_unref(hooks[i]);
    free(hooks);
}

static tn_status check_kept_dtype(const tn_tensor *was, const tn_tensor *is) {
    int32_t from = tn_view_dtype(&was->v), to = tn_view_dtype(&is->v);
    if (from == to) return TN_OK;
    return tn_fail(TN_E_STATE, -1, "hook has changed the type of value (was %s got %s)",
                   tni_type_text(from), tni_type_text(to));
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
        if (st == TN_OK) st = check_kept_dtype(*g, other);
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

/* ---- Kept gradients -----------------------------------------------------------------------------*/

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

/* ---- Packed tensors -----------------------------------------------------------------------------*/

void tni_hook_set_unref(tni_hook_set *s) {
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
    if (s->cb.release) s->cb.release(s->cb.ctx);
    free(s);
}

void tni_packed_drop(tni_packed_tensor *p) {
    if (!p->hooks) return;
    p->hooks->cb.drop(p->hooks->cb.ctx, p->handle);
    tni_hook_set_unref(p->hooks);
    p->hooks = NULL;
}

/* ---- All of them --------------------------------------------------------------------------------*/

tni_extra *tni_node_extra(tn_node *n) {
    if (n->extra) return n->extra;
    tni_extra *x = calloc(1, sizeof *x);
    if (!x) {
        tn_fail(TN_E_MEMORY, -1, "out of memory");
        return NULL;
    }
    tni_ag_lock();
    tni_extra *have = n->extra;
    if (!have) n->extra = x;
    tni_ag_unlock();
    if (have) free(x);
    return n->extra;
}

void tni_extra_free(tni_extra *x) {
    tni_hooks_free(x->hooks);
    while (x->cells) {
        tni_grad_cell *c = x->cells;
        x->cells = c->next;
        tni_cell_unref(c);
    }
    for (uint32_t i = 0; i < x->npacked; i++) tni_packed_drop(&x->packed[i]);
    free(x->packed);
    tn_free(x->where);
    if (x->host.release) x->host.release(x->host.data);
    free(x);
}
