/* graph.c: "tn.graph/1". While a queue records, entries that the recording thread puts into it are
 * kept in a list; a launch puts copies of them into a queue. */
#include "sim.h"

#include <stdlib.h>

struct sim_graph {
    sim_queue *queue; /* being recorded; NULL: done */
    pthread_t thread;
    sim_work *first, **last;
};

static sim_queue *queue_of(sim_device *d, void *stream) { return stream ? stream : &d->main; }

bool sim_graph_takes(const sim_queue *q) {
    return q->recording && pthread_equal(q->recording->thread, pthread_self());
}

tn_status sim_graph_add(sim_queue *q, sim_work *w) {
    sim_graph *g = q->recording;
    if (w->always) {
        sim_work_free(w);
        return sim_host->fail(TN_E_STATE, -1, "a graph cannot hold events");
    }
    *g->last = w;
    g->last = &w->next;
    return TN_OK;
}

static void graph_free(sim_graph *g) {
    while (g->first) {
        sim_work *w = g->first;
        g->first = w->next;
        sim_work_free(w);
    }
    free(g);
}

static tn_status graph_begin(void *ctx, int32_t index, void *stream) {
    sim_device *d = sim_device_at(index);
    sim_queue *q = queue_of(d, stream);
    sim_graph *g = calloc(1, sizeof *g);
    (void)ctx;
    if (!g) return sim_host->fail(TN_E_MEMORY, -1, "out of memory");
    g->thread = pthread_self();
    g->last = &g->first;
    pthread_mutex_lock(&d->lock);
    tn_status st = sim_check_lost(d);
    if (st == TN_OK && q->recording)
        st = sim_host->fail(TN_E_STATE, -1, "the stream is being recorded already");
    if (st == TN_OK) q->recording = g;
    pthread_mutex_unlock(&d->lock);
    if (st != TN_OK) free(g);
    return st;
}

static tn_status graph_end(void *ctx, int32_t index, void *stream, void **ret_graph) {
    sim_device *d = sim_device_at(index);
    sim_queue *q = queue_of(d, stream);
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    sim_graph *g = q->recording;
    q->recording = NULL;
    pthread_mutex_unlock(&d->lock);
    if (!g) return sim_host->fail(TN_E_STATE, -1, "the stream is not being recorded");
    if (ret_graph)
        *ret_graph = g;
    else
        graph_free(g);
    return TN_OK;
}

/* A copy of an entry, for one launch. What it points to stays the graph's. */
static sim_work *copy_work(const sim_work *w) {
    sim_work *copy = malloc(sizeof *copy);
    if (!copy) return NULL;
    *copy = *w;
    copy->next = NULL;
    copy->payload = NULL;
    for (int32_t k = 0; k < w->plan.noperands; k++)
        if (w->plan.scalar_mask >> k & 1u) copy->plan.data[k] = copy->scalar[k];
    return copy;
}

static tn_status graph_launch(void *ctx, int32_t index, void *graph, void *stream) {
    sim_device *d = sim_device_at(index);
    const sim_graph *g = graph;
    tn_status st = TN_OK;
    (void)ctx;
    for (const sim_work *w = g->first; w && st == TN_OK; w = w->next) {
        sim_work *copy = copy_work(w);
        if (!copy) return sim_host->fail(TN_E_MEMORY, -1, "out of memory");
        st = sim_submit(d, stream, copy);
    }
    return st;
}

static void graph_destroy(void *ctx, int32_t index, void *graph) {
    (void)ctx;
    sim_settle(sim_device_at(index));
    graph_free(graph);
}

const tn_graph_iface sim_graph_iface = {
    .struct_size = sizeof sim_graph_iface,
    .begin = graph_begin,
    .end = graph_end,
    .launch = graph_launch,
    .destroy = graph_destroy,
};
