/* vec.h: vectors of the computing type A for kernels that are written once per element type.
 *
 * A vec holds VL elements and is as wide as the registers of the instruction set: compilers keep wider
 * ones in memory. Include after common/tmpl.h, in files where A is float or double.
 * Functions carry no type in their names: they are static and exist once per file. */
#ifndef TENON_CPU_VEC_H
#define TENON_CPU_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#if TMPL_DTYPE == TMPL_F16
#include "half.h"
#endif

#if defined(__AVX512F__)
#define VEC_BYTES 64
#elif defined(__AVX2__)
#define VEC_BYTES 32
#else
#define VEC_BYTES 16
#endif

#if TMPL_DTYPE == TMPL_F64
typedef int64_t vec_int;
typedef uint64_t vec_uint;
#else
typedef int32_t vec_int;
typedef uint32_t vec_uint;
#endif
#define VL (VEC_BYTES / (int)sizeof(A))
typedef A vec __attribute__((vector_size(VEC_BYTES)));
typedef vec_int vec_mask __attribute__((vector_size(VEC_BYTES)));
typedef vec_uint vec_bits __attribute__((vector_size(VEC_BYTES)));

#define VEC_INLINE static inline __attribute__((always_inline, unused))

VEC_INLINE vec vec_all(A x) { return x - (vec){0}; }
VEC_INLINE vec vec_load(const A *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
VEC_INLINE void vec_store(A *p, vec v) { memcpy(p, &v, sizeof v); }
VEC_INLINE vec vec_select(vec_mask m, vec a, vec b) {
    return (vec)(((vec_mask)a & m) | ((vec_mask)b & ~m));
}
/* Ones in the first n lanes. */
VEC_INLINE vec_mask vec_first(int64_t n) {
    static const vec_int ones[32] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                     -1, -1, -1, -1, -1, -1, -1, -1};
    vec_mask m;
    memcpy(&m, ones + 16 - (n < 0 ? 0 : n > VL ? VL : n), sizeof m);
    return m;
}
#if defined(__AVX512F__)
/* The same as bits, whose unit the instructions take. */
VEC_INLINE __mmask16 vec_bits_of(int64_t n) {
    return (__mmask16)(n >= VL ? (1u << VL) - 1 : n > 0 ? (1u << n) - 1 : 0);
}
#endif
/* The first n elements, the others are `fill`. */
VEC_INLINE vec vec_load_n(const A *p, int64_t n, A fill) {
#if defined(__AVX512F__) && TMPL_DTYPE == TMPL_F64
    return (vec)_mm512_mask_loadu_pd((__m512d)vec_all(fill), (__mmask8)vec_bits_of(n), p);
#elif defined(__AVX512F__)
    return (vec)_mm512_mask_loadu_ps((__m512)vec_all(fill), vec_bits_of(n), p);
#elif defined(__AVX2__) && TMPL_DTYPE == TMPL_F64
    vec_mask m = vec_first(n);
    return vec_select(m, (vec)_mm256_maskload_pd(p, (__m256i)m), vec_all(fill));
#elif defined(__AVX2__)
    vec_mask m = vec_first(n);
    return vec_select(m, (vec)_mm256_maskload_ps(p, (__m256i)m), vec_all(fill));
#else
    A t[VL];
    for (int64_t i = 0; i < VL; i++) t[i] = i < n ? p[i] : fill;
    return vec_load(t);
#endif
}
VEC_INLINE void vec_store_n(A *p, vec v, int64_t n) {
#if defined(__AVX512F__) && TMPL_DTYPE == TMPL_F64
    _mm512_mask_storeu_pd(p, (__mmask8)vec_bits_of(n), (__m512d)v);
#elif defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, vec_bits_of(n), (__m512)v);
#elif defined(__AVX2__) && TMPL_DTYPE == TMPL_F64
    _mm256_maskstore_pd(p, (__m256i)vec_first(n), (__m256d)v);
#elif defined(__AVX2__)
    _mm256_maskstore_ps(p, (__m256i)vec_first(n), (__m256)v);
#else
    A t[VL];
    vec_store(t, v);
    for (int64_t i = 0; i < n; i++) p[i] = t[i];
#endif
}
/* The larger ones; b where a or b is NaN. Written out because compilers do not see the
 * instruction in a selection by masks. */
VEC_INLINE vec vec_max(vec a, vec b) {
#if defined(__AVX512F__) && TMPL_DTYPE == TMPL_F64
    return (vec)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX512F__)
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__) && TMPL_DTYPE == TMPL_F64
    return (vec)_mm256_max_pd((__m256d)a, (__m256d)b);
#elif defined(__AVX2__)
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vec_select(a > b, a, b);
#endif
}
/* The smaller ones; b where a or b is NaN. */
VEC_INLINE vec vec_min(vec a, vec b) {
#if defined(__AVX512F__) && TMPL_DTYPE == TMPL_F64
    return (vec)_mm512_min_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX512F__)
    return (vec)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__) && TMPL_DTYPE == TMPL_F64
    return (vec)_mm256_min_pd((__m256d)a, (__m256d)b);
#elif defined(__AVX2__)
    return (vec)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vec_select(a < b, a, b);
#endif
}
#if TMPL_DTYPE == TMPL_F64
#define VEC_ROUND 0x1.8p52 /* added and taken away, it leaves the nearest whole number */
#else
#define VEC_ROUND 0x1.8p23f
#endif
/* a * 2^k for whole k of [-252, 254] (double: [-2044, 2046]), right for subnormal results. */
VEC_INLINE vec vec_scale_any(vec a, vec k) {
#if defined(__AVX512F__) && TMPL_DTYPE == TMPL_F64
    return (vec)_mm512_scalef_pd((__m512d)a, (__m512d)k);
#elif defined(__AVX512F__)
    return (vec)_mm512_scalef_ps((__m512)a, (__m512)k);
#else
    const vec_uint bias = sizeof(A) == 8 ? 1023 : 127, mantissa = sizeof(A) == 8 ? 52 : 23;
    /* Twice the bias lies between e and 0; the rest comes in two steps. */
    vec_bits e = (vec_bits)(k + VEC_ROUND) - (vec_bits)vec_all(VEC_ROUND) + 2 * bias, half = e >> 1;
    return a * (vec)(half << mantissa) * (vec)((e - half) << mantissa);
#endif
}
#if defined(__AVX2__)
#if TMPL_DTYPE == TMPL_F64
#define VEC_LOWEST -1020.0 /* 2^k and a quarter of it are no subnormal numbers from there on */
#define VEC_UNITS 1074.0   /* 2^-k of the smallest number */
#define VEC_PLACE 0x1p52   /* whose last place is 1 */
#else
#define VEC_LOWEST -124.0f
#define VEC_UNITS 149.0f
#define VEC_PLACE 0x1p23f
#endif
/* Whether some element is below x. */
VEC_INLINE bool vec_below(vec v, A x) {
#if defined(__AVX512F__) && TMPL_DTYPE == TMPL_F64
    return _mm512_cmp_pd_mask((__m512d)v, _mm512_set1_pd(x), _CMP_LT_OQ) != 0;
#elif defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)v, _mm512_set1_ps(x), _CMP_LT_OQ) != 0;
#else
    return _mm256_movemask_epi8((__m256i)(v < x)) != 0;
#endif
}
/* The same with subnormal results as whole numbers of the smallest one: to compute one takes some processors
 * a hundred times as long as another number. */
VEC_INLINE vec vec_scale_low(vec a, vec k) {
    const vec_bits sign = (vec_bits)vec_all((A)-0.0);
    vec units = vec_scale_any((vec)((vec_bits)a & ~sign), k + VEC_UNITS);
    vec_mask low = units < VEC_PLACE;
    vec_bits whole = (vec_bits)(units + VEC_PLACE) - (vec_bits)vec_all(VEC_PLACE);
    vec other = vec_scale_any(a, vec_select(low, vec_all(0), k));
    return vec_select(low, (vec)(whole | ((vec_bits)a & sign)), other);
}
#endif
/* The same for a of at least 1/4. */
VEC_INLINE vec vec_scale(vec a, vec k) {
#if defined(__AVX2__)
    if (vec_below(k, VEC_LOWEST)) return vec_scale_low(a, k);
#endif
    return vec_scale_any(a, k);
}
/* In halves: the first lanes take in the last ones. */
VEC_INLINE A vec_sum(vec v) {
#if defined(__AVX512F__) && TMPL_DTYPE == TMPL_F64
    __m256d h =
        _mm256_add_pd(_mm512_castpd512_pd256((__m512d)v), _mm512_extractf64x4_pd((__m512d)v, 1));
    __m128d s = _mm_add_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
#elif defined(__AVX512F__)
    __m256 h =
        _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
#elif defined(__AVX2__) && TMPL_DTYPE == TMPL_F64
    __m128d s =
        _mm_add_pd(_mm256_castpd256_pd128((__m256d)v), _mm256_extractf128_pd((__m256d)v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
#elif defined(__AVX2__)
    __m128 s = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
#else
    A t[VL];
    vec_store(t, v);
    TMPL_UNROLL
    for (int w = VL / 2; w > 0; w /= 2) {
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    }
    return t[0];
#endif
}
/* Sums in turns: VEC_TURN vectors take turns, so that a long sum has as many partial sums whatever the
 * instruction set, and adding does not wait for the last addition. */
#define VEC_TURN (128 / VEC_BYTES)
VEC_INLINE A vec_sum_turns(vec *s) {
    TMPL_UNROLL
    for (int w = VEC_TURN / 2; w > 0; w /= 2) {
        TMPL_UNROLL
        for (int k = 0; k < w; k++) s[k] += s[k + w];
    }
    return vec_sum(s[0]);
}
VEC_INLINE A vec_max_of(vec v) {
#if defined(__AVX512F__) && TMPL_DTYPE == TMPL_F64
    return _mm512_reduce_max_pd((__m512d)v);
#elif defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)v);
#elif defined(__AVX2__) && TMPL_DTYPE == TMPL_F64
    __m128d m =
        _mm_max_pd(_mm256_castpd256_pd128((__m256d)v), _mm256_extractf128_pd((__m256d)v, 1));
    return _mm_cvtsd_f64(_mm_max_sd(m, _mm_unpackhi_pd(m, m)));
#elif defined(__AVX2__)
    __m128 m = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
#else
    A t[VL];
    vec_store(t, v);
    TMPL_UNROLL
    for (int w = VL / 2; w > 0; w /= 2) {
        for (int i = 0; i < w; i++) t[i] = t[i] > t[i + w] ? t[i] : t[i + w];
    }
    return t[0];
#endif
}
/* exp(x) to about 1 ulp: 2^k * exp(r) with |r| <= ln(2) / 2. Below the smallest denormal the result
 * is 0; NaN stays NaN. */
VEC_INLINE vec vec_exp(vec x) {
#if TMPL_DTYPE == TMPL_F64
    const A lo = -746.0, hi = 709.9;
    const A ln2_hi = 0x1.62e42fefa0000p-1, ln2_lo = 0x1.cf79abc9e3b39p-40,
            log2e = 0x1.71547652b82fep+0;
    static const A c[] = {1.0 / 6227020800.0,
                          1.0 / 479001600.0,
                          1.0 / 39916800.0,
                          1.0 / 3628800.0,
                          1.0 / 362880.0,
                          1.0 / 40320.0,
                          1.0 / 5040.0,
                          1.0 / 720.0,
                          1.0 / 120.0,
                          1.0 / 24.0,
                          1.0 / 6.0,
                          0.5,
                          1.0,
                          1.0};
#else
    const A lo = -104.0f, hi = 88.8f;
    const A ln2_hi = 0x1.62e400p-1f, ln2_lo = 0x1.7f7d1cp-20f, log2e = 0x1.715476p+0f;
    static const A c[] = {1.0f / 5040.0f, 1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f,
                          1.0f / 6.0f,    0.5f,          1.0f,          1.0f};
#endif
    x = vec_max(vec_all(lo), x);
    x = vec_min(vec_all(hi), x);
    vec k = x * log2e + VEC_ROUND - VEC_ROUND;
    vec r = x - k * ln2_hi - k * ln2_lo;
    vec p = vec_all(c[0]);
    for (int i = 1; i < (int)(sizeof c / sizeof c[0]); i++) p = p * r + c[i];
    return vec_scale(p, k);
}

/* ---- Rows of T --------------------------------------------------------------------------------*/

/* VL consecutive elements of T as A. */
VEC_INLINE vec vec_load_t(const T *p) {
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
    return vec_load(p);
#elif TMPL_DTYPE == TMPL_BF16 && defined(__AVX512F__)
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16);
#elif TMPL_DTYPE == TMPL_BF16 && defined(__AVX2__)
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16);
#elif TMPL_DTYPE == TMPL_F16 && defined(__AVX512F__)
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
#elif TMPL_DTYPE == TMPL_F16 && HALF_F16C
    return (vec)half_wide8(p);
#else
    A t[VL];
    for (int i = 0; i < VL; i++) t[i] = LOAD(p[i]);
    return vec_load(t);
#endif
}
VEC_INLINE void vec_store_t(T *p, vec v) {
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
    vec_store(p, v);
#elif TMPL_DTYPE == TMPL_BF16 && defined(__AVX512F__)
    /* To the nearest, of two the even one; NaN becomes the quiet one, as STORE makes it. */
    __m512i x = (__m512i)v, odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    __m512i sign = _mm512_and_si512(x, _mm512_set1_epi32(INT32_MIN));
    up = _mm512_mask_or_epi32(up, nan, sign, _mm512_set1_epi32(0x7fc00000));
    __m256i y = _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
    _mm256_storeu_si256((__m256i *)(void *)p, y);
#elif TMPL_DTYPE == TMPL_BF16 && defined(__AVX2__)
    const __m256i half = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1);
    const __m256i quiet = _mm256_set1_epi32(0x7fc00000);
    __m256i x = (__m256i)v, odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), one);
    __m256i up = _mm256_add_epi32(x, _mm256_add_epi32(odd, half));
    __m256i nan = (__m256i)_mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q);
    __m256i sign = _mm256_and_si256(x, _mm256_set1_epi32(INT32_MIN));
    up = _mm256_srli_epi32(_mm256_blendv_epi8(up, _mm256_or_si256(sign, quiet), nan), 16);
    __m128i y = _mm_packus_epi32(_mm256_castsi256_si128(up), _mm256_extracti128_si256(up, 1));
    _mm_storeu_si128((__m128i *)(void *)p, y);
#elif TMPL_DTYPE == TMPL_F16 && defined(__AVX512F__)
    __m256 lo = _mm512_castps512_ps256((__m512)v), hi = _mm512_extractf32x8_ps((__m512)v, 1);
    _mm256_storeu_si256((__m256i *)(void *)p, half_narrow16(lo, hi));
#elif TMPL_DTYPE == TMPL_F16 && HALF_F16C
    _mm_storeu_si128((__m128i *)(void *)p, half_narrow8((__m256)v));
#else
    A t[VL];
    vec_store(t, v);
    for (int i = 0; i < VL; i++) p[i] = STORE(t[i]);
#endif
}
VEC_INLINE vec vec_load_t_n(const T *p, int64_t n, A fill) {
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
    return vec_load_n(p, n, fill);
#else
    A t[VL];
    for (int64_t i = 0; i < VL; i++) t[i] = i < n ? LOAD(p[i]) : fill;
    return vec_load(t);
#endif
}
VEC_INLINE void vec_store_t_n(T *p, vec v, int64_t n) {
#if TMPL_DTYPE == TMPL_F32 || TMPL_DTYPE == TMPL_F64
    vec_store_n(p, v, n);
#else
    T t[VL];
    vec_store_t(t, v);
    for (int64_t i = 0; i < n; i++) p[i] = t[i];
#endif
}

#endif
