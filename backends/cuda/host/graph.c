/* graph.c: the named interface "tn.graph/1": what a thread queues on a stream becomes a graph of the
 * driver's, which one call launches. */
#include "cuda_priv.h"

#include <stdlib.h>

/* The random numbers of a graph that come from one generator. */
typedef struct draws {
    struct draws *next;
    tn_generator *gen; /* NULL: the device's default */
    tn_call call;      /* of the kernel that drew first */
    uint64_t blocks;   /* that a launch reserves */
    CUdeviceptr cell;  /* where kernels find them */
} draws;

typedef struct graph {
    CUgraphExec exec;
    CUevent last; /* behind the last launch; the driver runs one launch after the other */
    bool launched;
    draws *draws;
} graph;

/* A stream that nobody has any more, but that is recorded. */
typedef struct parting {
    struct parting *next;
    CUstream stream;
} parting;

/* What the thread records. Core lets it record one graph at a time. */
static _Thread_local struct {
    const void *stream;
    graph *graph;
    parting *partings;
} recording;

/* Other streams join by waiting for an event of one that is recorded, which the driver keeps track of. */
bool cuda_is_recording(const void *stream) {
    CUstreamCaptureStatus status = 0;
    if (!recording.graph || !stream) return false;
    if (stream == recording.stream) return true;
    return cuda.capture_status((CUstream)(uintptr_t)stream, &status) == CUDA_OK &&
           status == CUDA_CAPTURING;
}

bool cuda_graph_keeps(void *stream) {
    parting *p = cuda_is_recording(stream) ? malloc(sizeof *p) : NULL;
    if (!p) return false;
    *p = (parting){recording.partings, stream};
    recording.partings = p;
    return true;
}

static void end_streams(cuda_device *d) {
    while (recording.partings) {
        parting *p = recording.partings;
        recording.partings = p->next;
        cuda_stream_end(d, p->stream);
        free(p);
    }
}

static void graph_free(cuda_device *d, graph *g) {
    if (g->exec) cuda.graph_end(g->exec);
    if (g->last) cuda.event_destroy(g->last);
    while (g->draws) {
        draws *gone = g->draws;
        g->draws = gone->next;
        cuda_memory_release(d, gone->cell);
        free(gone);
    }
    free(g);
}

/* ---- Capturing ---------------------------------------------------------------------------------*/

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
    graph *g = calloc(1, sizeof *g);
    CUresult r = g ? cuda.event_create(&g->last, CUDA_EVENT_UNTIMED) : CUDA_NO_MEMORY;
    if (r == CUDA_OK) r = cuda.capture_begin(stream, CUDA_CAPTURE_RELAXED);
    if (r != CUDA_OK) {
        if (g) graph_free(d, g);
        return cuda_fail(d, r, "beginning to capture a graph");
    }
    recording.stream = stream;
    recording.graph = g;
    atomic_fetch_add(&d->captures, 1);
    return TN_OK;
}

static tn_status end(void *ctx, int32_t index, void *stream, void **ret_graph) {
    cuda_device *d = NULL;
    CUgraph recorded = NULL;
    graph *g = recording.graph;
    (void)ctx;
    recording.stream = NULL;
    recording.graph = NULL;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    CUresult r = cuda.capture_end(stream, &recorded);
    if (r == CUDA_OK && ret_graph) r = cuda.graph_make(&g->exec, recorded, 0);
    if (recorded) cuda.graph_destroy(recorded);
    atomic_fetch_sub(&d->captures, 1);
    end_streams(d);
    cuda_memory_settle(d);
    if (r == CUDA_OK && ret_graph) {
        *ret_graph = g;
        return TN_OK;
    }
    graph_free(d, g);
    if (r == CUDA_UNJOINED && ret_graph)
        return cuda_host->fail(TN_E_STATE, -1,
                               "cuda:%d: a stream has joined the capture, but the captured stream "
                               "does not wait for it: call wait_stream() before the capture ends",
                               index);
    /* One that is given up may be broken. */
    return r == CUDA_OK || !ret_graph ? TN_OK : cuda_fail(d, r, "capturing a graph");
}

static tn_status new_draws(const tn_call *call, tn_generator *gen, draws **ret_draws) {
    cuda_device *d = NULL;
    tn_status st = cuda_enter(call->device_index, &d);
    if (st != TN_OK) return st;
    draws *made = calloc(1, sizeof *made);
    CUresult r = made ? cuda.memory_alloc(&made->cell, sizeof(cuda_draws)) : CUDA_NO_MEMORY;
    if (r != CUDA_OK) {
        free(made);
        return cuda_fail(d, r, "making room for a graph's random state");
    }
    made->gen = gen;
    made->call = *call;
    made->next = recording.graph->draws;
    recording.graph->draws = *ret_draws = made;
    return TN_OK;
}

tn_status cuda_graph_draw(const tn_call *call, tn_generator *gen, uint64_t blocks,
                          cuda_draws *ret_draws, const cuda_draws **ret_launch) {
    draws *of = recording.graph->draws;
    while (of && of->gen != gen) of = of->next;
    tn_status st = of ? TN_OK : new_draws(call, gen, &of);
    if (st != TN_OK) return st;
    *ret_draws = (cuda_draws){0, of->blocks};
    *ret_launch = (const cuda_draws *)(uintptr_t)of->cell;
    of->blocks += blocks;
    return TN_OK;
}

/* ---- Launching ---------------------------------------------------------------------------------*/

/* Reserves what one launch draws from a generator, and tells its kernels. */
static tn_status begin_draws(const draws *of, void *stream) {
    static cuda_kernel kernel = {.module = "graph", .name = "graph_draws"};
    tn_call call = of->call;
    tn_rng rng;
    call.stream = stream;
    tn_status st = cuda_host->rng_acquire(&call, of->gen, of->blocks, &rng);
    if (st != TN_OK) return st;
    cuda_draws_args a = {(cuda_draws *)(uintptr_t)of->cell, {rng.seed, rng.offset}};
    cuda_host->rng_release(&call, of->gen, &rng);
    return cuda_launch(&call, &kernel, 1, 1, &a);
}

static tn_status launch(void *ctx, int32_t index, void *handle, void *stream) {
    cuda_device *d = NULL;
    graph *g = handle;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    /* The kernels of the last launch still read what they draw from. */
    CUresult r = g->draws && g->launched ? cuda.stream_wait(stream, g->last, 0) : CUDA_OK;
    for (const draws *of = g->draws; of && st == TN_OK; of = of->next) st = begin_draws(of, stream);
    if (st != TN_OK) return st;
    cuda_count(d, CUDA_GRAPH_LAUNCHES, 1);
    if (r == CUDA_OK) r = cuda.graph_launch(g->exec, stream);
    if (r == CUDA_OK) r = cuda.event_record(g->last, stream);
    g->launched = true;
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, "launching a graph");
}

static void destroy(void *ctx, int32_t index, void *handle) {
    cuda_device *d = NULL;
    graph *g = handle;
    (void)ctx;
    if (cuda_enter(index, &d) != TN_OK) return;
    cuda_count(d, CUDA_WAITS, 1);
    (void)cuda.event_sync(g->last); /* of a broken device: there is nothing to wait for */
    graph_free(d, g);
}

const tn_graph_iface cuda_graph_iface = {
    .struct_size = sizeof cuda_graph_iface,
    .flags = TN_GRAPH_BRANCHES,
    .begin = begin,
    .end = end,
    .launch = launch,
    .destroy = destroy,
};
