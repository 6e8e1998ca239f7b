/* memory.c: device memory of the harness: which blocks live, so that every access can be checked. New
 * memory is filled with 0xff (not-a-number, -1), freed memory with 0xdd, and an address is not used
 * again before many others were. */
#include "memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "grid.h"

enum { ALIGNMENT = 512, RETIRED = 256 };
static const size_t retired_most = (size_t)128 << 20; /* bytes */

typedef struct block {
    uintptr_t begin;
    size_t bytes;
    int device;
} block;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static block *blocks; /* by address */
static size_t nblocks, room;
static size_t used[HOST_DEVICES + 1];
static uint64_t age = 1;
static struct {
    void *data;
    size_t bytes;
} retired[RETIRED];
static size_t nretired, retired_first, retired_bytes;

uint64_t memory_age(void) { return __atomic_load_n(&age, __ATOMIC_ACQUIRE); }
static void grow_older(void) { __atomic_add_fetch(&age, 1, __ATOMIC_RELEASE); }

/* Lock held: the number of blocks that begin at or below the address. */
static size_t count_below(uintptr_t at) {
    size_t low = 0, high = nblocks;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (blocks[mid].begin <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

bool memory_find(uintptr_t at, size_t bytes, uintptr_t *ret_begin, uintptr_t *ret_end) {
    bool found = false;
    pthread_rwlock_rdlock(&lock);
    size_t i = count_below(at);
    if (i > 0) {
        const block *b = &blocks[i - 1];
        *ret_begin = b->begin;
        *ret_end = b->begin + b->bytes;
        found = bytes <= b->bytes && at - b->begin <= b->bytes - bytes;
    }
    pthread_rwlock_unlock(&lock);
    return found;
}

void memory_describe(uintptr_t at, char *ret_text, size_t text_room) {
    pthread_rwlock_rdlock(&lock);
    size_t i = count_below(at);
    const block *below = i > 0 ? &blocks[i - 1] : NULL, *above = i < nblocks ? &blocks[i] : NULL;
    if (below && (!above || at - below->begin - below->bytes < above->begin - at))
        snprintf(ret_text, text_room,
                 "%zu bytes past the end of the nearest block (%zu bytes at %p)",
                 (size_t)(at - below->begin - below->bytes), below->bytes, (void *)below->begin);
    else if (above)
        snprintf(ret_text, text_room, "%zu bytes before the nearest block (%zu bytes at %p)",
                 (size_t)(above->begin - at), above->bytes, (void *)above->begin);
    else
        snprintf(ret_text, text_room, "where no block is");
    pthread_rwlock_unlock(&lock);
}

static bool make_room(void) {
    if (nblocks < room) return true;
    size_t more = room ? 2 * room : 256;
    block *p = realloc(blocks, more * sizeof *p);
    if (!p) return false;
    blocks = p;
    room = more;
    return true;
}

static size_t limit(void) {
    const char *text = getenv("TENON_CUDA_HOST_MEMORY");
    return text ? (size_t)strtoull(text, NULL, 10) : (size_t)1 << 30;
}

/* Lock held. There is room for one more block. */
static void insert(uintptr_t begin, size_t bytes, int device) {
    size_t i = count_below(begin);
    memmove(&blocks[i + 1], &blocks[i], (nblocks - i) * sizeof *blocks);
    blocks[i] = (block){begin, bytes, device};
    nblocks++;
    grow_older();
}

/* Lock held. */
static void take_out(size_t i) {
    memmove(&blocks[i], &blocks[i + 1], (nblocks - i - 1) * sizeof *blocks);
    nblocks--;
    grow_older();
}

bool memory_alloc(int device, size_t bytes, uintptr_t *ret_data) {
    void *data = NULL;
    size_t most = limit();
    pthread_rwlock_wrlock(&lock);
    bool fits = bytes <= most && used[device] <= most - bytes && make_room();
    if (fits) fits = posix_memalign(&data, ALIGNMENT, bytes + ALIGNMENT) == 0;
    if (fits) {
        memset(data, 0xff, bytes + ALIGNMENT);
        insert((uintptr_t)data, bytes, device);
        used[device] += bytes;
        *ret_data = (uintptr_t)data;
    }
    pthread_rwlock_unlock(&lock);
    return fits;
}

/* Lock held. */
static void retire(void *data, size_t bytes) {
    while (nretired == RETIRED || (nretired && retired_bytes + bytes > retired_most)) {
        retired_bytes -= retired[retired_first].bytes;
        free(retired[retired_first].data);
        retired_first = (retired_first + 1) % RETIRED;
        nretired--;
    }
    size_t last = (retired_first + nretired++) % RETIRED;
    retired[last].data = data;
    retired[last].bytes = bytes;
    retired_bytes += bytes;
}

bool memory_free(uintptr_t data) {
    pthread_rwlock_wrlock(&lock);
    size_t i = count_below(data);
    bool found = i > 0 && blocks[i - 1].begin == data;
    if (found) {
        block b = blocks[i - 1];
        take_out(i - 1);
        used[b.device] -= b.bytes;
        memset((void *)b.begin, 0xdd, b.bytes);
        retire((void *)b.begin, b.bytes);
    }
    pthread_rwlock_unlock(&lock);
    return found;
}

void memory_info(int device, size_t *ret_free, size_t *ret_total) {
    pthread_rwlock_rdlock(&lock);
    *ret_total = limit();
    *ret_free = *ret_total > used[device] ? *ret_total - used[device] : 0;
    pthread_rwlock_unlock(&lock);
}

/* ---- Mapped memory -----------------------------------------------------------------------------*/

bool memory_reserve(size_t bytes, uintptr_t *ret_data) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *data = mmap(NULL, bytes, PROT_NONE, flags, -1, 0);
    *ret_data = (uintptr_t)data;
    return data != MAP_FAILED;
}

void memory_unreserve(uintptr_t data, size_t bytes) { munmap((void *)data, bytes); }

bool memory_claim(int device, size_t bytes) {
    size_t most = limit();
    pthread_rwlock_wrlock(&lock);
    bool fits = bytes <= most && used[device] <= most - bytes;
    if (fits) used[device] += bytes;
    pthread_rwlock_unlock(&lock);
    return fits;
}

void memory_disclaim(int device, size_t bytes) {
    pthread_rwlock_wrlock(&lock);
    used[device] -= bytes;
    pthread_rwlock_unlock(&lock);
}

/* Neighbours become one block, so that an access may span them. */
bool memory_open(int device, uintptr_t data, size_t bytes) {
    if (mprotect((void *)data, bytes, PROT_READ | PROT_WRITE) != 0) return false;
    memset((void *)data, 0xff, bytes);
    pthread_rwlock_wrlock(&lock);
    bool fits = make_room();
    if (fits) {
        size_t i = count_below(data);
        if (i < nblocks && blocks[i].begin == data + bytes) {
            bytes += blocks[i].bytes;
            take_out(i);
        }
        if (i > 0 && blocks[i - 1].begin + blocks[i - 1].bytes == data)
            blocks[i - 1].bytes += bytes;
        else
            insert(data, bytes, device);
    }
    pthread_rwlock_unlock(&lock);
    return fits;
}

bool memory_close(uintptr_t data, size_t bytes) {
    pthread_rwlock_wrlock(&lock);
    size_t i = count_below(data);
    block b = i > 0 ? blocks[i - 1] : (block){0};
    bool found = i > 0 && data + bytes <= b.begin + b.bytes && make_room();
    if (found) {
        take_out(i - 1);
        if (data > b.begin) insert(b.begin, data - b.begin, b.device);
        size_t after = b.begin + b.bytes - (data + bytes);
        if (after && make_room()) insert(data + bytes, after, b.device);
    }
    pthread_rwlock_unlock(&lock);
    return found && madvise((void *)data, bytes, MADV_DONTNEED) == 0 &&
           mprotect((void *)data, bytes, PROT_NONE) == 0;
}
