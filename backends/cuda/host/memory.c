/* memory.c: the named interfaces "tn.allocator/1" and "tn.memory/1": memory that is kept for reuse.
 *
 * Each stream has a pool for small blocks and one for large ones. A block is cut off the smallest free
 * one that is large enough, and merges with free neighbours when it comes back, at once for work on
 * its own stream. Where other streams have used it, an event in each of them has to come up first. */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 512 }; /* bytes of a block, and what sizes are rounded to */
static const uint64_t small_most = UINT64_C(1) << 20;
static const uint64_t most = UINT64_C(1) << 62;

static cuda_memory memories[CUDA_DEVICES];

/* ---- Blocks ------------------------------------------------------------------------------------*/

cuda_block *cuda_block_insert(cuda_segment *s, cuda_block *after, CUdeviceptr data, uint64_t bytes,
                              cuda_block_state state) {
    cuda_block *b = malloc(sizeof *b); /* calloc would go around the C library's cache */
    if (!b) return NULL;
    cuda_block *next = after ? after->next : s->first;
    *b = (cuda_block){
        .segment = s, .prev = after, .next = next, .data = data, .bytes = bytes, .state = state};
    if (next) next->prev = b;
    if (after)
        after->next = b;
    else
        s->first = b;
    return b;
}

void cuda_block_remove(cuda_block *b) {
    if (b->next) b->next->prev = b->prev;
    if (b->prev)
        b->prev->next = b->next;
    else
        b->segment->first = b->next;
    free(b);
}

/* The bin of blocks of about that size: the power of two and two bits more. */
static int bin_of(uint64_t bytes) {
    int power = 63 - __builtin_clzll(bytes);
    return power * 4 + (int)(bytes >> (power - 2) & 3);
}

void cuda_block_take(cuda_block *b) {
    cuda_pool *p = b->segment->pool;
    int bin = bin_of(b->bytes);
    if (b->next_free) b->next_free->prev_free = b->prev_free;
    if (b->prev_free)
        b->prev_free->next_free = b->next_free;
    else
        p->bins[bin] = b->next_free;
    if (!p->bins[bin]) p->filled[bin / 64] &= ~(UINT64_C(1) << bin % 64);
    b->prev_free = b->next_free = NULL;
}

static void put(cuda_block *b) {
    cuda_pool *p = b->segment->pool;
    int bin = bin_of(b->bytes);
    b->state = CUDA_BLOCK_FREE;
    b->prev_free = NULL;
    b->next_free = p->bins[bin];
    if (b->next_free) b->next_free->prev_free = b;
    p->bins[bin] = b;
    p->filled[bin / 64] |= UINT64_C(1) << bin % 64;
}

/* Adds the free block behind to this one. */
static void absorb(cuda_block *b, cuda_block *next) {
    cuda_block_take(next);
    b->bytes += next->bytes;
    cuda_block_remove(next);
}

cuda_block *cuda_block_keep(cuda_block *b) {
    cuda_block *prev = b->prev;
    if (b->next && b->next->state == CUDA_BLOCK_FREE) absorb(b, b->next);
    if (prev && prev->state == CUDA_BLOCK_FREE) {
        cuda_block_take(prev);
        prev->bytes += b->bytes;
        cuda_block_remove(b);
        b = prev;
    }
    put(b);
    return b;
}

/* The smallest of a bin that is large enough. */
static cuda_block *smallest(cuda_block *b, uint64_t bytes) {
    cuda_block *best = NULL;
    for (; b; b = b->next_free)
        if (b->bytes >= bytes && (!best || b->bytes < best->bytes)) best = b;
    return best;
}

/* The first bin from `bin` on that holds something, or CUDA_BINS. */
static int next_filled(const cuda_pool *p, int bin) {
    for (int word = bin / 64; word < CUDA_BINS / 64; word++) {
        uint64_t bits = p->filled[word];
        if (word == bin / 64) bits &= ~UINT64_C(0) << bin % 64;
        if (bits) return word * 64 + __builtin_ctzll(bits);
    }
    return CUDA_BINS;
}

static cuda_block *find_free(cuda_pool *p, uint64_t bytes) {
    int bin = bin_of(bytes);
    cuda_block *b = smallest(p->bins[bin], bytes);
    if (b) return b;
    bin = bin + 1 < CUDA_BINS ? next_filled(p, bin + 1) : CUDA_BINS;
    return bin < CUDA_BINS ? smallest(p->bins[bin], bytes) : NULL;
}

/* Makes a free block one in use; what it has too much becomes a block of its own. */
static cuda_block *cut(cuda_block *b, uint64_t bytes) {
    uint64_t rest = b->bytes - bytes, worth = b->segment->pool->small ? LEAST : small_most;
    cuda_block_take(b);
    b->state = CUDA_BLOCK_USED;
    if (rest < worth) return b;
    cuda_block *other = cuda_block_insert(b->segment, b, b->data + bytes, rest, CUDA_BLOCK_FREE);
    if (other) {
        b->bytes = bytes;
        put(other);
    }
    return b;
}

/* ---- Blocks in use, by address -----------------------------------------------------------------*/

static cuda_block **place_of(cuda_memory *m, CUdeviceptr data) {
    uint64_t mixed = (data / LEAST) * UINT64_C(0x9e3779b97f4a7c15);
    return &m->found[mixed >> 52];
}

static cuda_block *find_used(cuda_memory *m, const void *data, bool take) {
    CUdeviceptr wanted = (CUdeviceptr)(uintptr_t)data;
    cuda_block **at = place_of(m, wanted);
    while (*at && (*at)->data != wanted) at = &(*at)->next_found;
    cuda_block *b = *at;
    if (b && take) *at = b->next_found;
    return b;
}

/* ---- Pools -------------------------------------------------------------------------------------*/

static cuda_memory *memory_of(cuda_device *d) {
    cuda_memory *m = &memories[d->index];
    m->device = d;
    return m;
}

static cuda_pool *find_pool(cuda_memory *m, CUstream stream, bool small) {
    cuda_pool *orphan = NULL;
    for (cuda_pool *p = m->pools; p; p = p->next) {
        if (p->small != small) continue;
        if (!p->orphan && p->stream == stream) return p;
        if (p->orphan) orphan = p;
    }
    cuda_pool *p = orphan ? orphan : calloc(1, sizeof *p);
    if (!p) return NULL;
    if (!orphan) {
        p->memory = m;
        p->small = small;
        p->next = m->pools;
        m->pools = p;
    }
    p->stream = stream;
    p->orphan = false;
    return p;
}

void cuda_memory_hold(cuda_memory *m, int64_t bytes) {
    m->stats.reserved += (uint64_t)bytes;
    m->segments += bytes > 0;
    if (m->stats.reserved > m->stats.reserved_peak) m->stats.reserved_peak = m->stats.reserved;
}

/* ---- Uses by other streams ---------------------------------------------------------------------*/

static void drop_use(cuda_use **at) {
    cuda_use *u = *at;
    *at = u->next;
    if (u->event) cuda.event_destroy(u->event);
    free(u);
}

/* Puts an event into every stream that has used the block, unless graphs are captured: an event
 * must not become part of one. Where that fails the device is waited for. */
static void mark_uses(cuda_memory *m, cuda_block *b) {
    if (atomic_load(&m->device->captures)) return;
    for (cuda_use *u = b->uses; u; u = u->next) {
        if (u->event) continue;
        CUresult r = cuda.event_create(&u->event, CUDA_EVENT_UNTIMED);
        if (r == CUDA_OK) r = cuda.event_record(u->event, u->stream);
        if (r == CUDA_OK) continue;
        cuda_wait_device(m->device);
        while (b->uses) drop_use(&b->uses);
        return;
    }
}

/* Whether all events of a block have come up. After a failure of the device nothing runs any more. */
static bool is_done(cuda_memory *m, cuda_block *b) {
    mark_uses(m, b);
    while (b->uses) {
        if (!b->uses->event || cuda.event_query(b->uses->event) == CUDA_NOT_READY) return false;
        drop_use(&b->uses);
    }
    return true;
}

static void sort_waiting(cuda_memory *m) {
    for (cuda_block **at = &m->waiting; *at;) {
        cuda_block *b = *at;
        if (is_done(m, b)) {
            *at = b->next_free;
            cuda_block_keep(b);
        } else {
            at = &b->next_free;
        }
    }
}

static tn_status add_use(cuda_block *b, CUstream stream) {
    if (b->segment->pool->stream == stream && !b->segment->pool->orphan) return TN_OK;
    for (const cuda_use *u = b->uses; u; u = u->next)
        if (u->stream == stream) return TN_OK;
    cuda_use *u = calloc(1, sizeof *u);
    if (!u) return cuda_host->fail(TN_E_MEMORY, -1, "out of host memory");
    *u = (cuda_use){b->uses, stream, NULL};
    b->uses = u;
    return TN_OK;
}

/* ---- Running out -------------------------------------------------------------------------------*/

/* Gives everything back that lies free. Memory that the device still works with is waited for, which
 * cannot be done while a graph is captured: then nothing is given back. */
static uint64_t give_back(cuda_memory *m) {
    uint64_t bytes = 0;
    if (atomic_load(&m->device->captures) || cuda_wait_device(m->device) != CUDA_OK) return 0;
    sort_waiting(m);
    for (cuda_pool *p = m->pools; p; p = p->next) bytes += cuda_segment_shrink(p);
    return bytes;
}

/* Lock held. Core's message has what tensors use and what is reserved. */
static tn_status fail_full(cuda_memory *m, uint64_t bytes, uint64_t freed) {
    size_t left = 0, total = 0;
    m->failures++;
    (void)cuda.memory_info(&left, &total); /* for the message alone */
    if (m->limit)
        return cuda_host->fail(TN_E_MEMORY, -1,
                               "cuda:%d: out of memory: the program limits itself to %llu bytes",
                               m->device->index, (unsigned long long)m->limit);
    return cuda_host->fail(
        TN_E_MEMORY, -1,
        "cuda:%d: out of memory: %llu bytes were asked for and %llu of %llu are free, after %llu "
        "that were kept for reuse have been given back%s",
        m->device->index, (unsigned long long)bytes, (unsigned long long)left,
        (unsigned long long)total, (unsigned long long)freed,
        atomic_load(&m->device->captures) ? " (none are while a graph is captured)" : "");
}

static tn_status new_free(cuda_memory *m, cuda_pool *p, uint64_t bytes, cuda_block **ret_block) {
    uint64_t freed = 0;
    CUresult r = cuda_segment_grow(p, bytes);
    if (r == CUDA_NO_MEMORY) {
        m->retries++;
        freed = give_back(m);
        *ret_block = find_free(p, bytes); /* what other streams had used may be free now */
        if (*ret_block) return TN_OK;
        r = cuda_segment_grow(p, bytes);
    }
    if (r == CUDA_NO_MEMORY) return fail_full(m, bytes, freed);
    if (r != CUDA_OK) return cuda_fail(m->device, r, "allocating memory");
    *ret_block = find_free(p, bytes);
    return *ret_block ? TN_OK : fail_full(m, bytes, freed);
}

/* ---- "tn.allocator/1" --------------------------------------------------------------------------*/

static void count_alloc(cuda_memory *m, uint64_t bytes) {
    tn_memory_stats *s = &m->stats;
    s->allocations++;
    s->allocated += bytes;
    if (s->allocated > s->allocated_peak) s->allocated_peak = s->allocated;
}

/* Lock held. */
static tn_status alloc(cuda_memory *m, uint64_t asked, CUstream stream, cuda_block **ret_block) {
    uint64_t bytes = asked ? (asked + LEAST - 1) / LEAST * LEAST : LEAST;
    if (asked > most) return fail_full(m, asked, 0);
    cuda_pool *p = find_pool(m, stream, bytes <= small_most);
    if (!p) return cuda_host->fail(TN_E_MEMORY, -1, "out of host memory");
    if (m->waiting) sort_waiting(m);
    cuda_block *b = find_free(p, bytes);
    tn_status st = b ? TN_OK : new_free(m, p, bytes, &b);
    if (st != TN_OK) return st;
    b = cut(b, bytes);
    b->asked = asked;
    cuda_block **at = place_of(m, b->data);
    b->next_found = *at;
    *at = b;
    count_alloc(m, asked);
    *ret_block = b;
    return TN_OK;
}

static tn_status allocator_alloc(void *ctx, int32_t index, uint64_t bytes, void *stream,
                                 void **ret_data) {
    cuda_device *d = NULL;
    cuda_block *b = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    cuda_memory *m = memory_of(d);
    pthread_mutex_lock(&m->lock);
    st = alloc(m, bytes, stream, &b);
    if (st == TN_OK) *ret_data = (void *)(uintptr_t)b->data;
    pthread_mutex_unlock(&m->lock);
    return st;
}

/* In a forked child the memory is not ours. */
static void allocator_free(void *ctx, int32_t index, void *data, uint64_t bytes) {
    cuda_device *d = NULL;
    (void)ctx, (void)bytes;
    if (!data || !cuda_reenter(index, &d)) return;
    cuda_memory *m = memory_of(d);
    pthread_mutex_lock(&m->lock);
    cuda_block *b = find_used(m, data, true);
    if (b) {
        m->stats.frees++;
        m->stats.allocated -= b->asked;
        if (b->uses) mark_uses(m, b);
        b->state = CUDA_BLOCK_WAITS;
        if (b->uses) {
            b->next_free = m->waiting;
            m->waiting = b;
        } else {
            cuda_block_keep(b);
        }
    }
    pthread_mutex_unlock(&m->lock);
}

static tn_status allocator_use(void *ctx, int32_t index, void *data, void *stream) {
    cuda_device *d = NULL;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    cuda_memory *m = memory_of(d);
    pthread_mutex_lock(&m->lock);
    cuda_block *b = find_used(m, data, false);
    if (b) st = add_use(b, stream);
    pthread_mutex_unlock(&m->lock);
    return st;
}

const tn_allocator_iface cuda_allocator_iface = {
    .struct_size = sizeof cuda_allocator_iface,
    .alloc = allocator_alloc,
    .free = allocator_free,
    .use = allocator_use,
};

static void forget_in(cuda_segment *s, CUstream stream) {
    for (cuda_block *b = s->first; b; b = b->next)
        for (cuda_use **at = &b->uses; *at;) {
            if ((*at)->stream == stream)
                drop_use(at);
            else
                at = &(*at)->next;
        }
}

void cuda_memory_forget(cuda_device *d, CUstream stream) {
    cuda_memory *m = memory_of(d);
    pthread_mutex_lock(&m->lock);
    for (cuda_pool *p = m->pools; p; p = p->next) {
        p->orphan |= p->stream == stream;
        for (cuda_segment *s = p->segments; s; s = s->next) forget_in(s, stream);
    }
    pthread_mutex_unlock(&m->lock);
}

/* ---- "tn.memory/1" and what runtime.c offers ---------------------------------------------------*/

static tn_status memory_stats(void *ctx, int32_t index, tn_memory_stats *ret_stats) {
    cuda_device *d = NULL;
    size_t left = 0, total = 0;
    (void)ctx;
    tn_status st = cuda_enter(index, &d);
    if (st != TN_OK) return st;
    cuda_memory *m = memory_of(d);
    CUresult r = cuda.memory_info(&left, &total);
    pthread_mutex_lock(&m->lock);
    *ret_stats = m->stats;
    pthread_mutex_unlock(&m->lock);
    ret_stats->total = total;
    ret_stats->available = left;
    return r == CUDA_OK ? TN_OK : cuda_fail(d, r, "asking for free memory");
}

static tn_status memory_reset_peak(void *ctx, int32_t index) {
    cuda_memory *m = memory_of(cuda_device_at(index));
    (void)ctx;
    pthread_mutex_lock(&m->lock);
    m->stats.allocated_peak = m->stats.allocated;
    m->stats.reserved_peak = m->stats.reserved;
    pthread_mutex_unlock(&m->lock);
    return TN_OK;
}

static tn_status memory_empty_cache(void *ctx, int32_t index) {
    cuda_device *d = NULL;
    (void)ctx;
    if (!cuda_reenter(index, &d)) return TN_OK; /* nothing has been allocated */
    cuda_memory *m = memory_of(d);
    pthread_mutex_lock(&m->lock);
    give_back(m);
    pthread_mutex_unlock(&m->lock);
    if (!atomic_load(&d->captures)) cuda_pinned_give_back();
    return TN_OK;
}

const tn_memory_iface cuda_memory_iface = {
    .struct_size = sizeof cuda_memory_iface,
    .stats = memory_stats,
    .reset_peak = memory_reset_peak,
    .empty_cache = memory_empty_cache,
};

void cuda_memory_set_limit(cuda_device *d, uint64_t bytes) {
    cuda_memory *m = memory_of(d);
    pthread_mutex_lock(&m->lock);
    m->limit = bytes;
    pthread_mutex_unlock(&m->lock);
}

void cuda_memory_counts(cuda_device *d, uint64_t *ret_retries, uint64_t *ret_failures) {
    cuda_memory *m = memory_of(d);
    pthread_mutex_lock(&m->lock);
    *ret_retries = m->retries;
    *ret_failures = m->failures;
    pthread_mutex_unlock(&m->lock);
}

static cuda_block_info describe(const cuda_block *b) {
    const cuda_segment *s = b->segment;
    return (cuda_block_info){.segment = s->data,
                             .segment_bytes = s->bytes,
                             .stream = (uint64_t)(uintptr_t)s->pool->stream,
                             .address = b->data,
                             .bytes = b->bytes,
                             .asked = b->state == CUDA_BLOCK_USED ? b->asked : 0,
                             .state = (uint32_t)b->state,
                             .flags = (s->pool->small ? CUDA_INFO_SMALL : 0u) |
                                      (s->unit ? CUDA_INFO_EXPANDABLE : 0u)};
}

uint64_t cuda_memory_snapshot(cuda_device *d, cuda_block_info *ret_blocks, uint64_t room) {
    cuda_memory *m = memory_of(d);
    uint64_t n = 0;
    pthread_mutex_lock(&m->lock);
    for (const cuda_pool *p = m->pools; p; p = p->next)
        for (const cuda_segment *s = p->segments; s; s = s->next)
            for (const cuda_block *b = s->first; b; b = b->next, n++)
                if (n < room) ret_blocks[n] = describe(b);
    pthread_mutex_unlock(&m->lock);
    return n;
}

/* ---- Memory that core frees by itself, where nothing is kept for reuse ------------------------- */

typedef struct deferred {
    struct deferred *next;
    CUdeviceptr data;
    int32_t index;
} deferred;
static deferred *deferred_frees;
static pthread_mutex_t deferred_lock = PTHREAD_MUTEX_INITIALIZER;

/* The driver waits for the device before it takes memory back, which a capture does not survive. */
void cuda_memory_release(cuda_device *d, CUdeviceptr data) {
    if (!atomic_load(&d->captures)) {
        cuda.memory_free(data);
        return;
    }
    deferred *f = malloc(sizeof *f);
    if (!f) return; /* the memory is lost rather than the graph */
    pthread_mutex_lock(&deferred_lock);
    *f = (deferred){deferred_frees, data, d->index};
    deferred_frees = f;
    pthread_mutex_unlock(&deferred_lock);
}

void cuda_memory_settle(cuda_device *d) {
    pthread_mutex_lock(&deferred_lock);
    for (deferred **at = &deferred_frees; *at && !atomic_load(&d->captures);) {
        deferred *f = *at;
        if (f->index != d->index) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        cuda.memory_free(f->data);
        free(f);
    }
    pthread_mutex_unlock(&deferred_lock);
}

void cuda_memory_start(void) {
    for (int i = 0; i < CUDA_DEVICES; i++) pthread_mutex_init(&memories[i].lock, NULL);
}
