/* radix.h: the items of a tile, put in the order of one digit of their keys; those of one digit stay as they
 * were. A block has a thread for each digit. Warp w has the items from w * 32 * rounds on, 32 of them in a
 * round, so that an item's place follows from its digit, its warp, and what came before it there. */
#ifndef CUDA_RADIX_H
#define CUDA_RADIX_H

#include "device.h"

#include "args_order.h"

enum { RADIX_WARPS = CUDA_BLOCK / 32 };
#define RADIX_ALL 0xffffffffu /* lanes of a warp */

static_assert((int)CUDA_DIGITS == (int)CUDA_BLOCK, "a digit has a thread");

/* In shared memory. */
typedef struct radix_room {
    uint32_t *count; /* RADIX_WARPS x CUDA_DIGITS */
    uint32_t *sum;   /* RADIX_WARPS */
} radix_room;

template <typename V> TMPL_INLINE uint32_t radix_digit(V key, int shift) {
    return (uint32_t)(key >> shift) & (CUDA_DIGITS - 1);
}

/* The place in its warp of round 0's item of the calling lane; later rounds are 32 apart. */
TMPL_INLINE int radix_begin(int rounds) {
    int lane = (int)threadIdx.x % 32;
    return ((int)threadIdx.x - lane) * rounds + lane;
}

TMPL_INLINE void radix_clear(const radix_room &r) {
    for (int w = 0; w < RADIX_WARPS; w++) r.count[w * CUDA_DIGITS + threadIdx.x] = 0;
    __syncthreads();
}

/* Counts the lanes' items; how many of the warp came before the lane's, of its digit. */
TMPL_INLINE uint32_t radix_note(const radix_room &r, uint32_t digit, bool there) {
    uint32_t *count = r.count + threadIdx.x / 32 * CUDA_DIGITS + digit;
    uint32_t alike = __ballot_sync(RADIX_ALL, there), lower = (1u << threadIdx.x % 32) - 1;
#pragma unroll
    for (int bit = 0; bit < CUDA_DIGIT_BITS; bit++) {
        bool one = digit >> bit & 1u;
        uint32_t ones = __ballot_sync(RADIX_ALL, one);
        alike &= one ? ones : ~ones;
    }
    uint32_t before = *count;
    __syncwarp(RADIX_ALL);
    if (there && !(alike & lower)) *count = before + (uint32_t)__popc(alike);
    __syncwarp(RADIX_ALL);
    return before + (uint32_t)__popc(alike & lower);
}

/* The sum of x of all threads before the calling one. */
TMPL_INLINE uint32_t radix_before(const radix_room &r, uint32_t x) {
    uint32_t sum = x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t by = 1; by < 32; by *= 2) {
        uint32_t other = __shfl_up_sync(RADIX_ALL, sum, by);
        if (lane >= by) sum += other;
    }
    __syncthreads();
    if (lane == 31) r.sum[warp] = sum;
    __syncthreads();
    for (uint32_t w = 0; w < warp; w++) sum += r.sum[w];
    return sum - x;
}

/* After all rounds: count becomes where in the tile a warp's items of a digit begin. Where those of the
 * calling thread's digit do. */
TMPL_INLINE uint32_t radix_settle(const radix_room &r) {
    uint32_t total = 0, each[RADIX_WARPS];
    __syncthreads();
    for (int w = 0; w < RADIX_WARPS; w++) {
        each[w] = total;
        total += r.count[w * CUDA_DIGITS + threadIdx.x];
    }
    uint32_t first = radix_before(r, total);
    for (int w = 0; w < RADIX_WARPS; w++) r.count[w * CUDA_DIGITS + threadIdx.x] = first + each[w];
    __syncthreads();
    return first;
}

/* Where an item goes whose rank radix_note gave. */
TMPL_INLINE uint32_t radix_place(const radix_room &r, uint32_t digit, uint32_t rank) {
    return r.count[threadIdx.x / 32 * CUDA_DIGITS + digit] + rank;
}

#endif
