/* random_math.h: Philox4x32-10, sixteen blocks at a time, and the float functions that turn uniform
 * numbers into normal ones. For files compiled per instruction set; everything is inline.
 *
 * Note [Float normals]
 * Logarithm, sine and cosine are the single-precision Cephes polynomials, evaluated with fused
 * multiply-adds at exactly the places where the AVX2 code of PyTorch 2.13 ends up with them. That
 * gives its normal numbers bit for bit; do not rearrange. Errors stay within 2 ulp. */
#ifndef CPU_RANDOM_MATH_H
#define CPU_RANDOM_MATH_H

#include <math.h>
#include <string.h>

#include "../common/tmpl.h"
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

TMPL_INLINE float rnd_f32_of(uint32_t word) { return (float)(int32_t)(word >> 8) * 0x1p-24f; }
TMPL_INLINE double rnd_f64_of(uint64_t word) { return (double)(int64_t)(word >> 11) * 0x1p-53; }
/* Strictly between 0 and 1, so that its logarithm is finite and not 0. */
TMPL_INLINE float rnd_open_f32(uint32_t word) {
    return ((float)(int32_t)(word >> 9) + 0.5f) * 0x1p-23f;
}
TMPL_INLINE double rnd_open_f64(uint64_t word) {
    return ((double)(int64_t)(word >> 12) + 0.5) * 0x1p-52;
}

/* ---- Normal numbers ----------------------------------------------------------------------------*/

TMPL_INLINE float rnd_log_f32(float x) {
    uint32_t bits = tmpl_bits32(x < 0x1p-126f ? 0x1p-126f : x);
    float e = (float)((int32_t)(bits >> 23) - 126);
    float m = tmpl_float((bits & 0x007fffffu) | 0x3f000000u); /* [0.5, 1) */
    bool low = m < 0.707106781186547524f;
    float r = m - 1.0f + (low ? m : 0.0f);
    e = low ? e - 1.0f : e;
    float rr = r * r, y = 7.0376836292e-2f;
    y = fmaf(y, r, -1.1514610310e-1f);
    y = fmaf(y, r, 1.1676998740e-1f);
    y = fmaf(y, r, -1.2420140846e-1f);
    y = fmaf(y, r, 1.4249322787e-1f);
    y = fmaf(y, r, -1.6668057665e-1f);
    y = fmaf(y, r, 2.0000714765e-1f);
    y = fmaf(y, r, -2.4999993993e-1f);
    y = fmaf(y, r, 3.3333331174e-1f);
    y = fmaf(y * r, rr, e * -2.12194440e-4f);
    y = fmaf(rr, -0.5f, y);
    return fmaf(e, 0.693359375f, r + y);
}

/* Of 0 <= x < 8192. */
TMPL_INLINE void rnd_sincos_f32(float x, float *ret_sin, float *ret_cos) {
    int32_t octant = ((int32_t)(x * 1.27323954473516f) + 1) & ~1;
    float k = (float)octant;
    float r = fmaf(k, -0.78515625f, x);
    r = fmaf(k, -2.4187564849853515625e-4f, r);
    r = fmaf(k, -3.77489497744594108e-8f, r);
    float rr = r * r, c = 2.443315711809948e-5f, s = -1.9515295891e-4f;
    c = fmaf(c, rr, -1.388731625493765e-3f);
    c = fmaf(c, rr, 4.166664568298827e-2f);
    c = fmaf(c * rr, rr, rr * -0.5f) + 1.0f;
    s = fmaf(s, rr, 8.3321608736e-3f);
    s = fmaf(s, rr, -1.6666654611e-1f);
    s = fmaf(s * rr, r, r);
    bool swap = octant & 2;
    uint32_t sin_sign = (uint32_t)(octant & 4) << 29;
    uint32_t cos_sign = (uint32_t)(~(octant - 2) & 4) << 29;
    *ret_sin = tmpl_float(tmpl_bits32(swap ? c : s) ^ sin_sign);
    *ret_cos = tmpl_float(tmpl_bits32(swap ? s : c) ^ cos_sign);
}

/* Box-Muller: two uniform numbers of [0, 1) become two normal ones. */
TMPL_INLINE void rnd_pair_f32(float u1, float u2, float mean, float std, float *ret_a,
                              float *ret_b) {
    float s, c, radius = sqrtf(-2.0f * rnd_log_f32(1.0f - u1));
    rnd_sincos_f32(6.283185307179586f * u2, &s, &c);
    *ret_a = fmaf(radius * c, std, mean);
    *ret_b = fmaf(radius * s, std, mean);
}

static inline void rnd_pair_f64(double u1, double u2, double mean, double std, double *ret_a,
                                double *ret_b) {
    double radius = sqrt(-2.0 * log(1.0 - u1)), angle = 6.283185307179586 * u2;
    *ret_a = fma(radius * cos(angle), std, mean);
    *ret_b = fma(radius * sin(angle), std, mean);
}

#endif
