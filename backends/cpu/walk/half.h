/* half.h: packed rows between half precision (TN_F16 or TN_BF16) and f32; and, where the instruction
 * set converts TN_F16 (HALF_F16C), the same for templates. */
#ifndef CPU_HALF_H
#define CPU_HALF_H

#include "cpu_priv.h"

typedef struct cpu_half {
    void (*widen)(float *dst, const uint16_t *src, int64_t n, int32_t dtype);
    void (*narrow)(uint16_t *dst, const float *src, int64_t n, int32_t dtype);
} cpu_half;

extern const cpu_half cpu_half_baseline, cpu_half_avx2, cpu_half_avx512;

#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>

#define HALF_F16C 1

/* Signaling NaN become quiet, which tmpl_from_f16 leaves to the arithmetic that follows. */
static inline __m256 half_wide8(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* The instruction keeps a NaN's payload; STORE's has none. */
static inline __m128i half_plain_nan(__m128i h) {
    const __m128i sign = _mm_set1_epi16(INT16_MIN);
    __m128i size = _mm_min_epu16(_mm_andnot_si128(sign, h), _mm_set1_epi16(0x7e00));
    return _mm_or_si128(size, _mm_and_si128(sign, h));
}

static inline __m128i half_narrow8(__m256 v) {
    return half_plain_nan(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* As half_narrow8 for two vectors. */
static inline __m256i half_narrow16(__m256 a, __m256 b) {
    const __m256i sign = _mm256_set1_epi16(INT16_MIN);
    __m128i lo = _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m128i hi = _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256i h = _mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1);
    __m256i size = _mm256_min_epu16(_mm256_andnot_si256(sign, h), _mm256_set1_epi16(0x7e00));
    return _mm256_or_si256(size, _mm256_and_si256(sign, h));
}

/* One element. */
static inline float half_wide1(uint16_t x) { return _cvtsh_ss(x); }
static inline uint16_t half_narrow1(float x) {
    return (uint16_t)_mm_extract_epi16(half_plain_nan(_mm_cvtps_ph(_mm_set_ss(x), 0)), 0);
}

enum { HALF_STEP = 16 };
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
static inline void half_widen_step(float *dst, const uint16_t *src) {
    _mm512_storeu_ps(dst, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)src)));
}

static inline void half_narrow_step(uint16_t *dst, const float *src) {
    __m512 v = _mm512_loadu_ps(src);
    __m256i h = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    __m256i sign = _mm256_and_si256(h, _mm256_set1_epi16(INT16_MIN));
    h = _mm256_mask_mov_epi16(h, nan, _mm256_or_si256(sign, _mm256_set1_epi16(0x7e00)));
    _mm256_storeu_si256((__m256i *)(void *)dst, h);
}
#else
static inline void half_widen_step(float *dst, const uint16_t *src) {
    _mm256_storeu_ps(dst, half_wide8(src));
    _mm256_storeu_ps(dst + 8, half_wide8(src + 8));
}

static inline void half_narrow_step(uint16_t *dst, const float *src) {
    __m256i h = half_narrow16(_mm256_loadu_ps(src), _mm256_loadu_ps(src + 8));
    _mm256_storeu_si256((__m256i *)(void *)dst, h);
}
#endif

/* Functions, not inlined: a template calls them once a block. */
static __attribute__((noinline, unused)) void half_widen(float *dst, const uint16_t *src,
                                                         int64_t n) {
    int64_t i = 0;
    for (; i + HALF_STEP <= n; i += HALF_STEP) half_widen_step(dst + i, src + i);
    for (; i < n; i++) dst[i] = half_wide1(src[i]);
}

static __attribute__((noinline, unused)) void half_narrow(uint16_t *dst, const float *src,
                                                          int64_t n) {
    int64_t i = 0;
    for (; i + HALF_STEP <= n; i += HALF_STEP) half_narrow_step(dst + i, src + i);
    for (; i < n; i++) dst[i] = half_narrow1(src[i]);
}
#endif

/* Single elements of a template's type: compilers do not find the instruction that converts f16. */
#if defined(TMPL_DTYPE) && TMPL_DTYPE == TMPL_F16 && defined(HALF_F16C)
#define LOAD_ONE(x) half_wide1(x)
#define STORE_ONE(a) half_narrow1(a)
#elif defined(TMPL_DTYPE)
#define LOAD_ONE(x) LOAD(x)
#define STORE_ONE(a) STORE(a)
#endif

#endif
