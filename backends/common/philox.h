/* philox.h: from the words of a counter-based generator to random numbers, for every backend.
 *
 * Note [Float normals]
 * Logarithm, sine and cosine are the single-precision Cephes polynomials, evaluated with fused
 * multiply-adds at exactly the places where the AVX2 code of PyTorch 2.13 ends up with them. That
 * gives its normal numbers bit for bit; do not rearrange. Errors stay within 2 ulp. */
#ifndef PHILOX_H
#define PHILOX_H

#include <math.h>

#include "tmpl.h"

/* ---- Philox ------------------------------------------------------------------------------------*/
/* Note [Philox order]
 * Sixteen consecutive blocks are a group. Where a number takes one word, number i of a group is
 * word i / 16 of block i % 16; where it takes two, it is words 2 * (i / 16) (low) and the next one of
 * block i % 16. So a group fills whole vectors, and a number follows from seed, offset and its
 * index, whatever the instruction set and the number of threads. */
enum { RND_GROUP_BLOCKS = 16, RND_GROUP_WORDS = 64 };

/* Blocks to reserve for n numbers of `words` words each. */
TMPL_INLINE uint64_t rnd_blocks(int64_t n, int words) {
    int64_t per_group = RND_GROUP_WORDS / words;
    return (uint64_t)(n / per_group + (n % per_group != 0)) * RND_GROUP_BLOCKS;
}

/* The first of a block's four numbers of one word; the next ones are RND_GROUP_BLOCKS apart. */
TMPL_INLINE int64_t rnd_first(int64_t block) {
    return block / RND_GROUP_BLOCKS * RND_GROUP_WORDS + block % RND_GROUP_BLOCKS;
}

/* Both halves of a product. Of the upper half of 64 bits nvcc makes an instruction more than of this. */
TMPL_INLINE uint32_t rnd_product(uint32_t x, uint32_t y, uint32_t *ret_upper) {
#ifdef TMPL_CUDA
    *ret_upper = __umulhi(x, y);
    return x * y;
#else
    uint64_t p = (uint64_t)x * y;
    *ret_upper = (uint32_t)(p >> 32);
    return (uint32_t)p;
#endif
}

/* One block of Philox4x32-10. */
TMPL_INLINE void rnd_block(uint64_t seed, uint64_t block, uint32_t ret_words[4]) {
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int r = 0; r < 10; r++) {
        uint32_t upper0, upper1;
        uint32_t low0 = rnd_product(c0, 0xD2511F53u, &upper0);
        uint32_t low1 = rnd_product(c2, 0xCD9E8D57u, &upper1);
        c0 = upper1 ^ c1 ^ k0;
        c1 = low1;
        c2 = upper0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    ret_words[0] = c0;
    ret_words[1] = c1;
    ret_words[2] = c2;
    ret_words[3] = c3;
}

/* The words of number i where numbers take two: see Note [Philox order]. */
TMPL_INLINE uint64_t rnd_word64(uint64_t seed, uint64_t offset, int64_t i) {
    uint32_t w[4];
    bool second = i / RND_GROUP_BLOCKS % 2;
    int64_t block = i / (2 * RND_GROUP_BLOCKS) * RND_GROUP_BLOCKS + i % RND_GROUP_BLOCKS;
    rnd_block(seed, offset + (uint64_t)block, w);
    return second ? (uint64_t)w[3] << 32 | w[2] : (uint64_t)w[1] << 32 | w[0];
}

/* ---- Uniform numbers ---------------------------------------------------------------------------*/

TMPL_INLINE float rnd_f32_of(uint32_t word) { return (float)(int32_t)(word >> 8) * 0x1p-24f; }
TMPL_INLINE double rnd_f64_of(uint64_t word) { return (double)(int64_t)(word >> 11) * 0x1p-53; }
/* Strictly between 0 and 1, so that its logarithm is finite and not 0. */
TMPL_INLINE float rnd_open_f32(uint32_t word) {
    return ((float)(int32_t)(word >> 9) + 0.5f) * 0x1p-23f;
}
TMPL_INLINE double rnd_open_f64(uint64_t word) {
    return ((double)(int64_t)(word >> 12) + 0.5) * 0x1p-52;
}

/* A number of [0, 1) stretched to [from, from + width). Rounding may reach the upper bound `top`, which
 * is excluded: such a number becomes the lower one. */
TMPL_INLINE float rnd_stretch_f32(float x, float from, float width, float top, float bottom) {
    float v = fmaf(x, width, from);
    return v == top ? bottom : v;
}
TMPL_INLINE double rnd_stretch_f64(double x, double from, double width, double top) {
    double v = fma(x, width, from);
    return v == top ? from : v;
}

/* A 32-bit word lies below it with probability p. */
TMPL_INLINE uint64_t rnd_threshold(double p) { return (uint64_t)(p * 0x1p32 + 0.5); }

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

TMPL_INLINE void rnd_pair_f64(double u1, double u2, double mean, double std, double *ret_a,
                              double *ret_b) {
    double radius = sqrt(-2.0 * log(1.0 - u1)), angle = 6.283185307179586 * u2;
    *ret_a = fma(radius * cos(angle), std, mean);
    *ret_b = fma(radius * sin(angle), std, mean);
}

#endif
