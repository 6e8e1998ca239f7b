/* map_wide_arc.h: the inverse functions of the circle and the tangent of whole vectors of float by AVX-512: within
 * 1.2 ulp, the tangent in double and rounded once. Quotients and roots are by the instructions that begin
 * them, which are several times as fast as those that end them. Part of map_wide.h. */
#ifndef CPU_MAP_WIDE_ARC_H
#define CPU_MAP_WIDE_ARC_H

#define WIDE_tan 1
#define WIDE_atan 1
#define WIDE_asin 1
#define WIDE_acos 1

#define ARC_QUARTER 0x1.921fb6p+0f /* pi / 2 and what it lacks */
#define ARC_QUARTER_LOW -0x1.777a5cp-25f

/* atan(a) for a >= 14, by the series in 1 / a. */
VEC_INLINE vec arc_far(vec a) {
    a = vec_min(vec_all(1e30f), a);
    vec q = (vec)_mm512_rcp14_ps((__m512)a);
    q = wide_fma(wide_fma(-q, a, vec_all(1.0f)), q, q);
    vec z = q * q, p = wide_fma(z, vec_all(0.2f), vec_all(-0x1.555556p-2f));
    return ARC_QUARTER - wide_fma(q * z, p, q - ARC_QUARTER_LOW);
}

VEC_INLINE vec wide_atan(vec x) {
    wide_mask normal = wide_normal(x);
    vec a = wide_keep(normal, wide_abs(x)), r = wide_pieces(table_atan, vec_min(vec_all(14.0f), a));
    wide_mask far = _mm512_cmp_ps_mask((__m512)a, _mm512_set1_ps(14.0f), _CMP_GT_OQ);
    if (far) r = wide_else(far, arc_far(a), r);
    return wide_else(normal, wide_signed(r, x), x);
}

/* asin(|x|), or beyond 1/2 asin(sqrt((1 - |x|) / 2)), as t + low. */
typedef struct arc_half {
    vec t, low;
    wide_mask far;
} arc_half;

VEC_INLINE arc_half arc_asin_half(vec x) {
    vec a = wide_abs(x), u = wide_fma(a, vec_all(-0.5f), vec_all(0.5f)); /* exact beyond 1/2 */
    arc_half r;
    r.far = _mm512_cmp_ps_mask((__m512)a, _mm512_set1_ps(0.5f), _CMP_GT_OQ);
    vec q = (vec)_mm512_rsqrt14_ps((__m512)u), half = 0.5f * q, s = u * q;
    s = wide_fma(wide_fma(-s, s, u), half, s);
    vec rest = wide_fma(-s, s, u) * half; /* of the root */
    wide_mask some = _mm512_cmp_ps_mask((__m512)u, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    r.t = wide_else(r.far, wide_keep(some, s), a);
    rest = wide_keep(r.far & some, rest);
    vec z = r.t * r.t, p = wide_fma(z, vec_all(0x1.59dab6p-5f), vec_all(0x1.8ba26cp-6f));
    p = wide_fma(p, z, vec_all(0x1.748c62p-5f));
    p = wide_fma(p, z, vec_all(0x1.33014ep-4f));
    p = wide_fma(p, z, vec_all(0x1.5555cap-3f));
    r.low = wide_fma(r.t * z, p, rest);
    return r;
}

VEC_INLINE vec wide_asin(vec x) {
    wide_mask normal = wide_normal(x);
    arc_half r = arc_asin_half(wide_keep(normal, x));
    vec twice = 2.0f * r.t, left = ARC_QUARTER - twice, lost = (ARC_QUARTER - left) - twice;
    vec far = left + (lost - (2.0f * r.low - ARC_QUARTER_LOW));
    return wide_else(normal, wide_signed(wide_else(r.far, far, r.t + r.low), x), x);
}

VEC_INLINE vec wide_acos(vec x) {
    x = wide_keep(wide_normal(x), x);
    arc_half r = arc_asin_half(x);
    vec sign = wide_signed(vec_all(1.0f), x), twice = 2.0f * r.t, low = 2.0f * r.low;
    vec near = ARC_QUARTER - (sign * r.t + (sign * r.low - ARC_QUARTER_LOW));
    vec left = 2 * ARC_QUARTER - (twice + (low - 2 * ARC_QUARTER_LOW));
    return wide_else(r.far, wide_else(wide_below(x), left, twice + low), near);
}

/* ---- In double ---------------------------------------------------------------------------------*/

VEC_INLINE __m512d arc_low(vec x) { return _mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x)); }
VEC_INLINE __m512d arc_high(vec x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1)); }
VEC_INLINE vec arc_joined(__m512d low, __m512d high) {
    __m512 v = _mm512_castps256_ps512(_mm512_cvtpd_ps(low));
    return (vec)_mm512_insertf32x8(v, _mm512_cvtpd_ps(high), 1);
}

VEC_INLINE __m512d arc_all(double x) { return _mm512_set1_pd(x); }

/* 1 / x to 2^-50, from 14 digits on by steps that double them; x neither 0 nor infinite. */
VEC_INLINE __m512d arc_inverse(__m512d x) {
    __m512d q = _mm512_rcp14_pd(x);
    q = _mm512_fmadd_pd(_mm512_fnmadd_pd(x, q, arc_all(1.0)), q, q);
    return _mm512_fmadd_pd(_mm512_fnmadd_pd(x, q, arc_all(1.0)), q, q);
}

/* For |x| <= F32_ANGLE_MAX. */
VEC_INLINE __m512d arc_tan(__m512d x) {
    static const double sine[] = {0x1.6da94ba488ca2p-19, -0x1.a01367255e333p-13,
                                  0x1.11110dbf31ba1p-7, -0x1.555555544a3d5p-3};
    static const double cosine[] = {-0x1.2463886683541p-22, 0x1.a0124d47b71ecp-16,
                                    -0x1.6c16ba8137d46p-10, 0x1.55555550fbfdep-5,
                                    -0x1.fffffffffe400p-2,  1.0};
    const __m512d magic = arc_all(0x1.8p52);
    __m512d t = _mm512_fmadd_pd(x, arc_all(0x1.45f306dc9c883p-1), magic);
    __m512d k = _mm512_sub_pd(t, magic), r = _mm512_fnmadd_pd(k, arc_all(0x1.921fb54442d18p+0), x);
    r = _mm512_fnmadd_pd(k, arc_all(0x1.1a62633145c07p-54), r);
    __m512d z = _mm512_mul_pd(r, r), c = pow_series(z, cosine, 6);
    __m512d s = _mm512_fmadd_pd(_mm512_mul_pd(pow_series(z, sine, 4), z), r, r);
    __mmask8 odd = _mm512_test_epi64_mask(_mm512_castpd_si512(t), _mm512_set1_epi64(1));
    __m512d above = _mm512_mask_sub_pd(s, odd, arc_all(0.0), c);
    return _mm512_mul_pd(above, arc_inverse(_mm512_mask_mov_pd(c, odd, s)));
}

VEC_INLINE vec wide_tan(vec x) {
    vec v = wide_keep(wide_normal(x), x), y = arc_joined(arc_tan(arc_low(v)), arc_tan(arc_high(v)));
    return wide_patched(x, wide_else(wide_normal(x), y, x), tanf);
}

#endif
