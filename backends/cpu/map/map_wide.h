/* map_wide.h: formulas on whole vectors of float that compilers do not find by themselves: gelu, where
 * one instruction picks from a table of 32 (AVX-512) or 8 floats (AVX2), and for AVX-512 sigmoid, its
 * kin, the exponential, logarithms, powers, tanh, erf, angles and their inverses. WIDE_<op> tells map_tmpl.h that wide_<op> takes
 * the place of f_<op>. Largest errors as in scalar_f32.h, of gelu 3.1 ulp. An element's result does not
 * depend on its neighbours. Nothing subnormal arises but where the result is: it would cost some processors
 * a hundred times the rest. */
#ifndef CPU_MAP_WIDE_H
#define CPU_MAP_WIDE_H

#if TMPL_IS_FLOAT && TMPL_DTYPE != TMPL_F64 && defined(__AVX2__)
#include "vec.h"

#include "map_pieces.inc"

#define WIDE__gelu 1
#define WIDE__gelu_backward 1

#if defined(__AVX512F__)
#define WIDE_exp 1
#define WIDE_sigmoid 1
#define WIDE_silu 1
#define WIDE__silu_backward 1
#define WIDE__gelu_tanh 1

/* Of a table's row the element that the low five bits of t name. */
VEC_INLINE vec wide_pick(const float *row, vec t) {
    return (vec)_mm512_permutex2var_ps(_mm512_loadu_ps(row), (__m512i)t, _mm512_loadu_ps(row + 16));
}

VEC_INLINE vec wide_fma(vec a, vec b, vec c) {
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

/* The interval of x in [0, 15), which widen with x + 1, and the distance from its start. */
VEC_INLINE vec wide_interval(vec x, vec *ret_d) {
    __m512i bits = (__m512i)(x + 1.0f);
    *ret_d = x - ((vec)_mm512_and_si512(bits, _mm512_set1_epi32(0x7ff00000)) - 1.0f);
    return (vec)_mm512_srli_epi32(bits, 20);
}

/* The function of a table of pieces at x in [0, 15). */
VEC_INLINE vec wide_pieces(const float (*table)[32], vec x) {
    vec d, t = wide_interval(x, &d), p = wide_pick(table[6], t);
    for (int i = 5; i > 1; i--) p = wide_fma(p, d, wide_pick(table[i], t));
    return wide_fma(p, d, wide_pick(table[0], t)) + wide_pick(table[1], t);
}

/* The same of a table that is centred. */
VEC_INLINE vec wide_centred(const float (*table)[32], int degree, vec x) {
    vec t = (vec)_mm512_srli_epi32((__m512i)(x + 1.0f), 20), d = x - wide_pick(table[0], t);
    vec p = wide_pick(table[degree + 1], t);
    for (int i = degree; i > 0; i--) p = wide_fma(p, d, wide_pick(table[i], t));
    return p;
}

#define WIDE_EXP_MAGIC 0x1.8p18f /* its last place is 1/32 */

/* y * (1 + s * r) * 2^(k/32) but for whole powers of two, where t is k / 32 + WIDE_EXP_MAGIC: the
 * fraction is looked up. */
VEC_INLINE vec wide_power(vec y, vec t, vec s, vec r) {
    vec head = y * wide_pick(table_power[1], t);
    return wide_fma(head, wide_fma(s, r, wide_pick(table_power[0], t)), head);
}

typedef __mmask16 wide_mask;
VEC_INLINE vec wide_abs(vec x) { return (vec)_mm512_abs_ps((__m512)x); }
VEC_INLINE vec wide_keep(wide_mask m, vec x) { return (vec)_mm512_maskz_mov_ps(m, (__m512)x); }
VEC_INLINE wide_mask wide_inside(vec x) { /* [-14.4, 8] or NaN */
    wide_mask up = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-14.4f), _CMP_NLT_UQ);
    return _mm512_mask_cmp_ps_mask(up, (__m512)x, _mm512_set1_ps(8.0f), _CMP_NGT_UQ);
}
VEC_INLINE wide_mask wide_below(vec x) { /* below 0 */
    return _mm512_cmp_ps_mask((__m512)x, _mm512_setzero_ps(), _CMP_LT_OQ);
}
VEC_INLINE wide_mask wide_normal(vec x) { /* no subnormal number and no zero */
    return _mm512_cmp_ps_mask((__m512)wide_abs(x), _mm512_set1_ps(0x1p-126f), _CMP_NLT_UQ);
}

/* size with the sign of x */
VEC_INLINE vec wide_signed(vec size, vec x) {
    const __m512 sign = _mm512_set1_ps(-0.0f);
    return (vec)_mm512_or_ps((__m512)size, _mm512_and_ps((__m512)x, sign));
}

/* Where m is set y, x elsewhere. */
VEC_INLINE vec wide_else(wide_mask m, vec y, vec x) {
    return (vec)_mm512_mask_mov_ps((__m512)x, m, (__m512)y);
}

/* x times k for subnormal x: as whole numbers. */
VEC_INLINE vec wide_times(vec x, float k) {
    __m512i units = _mm512_castps_si512(_mm512_abs_ps((__m512)x));
    __m512 times = _mm512_mul_ps(_mm512_cvtepi32_ps(units), _mm512_set1_ps(k));
    return wide_signed((vec)_mm512_cvtps_epi32(times), x);
}

/* With e^r for the rest, |r| <= ln(2) / 64. */
VEC_INLINE vec wide_exp(vec x) {
    const vec magic = vec_all(WIDE_EXP_MAGIC);
    wide_mask above = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-104.0f), _CMP_NLT_UQ);
    x = vec_min(vec_all(89.0f), wide_keep(above & wide_normal(x), x));
    vec t = wide_fma(x, vec_all(0x1.715476p+0f), magic), k = t - magic;
    vec r = wide_fma(k, vec_all(-0x1.0bfbe8p-15f), wide_fma(k, vec_all(-0x1.62ep-1f), x));
    vec p = wide_fma(wide_fma(r, vec_all(0x1.555556p-3f), vec_all(0.5f)), r, vec_all(1.0f));
    return wide_keep(above, vec_scale(wide_power(vec_all(1.0f), t, p, r), k));
}

/* y * e^(-a*a/n) * 2^-k for a in [0, 14.4], n 1 or 2. The multiple of log(2) that is taken from the
 * square is exact, its rest is taken from the difference. */
VEC_INLINE vec wide_fall_but(vec y, vec a, float n, vec *ret_k) {
    const vec magic = vec_all(WIDE_EXP_MAGIC);
    vec t = wide_fma(a * a, vec_all(-0x1.715476p+0f / n), magic), k = *ret_k = t - magic;
    vec r = wide_fma(k, vec_all(n * 0x1.217f7ep-12f), wide_fma(a, a, k * (n * 0x1.62cp-1f)));
    vec s = wide_fma(r, vec_all(-0x1.555556p-3f / (n * n * n)), vec_all(0.5f / (n * n)));
    return wide_power(y, t, wide_fma(s, r, vec_all(-1.0f / n)), r);
}

VEC_INLINE vec wide_fall(vec y, vec a, float n) {
    vec k;
    y = wide_fall_but(y, a, n, &k);
    return vec_scale(y, k);
}

/* Below 0 as z - z * s: the quotient's error then counts by s only. */
VEC_INLINE vec wide_sigmoid(vec x) {
    vec z = wide_exp((vec)_mm512_or_ps((__m512)x, _mm512_set1_ps(-0.0f))), w = z + 1.0f;
    vec q = (vec)_mm512_rcp14_ps((__m512)w);
    q = wide_fma(wide_fma(-q, w, vec_all(1.0f)), q, q);
    return wide_else(wide_below(x), wide_fma(-z, z * q, z), q);
}

VEC_INLINE vec wide_silu(vec x) { return x * wide_sigmoid(x); }

VEC_INLINE vec wide__silu_backward(vec g, vec x) {
    vec s = wide_sigmoid(x);
    return g * (s * (x * (1.0f - s) + 1.0f));
}

VEC_INLINE vec wide__gelu_tanh(vec x) {
    return x * wide_sigmoid(2 * GELU_K * (x + GELU_C * x * x * x));
}

/* Whether all of x are of a size from 2^-62, so that squares are no subnormal numbers, to `most` in bits. */
VEC_INLINE bool wide_up_to(vec x, int32_t most) {
    const int32_t least = 0x20800000;
    __m512i over = _mm512_sub_epi32((__m512i)wide_abs(x), _mm512_set1_epi32(least));
    return _mm512_cmpgt_epu32_mask(over, _mm512_set1_epi32(most - least)) == 0;
}

/* a * normal(-a), without the exponential that it falls by. */
VEC_INLINE vec wide_gelu_part(vec a) { return a * wide_centred(table_gelu, 4, a); }

/* No NaN. Below -13.1 the tail is less than 2^-125: its bits are a whole number, of 2^-149. */
VEC_INLINE vec wide_gelu_far(vec x) {
    vec a = wide_abs(vec_min(vec_all(13.0f), vec_max(vec_all(-14.4f), x))), k;
    vec y = wide_fall_but(wide_gelu_part(a), a, 2.0f, &k);
    __mmask16 low = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-13.1f), _CMP_LT_OQ);
    __m512 units = _mm512_scalef_ps((__m512)y, (__m512)(k + 149.0f));
    y = vec_max(vec_all(-0.0f), x) -
        (vec)_mm512_maskz_scalef_ps((__mmask16)~low, (__m512)y, (__m512)k);
    return (vec)_mm512_mask_or_epi32((__m512i)y, low, (__m512i)y, _mm512_cvtps_epi32(units));
}

/* Below 2^-62 gelu is half of x. */
CPU_NOINLINE static vec wide_gelu_other(vec x) {
    wide_mask small = _mm512_cmp_ps_mask((__m512)wide_abs(x), _mm512_set1_ps(0x1p-62f), _CMP_LT_OQ);
    wide_mask normal = wide_normal(x);
    vec a = wide_keep(wide_inside(x) & ~small, wide_abs(x));
    vec y = vec_max(vec_all(-0.0f), x) - wide_fall(wide_gelu_part(a), a, 2.0f);
    vec half = wide_else(normal, wide_keep(normal, x) * 0.5f, wide_times(x, 0.5f));
    return wide_else(small, half, y);
}

/* Below zero gelu falls like the normal distribution's tail, and both sides come from that, so that no
 * element costs more than another. Above 8 it is nothing beside x, and below -14.4 no float. */
VEC_INLINE vec wide__gelu(vec x) {
    if (!CPU_LIKELY(wide_up_to(x, 0x41500000))) /* 13 */
        return wide_up_to(x, 0x7f800000) ? wide_gelu_far(x) : wide_gelu_other(x);
    vec a = wide_abs(x), k, y = wide_fall_but(wide_gelu_part(a), a, 2.0f, &k);
    return vec_max(vec_all(-0.0f), x) - vec_scale_any(y, k);
}

VEC_INLINE vec wide__gelu_backward(vec g, vec x) {
    wide_mask inside = wide_inside(x);
    vec a = wide_keep(inside, wide_abs(x));
    vec tail = wide_fall(wide_keep(inside, wide_centred(table_gelu_slope, 4, a)), a, 2.0f);
    return g * wide_else(wide_below(x), tail, 1.0f - tail);
}

#include "map_wide_pow.h"
#include "map_wide_more.h"
#include "map_wide_arc.h"

#else
VEC_INLINE vec wide_fma(vec a, vec b, vec c) {
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

VEC_INLINE vec wide_abs(vec x) { return (vec)_mm256_andnot_ps(_mm256_set1_ps(-0.0f), (__m256)x); }

typedef vec_mask wide_mask;
VEC_INLINE wide_mask wide_inside(vec x) { return ~((x < -14.4f) | (x > 8.0f)); } /* or NaN */
VEC_INLINE vec wide_keep(wide_mask m, vec x) { return (vec)((vec_mask)x & m); }

VEC_INLINE vec wide_pick(const float *row, __m256i t) {
    return (vec)_mm256_permutevar8x32_ps(_mm256_loadu_ps(row), t);
}

/* The function of a table of pieces at x in [0, 15): the intervals widen with x + 1. */
VEC_INLINE vec wide_pieces(const float (*table)[8], vec x) {
    __m256i bits = (__m256i)(x + 1.0f), t = _mm256_srli_epi32(bits, 22);
    vec d = x - ((vec)_mm256_and_si256(bits, _mm256_set1_epi32(0x7fc00000)) - 1.0f);
    vec p = wide_pick(table[9], t);
    for (int i = 8; i > 1; i--) p = wide_fma(p, d, wide_pick(table[i], t));
    return wide_fma(p, d, wide_pick(table[0], t)) + wide_pick(table[1], t);
}

/* y * e^(-a*a/2) for a in [0, 14.4]. What rounding took from the square is put right. */
VEC_INLINE vec wide_fall(vec y, vec a) {
    vec square = a * a, lost = wide_fma(a, a, -square), x = square * -0.5f;
    vec k = wide_fma(x, vec_all(0x1.715476p+0f), vec_all(VEC_ROUND)) - VEC_ROUND;
    vec r = wide_fma(k, vec_all(-0x1.62ep-1f), x);
    r = wide_fma(lost, vec_all(-0.5f), wide_fma(k, vec_all(-0x1.0bfbe8p-15f), r));
    vec q = vec_all(0x1.6dbc4ep-10f);
    q = wide_fma(q, r, vec_all(0x1.124138p-7f));
    q = wide_fma(q, r, vec_all(0x1.555454p-5f));
    q = wide_fma(q, r, vec_all(0x1.555488p-3f));
    q = wide_fma(q, r, vec_all(0.5f));
    return vec_scale(wide_fma(y, wide_fma(r * r, q, r), y), k);
}

/* As with AVX-512. */
VEC_INLINE vec wide__gelu(vec x) {
    vec a = wide_keep(wide_inside(x), wide_abs(x));
    return vec_max(vec_all(-0.0f), x) - wide_fall(wide_pieces(table_gelu, a), a);
}

VEC_INLINE vec wide__gelu_backward(vec g, vec x) {
    wide_mask inside = wide_inside(x);
    vec a = wide_keep(inside, wide_abs(x));
    vec tail = wide_fall(wide_keep(inside, wide_pieces(table_gelu_slope, a)), a);
    return g * vec_select(x < 0.0f, tail, 1.0f - tail);
}
#endif
#endif

#endif
