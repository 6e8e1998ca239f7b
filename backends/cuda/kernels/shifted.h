/* shifted.h: rows whose elements lie side by side, from anywhere in 16 bytes on, taken in packs of 16
 * bytes: where a row begins inside of 16 bytes, each pack is put together of the two around it. Which
 * elements a pack has does not depend on where the row begins. */
#ifndef CUDA_SHIFTED_H
#define CUDA_SHIFTED_H

#include "device.h"

struct alignas(16) shifted_words {
    uint32_t of[4];
};

/* A row's packs `first` .. end - 1 may be read: what they are made of lies within the operand. */
typedef struct shifted_row {
    const shifted_words *words; /* those that the row begins in */
    int64_t first, end;
    int by; /* bytes from there to the row */
} shifted_row;

TMPL_INLINE shifted_row shifted_find(const void *row, const void *low, const void *high) {
    shifted_row r;
    r.by = (int)((uintptr_t)row % sizeof(shifted_words));
    r.words = (const shifted_words *)((const char *)row - r.by);
    r.first = (const char *)r.words < (const char *)low;
    r.end = ((const char *)high - (const char *)r.words) / (int64_t)sizeof(shifted_words);
    if (r.by > 0) r.end--;
    return r;
}

/* Pack i; SHIFTED: the row does not begin at 16 bytes. */
template <bool SHIFTED, typename P> TMPL_INLINE P shifted_get(const shifted_row &r, int64_t i) {
    P pack;
    shifted_words p = r.words[i];
    if (SHIFTED) {
        shifted_words q = r.words[i + 1];
        uint32_t all[8], by_two[6], by_one[5];
#pragma unroll
        for (int k = 0; k < 8; k++) all[k] = k < 4 ? p.of[k % 4] : q.of[k % 4];
#pragma unroll
        for (int k = 0; k < 6; k++) by_two[k] = r.by & 8 ? all[k + 2] : all[k];
#pragma unroll
        for (int k = 0; k < 5; k++) by_one[k] = r.by & 4 ? by_two[k + 1] : by_two[k];
#pragma unroll
        for (int k = 0; k < 4; k++)
            p.of[k] = sizeof pack.of[0] >= 4
                          ? by_one[k]
                          : (uint32_t)(((uint64_t)by_one[k + 1] << 32 | by_one[k]) >> r.by % 4 * 8);
    }
    memcpy(&pack, &p, sizeof pack);
    return pack;
}

/* Any pack of a row of n elements; those behind its end are not the row's. */
template <int V, typename P, typename E>
TMPL_INLINE P shifted_get_any(const shifted_row &r, const E *row, int64_t i, int64_t n) {
    if (i >= r.first && i < r.end)
        return r.by > 0 ? shifted_get<true, P>(r, i) : shifted_get<false, P>(r, i);
    P pack;
#pragma unroll
    for (int k = 0; k < V; k++) pack.of[k] = row[i * V + k < n ? i * V + k : i * V];
    return pack;
}

#endif
