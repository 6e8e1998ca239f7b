/* random_math.h: Philox4x32-10, sixteen blocks at a time. For files compiled per instruction set;
 * everything is inline. What becomes of the words: common/philox.h. */
#ifndef CPU_RANDOM_MATH_H
#define CPU_RANDOM_MATH_H

#include <string.h>

#include "common/tmpl.h"
#include "random_priv.h"

/* ---- Philox ------------------------------------------------------------------------------------
 * Each 32-bit word of a block has a 64-bit lane to itself, because the one instruction that
 * multiplies 32 by 32 bits to 64 works on such lanes. The upper halves may hold anything. */
#if defined(__AVX512F__)
#include <immintrin.h>
enum { PHILOX_LANES = 8 };
typedef uint64_t philox_lanes __attribute__((vector_size(64)));
typedef uint32_t philox_words __attribute__((vector_size(32)));
TMPL_INLINE philox_lanes philox_mul(philox_lanes a, philox_lanes b) {
    return (philox_lanes)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}
#elif defined(__AVX2__)
#include <immintrin.h>
enum { PHILOX_LANES = 4 };
typedef uint64_t philox_lanes __attribute__((vector_size(32)));
typedef uint32_t philox_words __attribute__((vector_size(16)));
TMPL_INLINE philox_lanes philox_mul(philox_lanes a, philox_lanes b) {
    return (philox_lanes)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
#else
enum { PHILOX_LANES = 2 };
typedef uint64_t philox_lanes __attribute__((vector_size(16)));
typedef uint32_t philox_words __attribute__((vector_size(8)));
TMPL_INLINE philox_lanes philox_mul(philox_lanes a, philox_lanes b) {
    return (a & 0xffffffffu) * b;
}
#endif

TMPL_INLINE philox_lanes philox_all(uint64_t x) { return x - (philox_lanes){0}; }

TMPL_INLINE void philox_put(uint32_t *dst, philox_lanes x) {
    philox_words w = __builtin_convertvector(x, philox_words);
    memcpy(dst, &w, sizeof w);
}

/* words[w * 16 + b] is word w of block `block` + b. */
TMPL_INLINE void philox_group(uint64_t seed, uint64_t block, uint32_t *words) {
    const philox_lanes m0 = philox_all(0xD2511F53u), m1 = philox_all(0xCD9E8D57u);
    for (int i = 0; i < RND_GROUP_BLOCKS; i += PHILOX_LANES) {
        philox_lanes c0 = philox_all(0), c1, c2 = philox_all(0), c3 = philox_all(0);
        philox_lanes k0 = philox_all(seed & 0xffffffffu), k1 = philox_all(seed >> 32);
        for (int l = 0; l < PHILOX_LANES; l++) c0[l] = block + (uint64_t)(i + l);
        c1 = c0 >> 32;
        for (int r = 0; r < 10; r++) {
            philox_lanes p0 = philox_mul(c0, m0), p1 = philox_mul(c2, m1);
            c0 = (p1 >> 32) ^ c1 ^ k0;
            c1 = p1;
            c2 = (p0 >> 32) ^ c3 ^ k1;
            c3 = p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        philox_put(words + i, c0);
        philox_put(words + i + 16, c1);
        philox_put(words + i + 32, c2);
        philox_put(words + i + 48, c3);
    }
}

/* The words of the k-th group of one-word numbers from `at` on, and of two-word numbers. */
TMPL_INLINE void rnd_group1(const rnd_job *j, int64_t at, uint32_t *words) {
    philox_group(j->seed, j->offset + (uint64_t)(at / RND_GROUP_WORDS) * RND_GROUP_BLOCKS, words);
}
TMPL_INLINE void rnd_group2(const rnd_job *j, int64_t at, uint64_t *words) {
    uint32_t w[RND_GROUP_WORDS];
    philox_group(j->seed, j->offset + (uint64_t)(at / 32) * RND_GROUP_BLOCKS, w);
    for (int i = 0; i < 16; i++) {
        words[i] = (uint64_t)w[16 + i] << 32 | w[i];
        words[16 + i] = (uint64_t)w[48 + i] << 32 | w[32 + i];
    }
}

#endif
