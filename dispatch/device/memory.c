/* memory.c: memory of devices other than the CPU. Freed blocks are kept, by size and by the stream that
 * they were made for, and taken again without asking the device; devices whose "tn.allocator/1" does
 * that are left to it.
 *
 * A block that goes back may be taken at once for work on its own stream: a stream's work happens in
 * order. Where other streams have used it, each gets a mark (an event), and the block waits until all
 * of them have come up. Without marks, or when something fails, the block goes back to the device,
 * whose `free` puts off the reuse itself. */
#include "catch_priv.h"
#include "memory_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "os_priv.h"

typedef struct tni_memory tni_memory;

/* A stream that has used a block, and, once the block is free, the mark in it. */
typedef struct use {
    struct use *next;
    void *stream, *event;
} use;

struct tni_block {
    tni_memory *memory;
    void *data;
    uint64_t bytes;         /* that were asked for */
    uint64_t size;          /* that the device was asked for */
    _Atomic(void *) stream; /* or no_stream */
    use *uses;
    tni_graph_memory *graph; /* that it was made for; it goes back there while the graph lives */
    bool single;             /* must go back to the device */
    tni_block *prev, *next;  /* of all blocks */
    tni_block *next_free;    /* of a size, or of those that wait */
};

struct tni_graph_memory {
    _Atomic uint32_t refs; /* the graph and its blocks */
    tni_memory *memory;    /* NULL: nothing has been made yet */
    tni_block *free;
    bool ended;
};

/* What a block has in place of a stream that is gone: all its work is done. And in place of one where
 * others may use it that nobody could note: no graph uses it again. */
static char nothing, anything;
static void *const no_stream = &nothing, *const many_streams = &anything;

/* Sizes are rounded up to eight steps for each power of two, so that blocks fit again soon and at
 * most an eighth is lost. */
enum { LEAST = 512, STEPS = 8, CLASSES = 64 * STEPS };
static const uint64_t most = UINT64_C(1) << 62;

struct tni_memory {
    tni_os_mutex lock;
    const tni_device *device;
    int32_t index;
    _Atomic bool kept; /* freed blocks are kept for reuse here; changes under the lock */
    tni_block *all;
    tni_block *waiting; /* free, but other streams may still use them */
    tni_block *free[CLASSES];
    tn_memory_stats stats; /* `reserved` counts what is in use and what is kept */
};

/* ---- Life --------------------------------------------------------------------------------------*/

tni_memory *tni_memory_new(const tni_device *dev) {
    size_t count = dev->desc.count ? (size_t)dev->desc.count : 1;
    tni_memory *memory = calloc(count, sizeof *memory);
    for (int32_t i = 0; memory && i < dev->desc.count; i++) {
        memory[i].lock = (tni_os_mutex)TNI_OS_MUTEX_INIT;
        memory[i].device = dev;
        memory[i].index = i;
    }
    return memory;
}

void tni_memory_delete(tni_memory *memory) { free(memory); }

/* ---- Sizes -------------------------------------------------------------------------------------*/

/* The class of a size, and the size that all of its blocks have. */
static int class_of(uint64_t bytes, uint64_t *ret_size) {
    if (bytes <= LEAST) {
        *ret_size = LEAST;
        return 0;
    }
    int power = 63 - __builtin_clzll(bytes - 1); /* 2^power < bytes <= 2^(power + 1) */
    uint64_t step = (UINT64_C(1) << power) / STEPS;
    uint64_t steps = (bytes - 1 - (UINT64_C(1) << power)) / step + 1;
    *ret_size = (UINT64_C(1) << power) + steps * step;
    return power * STEPS + (int)steps - 1;
}

/* ---- Lists; the lock is held -------------------------------------------------------------------*/

static void enlist(tni_memory *m, tni_block *b) {
    b->next = m->all;
    if (b->next) b->next->prev = b;
    m->all = b;
    m->stats.reserved += b->size;
    if (m->stats.reserved > m->stats.reserved_peak) m->stats.reserved_peak = m->stats.reserved;
}

static void unlist(tni_memory *m, tni_block *b) {
    if (b->next) b->next->prev = b->prev;
    if (b->prev)
        b->prev->next = b->next;
    else
        m->all = b->next;
    m->stats.reserved -= b->size;
}

static void count_alloc(tni_memory *m, tni_block *b, uint64_t bytes) {
    b->bytes = bytes;
    m->stats.allocations++;
    m->stats.allocated += bytes;
    if (m->stats.allocated > m->stats.allocated_peak) m->stats.allocated_peak = m->stats.allocated;
}

static void keep(tni_memory *m, tni_block *b) {
    uint64_t size;
    tni_block **at = &m->free[class_of(b->size, &size)];
    b->next_free = *at;
    *at = b;
}

static tni_block *take_from(tni_block **at, const void *stream) {
    while (*at && atomic_load_explicit(&(*at)->stream, memory_order_relaxed) != stream)
        at = &(*at)->next_free;
    tni_block *b = *at;
    if (b) *at = b->next_free;
    return b;
}

static tni_block *take(tni_memory *m, int class, void *stream) {
    tni_block *b = take_from(&m->free[class], stream);
    if (!b) b = take_from(&m->free[class], no_stream);
    if (b) atomic_store_explicit(&b->stream, stream, memory_order_relaxed);
    return b;
}

/* ---- Uses by other streams ---------------------------------------------------------------------*/

static const tn_stream_iface *streams_of(const tni_memory *m) { return m->device->ifaces.stream; }

static void drop_use(const tni_memory *m, use **at) {
    use *u = *at;
    *at = u->next;
    if (u->event) streams_of(m)->event_destroy(m->device->desc.ctx, m->index, u->event);
    tni_caught_any();
    free(u);
}

/* Puts a mark into every stream that has used the block; false when that cannot be done, as while they
 * may be recorded. */
static bool mark_uses(const tni_memory *m, tni_block *b) {
    const tn_stream_iface *f = streams_of(m);
    void *ctx = m->device->desc.ctx;
    if (tni_tls.watcher) return false;
    for (use *u = b->uses; u; u = u->next) {
        if (tni_caught(f->event_create(ctx, m->index, 0, &u->event)) != TN_OK) return false;
        if (tni_caught(f->event_record(ctx, m->index, u->event, u->stream)) != TN_OK) return false;
    }
    return true;
}

/* Whether no other stream uses the block any more. A failure that the device reports here belongs
 * to whoever waits next; the block then goes back to the device. */
static bool is_idle(const tni_memory *m, tni_block *b) {
    int32_t done = 0;
    while (b->uses) {
        void *ctx = m->device->desc.ctx;
        tn_status st = tni_caught(streams_of(m)->event_done(ctx, m->index, b->uses->event, &done));
        if (st != TN_OK) {
            tni_keep_async(m->device, m->index, st);
            b->single = true;
            return true;
        }
        if (!done) return false;
        drop_use(m, &b->uses);
    }
    return true;
}

tn_status tni_block_use(tni_block *b, void *stream) {
    tni_memory *m = b->memory;
    tn_status st = TN_OK;
    if (atomic_load_explicit(&b->stream, memory_order_relaxed) == stream) return TN_OK;
    tni_os_lock(&m->lock);
    const use *u = b->uses;
    while (u && u->stream != stream) u = u->next;
    use *fresh = u ? NULL : calloc(1, sizeof *fresh);
    if (fresh) {
        *fresh = (use){.next = b->uses, .stream = stream};
        b->uses = fresh;
    } else if (!u) {
        b->single = true; /* nobody notes who uses it, so the device has to look after it */
        atomic_store_explicit(&b->stream, many_streams, memory_order_relaxed);
    }
    tni_os_unlock(&m->lock);
    const tn_allocator_iface *own = m->device->ifaces.allocator;
    if (!u && own) st = tni_caught(own->use(m->device->desc.ctx, m->index, b->data, stream));
    return st;
}

void tni_block_keep_single(tni_block *b) {
    tni_os_lock(&b->memory->lock);
    b->single = true;
    tni_os_unlock(&b->memory->lock);
}

static void forget_in(tni_memory *m, tni_block *b, void *stream) {
    if (atomic_load_explicit(&b->stream, memory_order_relaxed) == stream)
        atomic_store_explicit(&b->stream, no_stream, memory_order_relaxed);
    for (use **at = &b->uses; *at;) {
        if ((*at)->stream == stream)
            drop_use(m, at);
        else
            at = &(*at)->next;
    }
}

void tni_memory_forget_stream(tn_device device, void *stream) {
    tni_memory *m = &tni_device_maker(device.slot)->memory[device.index];
    tni_os_lock(&m->lock);
    for (tni_block *b = m->all; b; b = b->next) forget_in(m, b, stream);
    tni_os_unlock(&m->lock);
}

/* ---- Back to the device ------------------------------------------------------------------------*/

/* The block is in no list any more. */
static void give_back(const tni_memory *m, tni_block *b) {
    const tn_device_desc *d = &m->device->desc;
    const tn_allocator_iface *own = m->device->ifaces.allocator;
    while (b->uses) drop_use(m, &b->uses);
    if (own)
        own->free(d->ctx, m->index, b->data, b->size);
    else
        d->free(d->ctx, m->index, b->data, b->size);
    tni_caught_any();
    free(b);
}

/* Takes all free blocks out of the lists, those that still wait too: the device puts off the reuse of
 * what it gets back while work may use it. */
static tni_block *take_all(tni_memory *m) {
    tni_block *gone = m->waiting;
    tni_block **end = &gone;
    m->waiting = NULL;
    while (*end) end = &(*end)->next_free;
    for (int c = 0; c < CLASSES; c++) {
        *end = m->free[c];
        m->free[c] = NULL;
        while (*end) end = &(*end)->next_free;
    }
    for (tni_block *b = gone; b; b = b->next_free) unlist(m, b);
    return gone;
}

static uint64_t trim(tni_memory *m) {
    uint64_t bytes = 0;
    tni_os_lock(&m->lock);
    tni_block *gone = take_all(m);
    tni_os_unlock(&m->lock);
    while (gone) {
        tni_block *b = gone;
        gone = b->next_free;
        bytes += b->size;
        give_back(m, b);
    }
    return bytes;
}

void tni_memory_set_active(const tni_device *dev, bool active) {
    bool kept = active && !dev->ifaces.allocator && tni_setting_is_on("TENON_MEMORY_CACHE", true);
    for (int32_t i = 0; i < dev->desc.count; i++) {
        tni_os_lock(&dev->memory[i].lock);
        dev->memory[i].kept = kept;
        tni_os_unlock(&dev->memory[i].lock);
        if (!kept) trim(&dev->memory[i]);
    }
}

/* Blocks whose other streams are done can be taken again. Returns those that must go back. */
static tni_block *sort_waiting(tni_memory *m) {
    tni_block *gone = NULL;
    for (tni_block **at = &m->waiting; *at;) {
        tni_block *b = *at;
        if (!is_idle(m, b)) {
            at = &b->next_free;
            continue;
        }
        *at = b->next_free;
        if (b->single) {
            unlist(m, b);
            b->next_free = gone;
            gone = b;
        } else {
            keep(m, b);
        }
    }
    return gone;
}

/* ---- Allocation --------------------------------------------------------------------------------*/

static tn_status ask_device(const tni_memory *m, tn_device device, uint64_t bytes, void *stream,
                            void **ret_data) {
    const tn_device_desc *d = &m->device->desc;
    const tn_allocator_iface *own = m->device->ifaces.allocator;
    tn_status st = own ? tni_caught(own->alloc(d->ctx, m->index, bytes, stream, ret_data))
                       : tni_caught(d->alloc(d->ctx, m->index, bytes, ret_data));
    if (st == TN_OK && !*ret_data && bytes > 0)
        return tn_fail(TN_E_PLUGIN, -1, "device '%s': alloc of %llu bytes returned TN_OK and NULL",
                       m->device->name, (unsigned long long)bytes);
    return st == TN_ASYNC ? tni_looked(device, st)
                          : tni_error_of_plugin(st, "alloc", m->device->name);
}

/* The device's own words are in the error record. */
static tn_status fail_full(const tni_memory *m, tn_device device, uint64_t bytes, uint64_t freed) {
    char said[256] = "", limit[64] = "", tried[96] = "";
    tn_memory_stats s = {0};
    size_t n = strlen(tn_error_last()->message);
    memcpy(said, tn_error_last()->message, n < sizeof said ? n : sizeof said - 1);
    if (tn_memory_get_stats(device, &s) == TN_OK && s.total)
        snprintf(limit, sizeof limit, " of %llu that there are", (unsigned long long)s.total);
    if (!m->device->ifaces.allocator)
        snprintf(tried, sizeof tried, ", after %llu that were kept for reuse have been given back",
                 (unsigned long long)freed);
    return tn_fail(
        TN_E_MEMORY, -1,
        "%s:%d is out of memory: tried to allocate %llu bytes; tensors use %llu and %llu "
        "are reserved%s%s (%s)",
        m->device->name, (int)m->index, (unsigned long long)bytes, (unsigned long long)s.allocated,
        (unsigned long long)s.reserved, limit, tried, said);
}

/* New memory of `size`, or when there is none left, even after what is kept was given back, of
 * `bytes`. */
static tn_status new_memory(tni_memory *m, tn_device device, uint64_t bytes, void *stream,
                            uint64_t *inout_size, void **ret_data) {
    tn_status st = ask_device(m, device, *inout_size, stream, ret_data);
    if (st != TN_E_MEMORY) return st;
    uint64_t freed = trim(m);
    if (freed == 0 && *inout_size == bytes) return fail_full(m, device, bytes, freed);
    *inout_size = bytes;
    st = ask_device(m, device, bytes, stream, ret_data);
    return st == TN_E_MEMORY ? fail_full(m, device, bytes, freed) : st;
}

static tn_status new_block(tni_memory *m, tn_device device, uint64_t bytes, uint64_t size,
                           void *stream, tni_block **ret_block) {
    tni_block *b = malloc(sizeof *b); /* calloc would go around the C library's cache */
    uint64_t got = size;
    if (!b) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    *b = (tni_block){.memory = m};
    tn_status st = new_memory(m, device, bytes, stream, &got, &b->data);
    if (st != TN_OK) {
        free(b);
        return st;
    }
    b->size = got;
    b->single = !m->kept || got != size;
    atomic_store_explicit(&b->stream, stream, memory_order_relaxed);
    tni_os_lock(&m->lock);
    enlist(m, b);
    count_alloc(m, b, bytes);
    tni_os_unlock(&m->lock);
    *ret_block = b;
    return TN_OK;
}

/* ---- Memory of a graph -------------------------------------------------------------------------
 * What is freed while a graph is captured serves what is made later in that capture, and nobody else
 * before the graph is gone: a launch makes the same steps in the same order. */

tni_graph_memory *tni_graph_memory_new(void) {
    tni_graph_memory *g = calloc(1, sizeof *g);
    if (g) atomic_store_explicit(&g->refs, 1, memory_order_relaxed);
    return g;
}

static void graph_memory_unref(tni_graph_memory *g) {
    if (atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) == 1) free(g);
}

/* The smallest free block that is large enough and not far too large. The branches of a graph, one for
 * each stream, run beside each other: one does not get what another one has used. */
static tni_block *take_of_graph(tni_memory *m, tni_graph_memory *g, uint64_t bytes,
                                const void *stream) {
    tni_block **best = NULL;
    tni_os_lock(&m->lock);
    for (tni_block **at = &g->free; *at; at = &(*at)->next_free) {
        uint64_t size = (*at)->size;
        bool fits = size >= bytes && size / 2 <= bytes + LEAST;
        bool own = !(*at)->uses && atomic_load(&(*at)->stream) == stream;
        if (fits && own && (!best || size < (*best)->size)) best = at;
    }
    tni_block *b = best ? *best : NULL;
    if (b) *best = b->next_free;
    tni_os_unlock(&m->lock);
    return b;
}

static tn_status block_of_graph(tni_memory *m, tn_device device, uint64_t bytes, void *stream,
                                tni_graph_memory *g, tni_block **ret_block) {
    uint64_t size = bytes;
    *ret_block = take_of_graph(m, g, bytes, stream);
    if (*ret_block) return TN_OK;
    if (bytes <= most) class_of(bytes, &size);
    TN_TRY(new_block(m, device, bytes, size, stream, ret_block));
    g->memory = m;
    (*ret_block)->graph = g;
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return TN_OK;
}

/* Whether the block went back to its graph. */
static bool back_to_graph(tni_block *b) {
    tni_graph_memory *g = b->graph;
    tni_memory *m = b->memory;
    if (!g) return false;
    tni_os_lock(&m->lock);
    bool lives = !g->ended;
    if (lives) {
        b->next_free = g->free;
        g->free = b;
    }
    tni_os_unlock(&m->lock);
    if (lives) return true;
    b->graph = NULL;
    graph_memory_unref(g);
    return false;
}

void tni_graph_memory_end(tni_graph_memory *g) {
    if (!g) return;
    tni_memory *m = g->memory;
    if (m) tni_os_lock(&m->lock);
    tni_block *b = g->free;
    g->free = NULL;
    g->ended = true;
    if (m) tni_os_unlock(&m->lock);
    while (b) {
        tni_block *next = b->next_free;
        tni_block_free(b);
        b = next;
    }
    graph_memory_unref(g);
}

bool tni_graph_memory_has(const tni_graph_memory *g, const tn_storage *s) {
    return g && (s->flags & TNI_ST_BLOCK) && s->ctx && ((const tni_block *)s->ctx)->graph == g;
}

/* ---- Blocks ------------------------------------------------------------------------------------*/

tn_status tni_block_new(tn_device device, uint64_t bytes, void *stream, tni_block **ret_block,
                        void **ret_data) {
    tni_memory *m = &tni_device_at(device.slot)->memory[device.index];
    tni_graph_memory *graph = tni_tls.watcher ? tni_tls.watcher->memory(device) : NULL;
    if (graph) {
        TN_TRY(block_of_graph(m, device, bytes, stream, graph, ret_block));
        *ret_data = (*ret_block)->data;
        return TN_OK;
    }
    tni_block *b = NULL, *gone = NULL;
    uint64_t size = bytes;
    if (m->kept && bytes <= most) {
        int class = class_of(bytes, &size);
        tni_os_lock(&m->lock);
        if (m->waiting) gone = sort_waiting(m);
        b = take(m, class, stream);
        if (b) count_alloc(m, b, bytes);
        tni_os_unlock(&m->lock);
    }
    while (gone) {
        tni_block *next = gone->next_free;
        give_back(m, gone);
        gone = next;
    }
    if (!b) TN_TRY(new_block(m, device, bytes, size, stream, &b));
    *ret_block = b;
    *ret_data = b->data;
    return TN_OK;
}

/* Failures of the marks are nobody's: the record of a failure that led here stays as it is. */
static bool can_stay(const tni_memory *m, tni_block *b) {
    if (!m->kept || b->single) return false;
    if (!b->uses) return true;
    struct tni_error *before = tni_error_copy();
    bool marked = mark_uses(m, b);
    tni_error_restore(before);
    return marked;
}

void tni_block_free(tni_block *b) {
    if (!b || back_to_graph(b)) return;
    tni_memory *m = b->memory;
    tni_os_lock(&m->lock);
    m->stats.frees++;
    m->stats.allocated -= b->bytes;
    bool stays = can_stay(m, b);
    if (!stays) {
        unlist(m, b);
    } else if (b->uses) {
        b->next_free = m->waiting;
        m->waiting = b;
    } else {
        keep(m, b);
    }
    tni_os_unlock(&m->lock);
    if (!stays) give_back(m, b);
}

/* ---- For users ---------------------------------------------------------------------------------*/

tn_status tn_memory_get_stats(tn_device device, tn_memory_stats *ret_stats) {
    if (!ret_stats)
        return tn_fail(TN_E_TYPE, -1, "memory_get_stats(): the result has no place to go");
    TN_TRY(tni_check_device(device));
    const tni_device *dev = tni_device_at(device.slot);
    tn_memory_stats own = {0}, s = {0};
    const tn_memory_iface *f = dev->ifaces.memory;
    if (f) TN_TRY(tni_caught(f->stats(dev->desc.ctx, device.index, &own)));
    tni_memory *m = dev->memory ? &dev->memory[device.index] : NULL;
    if (!m || (f && !m->kept)) {
        *ret_stats = own;
        return TN_OK;
    }
    tni_os_lock(&m->lock);
    s = m->stats;
    tni_os_unlock(&m->lock);
    if (f) { /* what core keeps for reuse is in use for the device */
        s.reserved = own.reserved;
        s.reserved_peak = own.reserved_peak;
        s.total = own.total;
        s.available = own.available;
    }
    *ret_stats = s;
    return TN_OK;
}

tn_status tn_memory_reset_peak(tn_device device) {
    TN_TRY(tni_check_device(device));
    const tni_device *dev = tni_device_at(device.slot);
    if (dev->memory) {
        tni_memory *m = &dev->memory[device.index];
        tni_os_lock(&m->lock);
        m->stats.allocated_peak = m->stats.allocated;
        m->stats.reserved_peak = m->stats.reserved;
        tni_os_unlock(&m->lock);
    }
    const tn_memory_iface *f = dev->ifaces.memory;
    return f ? tni_caught(f->reset_peak(dev->desc.ctx, device.index)) : TN_OK;
}

tn_status tn_memory_empty_cache(tn_device device) {
    TN_TRY(tni_check_device(device));
    const tni_device *dev = tni_device_at(device.slot);
    if (dev->memory) trim(&dev->memory[device.index]);
    const tn_memory_iface *f = dev->ifaces.memory;
    return f ? tni_caught(f->empty_cache(dev->desc.ctx, device.index)) : TN_OK;
}
