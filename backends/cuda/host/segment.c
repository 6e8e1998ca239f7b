/* segment.c: where the allocator's memory comes from: whole pieces, or, where the driver can and
 * TENON_CUDA_ALLOC=expandable_segments:True asks for it, ranges of addresses as large as the device's
 * memory, into which memory is mapped as a pool grows. A range leaves no gaps between segments. */
#include "memory.h"

#include <stdlib.h>

static const uint64_t mib = UINT64_C(1) << 20;

static uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

/* What is asked of the driver at least: small blocks share 2 MiB, medium ones 20 MiB. */
static uint64_t usual_size(const cuda_pool *pool, uint64_t bytes) {
    if (pool->small) return 2 * mib;
    return bytes < 10 * mib ? 20 * mib : round_up(bytes, 2 * mib);
}

static bool is_over_limit(const cuda_memory *m, uint64_t more) {
    return m->limit && m->stats.reserved + more > m->limit;
}

static cuda_segment *new_segment(cuda_pool *pool, CUdeviceptr data, uint64_t bytes, uint64_t unit) {
    cuda_segment *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    *s = (cuda_segment){.pool = pool, .data = data, .bytes = bytes, .unit = unit};
    if (!cuda_block_insert(s, NULL, data, bytes, unit ? CUDA_BLOCK_HOLE : CUDA_BLOCK_FREE)) {
        free(s);
        return NULL;
    }
    s->next = pool->segments;
    pool->segments = s;
    return s;
}

/* ---- Whole pieces ------------------------------------------------------------------------------*/

static CUresult grow_by_piece(cuda_pool *pool, uint64_t bytes) {
    cuda_memory *m = pool->memory;
    CUdeviceptr data = 0;
    if (is_over_limit(m, bytes)) return CUDA_NO_MEMORY;
    CUresult r = cuda.memory_alloc(&data, bytes);
    if (r != CUDA_OK) return r;
    cuda_segment *s = new_segment(pool, data, bytes, 0);
    if (!s) {
        cuda.memory_free(data);
        return CUDA_NO_MEMORY;
    }
    cuda_memory_hold(m, (int64_t)bytes);
    cuda_block_keep(s->first);
    return CUDA_OK;
}

/* Whether all of it lies free. */
static bool is_idle(const cuda_segment *s) {
    return s->first->state == CUDA_BLOCK_FREE && !s->first->next;
}

static uint64_t drop_piece(cuda_segment *s) {
    uint64_t bytes = s->bytes;
    cuda_block_take(s->first);
    cuda_block_remove(s->first);
    cuda.memory_free(s->data);
    cuda_memory_hold(s->pool->memory, -(int64_t)bytes);
    free(s);
    return bytes;
}

/* ---- Ranges ------------------------------------------------------------------------------------*/

static CUmemAllocationProp property_of(const cuda_device *d) {
    return (CUmemAllocationProp){.type = CUDA_PINNED_THERE,
                                 .location = {.type = CUDA_ON_DEVICE, .id = d->id}};
}

static CUresult open_range(cuda_pool *pool) {
    const cuda_device *d = pool->memory->device;
    CUmemAllocationProp prop = property_of(d);
    CUdeviceptr data = 0;
    size_t total = 0, least = 0;
    CUresult r = cuda.page_granularity(&least, &prop, CUDA_GRANULARITY);
    if (r == CUDA_OK) r = cuda.device_memory(&total, d->id);
    if (r != CUDA_OK) return r;
    uint64_t unit = round_up((pool->small ? 2 : 20) * mib, least);
    uint64_t bytes = round_up(total, unit);
    r = cuda.range_reserve(&data, bytes, 0, 0, 0);
    if (r != CUDA_OK || new_segment(pool, data, bytes, unit)) return r;
    cuda.range_free(data, bytes);
    return CUDA_NO_MEMORY;
}

/* One unit of memory at an address. The mapping keeps the memory, no handle is needed. */
static CUresult map_unit(const cuda_device *d, CUdeviceptr at, uint64_t unit) {
    CUmemAllocationProp prop = property_of(d);
    CUmemAccessDesc access = {prop.location, CUDA_READ_WRITE};
    CUmemGenericAllocationHandle page = 0;
    CUresult r = cuda.page_create(&page, unit, &prop, 0);
    if (r != CUDA_OK) return r;
    r = cuda.page_map(at, unit, 0, page, 0);
    cuda.page_release(page);
    if (r != CUDA_OK) return r;
    r = cuda.page_access(at, unit, &access, 1);
    if (r != CUDA_OK) cuda.page_unmap(at, unit);
    return r;
}

/* Maps the front of a hole, unit by unit; what was mapped stays, also after a failure. */
static CUresult fill_hole(cuda_block *hole, uint64_t bytes) {
    cuda_segment *s = hole->segment;
    cuda_memory *m = s->pool->memory;
    CUresult r = CUDA_OK;
    while (bytes && r == CUDA_OK) {
        if (is_over_limit(m, s->unit)) return CUDA_NO_MEMORY;
        r = map_unit(m->device, hole->data, s->unit);
        if (r != CUDA_OK) break;
        cuda_block *b = cuda_block_insert(s, hole->prev, hole->data, s->unit, CUDA_BLOCK_FREE);
        if (!b) {
            cuda.page_unmap(hole->data, s->unit);
            return CUDA_NO_MEMORY;
        }
        hole->data += s->unit;
        hole->bytes -= s->unit;
        cuda_memory_hold(m, (int64_t)s->unit);
        cuda_block_keep(b);
        bytes -= s->unit;
    }
    if (hole->bytes == 0) cuda_block_remove(hole);
    return r;
}

/* The first hole that, with the free block in front of it, has room for `bytes`. */
static CUresult grow_range(cuda_segment *s, uint64_t bytes) {
    for (cuda_block *b = s->first; b; b = b->next) {
        if (b->state != CUDA_BLOCK_HOLE) continue;
        uint64_t before = b->prev && b->prev->state == CUDA_BLOCK_FREE ? b->prev->bytes : 0;
        if (before + b->bytes >= bytes) return fill_hole(b, round_up(bytes - before, s->unit));
    }
    return CUDA_NO_MEMORY;
}

/* Takes the memory of whole units out of a free block, which may leave pieces on both sides. */
static uint64_t unmap(cuda_block *b) {
    cuda_segment *s = b->segment;
    uint64_t from = round_up(b->data - s->data, s->unit);
    uint64_t to = (b->data + b->bytes - s->data) / s->unit * s->unit;
    if (from >= to) return 0;
    CUdeviceptr begin = s->data + from, end = s->data + to, stop = b->data + b->bytes;
    cuda_block *hole = cuda_block_insert(s, b, begin, to - from, CUDA_BLOCK_HOLE);
    cuda_block *rest =
        hole && stop > end ? cuda_block_insert(s, hole, end, stop - end, CUDA_BLOCK_FREE) : NULL;
    if (!hole || (stop > end && !rest)) {
        if (hole) cuda_block_remove(hole);
        return 0;
    }
    cuda_block_take(b);
    b->bytes = begin - b->data;
    if (rest) cuda_block_keep(rest);
    if (b->bytes)
        cuda_block_keep(b);
    else
        cuda_block_remove(b);
    for (CUdeviceptr at = begin; at < end; at += s->unit) cuda.page_unmap(at, s->unit);
    cuda_memory_hold(s->pool->memory, -(int64_t)(to - from));
    return to - from;
}

static void merge_holes(cuda_segment *s) {
    for (cuda_block *b = s->first; b && b->next;) {
        if (b->state == CUDA_BLOCK_HOLE && b->next->state == CUDA_BLOCK_HOLE) {
            b->bytes += b->next->bytes;
            cuda_block_remove(b->next);
        } else {
            b = b->next;
        }
    }
}

static uint64_t shrink_range(cuda_segment *s) {
    uint64_t bytes = 0;
    for (cuda_block *b = s->first; b;) {
        cuda_block *next = b->next;
        if (b->state == CUDA_BLOCK_FREE) bytes += unmap(b);
        b = next;
    }
    merge_holes(s);
    return bytes;
}

/* ---- Both --------------------------------------------------------------------------------------*/

CUresult cuda_segment_grow(cuda_pool *pool, uint64_t bytes) {
    if (cuda_settings_expandable(pool->memory->device)) {
        CUresult r = pool->segments ? CUDA_OK : open_range(pool);
        return r == CUDA_OK ? grow_range(pool->segments, bytes) : r;
    }
    uint64_t size = usual_size(pool, bytes);
    CUresult r = grow_by_piece(pool, size);
    return r == CUDA_NO_MEMORY && size > bytes ? grow_by_piece(pool, bytes) : r;
}

uint64_t cuda_segment_shrink(cuda_pool *pool) {
    uint64_t bytes = 0;
    for (cuda_segment **at = &pool->segments; *at;) {
        cuda_segment *s = *at;
        if (s->unit) {
            bytes += shrink_range(s);
        } else if (is_idle(s)) {
            *at = s->next;
            bytes += drop_piece(s);
            continue;
        }
        at = &s->next;
    }
    return bytes;
}
