/* room.h: work memory of kernels, for every backend. Sizes are computed in arithmetic that stops at ROOM_TOP
 * in place of wrapping, and what reaches it is refused where the memory is asked for: a kernel may
 * put a size together in as many steps as it needs and has one place that fails. Products of sizes
 * go nowhere else on their way to an allocation; tests/lint looks for those that do. */
#ifndef TENON_ROOM_H
#define TENON_ROOM_H

#include <stddef.h>
#include <stdint.h>

#include <tenon/plugin.h>

#define ROOM_TOP INT64_MAX
#define ROOM_MOST (INT64_C(1) << 62) /* bytes of a block, as for tensors */

static inline int64_t room_mul(int64_t a, int64_t b) {
    int64_t n;
    return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &n) ? ROOM_TOP : n;
}

static inline int64_t room_add(int64_t a, int64_t b) {
    int64_t n;
    return a < 0 || b < 0 || __builtin_add_overflow(a, b, &n) ? ROOM_TOP : n;
}

static inline int64_t room_mul3(int64_t a, int64_t b, int64_t c) {
    return room_mul(room_mul(a, b), c);
}

static inline int64_t room_mul4(int64_t a, int64_t b, int64_t c, int64_t d) {
    return room_mul(room_mul3(a, b, c), d);
}

/* count elements of `item` bytes each, in bytes. */
static inline tn_status room_bytes(const tn_host *host, int64_t count, size_t item,
                                   uint64_t *ret_bytes) {
    int64_t bytes = room_mul(count, (int64_t)item);
    *ret_bytes = 0;
    if (bytes >= ROOM_MOST)
        return host->fail(TN_E_MEMORY, -1, "out of memory: work memory larger than 2^62 bytes");
    *ret_bytes = (uint64_t)bytes;
    return TN_OK;
}

/* Scratch memory of the call for `count` elements of `item` bytes each. */
static inline tn_status room_scratch(const tn_call *call, int64_t count, size_t item,
                                     void **ret_room) {
    uint64_t bytes;
    tn_status st = room_bytes(call->host, count, item, &bytes);
    return st == TN_OK ? call->host->scratch(call, bytes, ret_room) : st;
}

#endif
