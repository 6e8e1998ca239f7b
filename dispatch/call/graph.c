/* graph.c: graphs, work that is captured once (capture.c) and replayed often. */
#include "catch_priv.h"
#include "capture_priv.h"
#include "memory_priv.h"

#include <stdlib.h>

tn_status tni_graph_own(tn_graph *g, void (*drop)(void *what), void *what) {
    tni_owned *o = malloc(sizeof *o);
    if (!o) {
        drop(what);
        return tn_fail(TN_E_MEMORY, -1, "out of memory");
    }
    *o = (tni_owned){drop, what, g->owned};
    g->owned = o;
    return TN_OK;
}

static void empty(tn_graph *g) {
    if (g->handle) {
        void *ctx = tni_device_maker(g->device.slot)->desc.ctx;
        g->native->destroy(ctx, g->device.index, g->handle);
        tni_caught_any();
    }
    g->handle = NULL;
    g->steps = NULL;
    g->last = &g->steps;
    g->state = TNI_GRAPH_EMPTY;
    while (g->owned) {
        tni_owned *o = g->owned;
        g->owned = o->next;
        o->drop(o->what);
        free(o);
    }
    tni_graph_memory_end(g->memory);
    g->memory = NULL;
}

tn_status tn_graph_new(tn_graph **ret_graph) {
    if (!ret_graph) return tn_fail(TN_E_TYPE, -1, "graph_new(): the result has no place to go");
    tn_graph *g = calloc(1, sizeof *g);
    if (!g) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    atomic_store_explicit(&g->refs, 1, memory_order_relaxed);
    g->lock = (tni_os_mutex)TNI_OS_MUTEX_INIT;
    g->last = &g->steps;
    *ret_graph = g;
    return TN_OK;
}

tn_graph *tn_graph_ref(tn_graph *g) {
    if (g) atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return g;
}

void tn_graph_unref(tn_graph **graph) {
    tn_graph *g = graph ? *graph : NULL;
    if (!g) return;
    *graph = NULL;
    if (atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) return;
    empty(g);
    free(g);
}

static tn_status check_graph(const tn_graph *g) {
    return g ? TN_OK : tn_fail(TN_E_TYPE, 0, "the graph is NULL");
}

/* A thread that ends while it captures gives the capture up. */
static void give_up(void) {
    tn_graph *g = tn_graph_ref(tni_capture_graph());
    if (g) (void)tn_graph_cancel(g); /* there is nobody to tell */
    tn_graph_unref(&g);
}

tn_status tn_graph_begin(tn_graph *g, tn_device device, tn_stream *stream) {
    TN_TRY(check_graph(g));
    TN_TRY(tni_check_device(device));
    if (tni_tls.watcher)
        return tn_fail(TN_E_STATE, 0, "graph_begin(): the thread is capturing a graph already");
    tni_os_lock(&g->lock);
    tn_status st = TN_OK;
    if (g->state != TNI_GRAPH_EMPTY)
        st = tn_fail(TN_E_STATE, 0, "graph_begin(): the graph has been captured; reset it first");
    if (st == TN_OK) st = tni_capture_begin(g, device, stream);
    if (st == TN_OK) g->state = TNI_GRAPH_CAPTURING;
    tni_os_unlock(&g->lock);
    if (st == TN_OK) tni_os_at_thread_exit(give_up);
    return st;
}

static tn_status end(tn_graph *g, bool keep) {
    TN_TRY(check_graph(g));
    if (tni_capture_graph() != g)
        return tn_fail(TN_E_STATE, 0, "the calling thread does not capture this graph");
    tn_status st = tni_capture_end(keep);
    tni_os_lock(&g->lock);
    if (st != TN_OK || !keep)
        empty(g);
    else
        g->state = TNI_GRAPH_READY;
    tni_os_unlock(&g->lock);
    return st;
}

tn_status tn_graph_end(tn_graph *g) { return end(g, true); }
tn_status tn_graph_cancel(tn_graph *g) { return end(g, false); }

static tn_status replay_native(const tn_graph *g) {
    const tni_device *dev = tni_device_at(g->device.slot);
    tn_status st = tni_caught(
        g->native->launch(dev->desc.ctx, g->device.index, g->handle, tni_stream_of(g->device)));
    return tni_error_of_plugin(st, "graph_replay", dev->name);
}

static tn_status replay(const tn_graph *g) {
    if (g->state != TNI_GRAPH_READY)
        return tn_fail(TN_E_STATE, 0, "graph_replay(): nothing has been captured");
    TN_TRY(tni_device_ready(g->device.slot));
    if (g->native) return replay_native(g);
    for (const tni_graph_step *s = g->steps; s; s = s->next) TN_TRY(s->run(s));
    return TN_OK;
}

tn_status tn_graph_replay(tn_graph *g) {
    TN_TRY(check_graph(g));
    if (tni_tls.watcher)
        return tn_fail(TN_E_STATE, 0, "graph_replay(): the thread is capturing a graph");
    tni_os_lock(&g->lock);
    tn_status st = replay(g);
    tni_os_unlock(&g->lock);
    return st;
}

tn_status tn_graph_reset(tn_graph *g) {
    TN_TRY(check_graph(g));
    tn_status st = TN_OK;
    tni_os_lock(&g->lock);
    if (g->state == TNI_GRAPH_CAPTURING)
        st = tn_fail(TN_E_STATE, 0, "graph_reset(): the graph is being captured");
    else
        empty(g);
    tni_os_unlock(&g->lock);
    return st;
}

tn_status tn_graph_check_read(const tn_tensor *t) {
    if (!t) return tn_fail(TN_E_TYPE, 0, "the tensor is NULL");
    tni_note_read(t);
    return tni_forbid(tn_tensor_device(t), "reading a value", NULL);
}

int tn_graph_is_capturing(void) { return tni_tls.watcher != NULL; }
