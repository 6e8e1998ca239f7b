/* allocator.c: the named interfaces "tn.allocator/1" and "tn.memory/1". Memory that is freed through the
 * first is filled with SIM_FREED as soon as the queues that Tenon has named are done, whatever the
 * others do: a use that was not told is found out. */
#include "sim.h"

static sim_queue *queue_of(sim_device *d, void *stream) { return stream ? stream : &d->main; }

/* A block with more users than there is room for waits for every queue. */
static void add_user(sim_block *b, const sim_queue *q) {
    for (int i = 0; i < b->nusers; i++)
        if (b->users[i] == q) return;
    if (b->nusers < SIM_USERS) b->users[b->nusers] = q;
    b->nusers = b->nusers < SIM_USERS ? b->nusers + 1 : 0;
}

static tn_status allocator_alloc(void *ctx, int32_t index, uint64_t bytes, void *stream,
                                 void **ret_data) {
    sim_device *d = sim_device_at(index);
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    tn_status st = sim_check_lost(d);
    if (st == TN_OK) st = sim_memory_alloc(d, bytes, ret_data);
    sim_block *b = st == TN_OK ? sim_memory_block(d, *ret_data, "made") : NULL;
    if (b) add_user(b, queue_of(d, stream));
    pthread_mutex_unlock(&d->lock);
    return st;
}

static void allocator_free(void *ctx, int32_t index, void *data, uint64_t bytes) {
    sim_device *d = sim_device_at(index);
    (void)ctx, (void)bytes;
    pthread_mutex_lock(&d->lock);
    sim_memory_free(d, data);
    pthread_mutex_unlock(&d->lock);
}

static tn_status allocator_use(void *ctx, int32_t index, void *data, void *stream) {
    sim_device *d = sim_device_at(index);
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    sim_block *b = sim_memory_block(d, data, "used");
    if (b && b->nusers) add_user(b, queue_of(d, stream));
    pthread_mutex_unlock(&d->lock);
    return TN_OK;
}

const tn_allocator_iface sim_allocator_iface = {
    .struct_size = sizeof sim_allocator_iface,
    .alloc = allocator_alloc,
    .free = allocator_free,
    .use = allocator_use,
};

static tn_status memory_stats(void *ctx, int32_t index, tn_memory_stats *ret_stats) {
    sim_device *d = sim_device_at(index);
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    *ret_stats = d->memory.stats;
    ret_stats->total = sim_settings.memory;
    ret_stats->available = sim_settings.memory - d->memory.stats.allocated;
    pthread_mutex_unlock(&d->lock);
    return TN_OK;
}

static tn_status memory_reset_peak(void *ctx, int32_t index) {
    sim_device *d = sim_device_at(index);
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    d->memory.stats.allocated_peak = d->memory.stats.allocated;
    d->memory.stats.reserved_peak = d->memory.stats.reserved;
    pthread_mutex_unlock(&d->lock);
    return TN_OK;
}

static tn_status memory_empty_cache(void *ctx, int32_t index) {
    sim_device *d = sim_device_at(index);
    (void)ctx;
    pthread_mutex_lock(&d->lock);
    sim_memory_reap(d);
    sim_memory_close(d);
    pthread_mutex_unlock(&d->lock);
    return TN_OK;
}

const tn_memory_iface sim_memory_iface = {
    .struct_size = sizeof sim_memory_iface,
    .stats = memory_stats,
    .reset_peak = memory_reset_peak,
    .empty_cache = memory_empty_cache,
};
