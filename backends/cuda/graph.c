/* graph.c: the named interface "tn.graph/1": what a thread queues on a stream becomes a graph of the
 * driver's, which one call launches. */
#include "cuda_priv.h"

#include <stdlib.h>

typedef struct graph {
    CUgraphExec exec;
    CUevent last; /* behind the last launch; the driver runs one launch after the other */
} graph;

/* The stream that the thread records. Core lets a thread record one graph at a time. */
static _Thread_local const void *recording;

bool cuda_is_recording(const void *stream) { return stream && stream == recording; }

/* Relaxed: the driver then forbids the thread, and others, no more than what would spoil the graph, so
 * that memory may be allocated and kernels be loaded. */
static tn_status begin(void *ctx, int32_t index, void *stream) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    if (!stream)
        return cuda_host->fail(TN_E_STATE, -1,
                               "cuda:%d: the default stream cannot be captured, use another one",
                               index);
    CUresult r = cuda.capture_begin(stream, CUDA_CAPTURE_RELAXED);
    if (r != CUDA_OK) return cuda_fail(d, r, "beginning to capture a graph");
    recording = stream;
    atomic_fetch_add(&d->captures, 1);
    return TN_OK;
}

static void graph_free(graph *g) {
    if (g->exec) cuda.graph_end(g->exec);
    if (g->last) cuda.event_destroy(g->last);
    free(g);
}

static CUresult make_graph(CUgraph recorded, graph *g) {
    CUresult r = cuda.graph_make(&g->exec, recorded, 0);
    return r == CUDA_OK ? cuda.event_create(&g->last, CUDA_EVENT_UNTIMED) : r;
}

static tn_status end(void *ctx, int32_t index, void *stream, void **ret_graph) {
    cuda_device *d = NULL;
    CUgraph recorded = NULL;
    graph *g = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    CUresult r = cuda.capture_end(stream, &recorded);
    recording = NULL;
    atomic_fetch_sub(&d->captures, 1);
    cuda_memory_settle(d);
    if (ret_graph && r == CUDA_OK) {
        g = calloc(1, sizeof *g);
        r = g ? make_graph(recorded, g) : CUDA_NO_MEMORY;
    }
    if (recorded) cuda.graph_destroy(recorded);
    if (r == CUDA_OK && ret_graph) {
        *ret_graph = g;
        return TN_OK;
    }
    if (g) graph_free(g);
    /* One that is given up may be broken. */
    return r == CUDA_OK || !ret_graph ? TN_OK : cuda_fail(d, r, "capturing a graph");
}

static tn_status launch(void *ctx, int32_t index, void *handle, void *stream) {
    cuda_device *d = NULL;
    const graph *g = handle;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    cuda_count(d, CUDA_GRAPH_LAUNCHES, 1);
    CUresult r = cuda.graph_launch(g->exec, stream);
    if (r == CUDA_OK) r = cuda.event_record(g->last, stream);
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, "launching a graph");
}

static void destroy(void *ctx, int32_t index, void *handle) {
    cuda_device *d = NULL;
    graph *g = handle;
    (void)ctx;
    if (cuda_enter(index, &d) != TN_OK) return;
    cuda_count(d, CUDA_WAITS, 1);
    cuda.event_sync(g->last);
    graph_free(g);
}

const tn_graph_iface cuda_graph_iface = {
    .struct_size = sizeof cuda_graph_iface,
    .begin = begin,
    .end = end,
    .launch = launch,
    .destroy = destroy,
};
