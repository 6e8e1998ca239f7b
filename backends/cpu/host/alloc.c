/* alloc.c: the caching allocator of host memory. Small blocks (up to 32 KiB) come from size classes:
 * each thread keeps lists of free blocks and trades batches with a central list, so the common case
 * takes no lock. Larger blocks come from arenas (2 MiB aligned, huge pages): best fit over bins of
 * free blocks that are merged with their neighbours. Everything is 64-byte aligned. A block may be
 * freed on any thread. The size comes back with the free call, so small blocks carry no header. */
#include "locks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define CPU_GUARDED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CPU_GUARDED 1
#endif
#endif
#if CPU_GUARDED
#include <sanitizer/asan_interface.h>
#endif

#define ALIGN UINT64_C(64)
#define HUGE_PAGE (UINT64_C(2) << 20)
#define ARENA_BYTES (UINT64_C(32) << 20)
#define SMALL_MAX UINT64_C(32768)
#define CLASSES 32                            /* 64 .. 512 by 64, then four per doubling */
#define THREAD_BYTES 65536                    /* a thread keeps about this much per class */
#define LEAD (UINT64_C(4096) - sizeof(block)) /* of an arena, so that data begins with a page */
#define SLAB_BYTES (UINT64_C(256) << 10)
#define POOL_BYTES (UINT64_C(4) << 20)
#define CACHE_LIMIT (UINT64_C(1) << 30) /* free memory above which empty arenas are given back */
#define BINS 160

/* ---- Size classes ------------------------------------------------------------------------------*/

static inline uint32_t class_of(uint64_t bytes) {
    if (bytes <= 512) return bytes ? (uint32_t)((bytes - 1) >> 6) : 0;
    uint32_t log = 63u - (uint32_t)__builtin_clzll(bytes - 1);
    return 8 + (log - 9) * 4 + (uint32_t)((bytes - 1) >> (log - 2) & 3);
}

static inline uint64_t class_bytes(uint32_t c) {
    if (c < 8) return ((uint64_t)c + 1) << 6;
    uint32_t log = 9 + (c - 8) / 4;
    return (UINT64_C(1) << log) + (((c - 8) % 4 + UINT64_C(1)) << (log - 2));
}

/* ---- Small blocks ------------------------------------------------------------------------------*/

typedef struct free_block {
    struct free_block *next;
} free_block;

/* One class of one thread. The counters are read by tn.memory/1 without the thread's knowledge:
 * figures, not invariants. A block may be taken on one thread and given back on another. */
typedef struct bin_cache {
    free_block *head;
    uint32_t count, limit; /* of the list */
    uint64_t allocations, frees;
} bin_cache;

typedef struct thread_cache {
    bin_cache bin[CLASSES];
    struct thread_cache *next, *prev;
} thread_cache;

static CPU_TLS thread_cache *mine;
static CPU_TLS bool gone; /* the thread ends: its cache has been given up */

CPU_LOCK(central_lock); /* taken before large_lock */
static struct central {
    free_block *head[CLASSES];
    char *slab[CLASSES], *slab_end[CLASSES]; /* what is left of each class's last slab */
    char *pool, *pool_end;                   /* what slabs are cut from */
    thread_cache *threads;
    uint64_t past_allocations[CLASSES], past_frees[CLASSES]; /* of threads that ended */
} central;

/* ---- Large blocks ------------------------------------------------------------------------------*/

/* In front of every large block; its data begins 64 bytes after it.
 *
 * Note [Places of blocks]
 * A load waits for an earlier store whose address has the same low 12 bits. Where a result lies a line
 * or two above an operand, modulo 4096, every load meets the store before it, and the loop takes up to
 * a third longer. Data therefore begins at multiples of 1024: such distances are 0 or large. */
typedef struct block {
    uint64_t bytes;            /* with this header */
    struct block *below;       /* the neighbour at lower addresses, NULL at the arena's start */
    struct block *next, *prev; /* in a bin, while free */
    struct arena *arena;
    uint32_t is_free, is_last;
    uint64_t pad[2];
} block;
_Static_assert(sizeof(block) == 64, "a block's data must stay aligned");

typedef struct arena {
    struct arena *next, *prev;
    uint64_t bytes;
    char *start;
} arena;

CPU_LOCK(large_lock);
static struct large {
    arena *arenas;
    block *bin[BINS];
    uint64_t bin_used[(BINS + 63) / 64];
    uint64_t allocated, allocated_peak, reserved, reserved_peak;
    uint64_t allocations, frees;
} large;

static uint32_t bin_of(uint64_t bytes) {
    uint32_t log = 63u - (uint32_t)__builtin_clzll(bytes | ALIGN);
    uint32_t b = (log - 6) * 4 + (uint32_t)(bytes >> (log - 2) & 3);
    return b < BINS ? b : BINS - 1;
}

static void bin_insert(block *b) {
    uint32_t i = bin_of(b->bytes);
    b->is_free = 1;
    b->prev = NULL;
    b->next = large.bin[i];
    if (b->next) b->next->prev = b;
    large.bin[i] = b;
    large.bin_used[i / 64] |= UINT64_C(1) << (i % 64);
}

static void bin_remove(block *b) {
    uint32_t i = bin_of(b->bytes);
    if (b->next) b->next->prev = b->prev;
    if (b->prev)
        b->prev->next = b->next;
    else if (!(large.bin[i] = b->next))
        large.bin_used[i / 64] &= ~(UINT64_C(1) << (i % 64));
    b->is_free = 0;
}

static block *above(block *b) {
    return b->is_last ? NULL : (block *)(void *)((char *)b + b->bytes);
}

/* The smallest free block of at least `bytes`: the rest of its own bin, else any of a higher one. */
static block *best_fit(uint64_t bytes) {
    block *best = NULL;
    uint32_t i = bin_of(bytes);
    for (block *b = large.bin[i]; b; b = b->next)
        if (b->bytes >= bytes && (!best || b->bytes < best->bytes)) best = b;
    for (i++; !best && i < BINS; i = (i / 64 + 1) * 64) {
        uint64_t used = large.bin_used[i / 64] >> (i % 64);
        if (!used) continue;
        i += (uint32_t)__builtin_ctzll(used);
        for (block *b = large.bin[i]; b; b = b->next)
            if (!best || b->bytes < best->bytes) best = b;
        break;
    }
    return best;
}

static block *add_arena(uint64_t bytes) {
    uint64_t size = (bytes + LEAD + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (size < ARENA_BYTES) size = ARENA_BYTES;
    arena *a = malloc(sizeof *a);
    if (!a) return NULL;
    char *p = cpu_os_map(size, HUGE_PAGE, true);
    if (!p) {
        free(a);
        return NULL;
    }
    *a = (arena){.next = large.arenas, .bytes = size, .start = p};
    if (a->next) a->next->prev = a;
    large.arenas = a;
    large.reserved += size;
    if (large.reserved > large.reserved_peak) large.reserved_peak = large.reserved;
    block *b = (block *)(void *)(p + LEAD);
    *b = (block){.bytes = size - LEAD, .arena = a, .is_last = 1};
    bin_insert(b);
    return b;
}

static void drop_arena(block *b) {
    arena *a = b->arena;
    bin_remove(b);
    if (a->next) a->next->prev = a->prev;
    if (a->prev)
        a->prev->next = a->next;
    else
        large.arenas = a->next;
    large.reserved -= a->bytes;
    cpu_os_unmap(a->start, a->bytes);
    free(a);
}

static bool whole_arena(const block *b) { return b->is_free && !b->below && b->is_last; }

static void drop_free_arenas(void) {
    arena *next;
    for (arena *a = large.arenas; a; a = next) {
        next = a->next;
        block *b = (block *)(void *)(a->start + LEAD);
        if (whole_arena(b)) drop_arena(b);
    }
}

static void *large_take(uint64_t data_bytes) {
    /* Whole 4 KiB pages from 1 MiB on keep the number of different sizes, and so waste, low; below
     * see Note [Places of blocks]. */
    uint64_t step = data_bytes >= (UINT64_C(1) << 20) ? 4096 : 1024;
    uint64_t bytes = (data_bytes + sizeof(block) + step - 1) & ~(step - 1);
    block *b = best_fit(bytes);
    if (!b) b = add_arena(bytes);
    if (!b) {
        drop_free_arenas();
        b = add_arena(bytes);
    }
    if (!b) return NULL;
    bin_remove(b);
    if (b->bytes - bytes >= SMALL_MAX) {
        block *rest = (block *)(void *)((char *)b + bytes);
        *rest = (block){
            .bytes = b->bytes - bytes, .below = b, .arena = b->arena, .is_last = b->is_last};
        block *top = above(rest);
        if (top) top->below = rest;
        b->bytes = bytes;
        b->is_last = 0;
        bin_insert(rest);
    }
    large.allocated += b->bytes;
    if (large.allocated > large.allocated_peak) large.allocated_peak = large.allocated;
    return b + 1;
}

static void large_give(void *data) {
    block *b = (block *)data - 1;
    block *up = above(b), *down = b->below;
    large.allocated -= b->bytes;
    if (up && up->is_free) {
        bin_remove(up);
        b->bytes += up->bytes;
        b->is_last = up->is_last;
    }
    if (down && down->is_free) {
        bin_remove(down);
        down->bytes += b->bytes;
        down->is_last = b->is_last;
        b = down;
    }
    up = above(b);
    if (up) up->below = b;
    bin_insert(b);
    if (whole_arena(b) && large.reserved - large.allocated > CACHE_LIMIT) drop_arena(b);
}

/* ---- Threads' caches ---------------------------------------------------------------------------*/

static void thread_ends(void *arg) {
    thread_cache *t = arg;
    cpu_lock_take(&central_lock);
    for (uint32_t c = 0; c < CLASSES; c++) {
        free_block *b = t->bin[c].head;
        central.past_allocations[c] += t->bin[c].allocations;
        central.past_frees[c] += t->bin[c].frees;
        while (b) {
            free_block *next = b->next;
            b->next = central.head[c];
            central.head[c] = b;
            b = next;
        }
    }
    if (t->next) t->next->prev = t->prev;
    if (t->prev)
        t->prev->next = t->next;
    else
        central.threads = t->next;
    cpu_lock_drop(&central_lock);
    free(t);
    mine = NULL;
    gone = true;
}

static CPU_NOINLINE thread_cache *thread_begins(void) {
    if (gone) return NULL;
    thread_cache *t = calloc(1, sizeof *t);
    if (!t || cpu_os_at_thread_exit(thread_ends, t) != TN_OK) {
        free(t);
        return NULL;
    }
    for (uint32_t c = 0; c < CLASSES; c++) {
        uint64_t n = THREAD_BYTES / class_bytes(c);
        t->bin[c].limit = (uint32_t)(n > 256 ? 256 : n < 4 ? 4 : n);
    }
    cpu_lock_take(&central_lock);
    t->next = central.threads;
    if (t->next) t->next->prev = t;
    central.threads = t;
    cpu_lock_drop(&central_lock);
    mine = t;
    return t;
}

/* Only the thread itself writes its counters. */
static inline void count_one(uint64_t *counter) {
    __atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
}

/* Slabs are never given back, so they stay out of the arenas, which they would keep alive. */
static char *slab_take(uint64_t bytes) {
    if ((uint64_t)(central.pool_end - central.pool) < bytes) {
        char *p = cpu_os_map(POOL_BYTES, HUGE_PAGE, true);
        if (!p) return NULL;
        central.pool = p;
        central.pool_end = p + POOL_BYTES;
        cpu_lock_take(&large_lock);
        large.reserved += POOL_BYTES;
        if (large.reserved > large.reserved_peak) large.reserved_peak = large.reserved;
        cpu_lock_drop(&large_lock);
    }
    central.pool += bytes;
    return central.pool - bytes;
}

/* One free block of class c from the central list or a fresh slab; central_lock is held. */
static free_block *central_take(uint32_t c) {
    free_block *b = central.head[c];
    uint64_t bytes = class_bytes(c);
    if (b) {
        central.head[c] = b->next;
        return b;
    }
    if ((uint64_t)(central.slab_end[c] - central.slab[c]) < bytes) {
        /* The first slab of a class is small: most programs use few sizes, and memory that is
         * never touched should not be carved up. */
        uint64_t size = central.slab[c] ? SLAB_BYTES : SLAB_BYTES / 4;
        char *slab = slab_take(size);
        if (!slab) return NULL;
        central.slab[c] = slab;
        central.slab_end[c] = slab + size;
    }
    b = (free_block *)(void *)central.slab[c];
    central.slab[c] += bytes;
    return b;
}

static void *small_refill(uint32_t c) {
    thread_cache *t = mine ? mine : thread_begins();
    bin_cache *bin = t ? &t->bin[c] : NULL;
    uint32_t want = bin ? bin->limit / 2 : 0;
    cpu_lock_take(&central_lock);
    free_block *b = central_take(c);
    for (uint32_t i = 0; b && i < want; i++) {
        free_block *more = central_take(c);
        if (!more) break;
        more->next = bin->head;
        bin->head = more;
        bin->count++;
    }
    if (b && !bin) central.past_allocations[c]++;
    cpu_lock_drop(&central_lock);
    if (b && bin) count_one(&bin->allocations);
    return b;
}

/* Half of a list that has grown past its limit goes to the central list. */
static CPU_NOINLINE void small_flush(bin_cache *bin, uint32_t c) {
    cpu_lock_take(&central_lock);
    while (bin->count > bin->limit / 2) {
        free_block *b = bin->head;
        bin->head = b->next;
        bin->count--;
        b->next = central.head[c];
        central.head[c] = b;
    }
    cpu_lock_drop(&central_lock);
}

static inline void small_give(bin_cache *bin, uint32_t c, free_block *b) {
    b->next = bin->head;
    bin->head = b;
    count_one(&bin->frees);
    if (CPU_UNLIKELY(++bin->count > bin->limit)) small_flush(bin, c);
}

static CPU_NOINLINE void small_free_slow(free_block *b, uint32_t c) {
    thread_cache *t = thread_begins();
    if (t) {
        small_give(&t->bin[c], c, b);
        return;
    }
    cpu_lock_take(&central_lock);
    b->next = central.head[c];
    central.head[c] = b;
    central.past_frees[c]++;
    cpu_lock_drop(&central_lock);
}

/* ---- The device's functions --------------------------------------------------------------------*/

static CPU_NOINLINE tn_status no_memory(uint64_t bytes) {
    return cpu_host->fail(TN_E_MEMORY, -1, "out of memory: cannot allocate %llu bytes on cpu",
                          (unsigned long long)bytes);
}

/* The rare cases stay out of line, so that the common ones need no stack frame. */
static CPU_NOINLINE tn_status large_alloc(uint64_t bytes, void **ret_data) {
    if (bytes > UINT64_C(1) << 62) return no_memory(bytes);
    cpu_lock_take(&large_lock);
    void *p = large_take(bytes);
    large.allocations += p != NULL;
    cpu_lock_drop(&large_lock);
    if (!p) return no_memory(bytes);
    *ret_data = p;
    return TN_OK;
}

static CPU_NOINLINE void large_free(void *data) {
    cpu_lock_take(&large_lock);
    large_give(data);
    large.frees++;
    cpu_lock_drop(&large_lock);
}

static CPU_NOINLINE tn_status small_alloc_slow(uint32_t c, uint64_t bytes, void **ret_data) {
    void *p = small_refill(c);
    if (!p) return no_memory(bytes);
    *ret_data = p;
    return TN_OK;
}

static inline tn_status take(uint64_t bytes, void **ret_data) {
    if (CPU_UNLIKELY(bytes > SMALL_MAX)) return large_alloc(bytes, ret_data);
    uint32_t c = class_of(bytes);
    thread_cache *t = mine;
    if (CPU_LIKELY(t != NULL)) {
        bin_cache *bin = &t->bin[c];
        free_block *b = bin->head;
        if (CPU_LIKELY(b != NULL)) {
            bin->head = b->next;
            bin->count--;
            count_one(&bin->allocations);
            *ret_data = b;
            return TN_OK;
        }
    }
    return small_alloc_slow(c, bytes, ret_data);
}

static inline void give(void *data, uint64_t bytes) {
    if (CPU_UNLIKELY(bytes > SMALL_MAX)) {
        large_free(data);
        return;
    }
    uint32_t c = class_of(bytes);
    thread_cache *t = mine;
    if (CPU_LIKELY(t != NULL))
        small_give(&t->bin[c], c, data);
    else
        small_free_slow(data, c);
}

/* Under the sanitizer no byte behind a block may be touched, and none of a small block that is free but
 * those that the lists use. */
#if CPU_GUARDED
#define GUARD UINT64_C(64)
static tn_status take_guarded(uint64_t bytes, void **ret_data) {
    tn_status st = bytes < UINT64_MAX - GUARD ? take(bytes + GUARD, ret_data) : no_memory(bytes);
    if (st != TN_OK) return st;
    __asan_unpoison_memory_region(*ret_data, bytes);
    __asan_poison_memory_region((char *)*ret_data + bytes, GUARD);
    return TN_OK;
}

static void give_guarded(void *data, uint64_t bytes) {
    __asan_unpoison_memory_region(data, bytes + GUARD);
    if (bytes + GUARD <= SMALL_MAX) __asan_poison_memory_region((char *)data + GUARD, bytes);
    give(data, bytes + GUARD);
}

#else
#define take_guarded take
#define give_guarded give
#endif

tn_status cpu_alloc(void *ctx, int32_t device, uint64_t bytes, void **ret_data) {
    (void)ctx;
    (void)device;
    return take_guarded(bytes, ret_data);
}

void cpu_free(void *ctx, int32_t device, void *data, uint64_t bytes) {
    (void)ctx;
    (void)device;
    if (data) give_guarded(data, bytes);
}

/* ---- "tn.memory/1" -----------------------------------------------------------------------------
 * Counters of small blocks are kept per thread and added up here, so the peak counts small blocks
 * as of the calls to these functions; large blocks count exactly. */

static void add_small(tn_memory_stats *s) {
    for (uint32_t c = 0; c < CLASSES; c++) {
        uint64_t taken = central.past_allocations[c], given = central.past_frees[c];
        for (thread_cache *t = central.threads; t; t = t->next) {
            taken += __atomic_load_n(&t->bin[c].allocations, __ATOMIC_RELAXED);
            given += __atomic_load_n(&t->bin[c].frees, __ATOMIC_RELAXED);
        }
        s->allocations += taken;
        s->frees += given;
        if (taken > given) s->allocated += (taken - given) * class_bytes(c);
    }
}

static tn_status iface_stats(void *ctx, int32_t device, tn_memory_stats *ret_stats) {
    (void)ctx;
    (void)device;
    cpu_lock_take(&central_lock);
    cpu_lock_take(&large_lock);
    tn_memory_stats s = {
        .allocated = large.allocated,
        .reserved = large.reserved,
        .reserved_peak = large.reserved_peak,
        .allocations = large.allocations,
        .frees = large.frees,
    };
    uint64_t small_before = s.allocated;
    add_small(&s);
    s.allocated_peak = large.allocated_peak + (s.allocated - small_before);
    cpu_lock_drop(&large_lock);
    cpu_lock_drop(&central_lock);
    *ret_stats = s;
    return TN_OK;
}

static tn_status iface_reset_peak(void *ctx, int32_t device) {
    (void)ctx;
    (void)device;
    cpu_lock_take(&large_lock);
    large.allocated_peak = large.allocated;
    large.reserved_peak = large.reserved;
    cpu_lock_drop(&large_lock);
    return TN_OK;
}

static tn_status iface_empty_cache(void *ctx, int32_t device) {
    (void)ctx;
    (void)device;
    cpu_lock_take(&large_lock);
    drop_free_arenas();
    cpu_lock_drop(&large_lock);
    return TN_OK;
}

const tn_memory_iface cpu_memory_iface = {
    .struct_size = sizeof(tn_memory_iface),
    .stats = iface_stats,
    .reset_peak = iface_reset_peak,
    .empty_cache = iface_empty_cache,
};
