/* pinned.c: the named interface "tn.pinned/1": host memory that queued copies read and write when
 * their turn comes. The blocks are known, so that a copy whose host memory is gone by then fails
 * instead of touching it. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

typedef struct host_block {
    unsigned char *data;
    uint64_t bytes;
    struct host_block *next;
} host_block;

/* One lock for the blocks of all devices; held while a copy runs. */
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static host_block *blocks;

static tn_status no_memory(void) { return sim_host->fail(TN_E_MEMORY, -1, "out of memory"); }

static tn_status pinned_alloc(void *ctx, uint64_t bytes, void **ret_data) {
    host_block *b = calloc(1, sizeof *b);
    void *data = NULL;
    (void)ctx;
    if (!b || posix_memalign(&data, PAGE, bytes) != 0) {
        free(b);
        return no_memory();
    }
    memset(data, SIM_FRESH, bytes);
    b->data = data;
    b->bytes = bytes;
    pthread_mutex_lock(&blocks_lock);
    b->next = blocks;
    blocks = b;
    pthread_mutex_unlock(&blocks_lock);
    *ret_data = data;
    return TN_OK;
}

static void pinned_free(void *ctx, void *data, uint64_t bytes) {
    (void)ctx, (void)bytes;
    pthread_mutex_lock(&blocks_lock);
    for (host_block **at = &blocks; *at; at = &(*at)->next) {
        host_block *b = *at;
        if (b->data != data) continue;
        *at = b->next;
        free(b->data);
        free(b);
        break;
    }
    pthread_mutex_unlock(&blocks_lock);
}

/* ---- Copies ------------------------------------------------------------------------------------*/

/* Lock held. */
static bool is_pinned(const unsigned char *data, uint64_t bytes) {
    for (const host_block *b = blocks; b; b = b->next) {
        uint64_t at = (uint64_t)((uintptr_t)data - (uintptr_t)b->data); /* huge for what is below */
        if (at <= b->bytes && bytes <= b->bytes - at) return true;
    }
    return false;
}

static void copy(sim_work *w, const unsigned char *host) {
    pthread_mutex_lock(&blocks_lock);
    if (is_pinned(host, w->bytes))
        memcpy(w->dst, w->src, w->bytes);
    else
        sim_work_fail(w, "%s: the host's memory is not pinned, or was freed before", w->op);
    pthread_mutex_unlock(&blocks_lock);
}

static void run_in(sim_work *w) { copy(w, w->src); }
static void run_out(sim_work *w) { copy(w, w->dst); }

static tn_status queue_copy(sim_work *w, unsigned char *dst, const unsigned char *src,
                            uint64_t bytes, void *stream) {
    if (!w) return no_memory();
    w->dst = dst;
    w->src = src;
    w->bytes = bytes;
    w->counted = true;
    return sim_submit(w->device, stream, w);
}

static tn_status pinned_copy_in(void *ctx, int32_t index, void *dst, uint64_t dst_offset,
                                const void *src, uint64_t bytes, void *stream) {
    sim_device *d = sim_device_at(index);
    unsigned char *to = sim_reach(d, dst, dst_offset, bytes);
    (void)ctx;
    if (!to) return TN_E_INTERNAL;
    return queue_copy(sim_work_new(d, "copy_pinned_in", run_in), to, src, bytes, stream);
}

static tn_status pinned_copy_out(void *ctx, int32_t index, void *dst, const void *src,
                                 uint64_t src_offset, uint64_t bytes, void *stream) {
    sim_device *d = sim_device_at(index);
    const unsigned char *from = sim_reach(d, src, src_offset, bytes);
    (void)ctx;
    if (!from) return TN_E_INTERNAL;
    return queue_copy(sim_work_new(d, "copy_pinned_out", run_out), dst, from, bytes, stream);
}

const tn_pinned_iface sim_pinned_iface = {
    .struct_size = sizeof sim_pinned_iface,
    .alloc = pinned_alloc,
    .free = pinned_free,
    .copy_in = pinned_copy_in,
    .copy_out = pinned_copy_out,
};
