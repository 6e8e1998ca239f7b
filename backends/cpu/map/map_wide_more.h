/* map_wide_more.h: logarithms, tanh, erf, erfc, sine and cosine of whole vectors of float by AVX-512. Part of
 * map_wide.h. */
#ifndef CPU_MAP_WIDE_MORE_H
#define CPU_MAP_WIDE_MORE_H

#define WIDE_log 1
#define WIDE_log2 1
#define WIDE_log10 1
#define WIDE_tanh 1
#define WIDE_erf 1
#define WIDE_erfc 1
#define WIDE_sin 1
#define WIDE_cos 1
#if TMPL_IS_HALF /* in float compilers find it */
#define WIDE_round 1
#endif

/* x = z 2^k with z in [0.70, 1.41): k log(2) + log(c) + log1p(r), r = z / c - 1, with a c near z, looked up; all
 * of them times `slope`, in two parts as log(2) is. The instructions give 0, infinities and NaN the exponents
 * and fractions that the sum needs. */
VEC_INLINE vec wide_log_by(vec x, const float (*table)[32], float two, float two_low, float slope,
                           float slope_low) {
    const __m512 v = (__m512)x;
    __m512 z = _mm512_getmant_ps(v, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan), k = _mm512_getexp_ps(v);
    __mmask16 upper = _mm512_cmp_ps_mask(z, _mm512_set1_ps(1.40625f), _CMP_GE_OQ);
    k = _mm512_mask_add_ps(k, upper, k, _mm512_set1_ps(1.0f));
    vec t = (vec)_mm512_srli_epi32(_mm512_castps_si512(z), 18), e = (vec)k;
    vec r = wide_fma((vec)z, wide_pick(table[0], t), vec_all(-1.0f));
    vec p = wide_fma(r, vec_all(0.2f * slope), vec_all(-0.25f * slope));
    p = wide_fma(p, r, vec_all(0x1.555556p-2f * slope));
    p = wide_fma(p, r, vec_all(-0.5f * slope));
    vec low = wide_pick(table[2], t), head = wide_fma(e, vec_all(two), wide_pick(table[1], t));
    if (two_low != 0) low = wide_fma(e, vec_all(two_low), low);
    if (slope_low != 0) low = wide_fma(r, vec_all(slope_low), low);
    low = wide_fma(r * r, p, low);
    return head + wide_fma(r, vec_all(slope), low);
}

VEC_INLINE vec wide_log(vec x) {
    return wide_log_by(x, table_ln, 0x1.62ep-1f, 0x1.0bfbe8p-15f, 1.0f, 0.0f);
}

VEC_INLINE vec wide_log2(vec x) {
    return wide_log_by(x, table_log2, 1.0f, 0.0f, 0x1.715476p+0f, 0x1.4ae0cp-26f);
}

VEC_INLINE vec wide_log10(vec x) {
    return wide_log_by(x, table_log10, 0x1.344p-2f, 0x1.3509f8p-18f, 0x1.bcb7b2p-2f,
                       -0x1.5b235ep-27f);
}

VEC_INLINE vec wide_tanh(vec x) {
    wide_mask normal = wide_normal(x);
    vec size = vec_min(vec_all(14.0f), wide_keep(normal, wide_abs(x)));
    return wide_else(normal, wide_signed(wide_pieces(table_tanh, size), x), x);
}

/* wide_pieces whose slopes are in two parts: next to 0 theirs is the rounding that would count. */
VEC_INLINE vec wide_pieces_close(const float (*table)[32], vec x) {
    vec d, t = wide_interval(x, &d), p = wide_pick(table[6], t);
    for (int i = 5; i > 2; i--) p = wide_fma(p, d, wide_pick(table[i], t));
    vec low = wide_fma(p * d, d, wide_fma(wide_pick(table[7], t), d, wide_pick(table[0], t)));
    return wide_fma(wide_pick(table[2], t), d, low) + wide_pick(table[1], t);
}

VEC_INLINE vec wide_erf(vec x) {
    wide_mask normal = wide_normal(x);
    vec twice = vec_min(vec_all(14.0f), 2.0f * wide_keep(normal, wide_abs(x)));
    vec y = wide_signed(wide_pieces_close(table_erf, twice), x);
    return normal == 0xffff ? y : wide_else(normal, y, wide_times(x, 0x1.20dd76p+0f));
}

/* Beyond 10.06 there is no float. */
VEC_INLINE vec wide_erfc(vec x) {
    wide_mask there = _mm512_cmp_ps_mask((__m512)wide_abs(x), _mm512_set1_ps(10.06f), _CMP_NGT_UQ);
    vec a = wide_keep(there & wide_normal(x), wide_abs(x));
    vec tail = wide_keep(there, wide_fall(wide_centred(table_erfc, 5, a), a, 1.0f));
    return wide_else(wide_below(x), 2.0f - tail, tail);
}

#if TMPL_IS_HALF
VEC_INLINE vec wide_round(vec x, int64_t decimals) {
    A v[VL];
    if (decimals == 0)
        return (vec)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vec_store(v, x);
    for (int i = 0; i < VL; i++) v[i] = f_round(v[i], decimals);
    return vec_load(v);
}
#endif

/* ---- Angles ------------------------------------------------------------------------------------*/

/* x = k pi / 2 + r + low for |x| <= F32_ANGLE_MAX: the first difference is exact, and low is what rounding took
 * from the second; where that has lost most of its digits it took next to nothing. */
typedef struct wide_angle {
    vec r, low;
    __m512i quadrant;
} wide_angle;

VEC_INLINE wide_angle wide_reduce(vec x) {
    vec t = wide_fma(x, vec_all(0x1.45f306p-1f), vec_all(VEC_ROUND)), k = t - VEC_ROUND;
    vec first = wide_fma(k, vec_all(-0x1.921fb6p+0f), x);
    vec r = wide_fma(k, vec_all(0x1.777a5cp-25f), first);
    __mmask16 kept =
        _mm512_cmp_ps_mask((__m512)wide_abs(first), (__m512)wide_abs(k * 0x1p-23f), _CMP_GT_OQ);
    vec low = (vec)_mm512_maskz_fmadd_ps(kept, (__m512)k, _mm512_set1_ps(0x1.777a5cp-25f),
                                         (__m512)(first - r));
    return (wide_angle){r, wide_fma(k, vec_all(0x1.ee59dap-50f), low), (__m512i)t};
}

/* The sine of the angle turned by so many quadrants. */
VEC_INLINE vec wide_wave(wide_angle a, int turned) {
    vec z = a.r * a.r, s = wide_fma(z, vec_all(0x1.6dbdd2p-19f), vec_all(-0x1.a013a6p-13f));
    s = wide_fma(wide_fma(s, z, vec_all(0x1.11110ep-7f)), z, vec_all(-0x1.555556p-3f));
    s = a.r + wide_fma(a.r * z, s, a.low);
    vec c = wide_fma(z, vec_all(0x1.9bd864p-16f), vec_all(-0x1.6c12d2p-10f));
    c = wide_fma(c, z, vec_all(0x1.555554p-5f)) * z;
    vec one = wide_fma(z, vec_all(-0.5f), vec_all(1.0f)),
        rest = wide_fma(z, vec_all(-0.5f), 1.0f - one);
    c = one + wide_fma(c, z, wide_fma(-a.r, a.low, rest));
    __m512i q = _mm512_add_epi32(a.quadrant, _mm512_set1_epi32(turned));
    __mmask16 odd = _mm512_test_epi32_mask(q, _mm512_set1_epi32(1));
    __m512 v = _mm512_mask_blend_ps(odd, (__m512)s, (__m512)c);
    __mmask16 negative = _mm512_test_epi32_mask(q, _mm512_set1_epi32(2));
    return (vec)_mm512_mask_xor_ps(v, negative, v, _mm512_set1_ps(-0.0f));
}

/* Where the size of x is beyond what is reduced, the C library's function in place of y. */
CPU_NOINLINE static vec wide_patch(vec x, vec y, float (*f)(float)) {
    float from[VL], to[VL];
    vec_store(from, x);
    vec_store(to, y);
    for (int i = 0; i < VL; i++)
        if (f32_abs(from[i]) > F32_ANGLE_MAX) to[i] = f(from[i]);
    return vec_load(to);
}

VEC_INLINE vec wide_patched(vec x, vec y, float (*far)(float)) {
    const __m512 most = _mm512_set1_ps(F32_ANGLE_MAX);
    return _mm512_cmp_ps_mask((__m512)wide_abs(x), most, _CMP_GT_OQ) ? wide_patch(x, y, far) : y;
}

VEC_INLINE vec wide_wave_of(vec x, int turned, float (*far)(float)) {
    return wide_patched(x, wide_wave(wide_reduce(wide_keep(wide_normal(x), x)), turned), far);
}

VEC_INLINE vec wide_sin(vec x) { return wide_else(wide_normal(x), wide_wave_of(x, 0, sinf), x); }

VEC_INLINE vec wide_cos(vec x) { return wide_wave_of(x, 1, cosf); }

#endif
