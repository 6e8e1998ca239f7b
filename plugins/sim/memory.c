/* memory.c: memory that the host cannot read. A device's arena is one anonymous file that is mapped
 * twice: Tenon gets addresses in a mapping without any rights, kernels and copies go through a
 * second one that can be read and written. A host that follows one of our pointers dies on the spot.
 *
 * Every block has red zones around it, which are looked at when the block is freed, when the device
 * is synchronised, and after each kernel that was given the block. */
#include "sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Blocks start and end at multiples of UNIT. A freed block's fill is verified in its first bytes
 * when it is used again, so that a late writer is found. */
enum { UNIT = 256, VERIFIED = 4096 };

static uint64_t payload_at(const sim_block *b) { return b->at + SIM_ZONE; }

static bool is_filled(const unsigned char *p, unsigned char value, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (p[i] != value) return false;
    return true;
}

/* ---- The arena ---------------------------------------------------------------------------------*/

static tn_status fail_open(sim_device *d, const char *step) {
    return sim_host->fail(TN_E_MEMORY, -1, "%s:%d: the arena cannot be made (%s)",
                          sim_settings.name, (int)d->index, step);
}

static void unmap(sim_memory *m) {
    if (m->host_face) munmap(m->host_face, m->room);
    if (m->face) munmap(m->face, m->room);
    if (m->of_unit) munmap(m->of_unit, m->room / UNIT * sizeof *m->of_unit);
    if (m->file > 0) close(m->file);
    free(m->blocks);
    m->host_face = m->face = NULL;
    m->of_unit = NULL;
    m->blocks = NULL;
    m->file = 0;
    m->stats.reserved = 0;
}

static void *map(int rights, int flags, int file, uint64_t bytes) {
    void *p = mmap(NULL, bytes, rights, flags | MAP_NORESERVE, file, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Twice the limit, so that red zones and gaps do not eat into it. Pages cost nothing until used. */
static tn_status open_arena(sim_device *d) {
    sim_memory *m = &d->memory;
    if (m->blocks) return TN_OK;
    m->room = (2 * sim_settings.memory + (64 << 20)) / UNIT * UNIT;
    m->file = memfd_create("tenon-sim", MFD_CLOEXEC);
    if (m->file < 0 || ftruncate(m->file, (off_t)m->room) != 0) {
        unmap(m);
        return fail_open(d, "memfd_create");
    }
    m->host_face = map(PROT_NONE, MAP_SHARED, m->file, m->room);
    m->face = map(PROT_READ | PROT_WRITE, MAP_SHARED, m->file, m->room);
    m->of_unit = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                     m->room / UNIT * sizeof *m->of_unit);
    m->blocks = calloc(1, sizeof *m->blocks);
    if (!m->host_face || !m->face || !m->of_unit || !m->blocks) {
        unmap(m);
        return fail_open(d, "mmap");
    }
    m->blocks->size = m->room;
    m->stats.reserved = m->room;
    m->stats.reserved_peak = m->room;
    return TN_OK;
}

void sim_memory_close(sim_device *d) {
    sim_memory *m = &d->memory;
    if (m->blocks && m->blocks->state == SIM_BLOCK_FREE && !m->blocks->next) unmap(m);
}

/* ---- Blocks ------------------------------------------------------------------------------------*/

/* Cuts b to `size` and puts the rest behind it; b stays whole when there is no memory for that. */
static void split(sim_block *b, uint64_t size) {
    sim_block *rest = b->size > size ? calloc(1, sizeof *rest) : NULL;
    if (!rest) return;
    rest->at = b->at + size;
    rest->size = b->size - size;
    rest->prev = b;
    rest->next = b->next;
    if (rest->next) rest->next->prev = rest;
    b->next = rest;
    b->size = size;
}

static void merge_with_next(sim_block *b) {
    sim_block *gone = b->next;
    b->size += gone->size;
    b->next = gone->next;
    if (b->next) b->next->prev = b;
    free(gone);
}

static void set_owner(sim_memory *m, const sim_block *b, sim_block *owner) {
    for (uint64_t u = b->at / UNIT; u < (b->at + b->size) / UNIT; u++) m->of_unit[u] = owner;
}

static sim_block *find_free(const sim_memory *m, uint64_t size) {
    sim_block *b = m->blocks;
    while (b && (b->state != SIM_BLOCK_FREE || b->size < size)) b = b->next;
    return b;
}

/* The bytes of a free block that held data before are still as free left them. */
static void verify_freed(sim_device *d, const sim_block *b) {
    const unsigned char *p = d->memory.face + payload_at(b);
    uint64_t n = b->bytes < VERIFIED ? b->bytes : VERIFIED;
    if (!is_filled(p, SIM_FREED, n))
        sim_note_failure(d, "a block of %" PRIu64 " bytes was written after it was freed",
                         b->bytes);
}

static tn_status fail_full(const sim_device *d, uint64_t bytes) {
    return sim_host->fail(TN_E_MEMORY, -1,
                          "%s:%d is out of memory: %" PRIu64 " bytes were asked for, %" PRIu64
                          " of %" PRIu64 " are in use",
                          sim_settings.name, (int)d->index, bytes, d->memory.stats.allocated,
                          sim_settings.memory);
}

/* A block of that size, after waiting for memory that queued work still holds if need be. */
static sim_block *find_room(sim_device *d, uint64_t bytes, uint64_t size) {
    sim_memory *m = &d->memory;
    for (;;) {
        bool fits =
            bytes <= sim_settings.memory && m->stats.allocated <= sim_settings.memory - bytes;
        sim_block *b = fits ? find_free(m, size) : NULL;
        if (b || !m->dying) return b;
        pthread_cond_wait(&d->changed, &d->lock);
        sim_memory_reap(d);
    }
}

tn_status sim_memory_alloc(sim_device *d, uint64_t bytes, void **ret_data) {
    sim_memory *m = &d->memory;
    tn_status st = open_arena(d);
    if (st != TN_OK) return st;
    if (bytes > sim_settings.memory || sim_fault_now(SIM_FAULT_OOM, "")) return fail_full(d, bytes);
    uint64_t size = (bytes + 2 * SIM_ZONE + UNIT - 1) / UNIT * UNIT;
    sim_block *b = find_room(d, bytes, size);
    if (!b) return fail_full(d, bytes);
    if (b->bytes) verify_freed(d, b);
    split(b, size);
    b->state = SIM_BLOCK_USED;
    b->bytes = bytes;
    b->nusers = 0;
    set_owner(m, b, b);
    memset(m->face + b->at, SIM_GUARD, b->size);
    memset(m->face + payload_at(b), SIM_FRESH, bytes);
    m->stats.allocations++;
    m->stats.allocated += bytes;
    if (m->stats.allocated > m->stats.allocated_peak) m->stats.allocated_peak = m->stats.allocated;
    *ret_data = m->host_face + payload_at(b);
    return TN_OK;
}

static void give_back(sim_device *d, sim_block *b) {
    sim_memory *m = &d->memory;
    sim_memory_check(d, b, NULL);
    memset(m->face + b->at, SIM_FREED, b->size);
    set_owner(m, b, NULL);
    m->stats.allocated -= b->bytes;
    b->state = SIM_BLOCK_FREE;
    if (b->next && b->next->state == SIM_BLOCK_FREE) merge_with_next(b);
    if (b->prev && b->prev->state == SIM_BLOCK_FREE) merge_with_next(b->prev);
}

void sim_memory_reap(sim_device *d) {
    sim_block **at = &d->memory.dying;
    while (*at) {
        sim_block *b = *at;
        if (sim_is_unused(d, b)) {
            *at = b->next_dying;
            give_back(d, b);
        } else {
            at = &b->next_dying;
        }
    }
}

/* The block in use that an address of the unreadable face lies in. */
static sim_block *block_of(const sim_memory *m, uint64_t address) {
    uint64_t start = (uint64_t)(uintptr_t)m->host_face;
    if (!m->of_unit || address < start || address >= start + m->room) return NULL;
    return m->of_unit[(address - start) / UNIT];
}

sim_block *sim_memory_block(sim_device *d, const void *data, const char *what) {
    const sim_memory *m = &d->memory;
    sim_block *b = block_of(m, (uint64_t)(uintptr_t)data);
    if (b && b->state == SIM_BLOCK_USED && m->host_face + payload_at(b) == data) return b;
    sim_note_failure(d, "%p was %s, which is not the start of a block in use", data, what);
    return NULL;
}

void sim_memory_free(sim_device *d, void *data) {
    sim_memory *m = &d->memory;
    sim_block *b = sim_memory_block(d, data, "freed");
    if (!b) return;
    b->state = SIM_BLOCK_DYING;
    b->stamp = d->stamp;
    b->next_dying = m->dying;
    m->dying = b;
    m->stats.frees++;
    sim_memory_reap(d);
}

/* Bytes of another process's block; NULL: the address lies in none. */
static unsigned char *reach_import(const sim_memory *m, uint64_t start, uint64_t offset, int64_t lo,
                                   int64_t hi) {
    for (const sim_import *i = m->imports; i; i = i->next) {
        uint64_t first = start + offset - (uint64_t)(uintptr_t)i->host_face - i->skip;
        bool inside = start - (uint64_t)(uintptr_t)i->host_face < i->room &&
                      (int64_t)first + lo >= 0 && (int64_t)first + hi <= (int64_t)i->bytes;
        if (inside) return i->face + i->skip + first;
    }
    return NULL;
}

unsigned char *sim_memory_reach(sim_device *d, const void *data, uint64_t offset, int64_t lo,
                                int64_t hi, sim_block **ret_block) {
    const sim_memory *m = &d->memory;
    uint64_t start = (uint64_t)(uintptr_t)data;
    sim_block *b = block_of(m, start);
    unsigned char *theirs = b ? NULL : reach_import(m, start, offset, lo, hi);
    if (theirs) {
        if (ret_block) *ret_block = NULL;
        return theirs;
    }
    bool good = b && b->state == SIM_BLOCK_USED;
    if (good && sim_settings.opaque) good = m->host_face + payload_at(b) == data;
    if (!good) {
        sim_host->fail(TN_E_INTERNAL, -1, "%p + %" PRIu64 " is no memory of %s:%d", data, offset,
                       sim_settings.name, (int)d->index);
        return NULL;
    }
    int64_t first = (int64_t)(start - (uint64_t)(uintptr_t)m->host_face - payload_at(b) + offset);
    if (first + lo < 0 || first + hi > (int64_t)b->bytes) {
        sim_host->fail(TN_E_INTERNAL, -1,
                       "bytes %" PRId64 " to %" PRId64 " of a block of %" PRIu64
                       " bytes on %s:%d were asked for",
                       first + lo, first + hi, b->bytes, sim_settings.name, (int)d->index);
        return NULL;
    }
    if (ret_block) *ret_block = b;
    return m->face + payload_at(b) + first;
}

unsigned char *sim_reach(sim_device *d, const void *data, uint64_t offset, uint64_t bytes) {
    pthread_mutex_lock(&d->lock);
    unsigned char *p = sim_memory_reach(d, data, offset, 0, (int64_t)bytes, NULL);
    pthread_mutex_unlock(&d->lock);
    return p;
}

/* ---- Red zones ---------------------------------------------------------------------------------*/

void sim_memory_check(sim_device *d, const sim_block *b, const char *op) {
    unsigned char *start = d->memory.face + b->at, *end = start + b->size;
    unsigned char *data = start + SIM_ZONE;
    bool before = !is_filled(start, SIM_GUARD, SIM_ZONE);
    bool behind = !is_filled(data + b->bytes, SIM_GUARD, (uint64_t)(end - data) - b->bytes);
    if (!before && !behind) return;
    sim_note_failure(d, "%s%s%sa block of %" PRIu64 " bytes was written %s", op ? "'" : "",
                     op ? op : "", op ? "' is wrong: " : "", b->bytes,
                     before ? "before its start" : "past its end");
    memset(start, SIM_GUARD, SIM_ZONE); /* one report for one overrun */
    memset(data + b->bytes, SIM_GUARD, (size_t)(end - data) - b->bytes);
}

void sim_memory_check_all(sim_device *d) {
    for (const sim_block *b = d->memory.blocks; b; b = b->next)
        if (b->state != SIM_BLOCK_FREE) sim_memory_check(d, b, NULL);
}
