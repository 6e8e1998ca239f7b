/* group.c: "tn.collectives/1" for groups whose members are all in this process. The queue of the first
 * member computes, between waits for the queues of all members and waits of theirs. */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

enum { MEMBERS = SIM_DEVICES };

typedef struct group {
    int32_t n;
    int32_t devices[MEMBERS];
} group;

typedef enum what { REDUCE, GATHER, SCATTER, BROADCAST } what;

/* What the computing entry needs; its payload. */
typedef struct exchange {
    what kind;
    int32_t n, op, root, dtype;
    int64_t numel; /* of a source */
    unsigned char *src[MEMBERS], *dst[MEMBERS];
    unsigned char result[]; /* what is computed before anything is written */
} exchange;

static tn_status group_unique_id(void *ctx, void *ret_id) {
    (void)ctx, (void)ret_id;
    return sim_host->fail(TN_E_UNSUPPORTED, -1, "%s has no groups across processes",
                          sim_settings.name);
}

static tn_status group_create(void *ctx, int32_t world, int32_t first, int32_t n,
                              const int32_t *devices, const void *id, void **ret_group) {
    (void)ctx, (void)first, (void)id;
    if (world != n || n > MEMBERS) return TN_DECLINE;
    group *g = calloc(1, sizeof *g);
    if (!g) return sim_host->fail(TN_E_MEMORY, -1, "out of memory");
    g->n = n;
    memcpy(g->devices, devices, sizeof *devices * (size_t)n);
    *ret_group = g;
    return TN_OK;
}

static void group_destroy(void *ctx, void *handle) {
    (void)ctx;
    free(handle);
}

/* ---- Computing ---------------------------------------------------------------------------------*/

static double of_floats(const exchange *e, int64_t i, int64_t size) {
    double total = sim_load(e->dtype, e->src[0] + i * size);
    for (int32_t k = 1; k < e->n; k++) {
        double x = sim_load(e->dtype, e->src[k] + i * size);
        if (e->op == TN_COLLECTIVE_PRODUCT) total *= x;
        if (e->op <= TN_COLLECTIVE_AVG) total += x;
        if (e->op == TN_COLLECTIVE_MIN && !(total <= x)) total = x;
        if (e->op == TN_COLLECTIVE_MAX && !(total >= x)) total = x;
    }
    return e->op == TN_COLLECTIVE_AVG ? total / e->n : total;
}

static int64_t of_wholes(const exchange *e, int64_t i, int64_t size) {
    uint64_t total = (uint64_t)sim_load_whole(e->dtype, e->src[0] + i * size);
    for (int32_t k = 1; k < e->n; k++) {
        int64_t x = sim_load_whole(e->dtype, e->src[k] + i * size);
        if (e->op == TN_COLLECTIVE_PRODUCT) total *= (uint64_t)x;
        if (e->op <= TN_COLLECTIVE_AVG) total += (uint64_t)x;
        if (e->op == TN_COLLECTIVE_MIN && x < (int64_t)total) total = (uint64_t)x;
        if (e->op == TN_COLLECTIVE_MAX && x > (int64_t)total) total = (uint64_t)x;
    }
    return e->op == TN_COLLECTIVE_AVG ? (int64_t)total / e->n : (int64_t)total;
}

static void run_exchange(sim_work *w) {
    exchange *e = w->payload;
    int64_t size = sim_itemsize(e->dtype);
    size_t bytes = (size_t)(e->numel * size);
    if (e->kind == REDUCE || e->kind == SCATTER) {
        for (int64_t i = 0; i < e->numel; i++) {
            if (sim_is_float(e->dtype))
                sim_store(e->dtype, e->result + i * size, of_floats(e, i, size));
            else
                sim_store_whole(e->dtype, e->result + i * size, of_wholes(e, i, size));
        }
        size_t part = e->kind == SCATTER ? bytes / (size_t)e->n : bytes;
        for (int32_t k = 0; k < e->n; k++)
            memcpy(e->dst[k], e->result + (e->kind == SCATTER ? (size_t)k * part : 0), part);
        return;
    }
    int32_t first = e->kind == BROADCAST ? e->root : 0;
    int32_t parts = e->kind == BROADCAST ? 1 : e->n;
    for (int32_t k = 0; k < parts; k++)
        memcpy(e->result + (size_t)k * bytes, e->src[first + k], bytes);
    for (int32_t k = 0; k < e->n; k++) memcpy(e->dst[k], e->result, bytes * (size_t)parts);
}

/* ---- Queueing ----------------------------------------------------------------------------------*/

static unsigned char *reach(int32_t index, const tn_view *v) {
    sim_device *d = sim_device_at(index);
    int64_t bytes = v->numel * tn_view_itemsize(v);
    pthread_mutex_lock(&d->lock);
    unsigned char *p = sim_memory_reach(d, v->data, v->byte_offset, 0, bytes, NULL);
    pthread_mutex_unlock(&d->lock);
    return p;
}

static tn_status submit(const group *g, exchange *e, const char *name, void *const *streams) {
    int32_t lead = g->devices[0];
    tn_status st = TN_OK;
    for (int32_t k = 1; k < g->n && st == TN_OK; k++)
        st = sim_let_wait(g->devices[k], streams[k], lead, streams[0]);
    sim_work *w = st == TN_OK ? sim_work_new(sim_device_at(lead), name, run_exchange) : NULL;
    if (!w) {
        free(e);
        return st == TN_OK ? sim_host->fail(TN_E_MEMORY, -1, "out of memory") : st;
    }
    w->payload = e;
    w->counted = true;
    st = sim_submit(w->device, streams[0], w);
    for (int32_t k = 1; k < g->n && st == TN_OK; k++)
        st = sim_let_wait(lead, streams[0], g->devices[k], streams[k]);
    return st;
}

static tn_status start(const group *g, exchange head, const char *name, const tn_view *const *src,
                       tn_view *const *dst, void *const *streams) {
    head.n = g->n;
    head.dtype = tn_view_dtype(src[0]);
    head.numel = src[0]->numel;
    if (head.dtype > TN_F64) return TN_DECLINE; /* complex numbers, dtypes of plugins */
    size_t bytes = (size_t)(head.numel * tn_view_itemsize(src[0]));
    if (head.kind == GATHER) bytes *= (size_t)g->n;
    exchange *e = malloc(sizeof *e + bytes);
    if (!e) return sim_host->fail(TN_E_MEMORY, -1, "out of memory");
    *e = head;
    for (int32_t k = 0; k < g->n; k++) {
        e->src[k] = reach(g->devices[k], src[k]);
        e->dst[k] = e->src[k] ? reach(g->devices[k], dst[k]) : NULL;
        if (e->dst[k]) continue;
        free(e);
        return TN_E_INTERNAL;
    }
    return submit(g, e, name, streams);
}

static tn_status all_reduce(void *ctx, void *g, const tn_view *const *src, tn_view *const *dst,
                            int32_t op, void *const *streams) {
    (void)ctx;
    return start(g, (exchange){.kind = REDUCE, .op = op}, "all_reduce", src, dst, streams);
}

static tn_status all_gather(void *ctx, void *g, const tn_view *const *src, tn_view *const *dst,
                            void *const *streams) {
    (void)ctx;
    return start(g, (exchange){.kind = GATHER}, "all_gather", src, dst, streams);
}

static tn_status reduce_scatter(void *ctx, void *g, const tn_view *const *src, tn_view *const *dst,
                                int32_t op, void *const *streams) {
    (void)ctx;
    return start(g, (exchange){.kind = SCATTER, .op = op}, "reduce_scatter", src, dst, streams);
}

static tn_status broadcast(void *ctx, void *g, const tn_view *const *src, tn_view *const *dst,
                           int32_t root, void *const *streams) {
    (void)ctx;
    return start(g, (exchange){.kind = BROADCAST, .root = root}, "broadcast", src, dst, streams);
}

const tn_collectives_iface sim_collectives_iface = {
    .struct_size = sizeof sim_collectives_iface,
    .unique_id = group_unique_id,
    .create = group_create,
    .destroy = group_destroy,
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .broadcast = broadcast,
};
