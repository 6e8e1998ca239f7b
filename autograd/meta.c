/* meta.c: what autograd keeps with a tensor, and how a base knows its views. */
#include <stdlib.h>

#include "tape_priv.h"

enum { MAX_FREE_METAS = 256 };

/* ---- Memory ------------------------------------------------------------------------------------*/

tn_agmeta *tni_meta(tn_tensor *t) {
    tn_agmeta *m = tni_meta_seen(t), *none = NULL;
    if (TN_LIKELY(m != NULL)) return m;
    m = tni_agt.free_metas;
    if (m) {
        tni_agt.free_metas = m->next_free;
        tni_agt.free_meta_count--;
    } else {
        m = malloc(sizeof *m);
        if (!m) {
            tn_fail(TN_E_MEMORY, -1, "out of memory");
            return NULL;
        }
    }
    memset(m, 0, sizeof *m);
    m->self = t;
    /* two threads may make the first view of one tensor */
    if (!__atomic_compare_exchange_n(&t->meta, &none, m, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        free(m);
        return none;
    }
    return m;
}

static void lock_views(tn_agmeta *m) {
    while (atomic_exchange_explicit(&m->lock, 1, memory_order_acquire)) {
    }
}
static void unlock_views(tn_agmeta *m) { atomic_store_explicit(&m->lock, 0, memory_order_release); }

static void unlink_view(tn_agmeta *m) {
    tn_agmeta *b = m->base->meta;
    lock_views(b);
    *m->link = m->next_view;
    if (m->next_view) m->next_view->link = m->link;
    unlock_views(b);
    tn_tensor_unref(&m->base);
}

void tni_meta_own(tn_tensor *t) {
    tn_agmeta *m = tni_meta_seen(t);
    if (!m || !m->base || atomic_load_explicit(&m->base->refs, memory_order_acquire) != 1) return;
    if (tni_view_refresh(t) != TN_OK) return; /* its history is the base's until then */
    unlink_view(m);
    t->v.word &= ~TN_W_LEAFVIEW;
}

static void let_go(tn_agmeta *m) {
    tn_tensor_unref(&m->grad);
    if (m->cell) tni_cell_unref(m->cell);
    if (m->cell_node) tni_node_unref(m->cell_node);
    tni_hooks_free(m->hooks);
    if (tni_agt.free_meta_count >= MAX_FREE_METAS) {
        free(m);
        return;
    }
    tni_ag_thread_exit_hook();
    m->next_free = tni_agt.free_metas;
    tni_agt.free_metas = m;
    tni_agt.free_meta_count++;
}

/* A gradient may have a gradient, and so on: one after the other, not one within the other. */
void tni_meta_free(tn_agmeta *m) {
    if (m->base) unlink_view(m);
    m->next_free = tni_agt.dying_metas;
    tni_agt.dying_metas = m;
    if (tni_agt.freeing_metas) return;
    tni_agt.freeing_metas = true;
    while (tni_agt.dying_metas) {
        tn_agmeta *d = tni_agt.dying_metas;
        tni_agt.dying_metas = d->next_free;
        let_go(d);
    }
    tni_agt.freeing_metas = false;
}

tn_status tni_meta_link(tn_tensor *base, tn_tensor *view) {
    tn_agmeta *b = tni_meta(base), *m = b ? tni_meta(view) : NULL;
    if (!m) return TN_E_MEMORY;
    m->base = tn_tensor_ref(base);
    lock_views(b);
    m->next_view = b->views;
    m->link = &b->views;
    if (b->views) b->views->link = &m->next_view;
    b->views = m;
    unlock_views(b);
    view->v.word |= TN_W_LEAFVIEW;
    return TN_OK;
}

void tni_meta_mark_views(tn_agmeta *b) {
    lock_views(b);
    for (tn_agmeta *m = b->views; m; m = m->next_view) {
        int32_t category = tn_dtype_category(tn_view_dtype(&m->self->v));
        if (tni_follows_base(m) && category >= TN_CAT_FLOAT) m->self->v.word |= TN_W_GRAD;
    }
    unlock_views(b);
}

void tni_each_alias(tn_tensor *t, void (*fn)(void *ctx, tn_tensor *alias), void *ctx) {
    tn_tensor *base = tni_base(t);
    const tn_storage *storage = t->storage; /* fn may give them another one */
    if (!base) base = t;
    fn(ctx, base);
    tn_agmeta *b = tni_meta_seen(base);
    if (!b) return;
    lock_views(b);
    for (tn_agmeta *m = b->views; m; m = m->next_view)
        if (m->self->storage == storage) fn(ctx, m->self);
    unlock_views(b);
}
